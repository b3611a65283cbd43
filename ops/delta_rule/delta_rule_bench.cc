#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/delta_rule/delta_rule.h"
#include "espalier/ops/l2_norm/l2_norm.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

constexpr int64_t kHeads = 16;
constexpr int64_t kWidth = 128;
constexpr double kChunk = 64;

// T tokens of documents of at most 1,024, 16 heads of 128: bf16 or f32 in, f32
// state.
struct Problem {
  Problem(benchmark::State& state, DType dtype, bool head_gate)
      : num_tokens(state.range(0)),
        threads(static_cast<int>(state.range(1))),
        context(bench::MakeContext(threads)) {
    const NoGrad no_grad;
    Device& device = context->cpu();
    const int64_t document = state.range(2);
    std::vector<int32_t> at(1, 0);
    while (at.back() < num_tokens) {
      at.push_back(static_cast<int32_t>(
          std::min<int64_t>(num_tokens, at.back() + document)));
    }
    options.cu_seqlens =
        std::make_shared<const std::vector<int32_t>>(std::move(at));
    const Shape shape = {num_tokens, kHeads, kWidth};
    const auto unit = [&](uint64_t seed) {
      const Variable x(bench::RandomTensor(device, shape, dtype, seed));
      return Variable(L2Norm(x, 1e-6).value(), true);
    };
    q = unit(1);
    k = unit(2);
    v = Variable(bench::RandomTensor(device, shape, dtype, 3), true);
    const Tensor gates = bench::RandomTensor(
        device, head_gate ? Shape{num_tokens, kHeads} : shape, kF32, 4);
    const Tensor betas =
        bench::RandomTensor(device, {num_tokens, kHeads}, kF32, 5);
    float* gate = gates.mutable_data<float>();
    for (int64_t i = 0; i < gates.num_elements(); ++i) {
      gate[i] = -std::abs(gate[i]);
    }
    float* beta_values = betas.mutable_data<float>();
    for (int64_t i = 0; i < betas.num_elements(); ++i) {
      beta_values[i] = std::abs(beta_values[i]);
    }
    g = Variable(gates, true);
    beta = Variable(betas, true);
    dout = bench::RandomTensor(device, shape, dtype, 6);
  }
  Variable Run() const {
    return DeltaRule(q, k, v, g, beta, Variable(), options).o;
  }
  // The chunk form's products: chunk by chunk, a multiply-add counting two.
  // Forward: two of C x C x K, two of C x C x V (one of them the solve, half of
  // it), three of C x K x V. Backward: four and three and the solve's half,
  // six. What is computed again on the way back is not counted.
  double ForwardFlops() const {
    return Chunks() * 2 * kWidth *
           (2 * kChunk * kChunk + 1.5 * kChunk * kChunk + 3 * kChunk * kWidth);
  }
  double BackwardFlops() const {
    return Chunks() * 2 * kWidth *
           (4 * kChunk * kChunk + 3.5 * kChunk * kChunk + 6 * kChunk * kWidth);
  }
  double Chunks() const {
    return static_cast<double>(num_tokens * kHeads) / kChunk;
  }

  const int64_t num_tokens;
  const int threads;
  std::unique_ptr<Context> context;
  DeltaRuleOptions options;
  Variable q, k, v, g, beta;
  Tensor dout;
};

void Forward(benchmark::State& state, DType dtype, bench::Peak peak,
             DeltaRuleForm form) {
  Problem p(state, dtype, /*head_gate=*/false);
  p.options.form = form;
  const NoGrad no_grad;
  p.Run();  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) p.Run();
  bench::ReportFlops(state, p.ForwardFlops(), peak, p.threads);
}

void Train(benchmark::State& state, DType dtype, bench::Peak peak,
           bool head_gate) {
  Problem p(state, dtype, head_gate);
  Allocator& allocator = p.context->cpu().allocator();
  const int64_t before = allocator.stats().allocated;
  allocator.ResetPeak();
  const auto step = [&p] {
    for (Variable* input : {&p.q, &p.k, &p.v, &p.g, &p.beta}) {
      input->ClearGrad();
    }
    autograd::Backward(p.Run(), p.dout);
  };
  step();  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) step();
  state.counters["peak_MB"] =
      static_cast<double>(allocator.stats().peak_allocated - before) * 1e-6;
  state.counters["us/token"] =
      benchmark::Counter(static_cast<double>(p.num_tokens) * 1e-6,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
  bench::ReportFlops(state, p.ForwardFlops() + p.BackwardFlops(), peak,
                     p.threads);
}

void BM_ForwardBf16(benchmark::State& state) {
  Forward(state, kBF16, bench::Peak::kBf16, DeltaRuleForm::kChunk);
}
void BM_ForwardTokensBf16(benchmark::State& state) {
  Forward(state, kBF16, bench::Peak::kBf16, DeltaRuleForm::kToken);
}
void BM_TrainBf16(benchmark::State& state) {
  Train(state, kBF16, bench::Peak::kBf16, /*head_gate=*/false);
}
void BM_TrainHeadGateBf16(benchmark::State& state) {
  Train(state, kBF16, bench::Peak::kBf16, /*head_gate=*/true);
}
void BM_TrainF32(benchmark::State& state) {
  Train(state, kF32, bench::Peak::kF32, /*head_gate=*/false);
}

void Packed(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "threads", "document"})->UseRealTime();
  for (const int threads : {1, 2}) bench->Args({8192, threads, 1024});
}
BENCHMARK(BM_ForwardBf16)->Apply(Packed);
BENCHMARK(BM_ForwardTokensBf16)->Apply(Packed);
BENCHMARK(BM_TrainBf16)
    ->Apply(Packed)
    ->Args({32768, 2, 32768})
    ->Args({131072, 2, 131072});
BENCHMARK(BM_TrainHeadGateBf16)->Apply(Packed);
BENCHMARK(BM_TrainF32)->Apply(Packed);

}  // namespace
}  // namespace espalier
