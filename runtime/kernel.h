#ifndef ESPALIER_RUNTIME_KERNEL_H_
#define ESPALIER_RUNTIME_KERNEL_H_

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/runtime/device.h"
#include "espalier/runtime/stream.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

// A row of an op's kernel table. Args is a struct of Views and numbers; the
// function trusts it, allocates nothing and writes every output element. A
// null function: built without that device.
template <typename Args>
struct Kernel {
  DeviceType device;
  DType dtype;
  void (*function)(const Args& args, const Exec& exec);
};

namespace internal {

[[noreturn]] void FailNoKernel(absl::string_view op, const Tensor& key);
// Fails INTERNAL, naming the op and the operand, when a present tensor is not
// on `device`, or a written one is read-only.
void CheckOperands(absl::string_view op, const Device& device,
                   std::initializer_list<const Tensor*> reads,
                   std::initializer_list<const Tensor*> writes);
std::vector<Access> ListAccesses(std::initializer_list<const Tensor*> reads,
                                 std::initializer_list<const Tensor*> writes);

}  // namespace internal

// Runs, on key's device and its compute stream, the row of the table that fits
// key's device and dtype. `reads` and `writes` name every tensor that the
// kernel touches (null or absent ones are skipped). On the meta device nothing
// runs, but the row must exist. Fails UNIMPLEMENTED without a row, and INTERNAL
// when one of the tensors is on another device (one of another context, too) or
// is read-only and written: an op need not check either.
template <typename Args, size_t kRows>
void Launch(absl::string_view op, const Kernel<Args> (&rows)[kRows],
            const Tensor& key, const Args& args,
            std::initializer_list<const Tensor*> reads,
            std::initializer_list<const Tensor*> writes) {
  if (!key) internal::FailNoKernel(op, key);
  Device& device = key.device();
  internal::CheckOperands(op, device, reads, writes);
  for (const Kernel<Args>& row : rows) {
    if (row.device != device.kernel_type() || row.dtype != key.dtype() ||
        row.function == nullptr) {
      continue;
    }
    Stream& stream = device.compute_stream();
    if (device.type() == kCpu) {
      row.function(args, device.exec(stream));
      return;
    }
    stream.Enqueue(op, internal::ListAccesses(reads, writes),
                   [function = row.function, args, &device, &stream] {
                     function(args, device.exec(stream));
                   });
    return;
  }
  internal::FailNoKernel(op, key);
}

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_KERNEL_H_
