#ifndef ESPALIER_OPS_SCRATCH_LAYOUT_H_
#define ESPALIER_OPS_SCRATCH_LAYOUT_H_

#include <cstdint>

#include "espalier/runtime/ceil_div.h"

namespace espalier {

// A part of a block of scratch memory, in bytes from the block's start.
struct ScratchPart {
  int64_t offset = 0;
};

// Hands out the parts of a block one after another, in whole cache lines.
class ScratchLayout {
 public:
  // The offset of `count` bytes.
  int64_t Bytes(int64_t count) {
    const int64_t offset = next_;
    next_ += RoundUp(count, 64);
    return offset;
  }
  // Words of 4 bytes.
  ScratchPart Words(int64_t count) { return {Bytes(4 * count)}; }
  // Of all parts so far.
  int64_t bytes() const { return next_; }

 private:
  int64_t next_ = 0;
};

}  // namespace espalier

#endif  // ESPALIER_OPS_SCRATCH_LAYOUT_H_
