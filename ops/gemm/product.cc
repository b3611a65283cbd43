#include "espalier/ops/gemm/internal/product.h"

#include <algorithm>

namespace espalier::gemm {
namespace {

constexpr int64_t kPackGroup = 4;  // panels packed by one task
// Runs of the tile that may find other things to fetch.
constexpr int64_t kSpareRuns = 4;

}  // namespace

Product::Product(const GemmArgs& args, const Tile& tile, const Plan& plan,
                 ThreadPool* pool, void* workspace)
    : args_(args),
      tile_(tile),
      plan_(plan),
      pool_(pool),
      packed_a_(static_cast<uint32_t*>(workspace)),
      packed_b_(packed_a_ + plan.a_bytes / 4),
      partial_(reinterpret_cast<float*>(packed_b_ + plan.b_bytes / 4)) {}

void Product::Run() {
  if (args_.m == 0 || args_.n == 0) return;
  if (plan_.unpacked_b) return RunUnpacked();
  const int64_t num_steps = CeilDiv(args_.m, plan_.m_block) *
                            CeilDiv(args_.n, plan_.n_block) *
                            plan_.num_k_blocks;
  for (int64_t index = 0; index < num_steps; ++index) {
    step_ = StepAt(index);
    words_ = tile_.words(step_.num_k);
    // B stays from one block of rows to the next if K is one block.
    PackOperands(!plan_.fused_b && (plan_.num_k_blocks > 1 || step_.m0 == 0));
    if (index + 1 < num_steps) {
      const Step next = StepAt(index + 1);
      RunStep(&next);
    } else {
      RunStep(nullptr);
    }
  }
}

Product::Step Product::StepAt(int64_t index) const {
  const int64_t block = index % plan_.num_k_blocks;
  const int64_t m_blocks = CeilDiv(args_.m, plan_.m_block);
  Step step;
  step.first = block == 0;
  step.last = block + 1 == plan_.num_k_blocks;
  step.k0 = block * plan_.k_block;
  step.num_k = std::min(plan_.k_block, args_.k - step.k0);
  step.m0 = index / plan_.num_k_blocks % m_blocks * plan_.m_block;
  step.rows = std::min(plan_.m_block, args_.m - step.m0);
  step.n0 = index / plan_.num_k_blocks / m_blocks * plan_.n_block;
  step.columns = std::min(plan_.n_block, args_.n - step.n0);
  return step;
}

void Product::PackOperands(bool with_b) {
  const int64_t a_tasks =
      CeilDiv(CeilDiv(step_.rows, plan_.tile_rows), kPackGroup);
  const int64_t b_tasks =
      with_b && args_.packed_b == nullptr
          ? CeilDiv(CeilDiv(step_.columns, kLanes), kPackGroup)
          : 0;
  ForEach(pool_, a_tasks + b_tasks, [this, a_tasks](int64_t task) {
    if (task < a_tasks) {
      PackA(task * kPackGroup);
    } else {
      PackB((task - a_tasks) * kPackGroup);
    }
  });
}

void Product::PackA(int64_t panel) {
  const int64_t lane = panel * plan_.tile_rows;
  const int64_t stride = words_ * tile_.a_pitch;
  tile_.pack_a({.operand = args_.a,
                .lane_begin = step_.m0 + lane,
                .num_lanes = std::min<int64_t>(kPackGroup * plan_.tile_rows,
                                               step_.rows - lane),
                .k_begin = step_.k0,
                .num_k = step_.num_k,
                .panel_lanes = plan_.tile_rows,
                .out = packed_a_ + panel * stride,
                .out_stride = stride});
}

void Product::PackB(int64_t panel) {
  const int64_t lane = panel * kLanes;
  const int64_t stride = words_ * kLanes;
  const PackArgs pack = {
      .operand = args_.b,
      .lane_begin = step_.n0 + lane,
      .num_lanes = std::min<int64_t>(kPackGroup * kLanes, step_.columns - lane),
      .k_begin = step_.k0,
      .num_k = step_.num_k,
      .panel_lanes = kLanes,
      .out = packed_b_ + panel * stride,
      .out_stride = stride};
  if (args_.pack_b != nullptr) {
    args_.pack_b(args_.pack_b_source, tile_, pack);
  } else {
    tile_.pack_b(pack);
  }
}

void Product::RunStep(const Step* next) {
  if (plan_.fused_b) return RunFusedStep(next);
  const int64_t m_tasks = CeilDiv(step_.rows, plan_.m_task);
  const int64_t n_tasks = CeilDiv(step_.columns, plan_.n_task);
  Strips a, b;
  if (next != nullptr) {
    a = StripsOf(args_.a, next->m0, next->rows, next->k0, next->num_k);
    if (args_.packed_b == nullptr) {
      b = StripsOf(args_.b, next->n0, next->columns, next->k0, next->num_k);
    }
  }
  const int64_t num_tasks = m_tasks * n_tasks;
  ForEach(pool_, num_tasks, [&](int64_t task) {
    RunTask(task / n_tasks * plan_.m_task, task % n_tasks * plan_.n_task,
            Ahead(a, b, task, num_tasks));
  });
}

// Every task packs its columns of B and runs all rows over them, fetching what
// the next task, probably this thread's, will pack.
void Product::RunFusedStep(const Step* next) {
  const int64_t num_tasks = CeilDiv(step_.columns, plan_.n_task);
  const int64_t apart = pool_ == nullptr ? 1 : pool_->num_threads();
  ForEach(pool_, num_tasks, [&](int64_t task) {
    const int64_t n = task * plan_.n_task;
    const int64_t next_n = n + apart * plan_.n_task;
    Strips b;
    if (next_n < step_.columns) {
      b = StripsOf(args_.b, step_.n0 + next_n,
                   std::min(plan_.n_task, step_.columns - next_n), step_.k0,
                   step_.num_k);
    } else if (next != nullptr) {
      b = StripsOf(args_.b, next->n0 + next_n - step_.columns, plan_.n_task,
                   next->k0, next->num_k);
    }
    PackB(n / kLanes);
    RunTask(0, n, Ahead({}, b, 0, 1));
  });
}

// A piece of C at (m, n) of the current block.
void Product::RunTask(int64_t m, int64_t n, Ahead ahead) const {
  const int64_t m_end = std::min(m + plan_.m_task, step_.rows);
  const int64_t n_end = std::min(n + plan_.n_task, step_.columns);
  const int64_t tile_columns = int64_t{plan_.tile_vectors} * kLanes;
  // As late as possible: what is fetched lies untouched in L2 until packed.
  int64_t runs_left =
      CeilDiv(m_end - m, plan_.tile_rows) * CeilDiv(n_end - n, tile_columns);
  const int64_t runs_ahead =
      kSpareRuns + ahead.left() / std::max<int64_t>(1, words_ / kPrefetchLines);
  for (int64_t j = n; j < n_end; j += tile_columns) {
    // Fetched on the way: the next panels of B, what is packed next, the next
    // panel of A.
    TileArgs next_columns;
    const int64_t next_j = j + tile_columns;
    const int64_t known_end = plan_.fused_b ? n_end : step_.columns;
    if (next_j < known_end) FindB(next_j, next_columns);
    int64_t next_panels =
        CeilDiv(std::min(tile_columns, known_end - next_j), kLanes);
    for (int64_t i = m; i < m_end; i += plan_.tile_rows) {
      TileArgs run;
      FindB(j, run);
      run.num_words = words_;
      run.a = PanelOfA(i);
      run.rows =
          static_cast<int>(std::min<int64_t>(plan_.tile_rows, m_end - i));
      run.cols = static_cast<int>(std::min(tile_columns, n_end - j));
      if (next_panels > 0) {
        run.prefetch = next_columns.b;
        next_columns.b += next_columns.b_stride;
        --next_panels;
      } else if (runs_left > runs_ahead || !ahead.AddTo(run)) {
        run.prefetch =
            PanelOfA(i + plan_.tile_rows < m_end ? i + plan_.tile_rows : m);
      }
      --runs_left;
      Finish finish;
      SetStore(step_, i, j, run, finish);
      tile_.run(run);
    }
  }
}

const uint32_t* Product::PanelOfA(int64_t i) const {
  return packed_a_ + i / plan_.tile_rows * words_ * tile_.a_pitch;
}

void Product::FindB(int64_t j, TileArgs& run) const {
  if (args_.packed_b == nullptr) {
    run.b_stride = words_ * kLanes;
    run.b = packed_b_ + j / kLanes * run.b_stride;
    return;
  }
  run.b_stride = tile_.words(args_.k) * kLanes;
  run.b = args_.packed_b + (step_.n0 + j) / kLanes * run.b_stride +
          tile_.words(step_.k0) * kLanes;
}

void Product::SetStore(const Step& step, int64_t i, int64_t j, TileArgs& run,
                       Finish& finish) const {
  const int64_t row = step.m0 + i;
  const int64_t column = step.n0 + j;
  run.finish = &finish;
  run.store = TileStore::kFinish;
  finish.alpha = args_.alpha;
  finish.beta = args_.beta;
  if (step.last && args_.bias != nullptr) {
    finish.bias = Advance(args_.bias, column, args_.bias_dtype);
    finish.bias_dtype = args_.bias_dtype;
  }
  finish.out = Advance(args_.c, row * args_.c_stride + column, args_.c_dtype);
  finish.out_stride = args_.c_stride;
  finish.out_dtype = args_.c_dtype;
  if (args_.c_dtype == kF32) {
    StoreF32(step, run, finish);
  } else {
    StoreRounded(step, i, j, run, finish);
  }
}

// C itself carries the sums of the blocks of K.
void Product::StoreF32(const Step& step, TileArgs& run, Finish& finish) const {
  if (!step.first) finish.beta = 1;
  if (finish.alpha == 1 && finish.bias == nullptr) {
    if (finish.beta == 0) run.store = TileStore::kStore;
    if (finish.beta == 1) run.store = TileStore::kAdd;
  }
  run.c = static_cast<float*>(finish.out);
  run.c_stride = finish.out_stride;
}

// The workspace carries the sums; C is written once.
void Product::StoreRounded(const Step& step, int64_t i, int64_t j,
                           TileArgs& run, Finish& finish) const {
  const int64_t stride = RoundUp(step.columns, kLanes);
  float* partial = partial_ + i * stride + j;
  if (!step.last) {
    run.store = step.first ? TileStore::kStore : TileStore::kAdd;
    run.c = partial;
    run.c_stride = stride;
    return;
  }
  finish.partial = step.first ? nullptr : partial;
  finish.partial_stride = stride;
}

void Product::RunUnpacked() {
  step_ = {0, args_.m, 0, args_.n, 0, args_.k, true, true};
  words_ = tile_.words(args_.k);
  PackA(0);
  // Few rows leave most of a panel's lanes empty; without these A stays in L1.
  for (int64_t word = 1; word < words_; ++word) {
    for (int64_t i = 0; i < args_.m; ++i) {
      packed_a_[word * args_.m + i] = packed_a_[word * tile_.a_pitch + i];
    }
  }
  ForEach(pool_, CeilDiv(args_.n, plan_.n_task), [this](int64_t task) {
    const int64_t n = task * plan_.n_task;
    RunUnpackedTask(n, std::min(n + plan_.n_task, args_.n));
  });
}

void Product::RunUnpackedTask(int64_t n, int64_t n_end) const {
  for (int64_t j = n; j < n_end; j += kLanes) {
    for (int64_t block = 0; block < plan_.num_k_blocks; ++block) {
      const Step step = StepAt(block);
      TileArgs run;
      Finish finish;
      run.num_words = tile_.words(step.num_k);
      run.a_pitch = args_.m;
      run.a = packed_a_ + tile_.words(step.k0) * run.a_pitch;
      run.rows = static_cast<int>(args_.m);
      run.cols = static_cast<int>(std::min<int64_t>(kLanes, n_end - j));
      SetStore(step, 0, j, run, finish);
      FetchUnpacked(j, block, n_end, run);
      tile_.run_unpacked(run, args_.b, j, step.k0, step.num_k);
    }
  }
}

void Product::FetchUnpacked(int64_t j, int64_t block, int64_t n_end,
                            TileArgs& run) const {
  if (++block == plan_.num_k_blocks) {
    block = 0;
    j += kLanes;
    if (j >= n_end && pool_ != nullptr) {
      j += (pool_->num_threads() - 1) * plan_.n_task;
    }
  }
  if (j >= args_.n) return;
  const int64_t row = args_.b.lane_stride;
  run.prefetch =
      Advance(args_.b.data, j * row + block * plan_.k_block, args_.b.dtype);
  run.prefetch_step = row * SizeOf(args_.b.dtype);
}

}  // namespace espalier::gemm
