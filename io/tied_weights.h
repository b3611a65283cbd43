#ifndef ESPALIER_IO_TIED_WEIGHTS_H_
#define ESPALIER_IO_TIED_WEIGHTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/checkpoint_reader.h"

namespace espalier {

// Which of two weights that config.json may tie are stored.
enum class TiedWeights : uint8_t {
  kSeparate,  // both stored, not tied
  kShared,    // tied: load `embedding` and use it for both
};

// Holds config.json's tie_word_embeddings against the checkpoint. Tied: one of
// the names is stored (the other may be an alias in the metadata), or both with
// equal bytes. Fails, naming the tensors: NOT_FOUND where a weight is missing;
// INVALID_ARGUMENT where tied weights are stored with different values, since
// either choice would silently drop one of them. Comparing reads both.
absl::StatusOr<TiedWeights> CheckTiedWeights(const CheckpointReader& reader,
                                             absl::string_view embedding,
                                             absl::string_view head, bool tied);

}  // namespace espalier

#endif  // ESPALIER_IO_TIED_WEIGHTS_H_
