#ifndef ESPALIER_TRAIN_INTERNAL_CORPUS_H_
#define ESPALIER_TRAIN_INTERNAL_CORPUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/data_report.h"
#include "espalier/io/json.h"
#include "espalier/model/batch.h"
#include "espalier/runtime/device.h"
#include "espalier/train/data_config.h"

namespace espalier {

struct CorpusOptions {
  int64_t micro_batch_tokens = 2048;
  // Data to evaluate on; without, the records whose content hash is below the
  // fraction.
  std::vector<std::string> held_out_paths;
  double held_out_fraction = 0.1;
  // Micro-batches are held out, in the order of the data, until they have this
  // many tokens.
  int64_t max_held_out_tokens = 65536;
  uint64_t seed = 0;
  int64_t num_epochs = 0;  // 0: without end
};

// Data as micro-batches: shuffled and packed ones to train on, made by a thread
// of its own a few ahead, and held-out ones, which are kept.
class Corpus {
 public:
  // Fails on unreadable files, on settings, and when the first micro-batch or
  // one of the held-out data cannot be made.
  // `cursor`, of another corpus of the same data and options: goes on there.
  static absl::StatusOr<std::unique_ptr<Corpus>> Open(
      const std::string& tokenizer_dir, const DataConfig& data,
      int64_t vocab_size, const CorpusOptions& options,
      const JsonValue* cursor = nullptr);
  ~Corpus();

  // The next micro-batch; every epoch is another permutation of the samples.
  // False at the end of num_epochs. Fails on a bad record that is not skipped,
  // and then every time.
  absl::StatusOr<bool> NextTrain(Device& device, Batch* batch);
  // Behind the last micro-batch that NextTrain gave (docs/formats/data.md).
  JsonValue Cursor() const;
  const DataReport& report() const;

  int64_t num_held_out_batches() const;
  Batch HeldOut(Device& device, int64_t index) const;
  const DataReport& held_out_report() const;

  // What is trained on and what is held out; one line each.
  std::vector<std::string> Summary() const;

 private:
  class Impl;
  explicit Corpus(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_INTERNAL_CORPUS_H_
