#ifndef ESPALIER_OPS_SCRATCH_H_
#define ESPALIER_OPS_SCRATCH_H_

#include <cstdint>

#include "espalier/runtime/context.h"
#include "espalier/runtime/tensor.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {

// Memory of one launch, counted as workspace.
inline Tensor Scratch(Device& device, const Shape& shape, DType dtype) {
  const MemoryScope scope(device, MemoryTag::kWorkspace);
  return Tensor::Empty(device, shape, dtype);
}

// A slot for every thread of the pool (ops/scratch_slots.h): u8 [threads,
// slot_bytes].
inline Tensor SlotsOfThreads(Device& device, int64_t slot_bytes) {
  const int64_t threads = device.context().pool().num_threads();
  return Scratch(device, {threads, slot_bytes}, kU8);
}

}  // namespace espalier

#endif  // ESPALIER_OPS_SCRATCH_H_
