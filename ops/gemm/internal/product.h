#ifndef ESPALIER_OPS_GEMM_INTERNAL_PRODUCT_H_
#define ESPALIER_OPS_GEMM_INTERNAL_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "espalier/ops/gemm/ahead.h"
#include "espalier/ops/gemm/gemm.h"
#include "espalier/ops/gemm/plan.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::gemm {

template <typename T>
T* Advance(T* base, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(base) + elements * SizeOf(dtype);
}

// Calls fn(i) for i in [0, n), on the pool if there is one.
template <typename Fn>
void ForEach(ThreadPool* pool, int64_t n, const Fn& fn) {
  if (pool == nullptr || n < 2) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  pool->ParallelFor(n, 1, [&fn](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

// One product, in steps: a block of C at a time, within it a block of K at a
// time. A step packs what it needs of A and B and then runs the tiles.
class Product {
 public:
  Product(const GemmArgs& args, const Tile& tile, const Plan& plan,
          ThreadPool* pool, void* workspace);
  void Run();

 private:
  struct Step {
    int64_t m0, rows;     // of C and A
    int64_t n0, columns;  // of C and B
    int64_t k0, num_k;
    bool first, last;  // of the blocks of K
  };

  Step StepAt(int64_t index) const;
  void RunStep(const Step* next);
  void RunFusedStep(const Step* next);
  void PackOperands(bool with_b);
  void PackA(int64_t panel);
  void PackB(int64_t panel);
  void RunTask(int64_t m, int64_t n, Ahead ahead) const;
  void RunUnpacked();
  void RunUnpackedTask(int64_t n, int64_t n_end) const;
  // Rows of B that the next run of an unpacked task, or this thread's next
  // task, reads.
  void FetchUnpacked(int64_t j, int64_t block, int64_t n_end,
                     TileArgs& run) const;
  // Says where a tile at (i, j) of a step goes.
  void SetStore(const Step& step, int64_t i, int64_t j, TileArgs& run,
                Finish& finish) const;
  void FindB(int64_t j, TileArgs& run) const;
  const uint32_t* PanelOfA(int64_t i) const;
  void StoreF32(const Step& step, TileArgs& run, Finish& finish) const;
  void StoreRounded(const Step& step, int64_t i, int64_t j, TileArgs& run,
                    Finish& finish) const;

  const GemmArgs& args_;
  const Tile& tile_;
  const Plan& plan_;
  ThreadPool* const pool_;
  uint32_t* const packed_a_;
  uint32_t* const packed_b_;
  float* const partial_;
  Step step_{};
  int64_t words_ = 0;  // of step_.num_k
};

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_INTERNAL_PRODUCT_H_
