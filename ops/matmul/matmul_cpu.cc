#include <algorithm>
#include <cstdint>

#include "espalier/ops/gemm/gemm.h"
#include "espalier/ops/matmul/internal/kernels.h"
#include "espalier/ops/matmul/internal/leading.h"
#include "espalier/ops/matmul/linear_terms.h"
#include "espalier/runtime/float16.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::matmul {
namespace {

constexpr int64_t kColumnGrain = 64;

// The innermost leading dim is the batch of one Gemm; dims outside it are
// looped over.
int64_t NumBatches(const View& c) { return c.ndim > 2 ? c.dim(-3) : 1; }

int64_t BatchStride(const View& view) {
  return view.ndim > 2 ? view.stride(-3) : 0;
}

gemm::GemmArgs ToGemm(const ProductArgs& args) {
  gemm::GemmArgs gemm;
  gemm.m = args.c.dim(-2);
  gemm.n = args.c.dim(-1);
  gemm.k = args.a.dim(-1);
  gemm.a = {args.a.pointer, args.a.dtype, args.a.stride(-2), args.a.stride(-1)};
  gemm.b = {args.b.pointer, args.b.dtype, args.b.stride(-1), args.b.stride(-2)};
  gemm.compute = gemm::ComputeFor(args.a.dtype, args.b.dtype);
  gemm.c = args.c.pointer;
  gemm.c_dtype = args.c.dtype;
  gemm.c_stride = args.c.stride(-2);
  gemm.alpha = static_cast<float>(args.alpha);
  gemm.beta = static_cast<float>(args.beta);
  gemm.bias = args.bias.pointer;
  gemm.bias_dtype = args.bias.dtype;
  // Only whether there are panels decides on the workspace.
  static constexpr uint32_t kSomewhere = 0;
  if (args.prepared) {
    gemm.packed_b =
        args.panels ? args.panels.data<const uint32_t>() : &kSomewhere;
  }
  gemm.num_batches = NumBatches(args.c);
  gemm.a_batch_stride = BatchStride(args.a);
  gemm.b_batch_stride = BatchStride(args.b);
  gemm.c_batch_stride = BatchStride(args.c);
  return gemm;
}

struct Panels {
  gemm::Operand b;
  int64_t n, k;
  const gemm::Tile& tile;
};

Panels PanelsOf(const PanelsArgs& args, Isa isa) {
  const View& w = args.weight;
  const int lanes = args.input_gradient ? 1 : 0;
  const int along = 1 - lanes;
  return {{w.pointer, w.dtype, w.stride(lanes), w.stride(along)},
          w.dim(lanes),
          w.dim(along),
          gemm::FindTile(isa, gemm::ComputeFor(args.activations, w.dtype))};
}

char* At(const View& view, int64_t offset) {
  return static_cast<char*>(view.pointer) + offset * SizeOf(view.dtype);
}

template <typename In, typename Out>
void SumColumns(const ColumnSumArgs& args, const Exec& exec) {
  const int64_t width = args.out.dim(0);
  const In* x = args.x.data<const In>();
  const int64_t rows = args.x.num_rows();
  exec.pool.ParallelFor(width, kColumnGrain, [&](int64_t begin, int64_t end) {
    float sum[kColumnGrain] = {};
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t j = begin; j < end; ++j) {
        sum[j - begin] += float{x[t * width + j]};
      }
    }
    for (int64_t j = begin; j < end; ++j) {
      args.out.data<Out>()[j] = Out(sum[j - begin]);
    }
  });
}

template <typename In>
void SumColumnsOf(const ColumnSumArgs& args, const Exec& exec) {
  if (args.out.dtype == kBF16) return SumColumns<In, BFloat16>(args, exec);
  SumColumns<In, float>(args, exec);
}

}  // namespace

int64_t WorkspaceBytes(const ProductArgs& args, Isa isa) {
  return gemm::WorkspaceBytes(ToGemm(args), isa);
}

void ProductCpu(const ProductArgs& args, const Exec& exec) {
  gemm::GemmArgs gemm = ToGemm(args);
  const int64_t matrices = NumMatrices(args.c);
  if (matrices == 0) return;
  if (args.beta != 0) CopyAddend(args.addend, args.c, exec);
  const int64_t step = gemm.num_batches;
  for (int64_t matrix = 0; matrix < matrices; matrix += step) {
    gemm.a.data = At(args.a, MatrixOffset(args.a, matrix));
    gemm.b.data = At(args.b, MatrixOffset(args.b, matrix));
    gemm.c = At(args.c, MatrixOffset(args.c, matrix));
    gemm::Gemm(gemm, exec, {args.workspace.pointer, args.workspace.dim(0)});
  }
}

int64_t PanelsBytes(const PanelsArgs& args, Isa isa) {
  const Panels panels = PanelsOf(args, isa);
  return gemm::PackedBBytes(panels.n, panels.k, panels.tile);
}

void PanelsCpu(const PanelsArgs& args, const Exec& exec) {
  const Panels panels = PanelsOf(args, exec.isa);
  gemm::PackB(panels.b, panels.n, panels.k, panels.tile, exec.pool,
              args.panels.data<uint32_t>());
}

void ColumnSumCpu(const ColumnSumArgs& args, const Exec& exec) {
  if (args.x.dtype == kBF16) return SumColumnsOf<BFloat16>(args, exec);
  SumColumnsOf<float>(args, exec);
}

}  // namespace espalier::matmul
