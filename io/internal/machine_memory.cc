#include "espalier/io/internal/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"

namespace espalier::internal {

int64_t MachineMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  int64_t bytes = pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::string text;
  int64_t limit_bytes = 0;
  if (limit >> text && absl::SimpleAtoi(text, &limit_bytes) &&
      limit_bytes > 0) {
    bytes = bytes > 0 ? std::min(bytes, limit_bytes) : limit_bytes;
  }
  return bytes;
}

}  // namespace espalier::internal
