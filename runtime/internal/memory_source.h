#ifndef ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_
#define ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_

#include <cstdint>
#include <memory>

namespace espalier::internal {

// Where an allocator's memory comes from: address space first, memory behind
// it piece by piece. All sizes and addresses are multiples of kMemoryUnit.
inline constexpr int64_t kMemoryUnit = int64_t{64} << 10;
// Addresses of ranges are multiples of this: the size of a huge page.
inline constexpr int64_t kRangeAlignment = int64_t{2} << 20;

// Not thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // How much address space an arena should ask for at once.
  virtual int64_t range_bytes() const = 0;
  // Address space without memory behind it; null when there is none.
  virtual char* Reserve(int64_t bytes) = 0;
  // Beyond its first used_bytes the range never had memory.
  virtual void Unreserve(char* data, int64_t bytes, int64_t used_bytes) = 0;
  // Puts memory behind a piece of a range that has none; false: refused.
  virtual bool Commit(char* data, int64_t bytes) = 0;
  // Takes the memory away again; its content is lost.
  virtual void Decommit(char* data, int64_t bytes) = 0;
};

// Pages of this process, huge ones where the system has them. Refuses more
// than the machine's memory and swap space together.
std::unique_ptr<MemorySource> MakeHostMemory();

// Addresses at which nothing ever is: for counting without holding.
std::unique_ptr<MemorySource> MakeNoMemory();

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_
