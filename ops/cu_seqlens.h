#ifndef ESPALIER_OPS_CU_SEQLENS_H_
#define ESPALIER_OPS_CU_SEQLENS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

namespace espalier {

// Where the documents of a packed batch begin: from 0, never falling, the last
// entry T; empty documents are legal. Host data, shared and not changed
// afterwards.
using CuSeqlens = std::shared_ptr<const std::vector<int32_t>>;

// Fails INTERNAL, naming the op, when the boundaries do not fit num_tokens.
void CheckCuSeqlens(absl::string_view op, const CuSeqlens& cu_seqlens,
                    int64_t num_tokens);

}  // namespace espalier

#endif  // ESPALIER_OPS_CU_SEQLENS_H_
