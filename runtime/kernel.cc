#include "espalier/runtime/kernel.h"

#include "absl/strings/str_cat.h"

namespace espalier::internal {

void FailNoKernel(absl::string_view op, const Tensor& key) {
  Fail(absl::UnimplementedError(
      absl::StrCat(op, ": no kernel for ", ToString(key))));
}

namespace {

[[noreturn]] void FailOperand(absl::string_view op, absl::string_view role,
                              size_t index, const Tensor& operand,
                              absl::string_view trouble) {
  Fail(absl::InternalError(absl::StrCat(op, ": ", role, " ", index + 1, " is ",
                                        ToString(operand), trouble)));
}

void CheckDevices(absl::string_view op, const Device& device,
                  absl::string_view role,
                  std::initializer_list<const Tensor*> operands) {
  size_t index = 0;
  for (const Tensor* operand : operands) {
    if (operand != nullptr && *operand && &operand->device() != &device) {
      const bool foreign = &operand->device().context() != &device.context();
      FailOperand(op, role, index, *operand,
                  absl::StrCat(foreign ? " of another context" : "",
                               ", expected on ", ToString(device.type()),
                               foreign ? " of the context" : "",
                               " where the op runs; CopyTo moves a tensor"
                               " within its context"));
    }
    ++index;
  }
}

}  // namespace

void CheckOperands(absl::string_view op, const Device& device,
                   std::initializer_list<const Tensor*> reads,
                   std::initializer_list<const Tensor*> writes) {
  CheckDevices(op, device, "input", reads);
  CheckDevices(op, device, "output", writes);
  size_t index = 0;
  for (const Tensor* operand : writes) {
    if (operand != nullptr && *operand && operand->read_only()) {
      FailOperand(op, "output", index, *operand,
                  " in read-only memory, expected memory that may be written");
    }
    ++index;
  }
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
