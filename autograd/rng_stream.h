#ifndef ESPALIER_AUTOGRAD_RNG_STREAM_H_
#define ESPALIER_AUTOGRAD_RNG_STREAM_H_

#include <cstdint>

#include "espalier/runtime/rng.h"

namespace espalier::autograd {

// Numbers first, first + 1, .. of a stream; `first` is a multiple of
// Rng::kBatch.
struct RandomRun {
  Rng rng;
  uint64_t first = 0;
};

// Deals out the numbers of one stream in order. An op with randomness takes a
// run of them here and hands it to its kernel. Where a recompute region runs
// again, Take answers what it answered the first time and moves nothing.
// Thread-compatible.
class RngStream {
 public:
  explicit RngStream(const Rng& rng, uint64_t position = 0)
      : rng_(rng), position_(position) {}
  // The next `count` numbers, rounded up to whole batches.
  RandomRun Take(uint64_t count);
  // Where the next run starts: saved and restored by checkpoints.
  uint64_t position() const { return position_; }
  void set_position(uint64_t position) { position_ = position; }

 private:
  Rng rng_;
  uint64_t position_;
};

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_RNG_STREAM_H_
