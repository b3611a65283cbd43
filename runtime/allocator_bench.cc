#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"

#include "espalier/runtime/internal/allocation_trace.h"
#include "espalier/tests/bench/ceilings.h"

// Peers. Debian's mimalloc library also defines malloc and operator new, so
// linking it would replace the host's: it is opened by name, and skipped where
// it is not installed.
namespace espalier {

namespace {

struct Heap {
  std::function<void*(int64_t)> allocate;
  std::function<void(void*)> free;
};

enum Which { kOurs, kGlibc, kGlibcTuned, kMimalloc, kNoHeap };

const char* Name(int which) {
  constexpr const char* kNames[] = {"espalier", "glibc", "glibc, tuned",
                                    "mimalloc", "buffers kept"};
  return kNames[which];
}

// Empty when the library is not there.
Heap MakeHeap(int which, Device& device) {
  if (which == kOurs) {
    return {[&](int64_t bytes) {
              return device.allocator().Allocate(bytes, device.memory_tag(),
                                                 device.compute_stream());
            },
            [&](void* data) { device.allocator().Free(data); }};
  }
  if (which == kMimalloc) {
    void* const library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return {};
    auto* const allocate =
        reinterpret_cast<void* (*)(size_t)>(dlsym(library, "mi_malloc"));
    auto* const free =
        reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
    return {[=](int64_t bytes) { return allocate(static_cast<size_t>(bytes)); },
            free};
  }
  if (which == kGlibcTuned) {  // never gives memory back
    // NOLINTBEGIN(concurrency-mt-unsafe): before there is any other thread
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
    // NOLINTEND(concurrency-mt-unsafe)
  }
  return {[](int64_t bytes) { return std::malloc(static_cast<size_t>(bytes)); },
          [](void* data) { std::free(data); }};
}

rusage Usage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

// Highest resident size since the last StartPeak.
double PeakBytes() {
  double kib = 0;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::atof(line + 6);
  }
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

// Gives back what the heap kept of earlier work, and restarts the peak.
void StartPeak() {
  malloc_trim(0);
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs fn in a process of its own, so that no allocator inherits the pages of
// another, and returns its result.
struct Result {
  bool ran = false;
  double seconds_per_step = 0;
  double call_seconds = 0;  // per step, in the heap's functions alone
  double faults_per_step = 0;
  double peak_bytes = 0;      // resident beyond what was there at the start
  double reserved_bytes = 0;  // by the allocator's own account
};

template <typename Fn>
Result InOwnProcess(Fn fn) {
  Result result;
  int ends[2];
  if (pipe(ends) != 0) return result;
  const pid_t child = fork();
  if (child == 0) {
    result = fn();
    const ssize_t written = write(ends[1], &result, sizeof(result));
    _exit(written == sizeof(result) ? 0 : 1);
  }
  close(ends[1]);
  if (read(ends[0], &result, sizeof(result)) != sizeof(result)) result = {};
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return result;
}

// The churn of cpu.md's trace: 200 buffers of 0.25 to 4 MB, 309 MB in all,
// allocated, written once, freed.
std::vector<int64_t> ChurnSizes() {
  std::mt19937 random(2);
  std::vector<int64_t> sizes(200);
  int64_t total = 0;
  for (int64_t& size : sizes) {
    size = static_cast<int64_t>(
        250e3 * std::exp2(4.0 * static_cast<double>(random()) / 4294967296.0));
    total += size;
  }
  for (int64_t& size : sizes) {
    size = size * 309'000'000 / std::max<int64_t>(total, 1);
  }
  return sizes;
}

// Makes the buffers once and hands them out again and again: the time of the
// writes alone.
void KeepBuffers(const std::vector<int64_t>& sizes, Heap& heap) {
  std::vector<void*> kept;
  kept.reserve(sizes.size());
  for (const int64_t size : sizes) kept.push_back(heap.allocate(size));
  heap.allocate = [kept, next = size_t{0}](int64_t) mutable {
    return kept[next++ % kept.size()];
  };
  heap.free = [](void*) {};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result RunChurn(int which, int steps) {
  auto context = bench::MakeContext(1);
  Heap heap = MakeHeap(which == kNoHeap ? kOurs : which, context->cpu());
  Result result;
  if (heap.allocate == nullptr) return result;
  const std::vector<int64_t> sizes = ChurnSizes();
  if (which == kNoHeap) KeepBuffers(sizes, heap);
  std::vector<void*> blocks(sizes.size());
  std::vector<double> seconds;
  long faults = 0;
  for (int step = -3; step < steps; ++step) {
    if (step == 0) faults = Usage().ru_minflt;
    const double start = Seconds();
    for (size_t i = 0; i < sizes.size(); ++i) {
      blocks[i] = heap.allocate(sizes[i]);
      std::memset(blocks[i], step, static_cast<size_t>(sizes[i]));
    }
    for (void* block : blocks) heap.free(block);
    if (step >= 0) seconds.push_back(Seconds() - start);
  }
  result.ran = true;
  result.seconds_per_step = Median(seconds);
  result.faults_per_step =
      static_cast<double>(Usage().ru_minflt - faults) / steps;
  for (double& second : seconds) {
    const double start = Seconds();
    for (size_t i = 0; i < sizes.size(); ++i) {
      blocks[i] = heap.allocate(sizes[i]);
    }
    for (void* block : blocks) heap.free(block);
    second = Seconds() - start;
  }
  result.call_seconds = Median(seconds);
  return result;
}

// Medians of a step, after 3 for warm-up: all of it, which the writes bound
// ("buffers kept" is those alone), the same without writes, page faults.
void BM_StepChurn(benchmark::State& state) {
  const auto which = static_cast<int>(state.range(0));
  Result result;
  for ([[maybe_unused]] auto _ : state) {
    result =
        InOwnProcess([&] { return RunChurn(which, which == kGlibc ? 3 : 40); });
    state.SetIterationTime(result.seconds_per_step);
  }
  if (!result.ran) return state.SkipWithError("library not installed");
  state.SetLabel(Name(which));
  state.counters["ms_per_step"] = result.seconds_per_step * 1e3;
  state.counters["calls_us"] = result.call_seconds * 1e6;
  state.counters["faults_per_step"] = result.faults_per_step;
}
BENCHMARK(BM_StepChurn)
    ->ArgName("heap")
    ->DenseRange(kOurs, kNoHeap)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

Result RunTrace(int which, const internal::AllocationTrace& trace) {
  constexpr size_t kWarmUp = 8;
  auto context = bench::MakeContext(1);
  const Heap heap = MakeHeap(which, context->cpu());
  Result result;
  if (heap.allocate == nullptr) return result;
  std::vector<void*> blocks(static_cast<size_t>(trace.num_blocks), &result);
  StartPeak();
  const double peak_at_start = PeakBytes();
  double start = 0;
  long faults = 0;
  size_t step = 0;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const internal::TraceOp& op = trace.ops[i];
    void*& block = blocks[static_cast<size_t>(op.block)];
    if (op.bytes < 0) {
      heap.free(block);
    } else {
      block = heap.allocate(op.bytes);
      for (int64_t byte = 0; byte < op.bytes; byte += 4096) {
        static_cast<volatile char*>(block)[byte] = 1;
      }
    }
    if (i + 1 == trace.step_ends[step] && ++step == kWarmUp) {
      start = Seconds();
      faults = Usage().ru_minflt;
    }
  }
  const auto steps = static_cast<double>(trace.step_ends.size() - kWarmUp);
  result.ran = true;
  result.seconds_per_step = (Seconds() - start) / steps;
  result.faults_per_step =
      static_cast<double>(Usage().ru_minflt - faults) / steps;
  result.peak_bytes = PeakBytes() - peak_at_start;
  if (which == kOurs) {
    result.reserved_bytes =
        static_cast<double>(context->cpu().allocator().stats().peak_reserved);
  }
  return result;
}

// 64 steps of varying length (internal/allocation_trace.h); every page of a
// block is touched once. For all heaps alike, "frag_%" is the growth of the
// process's highest resident size over the highest sum of the bytes asked for,
// less one; "reserved_frag_%" is the same by our allocator's own account.
void BM_VaryingLengths(benchmark::State& state) {
  const auto which = static_cast<int>(state.range(0));
  const internal::AllocationTrace trace = internal::TraceWriter({}).Write();
  Result result;
  for ([[maybe_unused]] auto _ : state) {
    result = InOwnProcess([&] { return RunTrace(which, trace); });
    state.SetIterationTime(result.seconds_per_step);
  }
  if (!result.ran) return state.SkipWithError("library not installed");
  const auto asked = static_cast<double>(trace.peak_bytes);
  state.SetLabel(Name(which));
  state.counters["ms_per_step"] = result.seconds_per_step * 1e3;
  state.counters["faults_per_step"] = result.faults_per_step;
  state.counters["peak_MB"] = asked * 1e-6;
  state.counters["frag_%"] = (result.peak_bytes / asked - 1) * 100;
  if (which == kOurs) {
    state.counters["reserved_frag_%"] =
        (result.reserved_bytes / asked - 1) * 100;
  }
}
BENCHMARK(BM_VaryingLengths)
    ->ArgName("heap")
    ->DenseRange(kOurs, kMimalloc)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// One block allocated and freed again: the bookkeeping alone.
void BM_AllocateFree(benchmark::State& state) {
  auto context = bench::MakeContext(1);
  Device& device = context->cpu();
  std::vector<void*> others;  // live neighbours
  others.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    others.push_back(device.allocator().Allocate(
        state.range(0), MemoryTag::kActivations, device.compute_stream()));
  }
  for (size_t i = 0; i < others.size(); i += 2) {
    device.allocator().Free(others[i]);
  }
  for ([[maybe_unused]] auto _ : state) {
    device.allocator().Free(device.allocator().Allocate(
        state.range(0), MemoryTag::kActivations, device.compute_stream()));
  }
}
BENCHMARK(BM_AllocateFree)->ArgName("bytes")->Arg(256)->Arg(1 << 20);

}  // namespace

}  // namespace espalier
