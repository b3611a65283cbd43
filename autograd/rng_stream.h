#ifndef ESPALIER_AUTOGRAD_RNG_STREAM_H_
#define ESPALIER_AUTOGRAD_RNG_STREAM_H_

#include <cstdint>

namespace espalier::autograd {

// Names the first of a run of random numbers: number i of the run is
// f(seed, stream, counter + i), whoever computes it.
struct RngPosition {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t counter = 0;
  friend bool operator==(const RngPosition& a, const RngPosition& b) {
    return a.seed == b.seed && a.stream == b.stream && a.counter == b.counter;
  }
};

// Deals out the numbers of one stream in order. An op with randomness takes
// its run here and hands the position to its kernel. Where a recompute region
// runs again, Take answers what it answered the first time and moves nothing.
// Thread-compatible.
class RngStream {
 public:
  RngStream(uint64_t seed, uint64_t stream) : next_{seed, stream, 0} {}
  // The next `count` numbers.
  RngPosition Take(uint64_t count);
  // The position of the next number; for checkpoints.
  const RngPosition& position() const { return next_; }
  void set_position(const RngPosition& position) { next_ = position; }

 private:
  RngPosition next_;
};

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_RNG_STREAM_H_
