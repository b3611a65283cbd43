#ifndef ESPALIER_TESTS_BENCH_CEILINGS_H_
#define ESPALIER_TESTS_BENCH_CEILINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "benchmark/benchmark.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/tensor.h"

// What a benchmark needs beside the code it times: the machine's own limits,
// and counters that put a result beside them. bench_main.cc prints the limits
// first. A benchmark looks like this:
//
//   void BM_Scale(benchmark::State& state) {
//     const int threads = static_cast<int>(state.range(0));
//     auto context = bench::MakeContext(threads);
//     Tensor x = bench::RandomTensor(context->cpu(), {4096, 4096}, kF32, 1);
//     for ([[maybe_unused]] auto _ : state) Scale(x, 0.5);
//     bench::ReportBytes(state, 2 * x.num_bytes(), threads);
//   }
//   BENCHMARK(BM_Scale)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
//
// UseRealTime is needed: Google Benchmark's default divides by the CPU time of
// the calling thread, which says nothing about a pool.
namespace espalier::bench {

enum class Peak {
  kF32,          // fused multiply-adds at the widest set of this CPU
  kF32Baseline,  // the same at the lowest set: AVX2 or NEON
  kBf16,         // bf16 dot products into f32; kF32 where the CPU has none
  kRead,         // bytes read, out of cache
  kCopy,         // bytes read + written by a copy out of cache, the better of
                 // plain and non-temporal stores
};

// "f32", "bf16", "copy", ...
absl::string_view ToString(Peak peak);

// FLOP/s or bytes/s of `num_threads` threads at this moment: the best of
// `samples` runs of a few milliseconds each. Not thread-safe.
double MeasurePeak(Peak peak, int num_threads, int samples = 5);

// Counters "GFLOP/s" and "share": of the peak that is measured right after the
// timed loop, so that a drifting clock or a busy neighbour hits both. Call
// once, after the loop. `flops` is per iteration, useful work only, a
// multiply-add counting two.
void ReportFlops(benchmark::State& state, double flops, Peak peak,
                 int num_threads);

// Counters "GB/s" and "share" likewise. `bytes` is per iteration, read +
// written, each operand counted once. kCopy for what writes as it reads, kRead
// for reductions.
void ReportBytes(benchmark::State& state, double bytes, int num_threads,
                 Peak peak = Peak::kCopy);

// All peaks for 1 thread and for all, interleaved, medians of `rounds`;
// key and text for benchmark::AddCustomContext.
std::vector<std::pair<std::string, std::string>> DescribeMachine(
    int rounds = 7);

// Threads the process may use.
int MaxThreads();

// A context or the end of the process: benchmarks have nobody to report to.
std::unique_ptr<Context> MakeContext(int num_threads,
                                     std::optional<Isa> max_isa = {});

// Uniform in [-1, 1), rounded to the dtype: f64 f32 bf16 f16.
Tensor RandomTensor(Device& device, const Shape& shape, DType dtype,
                    uint64_t seed);

}  // namespace espalier::bench

#endif  // ESPALIER_TESTS_BENCH_CEILINGS_H_
