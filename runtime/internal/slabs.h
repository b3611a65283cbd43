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
    return block_bytes <= kSmallBytes && block_bytes <= slab_bytes_ / 8;
  }

  // A block of the size's class. `new_slab` is asked for slab_bytes when all
  // slabs of the class are full; null when it has none.
  char* Take(int64_t block_bytes, absl::FunctionRef<char*(int64_t)> new_slab);

  // Frees a block that Take gave for this size. Returns a slab that is no
  // longer needed, or null: one empty slab of each class is kept.
  char* Give(char* data, int64_t block_bytes);

  // Hands over the empty slabs.
  std::vector<char*> TakeEmpty();

 private:
  struct Slab {
    int64_t used = 0;
    std::vector<uint16_t> free;  // numbers of blocks
  };
  struct Class {
    std::set<char*> with_space;
    std::set<char*> empty;  // a subset
  };

  void Forget(Class& size_class, char* slab);

  const int64_t slab_bytes_;
  std::map<char*, Slab> slabs_;  // by address
  std::array<Class, kNumSizeClasses> classes_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_SLABS_H_
