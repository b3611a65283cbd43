#ifndef ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_
#define ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

namespace espalier::internal {

// Where an allocator's memory comes from: address space first, memory behind
// it piece by piece. All sizes and addresses are multiples of kMemoryUnit.
inline constexpr int64_t kMemoryUnit = int64_t{64} << 10;
// Addresses of ranges are multiples of this: the size of a huge page.
inline constexpr int64_t kRangeAlignment = int64_t{2} << 20;
// An arena's first range; the next ones double what it holds. Address space is
// not free: limits count it (ulimit -v), emulators keep a table of its pages.
inline constexpr int64_t kFirstRangeBytes = int64_t{1} << 30;

// Not thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // How much address space an arena that holds held_bytes of it should ask for
  // next, unless a single block needs more.
  virtual int64_t RangeBytes(int64_t held_bytes) const = 0;
  // Address space without memory behind it; null when there is none.
  virtual char* Reserve(int64_t bytes) = 0;
  // Beyond its first used_bytes the range never had memory.
  virtual void Unreserve(char* data, int64_t bytes, int64_t used_bytes) = 0;
  // Puts memory behind a piece of a range that has none; false: refused.
  virtual bool Commit(char* data, int64_t bytes) = 0;
  // Takes the memory away again; its content is lost.
  virtual void Decommit(char* data, int64_t bytes) = 0;
  // Why the latest Reserve or Commit was refused; empty when it was not. To be
  // read once: it is empty thereafter.
  virtual std::string TakeRefusal() { return {}; }
};

// Pages of this process, huge ones where the system has them. Refuses more
// than the machine's memory and swap space together. Under an address space
// limit (RLIMIT_AS) a range is a sixteenth of it, so that what else the process
// maps finds room.
std::unique_ptr<MemorySource> MakeHostMemory();

// Addresses at which nothing ever is: for counting without holding.
std::unique_ptr<MemorySource> MakeNoMemory();

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_MEMORY_SOURCE_H_
