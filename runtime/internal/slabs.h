#ifndef ESPALIER_RUNTIME_INTERNAL_SLABS_H_
#define ESPALIER_RUNTIME_INTERNAL_SLABS_H_

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"

#include "espalier/runtime/internal/block_size.h"

namespace espalier::internal {

// Small blocks, cut from slabs that hold one size class each. The slab with
// the lowest address is filled first, so that high ones run empty.
// Not thread-safe.
class Slabs {
 public:
  explicit Slabs(int64_t slab_bytes) : slab_bytes_(slab_bytes) {}

  // Whether blocks of this size, a BlockBytes value, lie in slabs.
  bool Fits(int64_t block_bytes) const {
    return block_bytes <= kSmallBytes && block_bytes <= slab_bytes_ / 4;
  }

  // A block of the size's class. `new_slab` is asked for slab_bytes when all
  // slabs of the class are full; null when it has none.
  char* Take(int64_t block_bytes, absl::FunctionRef<char*(int64_t)> new_slab);

  // Frees a block that Take gave for this size. Returns a slab that is no
  // longer needed, or null: the few that ran empty last are kept.
  char* Give(char* data, int64_t block_bytes);

  // Hands over the empty slabs.
  std::vector<char*> TakeEmpty();

 private:
  static constexpr size_t kKeptEmpty = 4;

  struct Slab {
    int size_class = 0;
    int64_t used = 0;
    std::vector<uint16_t> free;  // numbers of blocks
  };
  // Takes a slab out of the account; returns its address.
  char* Forget(std::map<char*, Slab>::iterator slab);

  const int64_t slab_bytes_;
  std::map<char*, Slab> slabs_;  // by address
  std::vector<char*> empty_;     // in the order they ran empty
  std::array<std::set<char*>, kNumSizeClasses> with_space_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_SLABS_H_
