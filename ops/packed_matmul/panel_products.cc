#include "espalier/ops/packed_matmul/panel_products.h"

#include <algorithm>
#include <atomic>

#include "espalier/ops/gemm/ahead.h"
#include "espalier/ops/gemm/finish.h"
#include "espalier/ops/packed_matmul/internal/product_plan.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::packed {
namespace {

using gemm::kLanes;
using gemm::Tile;
using gemm::TileStore;

char* ElementAt(void* base, int64_t index, DType dtype) {
  return static_cast<char*>(base) + index * SizeOf(dtype);
}

// One task on the calling thread: rows [m0, m0 + rows) and columns [n0, n1).
class Task {
 public:
  Task(const Product& product, const ProductPlan& plan, const Tile& tile,
       DType c_dtype, bool streams, char* scratch, int64_t index,
       const gemm::Strips& after)
      : product_(product),
        plan_(plan),
        tile_(tile),
        c_dtype_(c_dtype),
        after_(after) {
    const int64_t row_bytes = product.c_stride * SizeOf(c_dtype);
    streams_ = streams && product.plain() &&
               (reinterpret_cast<uintptr_t>(product.c) % 64 |
                static_cast<uintptr_t>(row_bytes) % 64) == 0;
    packed_a_ = reinterpret_cast<uint32_t*>(scratch);
    packed_b_ = reinterpret_cast<uint32_t*>(scratch + plan.a_bytes);
    partial_ = reinterpret_cast<float*>(scratch + plan.a_bytes + plan.b_bytes);
    m0_ = index / plan.n_tasks * plan.m_block;
    rows_ = std::min(plan.m_block, product.m - m0_);
    n0_ = index % plan.n_tasks * kProductChunk;
    n1_ = std::min(n0_ + kProductChunk, product.n);
  }

  void Run() {
    if (RunFused()) return;
    for (int64_t block = 0; block < plan_.num_k_blocks; ++block) PackA(block);
    for (int64_t n = n0_; n < n1_; n += plan_.unit) {
      const int64_t columns = std::min(plan_.unit, n1_ - n);
      for (int64_t block = 0; block < plan_.num_k_blocks; ++block) {
        RunUnit(n, columns, block);
      }
    }
  }

 private:
  bool RunFused() {
    if (!plan_.fused) return false;
    const bool plain = product_.plain();
    void* c = sums();
    if (plain) c = ElementAt(product_.c, m0_ * product_.c_stride, c_dtype_);
    const bool done = product_.fused.run(
        {.source = product_.source,
         .m = rows_,
         .k = product_.k,
         .k_block = plan_.k_block,
         .a = static_cast<const char*>(product_.a.data) +
              m0_ * product_.a.lane_stride * SizeOf(product_.a.dtype),
         .a_stride = product_.a.lane_stride,
         .lane_begin = n0_,
         .num_lanes = n1_ - n0_,
         .c = c,
         .c_lane = plain ? 0 : n0_,
         .c_stride = plain ? product_.c_stride : kProductChunk,
         .c_dtype = plain ? c_dtype_ : kF32,
         .scratch = packed_a_});
    if (done && !plain) FinishSums();
    return done;
  }

  // Of a fused product that is not plain, in the place of C.
  float* sums() const {
    return reinterpret_cast<float*>(packed_a_) + plan_.fused_bytes / 4;
  }

  void FinishSums() const {
    constexpr int64_t kColumns = int64_t{4} * kLanes;
    for (int64_t n = n0_; n < n1_; n += kColumns) {
      gemm::Finish finish = FinishAt(m0_, n, true, true);
      gemm::TileArgs args;
      args.rows = static_cast<int>(rows_);
      args.cols = static_cast<int>(std::min(kColumns, n1_ - n));
      args.store = TileStore::kFinish;
      args.finish = &finish;
      gemm::FinishTile(sums() + n - n0_, kProductChunk, args);
    }
  }

  // At element (row, column) of C; f32 carries the sums of blocks of K.
  gemm::Finish FinishAt(int64_t row, int64_t column, bool first,
                        bool last) const {
    gemm::Finish finish;
    finish.alpha = product_.alpha;
    finish.beta = first || c_dtype_ != kF32 ? product_.beta : 1;
    if (last && product_.bias != nullptr) {
      finish.bias = static_cast<const char*>(product_.bias) +
                    column * SizeOf(product_.bias_dtype);
      finish.bias_dtype = product_.bias_dtype;
    }
    finish.out =
        ElementAt(product_.c, row * product_.c_stride + column, c_dtype_);
    finish.out_stride = product_.c_stride;
    finish.out_dtype = c_dtype_;
    return finish;
  }

  int64_t k0(int64_t block) const { return block * plan_.k_block; }
  int64_t num_k(int64_t block) const {
    return std::min(plan_.k_block, product_.k - k0(block));
  }
  int64_t num_tiles() const { return CeilDiv(rows_, plan_.tile_rows); }
  // All tiles of a block of K stand together, blocks one after another.
  uint32_t* TileA(int64_t block, int64_t tile) const {
    const int64_t before = tile_.words(k0(block)) * num_tiles();
    return packed_a_ +
           (before + tile * tile_.words(num_k(block))) * tile_.a_pitch;
  }

  void PackA(int64_t block) {
    tile_.pack_a({.operand = product_.a,
                  .lane_begin = m0_,
                  .num_lanes = rows_,
                  .k_begin = k0(block),
                  .num_k = num_k(block),
                  .panel_lanes = plan_.tile_rows,
                  .out = TileA(block, 0),
                  .out_stride = tile_.words(num_k(block)) * tile_.a_pitch});
  }

  void RunUnit(int64_t n, int64_t columns, int64_t block) {
    const int64_t b_stride = tile_.words(num_k(block)) * kLanes;
    const gemm::PackArgs pack = {.operand = product_.b,
                                 .lane_begin = n,
                                 .num_lanes = columns,
                                 .k_begin = k0(block),
                                 .num_k = num_k(block),
                                 .panel_lanes = kLanes,
                                 .out = packed_b_,
                                 .out_stride = b_stride};
    if (product_.pack_b != nullptr) {
      product_.pack_b(product_.source, tile_, pack);
    } else {
      tile_.pack_b(pack);
    }
    FindAhead(n, block);
    const int64_t width = int64_t{plan_.tile_vectors} * kLanes;
    if (plan_.along_rows) {
      for (int64_t i = 0; i < num_tiles(); ++i) {
        for (int64_t j = 0; j < columns; j += width) {
          RunTile(i, n, j, std::min(width, columns - j), block, b_stride);
        }
      }
      return;
    }
    for (int64_t j = 0; j < columns; j += width) {
      for (int64_t i = 0; i < num_tiles(); ++i) {
        RunTile(i, n, j, std::min(width, columns - j), block, b_stride);
      }
    }
  }

  // What is packed after the block of K at hand: the tiles fetch it.
  void FindAhead(int64_t n, int64_t block) {
    if (++block == plan_.num_k_blocks) {
      block = 0;
      n += plan_.unit;
    }
    gemm::Strips strips = after_;
    if (n < n1_) {
      strips = gemm::StripsOf(product_.b, n, std::min(plan_.unit, n1_ - n),
                              k0(block), num_k(block));
    }
    ahead_ = gemm::Ahead(strips, {}, 0, 1);
  }

  void RunTile(int64_t tile_index, int64_t n, int64_t j, int64_t columns,
               int64_t block, int64_t b_stride) {
    const int64_t row = tile_index * plan_.tile_rows;
    const bool first = block == 0;
    const bool last = block + 1 == plan_.num_k_blocks;
    gemm::Finish finish = FinishAt(m0_ + row, n + j, first, last);
    gemm::TileArgs run;
    run.num_words = tile_.words(num_k(block));
    run.a = TileA(block, tile_index);
    run.b = packed_b_ + j / kLanes * b_stride;
    run.b_stride = b_stride;
    run.rows =
        static_cast<int>(std::min<int64_t>(plan_.tile_rows, rows_ - row));
    run.cols = static_cast<int>(columns);
    run.store = first ? TileStore::kStore : TileStore::kAdd;
    run.c = static_cast<float*>(finish.out);
    run.c_stride = product_.c_stride;
    run.finish = &finish;
    if (c_dtype_ == kF32) {
      if (!product_.plain()) run.store = TileStore::kFinish;
    } else {  // the scratch carries the sums of the K blocks
      run.c = partial_ + row * plan_.unit + j;
      run.c_stride = plan_.unit;
      if (last) {
        run.store = TileStore::kFinish;
        finish.partial = first ? nullptr : run.c;
        finish.partial_stride = plan_.unit;
        finish.stream = streams_;
      }
    }
    ahead_.AddTo(run);
    tile_.run(run);
  }

  const Product& product_;
  const ProductPlan& plan_;
  const Tile& tile_;
  const DType c_dtype_;
  uint32_t* packed_a_;
  uint32_t* packed_b_;
  float* partial_;
  const gemm::Strips after_;  // of the task after this one
  bool streams_;
  int64_t m0_, rows_, n0_, n1_;
  gemm::Ahead ahead_;
};

// Finds the tasks of a list of products; asked for in rising order.
class TaskFinder {
 public:
  TaskFinder(const Products& products, const Tile& tile, int64_t num_tasks)
      : products_(products), tile_(tile), num_tasks_(num_tasks) {
    plan_ = PlanAt(0);
  }

  // False when there is no such task.
  bool Find(int64_t task) {
    if (task >= num_tasks_) return false;
    while (task >= first_ + plan_.num_tasks()) {
      first_ += plan_.num_tasks();
      plan_ = PlanAt(++at_);
    }
    index_ = task - first_;
    return true;
  }

  const Product& product() const { return products_.list[at_]; }
  const ProductPlan& plan() const { return plan_; }
  int64_t index() const { return index_; }  // of the task in its product

  // What the task packs of B first.
  gemm::Strips FirstStrips() const {
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): Find gave true, so tasks
    const int64_t n = index_ % plan_.n_tasks * kProductChunk;
    return gemm::StripsOf(product().b, n, std::min(plan_.unit, product().n - n),
                          0, std::min(plan_.k_block, product().k));
  }

 private:
  ProductPlan PlanAt(size_t at) const {
    if (at >= products_.list.size()) return {};
    return PlanProduct(products_.list[at], tile_, products_.c_dtype);
  }

  const Products& products_;
  const Tile& tile_;
  const int64_t num_tasks_;
  ProductPlan plan_;
  size_t at_ = 0;
  int64_t first_ = 0;  // task of product at_
  int64_t index_ = 0;
};

}  // namespace

int64_t ProductsWorkspaceBytes(const Products& products, Isa isa,
                               int num_threads) {
  const Tile& tile = gemm::FindTile(isa, products.compute);
  int64_t most = 0;
  for (const Product& product : products.list) {
    const ProductPlan plan = PlanProduct(product, tile, products.c_dtype);
    most = std::max(most, plan.scratch_bytes());
  }
  return most * num_threads;
}

void RunProducts(const Products& products, const Exec& exec,
                 const gemm::Workspace& workspace) {
  const Tile& tile = gemm::FindTile(exec.isa, products.compute);
  int64_t scratch_bytes = 0;
  int64_t num_tasks = 0;
  int64_t c_bytes = 0;
  for (const Product& product : products.list) {
    const ProductPlan plan = PlanProduct(product, tile, products.c_dtype);
    scratch_bytes = std::max(scratch_bytes, plan.scratch_bytes());
    num_tasks += plan.num_tasks();
    c_bytes += product.m * product.n * SizeOf(products.c_dtype);
  }
  const bool streams = tile.flush != nullptr && c_bytes >= kStreamBytes;
  // Each chunk of the region is a scratch and takes tasks in order until none
  // is left; which scratch a task meets changes no bit.
  std::atomic<int64_t> next{0};
  const int64_t num_scratches =
      std::min<int64_t>(exec.pool.num_threads(), num_tasks);
  ESPALIER_CHECK(workspace.bytes >= num_scratches * scratch_bytes,
                 "workspace of ", workspace.bytes, " bytes for ", num_scratches,
                 " times ", scratch_bytes);
  exec.pool.ParallelFor(num_scratches, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      char* scratch = static_cast<char*>(workspace.data) + slot * scratch_bytes;
      TaskFinder found(products, tile, num_tasks);
      // Probably the next one of this thread.
      TaskFinder after(products, tile, num_tasks);
      for (int64_t task = next++; found.Find(task); task = next++) {
        const gemm::Strips strips = after.Find(task + num_scratches)
                                        ? after.FirstStrips()
                                        : gemm::Strips();
        Task(found.product(), found.plan(), tile, products.c_dtype, streams,
             scratch, found.index(), strips)
            .Run();
      }
      if (streams) tile.flush();
    }
  });
}

}  // namespace espalier::packed
