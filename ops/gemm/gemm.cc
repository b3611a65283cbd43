#include "espalier/ops/gemm/gemm.h"

#include <algorithm>

#include "espalier/ops/gemm/plan.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::gemm {
namespace {

constexpr int64_t kPackGroup = 4;  // panels packed by one task
// Batches of matrices below this many multiply-adds are spread over the
// threads whole, in at most kBatchChunks pieces, each with its own workspace.
constexpr int64_t kSmallProduct = int64_t{1} << 22;
constexpr int64_t kBatchChunks = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

bool PacksB(const GemmArgs& args) { return args.packed_b == nullptr; }

Plan PlanFor(const GemmArgs& args, const Tile& tile) {
  return MakePlan({.m = args.m,
                   .n = args.n,
                   .k = args.k,
                   .pack_b = PacksB(args),
                   .needs_partial = args.c_dtype != kF32},
                  tile);
}

int64_t BatchChunks(const GemmArgs& args) {
  const bool small = args.m * args.n * args.k <= kSmallProduct;
  return small ? std::min(args.num_batches, kBatchChunks) : 1;
}

// One product: a block of C at a time, within it a block of K at a time.
class Product {
 public:
  Product(const GemmArgs& args, const Tile& tile, const Plan& plan,
          ThreadPool* pool, void* workspace)
      : args_(args), tile_(tile), plan_(plan), pool_(pool) {
    char* base = static_cast<char*>(workspace);
    packed_a_ = reinterpret_cast<uint32_t*>(base);
    packed_b_ = reinterpret_cast<uint32_t*>(base + plan.a_bytes);
    partial_ = reinterpret_cast<float*>(base + plan.a_bytes + plan.b_bytes);
  }

  void Run() {
    for (n0_ = 0; n0_ < args_.n; n0_ += plan_.n_block) {
      columns_ = std::min(plan_.n_block, args_.n - n0_);
      for (m0_ = 0; m0_ < args_.m; m0_ += plan_.m_block) {
        rows_ = std::min(plan_.m_block, args_.m - m0_);
        for (int64_t block = 0; block < plan_.num_k_blocks; ++block) {
          RunKBlock(block);
        }
      }
    }
  }

 private:
  void RunKBlock(int64_t block) {
    k0_ = block * plan_.k_block;
    num_k_ = std::min(plan_.k_block, args_.k - k0_);
    words_ = tile_.words(num_k_);
    first_ = block == 0;
    last_ = block + 1 == plan_.num_k_blocks;
    PackOperands();
    const int64_t m_tasks = CeilDiv(rows_, plan_.m_task);
    const int64_t n_tasks = CeilDiv(columns_, plan_.n_task);
    ForEach(pool_, m_tasks * n_tasks, [this, n_tasks](int64_t task) {
      RunTask(task / n_tasks * plan_.m_task, task % n_tasks * plan_.n_task);
    });
  }

  void PackOperands() {
    const int64_t a_tasks =
        CeilDiv(CeilDiv(rows_, plan_.tile_rows), kPackGroup);
    const int64_t b_tasks =
        PacksB(args_) ? CeilDiv(CeilDiv(columns_, kLanes), kPackGroup) : 0;
    ForEach(pool_, a_tasks + b_tasks, [this, a_tasks](int64_t task) {
      if (task < a_tasks) {
        PackA(task * kPackGroup);
      } else {
        PackB((task - a_tasks) * kPackGroup);
      }
    });
  }

  void PackA(int64_t panel) {
    const int64_t lane = panel * plan_.tile_rows;
    const int64_t stride = words_ * tile_.a_pitch;
    tile_.pack_a({.operand = args_.a,
                  .lane_begin = m0_ + lane,
                  .num_lanes = std::min<int64_t>(kPackGroup * plan_.tile_rows,
                                                 rows_ - lane),
                  .k_begin = k0_,
                  .num_k = num_k_,
                  .panel_lanes = plan_.tile_rows,
                  .out = packed_a_ + panel * stride,
                  .out_stride = stride});
  }

  void PackB(int64_t panel) {
    const int64_t lane = panel * kLanes;
    const int64_t stride = words_ * kLanes;
    const PackArgs pack = {
        .operand = args_.b,
        .lane_begin = n0_ + lane,
        .num_lanes = std::min<int64_t>(kPackGroup * kLanes, columns_ - lane),
        .k_begin = k0_,
        .num_k = num_k_,
        .panel_lanes = kLanes,
        .out = packed_b_ + panel * stride,
        .out_stride = stride};
    if (args_.pack_b != nullptr) {
      args_.pack_b(args_.pack_b_source, tile_, pack);
    } else {
      tile_.pack_b(pack);
    }
  }

  // A piece of C at (m, n) of the current block.
  void RunTask(int64_t m, int64_t n) {
    const int64_t m_end = std::min(m + plan_.m_task, rows_);
    const int64_t n_end = std::min(n + plan_.n_task, columns_);
    const int64_t tile_columns = int64_t{plan_.tile_vectors} * kLanes;
    for (int64_t j = n; j < n_end; j += tile_columns) {
      for (int64_t i = m; i < m_end; i += plan_.tile_rows) {
        RunTile(i, j,
                static_cast<int>(std::min<int64_t>(plan_.tile_rows, m_end - i)),
                static_cast<int>(std::min(tile_columns, n_end - j)));
      }
    }
  }

  void RunTile(int64_t i, int64_t j, int rows, int columns) {
    TileArgs run;
    run.num_words = words_;
    run.a = packed_a_ + i / plan_.tile_rows * words_ * tile_.a_pitch;
    if (PacksB(args_)) {
      run.b_stride = words_ * kLanes;
      run.b = packed_b_ + j / kLanes * run.b_stride;
    } else {
      run.b_stride = tile_.words(args_.k) * kLanes;
      run.b = args_.packed_b + (n0_ + j) / kLanes * run.b_stride +
              tile_.words(k0_) * kLanes;
    }
    run.rows = rows;
    run.cols = columns;
    Finish finish;
    run.finish = &finish;
    if (args_.c_dtype == kF32) {
      StoreF32(i, j, run, finish);
    } else {
      StoreRounded(i, j, run, finish);
    }
    tile_.run(run);
  }

  void SetOut(int64_t i, int64_t j, Finish& finish) const {
    finish.alpha = args_.alpha;
    finish.beta = args_.beta;
    if (last_ && args_.bias != nullptr) {
      finish.bias = Advance(args_.bias, n0_ + j, args_.bias_dtype);
      finish.bias_dtype = args_.bias_dtype;
    }
    finish.out =
        Advance(args_.c, (m0_ + i) * args_.c_stride + n0_ + j, args_.c_dtype);
    finish.out_stride = args_.c_stride;
    finish.out_dtype = args_.c_dtype;
  }

  // C itself carries the sums of the K blocks.
  void StoreF32(int64_t i, int64_t j, TileArgs& run, Finish& finish) const {
    SetOut(i, j, finish);
    if (!first_) finish.beta = 1;
    run.store = TileStore::kFinish;
    if (finish.alpha == 1 && finish.bias == nullptr) {
      if (finish.beta == 0) run.store = TileStore::kStore;
      if (finish.beta == 1) run.store = TileStore::kAdd;
    }
    run.c = static_cast<float*>(finish.out);
    run.c_stride = finish.out_stride;
  }

  // The workspace carries the sums; C is written once.
  void StoreRounded(int64_t i, int64_t j, TileArgs& run, Finish& finish) const {
    float* partial = partial_ + i * partial_stride() + j;
    if (!last_) {
      run.store = first_ ? TileStore::kStore : TileStore::kAdd;
      run.c = partial;
      run.c_stride = partial_stride();
      return;
    }
    SetOut(i, j, finish);
    run.store = TileStore::kFinish;
    finish.partial = first_ ? nullptr : partial;
    finish.partial_stride = partial_stride();
  }

  int64_t partial_stride() const { return CeilDiv(columns_, kLanes) * kLanes; }

  const GemmArgs& args_;
  const Tile& tile_;
  const Plan& plan_;
  ThreadPool* const pool_;
  uint32_t* packed_a_;
  uint32_t* packed_b_;
  float* partial_;
  // The block of C and of K being worked on.
  int64_t n0_ = 0, columns_ = 0;
  int64_t m0_ = 0, rows_ = 0;
  int64_t k0_ = 0, num_k_ = 0, words_ = 0;
  bool first_ = true, last_ = true;
};

GemmArgs BatchEntry(const GemmArgs& args, int64_t batch) {
  GemmArgs one = args;
  one.num_batches = 1;
  if (args.a.data != nullptr) {
    one.a.data =
        Advance(args.a.data, batch * args.a_batch_stride, args.a.dtype);
  }
  if (args.b.data != nullptr) {
    one.b.data =
        Advance(args.b.data, batch * args.b_batch_stride, args.b.dtype);
  }
  one.c = Advance(args.c, batch * args.c_batch_stride, args.c_dtype);
  return one;
}

void RunBatches(const GemmArgs& args, int64_t begin, int64_t end,
                const Tile& tile, const Plan& plan, ThreadPool* pool,
                void* workspace) {
  for (int64_t batch = begin; batch < end; ++batch) {
    const GemmArgs one = BatchEntry(args, batch);
    Product(one, tile, plan, pool, workspace).Run();
  }
}

}  // namespace

int64_t WorkspaceBytes(const GemmArgs& args, Isa isa) {
  const Plan plan = PlanFor(args, FindTile(isa, args.compute));
  return plan.workspace_bytes() * BatchChunks(args);
}

void Gemm(const GemmArgs& args, const Exec& exec, void* workspace) {
  const Tile& tile = FindTile(exec.isa, args.compute);
  const Plan plan = PlanFor(args, tile);
  const int64_t chunks = BatchChunks(args);
  if (chunks <= 1) {
    RunBatches(args, 0, args.num_batches, tile, plan, &exec.pool, workspace);
    return;
  }
  ForEach(&exec.pool, chunks, [&](int64_t chunk) {
    RunBatches(args, args.num_batches * chunk / chunks,
               args.num_batches * (chunk + 1) / chunks, tile, plan, nullptr,
               static_cast<char*>(workspace) + chunk * plan.workspace_bytes());
  });
}

void GemmSerial(const GemmArgs& args, Isa isa, void* workspace) {
  const Tile& tile = FindTile(isa, args.compute);
  const Plan plan = PlanFor(args, tile);
  RunBatches(args, 0, args.num_batches, tile, plan, nullptr, workspace);
}

int64_t PackedBBytes(int64_t n, int64_t k, const Tile& tile) {
  return CeilDiv(n, kLanes) * tile.words(k) * kLanes * 4;
}

void PackB(const Operand& b, int64_t n, int64_t k, const Tile& tile,
           ThreadPool& pool, uint32_t* out) {
  const int64_t stride = tile.words(k) * kLanes;
  ForEach(&pool, CeilDiv(CeilDiv(n, kLanes), kPackGroup), [&](int64_t task) {
    const int64_t lane = task * kPackGroup * kLanes;
    tile.pack_b({.operand = b,
                 .lane_begin = lane,
                 .num_lanes = std::min<int64_t>(kPackGroup * kLanes, n - lane),
                 .num_k = k,
                 .out = out + task * kPackGroup * stride,
                 .out_stride = stride});
  });
}

}  // namespace espalier::gemm
