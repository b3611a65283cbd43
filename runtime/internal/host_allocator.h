#ifndef ESPALIER_RUNTIME_INTERNAL_HOST_ALLOCATOR_H_
#define ESPALIER_RUNTIME_INTERNAL_HOST_ALLOCATOR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "espalier/runtime/allocator.h"

namespace espalier::internal {

// Host memory with statistics and a budget.
std::unique_ptr<Allocator> MakeHostAllocator(
    std::optional<int64_t> budget_bytes, bool poison);

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_HOST_ALLOCATOR_H_
