#include "espalier/ops/gemm/gemm.h"

#include <algorithm>

#include "espalier/ops/gemm/internal/product.h"
#include "espalier/ops/gemm/plan.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::gemm {
namespace {

constexpr int64_t kPackGroup = 4;  // panels packed by one task
// Batches of matrices below this many multiply-adds are spread over the
// threads whole, in at most kBatchChunks pieces, each with its own workspace.
constexpr int64_t kSmallProduct = int64_t{1} << 22;
constexpr int64_t kBatchChunks = 16;

bool PacksB(const GemmArgs& args) { return args.packed_b == nullptr; }

PlanInput InputOf(const GemmArgs& args) {
  return {.m = args.m,
          .n = args.n,
          .k = args.k,
          .pack_b = PacksB(args),
          .needs_partial = args.c_dtype != kF32,
          .rows_of_b =
              PacksB(args) && args.pack_b == nullptr && args.b.k_stride == 1};
}

Plan PlanFor(const GemmArgs& args, const Tile& tile) {
  return MakePlan(InputOf(args), tile);
}

int64_t BatchChunks(const GemmArgs& args) {
  const bool small = args.m * args.n * args.k <= kSmallProduct;
  return small ? std::min(args.num_batches, kBatchChunks) : 1;
}

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

void CheckWorkspace(const GemmArgs& args, const Plan& plan, int64_t chunks,
                    const Workspace& workspace) {
  ESPALIER_CHECK(workspace.bytes >= plan.workspace_bytes() * chunks,
                 "workspace of ", workspace.bytes, " bytes for ", args.m, "x",
                 args.n, "x", args.k, " in ", chunks,
                 " pieces: ", ToString(plan));
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

int64_t WorkspaceBytesUpToM(const GemmArgs& args, Isa isa) {
  return MostBytesUpToM(InputOf(args), FindTile(isa, args.compute));
}

int64_t WorkspaceBytesUpToK(const GemmArgs& args, Isa isa) {
  return MostBytesUpToK(InputOf(args), FindTile(isa, args.compute));
}

void Gemm(const GemmArgs& args, const Exec& exec, const Workspace& workspace) {
  const Tile& tile = FindTile(exec.isa, args.compute);
  const Plan plan = PlanFor(args, tile);
  const int64_t chunks = BatchChunks(args);
  CheckWorkspace(args, plan, chunks, workspace);
  if (chunks <= 1) {
    RunBatches(args, 0, args.num_batches, tile, plan, &exec.pool,
               workspace.data);
    return;
  }
  ForEach(&exec.pool, chunks, [&](int64_t chunk) {
    RunBatches(
        args, args.num_batches * chunk / chunks,
        args.num_batches * (chunk + 1) / chunks, tile, plan, nullptr,
        static_cast<char*>(workspace.data) + chunk * plan.workspace_bytes());
  });
}

void GemmSerial(const GemmArgs& args, Isa isa, const Workspace& workspace) {
  const Tile& tile = FindTile(isa, args.compute);
  const Plan plan = PlanFor(args, tile);
  CheckWorkspace(args, plan, 1, workspace);
  RunBatches(args, 0, args.num_batches, tile, plan, nullptr, workspace.data);
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
