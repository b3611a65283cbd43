#ifndef ESPALIER_TRAIN_INTERNAL_CORPUS_H_
#define ESPALIER_TRAIN_INTERNAL_CORPUS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/model/batch.h"
#include "espalier/runtime/device.h"

namespace espalier {

struct CorpusOptions {
  int64_t max_sample_tokens = 256;
  int64_t micro_batch_tokens = 512;
  double held_out_fraction = 0.1;
  uint64_t seed = 0;
};

// Tokenised documents of one file, split into training and held-out ones and
// packed into micro-batches.
class Corpus {
 public:
  // Fails on unreadable files, on token ids the model does not have and when
  // nothing is left to train on.
  static absl::StatusOr<std::unique_ptr<Corpus>> Open(
      const std::string& tokenizer_dir, const std::string& data_path,
      int64_t vocab_size, const CorpusOptions& options);
  ~Corpus();

  // The next micro-batch; every epoch is another permutation of the documents.
  Batch NextTrain(Device& device);
  int64_t num_held_out_batches() const;
  Batch HeldOut(Device& device, int64_t index) const;
  // Documents and tokens kept, cut and held out; one line.
  std::string Summary() const;

 private:
  class Impl;
  explicit Corpus(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_INTERNAL_CORPUS_H_
