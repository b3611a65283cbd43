#include <memory>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/kda_gate/kda_gate.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// 8,192 tokens, 32 heads of 128: bf16 in, f32 out.
struct Problem {
  explicit Problem(benchmark::State& state)
      : threads(static_cast<int>(state.range(0))),
        context(bench::MakeContext(threads)),
        options{state.range(1) == 0 ? 0.0 : -5.0} {
    Device& device = context->cpu();
    f = Variable(bench::RandomTensor(device, {8192, 32, 128}, kBF16, 1), true);
    A_log = Variable(bench::RandomTensor(device, {32}, kF32, 2));
    bias = Variable(bench::RandomTensor(device, {int64_t{32} * 128}, kF32, 3));
  }
  const int threads;
  std::unique_ptr<Context> context;
  KdaGateOptions options;
  Variable f, A_log, bias;
};

void BM_KdaGate(benchmark::State& state) {
  Problem p(state);
  const NoGrad no_grad;
  KdaGate(p.f, p.A_log, p.bias, p.options);
  for ([[maybe_unused]] auto _ : state) {
    KdaGate(p.f, p.A_log, p.bias, p.options);
  }
  bench::ReportBytes(state, 3.0 * p.f.value().num_bytes(), p.threads);
}
BENCHMARK(BM_KdaGate)
    ->ArgNames({"threads", "bounded"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->UseRealTime();

void BM_KdaGateBackward(benchmark::State& state) {
  Problem p(state);
  const Variable g = KdaGate(p.f, p.A_log, p.bias, p.options);
  const Tensor dg = bench::RandomTensor(p.context->cpu(), g.shape(), kF32, 4);
  autograd::Backward(g, dg);  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    p.f.ClearGrad();
    const Variable y = KdaGate(p.f, p.A_log, p.bias, p.options);
    state.ResumeTiming();
    autograd::Backward(y, dg);
  }
  bench::ReportBytes(state, 4.0 * p.f.value().num_bytes(), p.threads);
}
BENCHMARK(BM_KdaGateBackward)
    ->ArgNames({"threads", "bounded"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
