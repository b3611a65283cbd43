#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"

#include "espalier/autograd/mode.h"
#include "espalier/ops/grouped_matmul/grouped_matmul.h"
#include "espalier/ops/grouped_matmul/internal/kernels.h"
#include "espalier/ops/packed_matmul/packed_matmul.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/bench/ceilings.h"

// 64 groups of 0 to 200 rows, 32 in the mean, as a router deals them: every
// weight is met once, cold.
namespace espalier {
namespace {

constexpr int64_t kExperts = 64;
constexpr int64_t kOut = 1408;
constexpr int64_t kIn = 2048;

// Rows fall off as a Zipf law; the first group has 200, a few have none.
std::vector<int64_t> Offsets() {
  std::vector<int64_t> offsets = {0};
  std::mt19937 random(5);
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    const int64_t count =
        e >= kExperts - 5 ? 0 : std::min<int64_t>(200, 420 / (e + 2));
    counts.push_back(count);
    total += count;
  }
  for (int64_t e = 0; total < 32 * kExperts; e = (e + 7) % (kExperts - 5)) {
    if (counts[static_cast<size_t>(e)] >= 200) continue;
    ++counts[static_cast<size_t>(e)];
    ++total;
  }
  std::shuffle(counts.begin(), counts.end(), random);
  for (int64_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

PackedWeight RandomMxfp4(Device& device, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor codes = Tensor::Empty(device, {kOut, kIn / 2}, kU8);
  Tensor scales = Tensor::Empty(device, {kOut, kIn / 32}, kU8);
  auto* code = codes.mutable_data<uint8_t>();
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    code[i] = static_cast<uint8_t>(random());
  }
  auto* scale = scales.mutable_data<uint8_t>();
  for (int64_t i = 0; i < scales.num_elements(); ++i) {
    scale[i] = static_cast<uint8_t>(116 + random() % 7);
  }
  absl::StatusOr<PackedWeight> weight = PackedWeight::Create(
      PackedFormat::kMxfp4, 32, kOut, kIn, std::move(codes), std::move(scales));
  if (!weight.ok()) std::abort();
  return *std::move(weight);
}

void Report(benchmark::State& state, int threads) {
  bench::ReportFlops(state,
                     2.0 * static_cast<double>(Offsets().back() * kOut * kIn),
                     bench::Peak::kBf16, threads);
}

void BM_Dense(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const auto form = static_cast<grouped_matmul::Form>(state.range(1));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  grouped_matmul::Args args;
  args.form = form;
  args.offsets = Offsets();
  const int64_t rows = args.offsets.back();
  const Tensor x = bench::RandomTensor(cpu, {rows, kIn}, kBF16, 1);
  const Tensor y = bench::RandomTensor(cpu, {rows, kOut}, kBF16, 2);
  const Tensor w = bench::RandomTensor(cpu, {kExperts, kOut, kIn}, kBF16, 3);
  switch (form) {
    case grouped_matmul::Form::kForward:
      args.a = x.view(), args.b = w.view(), args.c = y.view();
      break;
    case grouped_matmul::Form::kInputGradient:
      args.a = y.view(), args.b = w.view(), args.c = x.view();
      break;
    case grouped_matmul::Form::kWeightGradient:
      args.a = y.view(), args.b = x.view(), args.c = w.view();
      break;
  }
  const Tensor workspace = Tensor::Empty(
      cpu, {grouped_matmul::WorkspaceBytes(args, context->isa(), threads)},
      kU8);
  args.workspace = workspace.view();
  const Exec exec = cpu.exec(cpu.compute_stream());
  grouped_matmul::GroupedCpu(args, exec);
  for ([[maybe_unused]] auto _ : state) grouped_matmul::GroupedCpu(args, exec);
  Report(state, threads);
}

void BM_Mxfp4(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const bool lanes = state.range(1) != 0;
  const bool gradient = state.range(2) != 0;
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  grouped_matmul::Args args;
  args.form = gradient ? grouped_matmul::Form::kInputGradient
                       : grouped_matmul::Form::kForward;
  args.offsets = Offsets();
  const int64_t rows = args.offsets.back();
  std::vector<PackedWeight> weights;
  for (uint32_t e = 0; e < kExperts; ++e) {
    const PackedWeight weight = RandomMxfp4(cpu, e);
    weights.push_back(lanes ? PrepareLanes(weight) : weight);
    args.packed.push_back(weights.back().view());
  }
  const Tensor x = bench::RandomTensor(cpu, {rows, kIn}, kBF16, 1);
  const Tensor y = bench::RandomTensor(cpu, {rows, kOut}, kBF16, 2);
  args.a = gradient ? y.view() : x.view();
  args.c = gradient ? x.view() : y.view();
  const Tensor workspace = Tensor::Empty(
      cpu, {grouped_matmul::WorkspaceBytes(args, context->isa(), threads)},
      kU8);
  args.workspace = workspace.view();
  const Exec exec = cpu.exec(cpu.compute_stream());
  grouped_matmul::GroupedCpu(args, exec);
  for ([[maybe_unused]] auto _ : state) grouped_matmul::GroupedCpu(args, exec);
  Report(state, threads);
}

BENCHMARK(BM_Dense)
    ->ArgNames({"threads", "form"})
    ->ArgsProduct({{1, 2}, {0, 1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Mxfp4)
    ->ArgNames({"threads", "lanes", "gradient"})
    ->ArgsProduct({{1, 2}, {0, 1}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier
