#include <memory>
#include <string>

#include "benchmark/benchmark.h"

#include "espalier/ops/gemm/gemm.h"
#include "espalier/ops/gemm/plan.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// Shapes are tokens x in x out of three products of a linear layer: forward
// X W^T (NT), the gradient of X, dY W (NN), and of W, dY^T X (TN).
enum Form : int64_t { kNT, kNN, kTN };

Tensor Scratch(Device& device, int64_t bytes) {
  return Tensor::Empty(device, {bytes}, kU8);
}

gemm::Operand Rows(const Tensor& t) {
  return {t.view().pointer, t.dtype(), t.stride(0), t.stride(1)};
}

// A Context with operands of one product in it.
struct Setup {
  Setup(const benchmark::State& state, DType dtype, bool prepack)
      : threads(static_cast<int>(state.range(4))),
        context(bench::MakeContext(threads)),
        cpu(context->cpu()) {
    const int64_t m = state.range(0), k = state.range(1), n = state.range(2);
    const int64_t form = state.range(3);
    a = bench::RandomTensor(cpu, {form == kTN ? k : m, form == kTN ? m : k},
                            dtype, 1);
    b = bench::RandomTensor(cpu, {form == kNT ? n : k, form == kNT ? k : n},
                            dtype, 2);
    c = Tensor::Empty(cpu, {m, n}, kF32);
    args.m = m;
    args.n = n;
    args.k = k;
    args.a = Rows(form == kTN ? a.Transpose(0, 1) : a);
    args.b = Rows(form == kNT ? b : b.Transpose(0, 1));
    args.compute = gemm::ComputeFor(dtype, dtype);
    args.c = c.mutable_data<float>();
    args.c_stride = n;
    if (prepack) {
      const gemm::Tile& tile = gemm::FindTile(context->isa(), args.compute);
      packed = Scratch(cpu, gemm::PackedBBytes(n, k, tile));
      uint32_t* at =
          reinterpret_cast<uint32_t*>(packed.mutable_data<uint8_t>());
      gemm::PackB(args.b, n, k, tile, context->pool(), at);
      args.packed_b = at;
    }
    workspace = Scratch(cpu, gemm::WorkspaceBytes(args, context->isa()));
  }
  void Run() {
    gemm::Gemm(args, cpu.exec(cpu.compute_stream()),
               {workspace.view().pointer, workspace.num_bytes()});
  }
  double flops() const {
    return 2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) *
           static_cast<double>(args.k);
  }

  int threads;
  std::unique_ptr<Context> context;
  Device& cpu;
  Tensor a, b, c, packed, workspace;
  gemm::GemmArgs args;
};

void Measure(benchmark::State& state, DType dtype, bool prepack) {
  Setup setup(state, dtype, prepack);
  setup.Run();
  for ([[maybe_unused]] auto _ : state) setup.Run();
  bench::ReportFlops(state, setup.flops(),
                     dtype == kF32 ? bench::Peak::kF32 : bench::Peak::kBf16,
                     setup.threads);
}

void BM_GemmBf16(benchmark::State& state) { Measure(state, kBF16, false); }
void BM_GemmF32(benchmark::State& state) { Measure(state, kF32, false); }
void BM_GemmPackedBf16(benchmark::State& state) { Measure(state, kBF16, true); }
void BM_GemmPackedF32(benchmark::State& state) { Measure(state, kF32, true); }

// One row: bound by reading B.
void BM_GemvBf16(benchmark::State& state) {
  Setup setup(state, kBF16, false);
  setup.Run();
  for ([[maybe_unused]] auto _ : state) setup.Run();
  bench::ReportBytes(state, static_cast<double>(setup.b.num_bytes()),
                     setup.threads, bench::Peak::kRead);
}

void Forms(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"M", "K", "N", "form", "threads"})->UseRealTime();
  for (int64_t threads : {1, 2}) {
    for (int64_t form : {kNT, kNN, kTN}) {
      benchmark->Args({512, 576, 1536, form, threads});
      benchmark->Args({2048, 2048, 2048, form, threads});
      benchmark->Args({4096, 4096, 4096, form, threads});
      benchmark->Args({256, 7168, 3072, form, threads});
    }
  }
}

void Prepacked(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"M", "K", "N", "form", "threads"})->UseRealTime();
  for (int64_t threads : {1, 2}) {
    benchmark->Args({512, 576, 1536, kNT, threads});
    benchmark->Args({2048, 2048, 2048, kNT, threads});
    benchmark->Args({4096, 4096, 4096, kNT, threads});
    benchmark->Args({256, 7168, 3072, kNT, threads});
    benchmark->Args({16, 3584, 3072, kNT, threads});
  }
}

void FewRows(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"M", "K", "N", "form", "threads"})->UseRealTime();
  for (int64_t threads : {1, 2}) {
    benchmark->Args({1, 7168, 18432, kNT, threads});
    benchmark->Args({1, 4096, 14336, kNT, threads});
    benchmark->Args({4, 4096, 14336, kNT, threads});
  }
}

BENCHMARK(BM_GemmBf16)->Apply(Forms);
BENCHMARK(BM_GemmF32)->Apply(Forms);
BENCHMARK(BM_GemmPackedBf16)->Apply(Prepacked);
BENCHMARK(BM_GemmPackedF32)->Apply(Prepacked);
BENCHMARK(BM_GemvBf16)->Apply(FewRows);

}  // namespace
}  // namespace espalier
