#include "espalier/runtime/kernel.h"

#include "absl/strings/str_cat.h"

namespace espalier::internal {

void FailNoKernel(absl::string_view op, const Tensor& key) {
  Fail(absl::UnimplementedError(
      absl::StrCat(op, ": no kernel for ", ToString(key))));
}

std::vector<Access> ListAccesses(std::initializer_list<const Tensor*> reads,
                                 std::initializer_list<const Tensor*> writes) {
  std::vector<Access> accesses;
  accesses.reserve(reads.size() + writes.size());
  const auto add = [&](const Tensor* tensor, bool write) {
    if (tensor == nullptr || !*tensor) return;
    const View view = tensor->view();
    int64_t last = 0;  // offset of the last element
    for (int d = 0; d < view.ndim; ++d) {
      if (view.shape[d] == 0) return;
      last += (view.shape[d] - 1) * view.strides[d];
    }
    accesses.push_back({view.pointer, (last + 1) * SizeOf(view.dtype), write});
  };
  for (const Tensor* tensor : reads) add(tensor, false);
  for (const Tensor* tensor : writes) add(tensor, true);
  return accesses;
}

}  // namespace espalier::internal
