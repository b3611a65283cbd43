#ifndef ESPALIER_IO_INTERNAL_WORD_ENCODER_H_
#define ESPALIER_IO_INTERNAL_WORD_ENCODER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/bpe.h"
#include "espalier/io/internal/pre_tokenizer.h"
#include "espalier/io/internal/scratch_pool.h"

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
    explicit Call(const WordEncoder& encoder)
        : encoder_(encoder), scratch_(encoder.pool_) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Appends the ids of `text`, valid UTF-8; `at_start` as for
    // PreTokenizer::Split. Fails as Bpe::Encode does, or
    // RESOURCE_EXHAUSTED where splitting takes too many steps.
    absl::Status Encode(absl::string_view text, bool at_start,
                        bool drop_unknown, std::vector<int32_t>* ids);

   private:
    const WordEncoder& encoder_;
    ScratchPool<BpeScratch>::Loan scratch_;
  };

 private:
  const PreTokenizer pre_tokenizer_;
  const Bpe bpe_;
  mutable ScratchPool<BpeScratch> pool_;
};

// OK, or INVALID_ARGUMENT where text is not UTF-8 (with the byte) or longer
// than positions count.
absl::Status CheckText(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WORD_ENCODER_H_
