#include "espalier/ops/cu_seqlens.h"

#include "espalier/runtime/check.h"

namespace espalier {

void CheckCuSeqlens(absl::string_view op, const CuSeqlens& cu_seqlens,
                    int64_t num_tokens) {
  ESPALIER_CHECK(cu_seqlens != nullptr && !cu_seqlens->empty(), op,
                 " needs cu_seqlens");
  const std::vector<int32_t>& at = *cu_seqlens;
  ESPALIER_CHECK(at.front() == 0, op, ": cu_seqlens starts at ", at.front());
  for (size_t i = 1; i < at.size(); ++i) {
    ESPALIER_CHECK(at[i - 1] <= at[i], op, ": cu_seqlens falls from ",
                   at[i - 1], " to ", at[i], " at entry ", i);
  }
  ESPALIER_CHECK(at.back() == num_tokens, op, ": cu_seqlens ends at ",
                 at.back(), " for ", num_tokens, " tokens");
}

}  // namespace espalier
