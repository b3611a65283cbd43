#include <cmath>
#include <memory>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/ops/gemm/gemm.h"
#include "espalier/ops/linear_cross_entropy/internal/rows.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

struct Problem {
  Problem(benchmark::State& state, bool frozen)
      : num_tokens(state.range(0)),
        width(state.range(1)),
        vocab(state.range(2)),
        threads(static_cast<int>(state.range(3))),
        context(bench::MakeContext(threads)) {
    Device& device = context->cpu();
    x = Variable(bench::RandomTensor(device, {num_tokens, width}, kBF16, 1),
                 true);
    weight = Variable(bench::RandomTensor(device, {vocab, width}, kBF16, 2),
                      !frozen);
    std::vector<int32_t> values(static_cast<size_t>(num_tokens));
    for (size_t t = 0; t < values.size(); ++t) {
      values[t] = static_cast<int32_t>(static_cast<int64_t>(t) * 7919 % vocab);
    }
    labels = Tensor::FromHost<int32_t>(device, {num_tokens}, values);
  }
  double ProductFlops() const {
    return 2.0 * static_cast<double>(num_tokens) * static_cast<double>(width) *
           static_cast<double>(vocab);
  }
  const int64_t num_tokens, width, vocab;
  const int threads;
  std::unique_ptr<Context> context;
  Variable x, weight;
  Tensor labels;
};

// Forward and backward. `products` counts those that no method avoids.
void Train(benchmark::State& state, bool frozen, int products) {
  Problem p(state, frozen);
  Allocator& allocator = p.context->cpu().allocator();
  const auto step = [&p] {
    p.x.ClearGrad();
    p.weight.ClearGrad();
    autograd::Backward(LinearCrossEntropy(p.x, p.weight, p.labels).loss);
  };
  step();  // its memory stays with the allocator
  const int64_t held = allocator.stats().allocated;  // inputs and gradients
  allocator.ResetPeak();
  for ([[maybe_unused]] auto _ : state) step();
  state.counters["extra_MB"] =
      static_cast<double>(allocator.stats().peak_allocated - held) * 1e-6;
  bench::ReportFlops(state, products * p.ProductFlops(), bench::Peak::kBf16,
                     p.threads);
}

void BM_FrozenHead(benchmark::State& state) { Train(state, true, 2); }
void BM_TrainedHead(benchmark::State& state) { Train(state, false, 3); }

// The figure to compare with: one product of this size, both operands packed
// on the call.
void BM_Gemm(benchmark::State& state) {
  Problem p(state, true);
  Device& device = p.context->cpu();
  Tensor c = Tensor::Empty(device, {p.num_tokens, p.vocab}, kBF16);
  gemm::GemmArgs args;
  args.m = p.num_tokens;
  args.n = p.vocab;
  args.k = p.width;
  args.a = {p.x.value().view().pointer, kBF16, p.width, 1};
  args.b = {p.weight.value().view().pointer, kBF16, p.width, 1};
  args.compute = gemm::Compute::kBF16;
  args.c = c.view().pointer;
  args.c_dtype = kBF16;
  args.c_stride = p.vocab;
  Tensor workspace = Tensor::Empty(
      device, {gemm::WorkspaceBytes(args, p.context->isa())}, kU8);
  const Exec exec = device.exec(device.compute_stream());
  const gemm::Workspace scratch = {workspace.view().pointer,
                                   workspace.num_bytes()};
  gemm::Gemm(args, exec, scratch);
  for ([[maybe_unused]] auto _ : state) gemm::Gemm(args, exec, scratch);
  bench::ReportFlops(state, p.ProductFlops(), bench::Peak::kBf16, p.threads);
}

// Loss and gradient of rows of logits in place, in the steps that the op takes
// on its tiles: 8 bytes an element, each read and written once.
void BM_Rows(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t vocab = state.range(1);
  const int64_t block = 1024;
  auto context = bench::MakeContext(1);
  const Isa isa = context->isa();
  const Tensor logits =
      bench::RandomTensor(context->cpu(), {rows + 1, vocab}, kF32, 1);
  std::vector<float> maxima(static_cast<size_t>(vocab / block + 1));
  for ([[maybe_unused]] auto _ : state) {
    for (int64_t r = 0; r < rows; ++r) {
      float* row = logits.mutable_data<float>() + r * vocab;
      float max = -INFINITY;
      float sum = 0;
      for (int64_t v = 0; v < vocab; v += block) {
        const int32_t begin = 0;
        const int32_t end = static_cast<int32_t>(std::min(block, vocab - v));
        online_softmax::AddBlock({.scores = row + v,
                                  .rows = 1,
                                  .begin = &begin,
                                  .end = &end,
                                  .max = &max,
                                  .sum = &sum},
                                 isa);
        maxima[static_cast<size_t>(v / block)] = max;
      }
      for (int64_t v = 0; v < vocab; v += block) {
        const float factor =
            std::exp2(maxima[static_cast<size_t>(v / block)] - max) / sum;
        online_softmax::ScaleRows({.from = row + v,
                                   .factors = &factor,
                                   .rows = 1,
                                   .width = std::min(block, vocab - v),
                                   .to = row + v},
                                  isa);
      }
      row[r] -= 1;
    }
  }
  bench::ReportBytes(state, 8.0 * static_cast<double>(rows * vocab), 1);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "H", "V", "threads"})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  for (const int threads : {1, 2}) bench->Args({4096, 1024, 131072, threads});
}
BENCHMARK(BM_Gemm)->Apply(Shapes);
BENCHMARK(BM_FrozenHead)->Apply(Shapes);
BENCHMARK(BM_TrainedHead)->Apply(Shapes);
BENCHMARK(BM_Rows)
    ->ArgNames({"T", "V"})
    ->Args({256, 151936})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier
