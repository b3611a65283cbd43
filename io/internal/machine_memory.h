#ifndef ESPALIER_IO_INTERNAL_MACHINE_MEMORY_H_
#define ESPALIER_IO_INTERNAL_MACHINE_MEMORY_H_

#include <cstdint>

namespace espalier::internal {

// Bytes of memory that this process may use: the machine's, or its control
// group's limit where that is less. 0 when unknown.
int64_t MachineMemoryBytes();

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_MACHINE_MEMORY_H_
