#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"

#include "espalier/autograd/mode.h"
#include "espalier/ops/packed_matmul/internal/kernels.h"
#include "espalier/ops/packed_matmul/packed_matmul.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/bench/ceilings.h"

// W [3072, 4096], the first projection of an expert. Copies take turns, so
// that every weight is cold: 16 of them pass any cache.
namespace espalier {
namespace {

constexpr int64_t kOut = 3072;
constexpr int64_t kIn = 4096;
constexpr int kCopies = 16;

Tensor RandomBytes(Device& device, const Shape& shape, uint32_t low,
                   uint32_t high, std::mt19937& random) {
  Tensor tensor = Tensor::Empty(device, shape, kU8);
  auto* bytes = tensor.mutable_data<uint8_t>();
  std::uniform_int_distribution<uint32_t> pick(low, high);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    bytes[i] = static_cast<uint8_t>(pick(random));
  }
  return tensor;
}

PackedWeight RandomWeight(Device& device, PackedFormat format, int64_t group,
                          uint32_t seed) {
  std::mt19937 random(seed);
  Tensor codes, scales;
  switch (format) {
    case PackedFormat::kMxfp4:
      codes = RandomBytes(device, {kOut, kIn / 2}, 0, 255, random);
      scales = RandomBytes(device, {kOut, kIn / 32}, 116, 122, random);
      break;
    case PackedFormat::kInt4: {
      codes = Tensor::Empty(device, {kOut, kIn / 8}, kI32);
      auto* words = codes.mutable_data<int32_t>();
      for (int64_t i = 0; i < codes.num_elements(); ++i) {
        words[i] = static_cast<int32_t>(random());
      }
      scales = bench::RandomTensor(device, {kOut, kIn / group}, kBF16, seed);
      break;
    }
    case PackedFormat::kFp8Block:
      codes = RandomBytes(device, {kOut, kIn}, 0, 126, random);
      scales = bench::RandomTensor(device, {kOut / 128, kIn / 128}, kF32, seed);
      break;
  }
  absl::StatusOr<PackedWeight> weight = PackedWeight::Create(
      format, group, kOut, kIn, std::move(codes), std::move(scales));
  if (!weight.ok()) std::abort();
  return *std::move(weight);
}

std::vector<PackedWeight> Copies(Device& device, PackedFormat format,
                                 int64_t group, bool lanes) {
  const PackedWeight first = RandomWeight(device, format, group, 1);
  std::vector<PackedWeight> copies;
  for (int i = 0; i < kCopies; ++i) {
    if (lanes) {
      copies.push_back(PrepareLanes(first));
      continue;
    }
    absl::StatusOr<PackedWeight> copy = PackedWeight::Create(
        format, group, kOut, kIn, first.codes().CopyTo(device),
        first.scales().CopyTo(device));
    if (!copy.ok()) std::abort();
    copies.push_back(*std::move(copy));
  }
  return copies;
}

constexpr std::pair<PackedFormat, int64_t> kFormats[] = {
    {PackedFormat::kMxfp4, 32},
    {PackedFormat::kInt4, 32},
    {PackedFormat::kInt4, 128},
    {PackedFormat::kFp8Block, 128}};

void Report(benchmark::State& state, const PackedWeight& weight, int64_t rows,
            int threads) {
  state.SetLabel(ToString(weight));
  if (rows == 1) {
    bench::ReportBytes(state, static_cast<double>(weight.bytes()), threads,
                       bench::Peak::kRead);
  } else {
    bench::ReportFlops(state, 2.0 * static_cast<double>(rows * kOut * kIn),
                       bench::Peak::kBf16, threads);
  }
}

void BM_Forward(benchmark::State& state) {
  const auto [format, group] = kFormats[state.range(0)];
  const bool lanes = state.range(1) != 0;
  const int64_t rows = state.range(2);
  const int threads = static_cast<int>(state.range(3));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  const std::vector<PackedWeight> weights = Copies(cpu, format, group, lanes);
  const NoGrad no_grad;
  const Variable x(bench::RandomTensor(cpu, {rows, kIn}, kBF16, 2));
  size_t turn = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(PackedLinear(x, weights[turn++ % kCopies]));
  }
  Report(state, weights[0], rows, threads);
}

void BM_InputGradient(benchmark::State& state) {
  const auto [format, group] = kFormats[state.range(0)];
  const bool lanes = state.range(1) != 0;
  const int64_t rows = state.range(2);
  const int threads = static_cast<int>(state.range(3));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  const std::vector<PackedWeight> weights = Copies(cpu, format, group, lanes);
  const Tensor dy = bench::RandomTensor(cpu, {rows, kOut}, kBF16, 2);
  const Tensor dx = Tensor::Empty(cpu, {rows, kIn}, kBF16);
  packed::LinearArgs args{dy.view(),
                          weights[0].view(),
                          packed::Direction::kInputGradient,
                          dx.view(),
                          {}};
  const Tensor workspace = Tensor::Empty(
      cpu, {packed::LinearWorkspaceBytes(args, context->isa(), threads)}, kU8);
  args.workspace = workspace.view();
  const Exec exec = cpu.exec(cpu.compute_stream());
  size_t turn = 0;
  for ([[maybe_unused]] auto _ : state) {
    args.weight = weights[turn++ % kCopies].view();
    packed::LinearCpu(args, exec);
  }
  Report(state, weights[0], rows, threads);
}

void BM_PrepareLanes(benchmark::State& state) {
  const auto [format, group] = kFormats[state.range(0)];
  const auto context = bench::MakeContext(1);
  const std::vector<PackedWeight> weights =
      Copies(context->cpu(), format, group, false);
  size_t turn = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(PrepareLanes(weights[turn++ % kCopies]));
  }
  state.SetLabel(ToString(weights[0]));
  bench::ReportBytes(state, 2.0 * static_cast<double>(weights[0].bytes()), 1);
}

BENCHMARK(BM_Forward)
    ->ArgNames({"format", "lanes", "rows", "threads"})
    ->ArgsProduct({{0, 1, 2, 3}, {0, 1}, {1, 4, 16, 64, 512}, {1}})
    ->ArgsProduct({{0}, {1}, {1, 16, 512}, {2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_InputGradient)
    ->ArgNames({"format", "lanes", "rows", "threads"})
    ->ArgsProduct({{0, 1, 2, 3}, {0, 1}, {16, 64, 512}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_PrepareLanes)
    ->ArgName("format")
    ->DenseRange(0, 3)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier
