#ifndef ESPALIER_OPS_SCRATCH_SLOTS_H_
#define ESPALIER_OPS_SCRATCH_SLOTS_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace espalier {

// Lends the equal slots of one scratch block to the chunks of a ParallelFor
// that run at the same time. With as many slots as the pool has threads a chunk
// never waits. What a slot holds must not matter to the result.
class ScratchSlots {
 public:
  static constexpr int kMaxSlots = 1024;  // as many as a pool has threads

  // 1 <= num_slots <= kMaxSlots.
  ScratchSlots(void* base, int64_t slot_bytes, int num_slots)
      : base_(static_cast<char*>(base)),
        slot_bytes_(slot_bytes),
        num_slots_(num_slots) {}

  // A slot for as long as the Lease lives.
  class Lease {
   public:
    explicit Lease(ScratchSlots& slots)
        : slots_(slots), index_(slots.Acquire()) {}
    ~Lease() { slots_.Release(index_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    char* data() const { return slots_.base_ + index_ * slots_.slot_bytes_; }

   private:
    ScratchSlots& slots_;
    const int index_;
  };

 private:
  int Acquire() {
    for (;;) {
      for (int word = 0; word * 64 < num_slots_; ++word) {
        uint64_t taken = taken_[word].load(std::memory_order_relaxed);
        for (;;) {
          const int bit = std::countr_one(taken);
          if (bit == 64 || word * 64 + bit >= num_slots_) break;
          if (taken_[word].compare_exchange_weak(taken,
                                                 taken | uint64_t{1} << bit,
                                                 std::memory_order_acquire)) {
            return word * 64 + bit;
          }
        }
      }
    }
  }
  void Release(int index) {
    taken_[index / 64].fetch_and(~(uint64_t{1} << index % 64),
                                 std::memory_order_release);
  }

  char* const base_;
  const int64_t slot_bytes_;
  const int num_slots_;
  std::array<std::atomic<uint64_t>, kMaxSlots / 64> taken_{};
};

}  // namespace espalier

#endif  // ESPALIER_OPS_SCRATCH_SLOTS_H_
