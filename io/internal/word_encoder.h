#ifndef ESPALIER_IO_INTERNAL_WORD_ENCODER_H_
#define ESPALIER_IO_INTERNAL_WORD_ENCODER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/bpe.h"
#include "espalier/io/internal/pre_tokenizer.h"
#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Text between added tokens to ids: words, each by the BPE model. Thread-safe:
// what calls keep for later ones (ids of words met) is lent to one call at a
// time.
class WordEncoder {
 public:
  WordEncoder(PreTokenizer pre_tokenizer, Bpe bpe)
      : pre_tokenizer_(std::move(pre_tokenizer)), bpe_(std::move(bpe)) {}

  const Bpe& bpe() const { return bpe_; }

  // A call's share, returned when it goes.
  class Call {
   public:
    explicit Call(const WordEncoder& encoder);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Appends the ids of `text`, valid UTF-8. Fails as Bpe::Encode does, or
    // RESOURCE_EXHAUSTED where splitting takes too many steps.
    absl::Status Encode(absl::string_view text, bool drop_unknown,
                        std::vector<int32_t>* ids);
    // Of this and earlier calls, see BpeScratch.
    int64_t num_steps() const { return scratch_->num_steps; }

   private:
    const WordEncoder& encoder_;
    std::unique_ptr<BpeScratch> scratch_;
  };

 private:
  const PreTokenizer pre_tokenizer_;
  const Bpe bpe_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<BpeScratch>> idle_
      ABSL_GUARDED_BY(mutex_);
};

// OK, or INVALID_ARGUMENT where text is not UTF-8 (with the byte) or longer
// than positions count.
absl::Status CheckText(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WORD_ENCODER_H_
