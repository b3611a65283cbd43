#include "espalier/tests/bench/ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/runtime/cpu_count.h"
#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/thread_pool.h"
#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Far out of the last-level cache, small enough for a few milliseconds a pass.
constexpr int64_t kBufferBytes = int64_t{128} << 20;
constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kFlopRounds = 100'000;  // about 0.2 ms
constexpr int64_t kFlopChunks = 8;        // for each thread
// Longer than the workers of another pool spin.
constexpr std::chrono::milliseconds kQuiet(2);

struct FlopLoop {
  float (*run)(int64_t rounds);
  int flops_per_instruction;
};

FlopLoop BaselineLoop() {
#if defined(ESPALIER_X86)
  return {FmaAvx2, 2 * 8};
#else
  return {FmaNeon, 2 * 4};
#endif
}

FlopLoop F32Loop() {
#if defined(ESPALIER_AVX512)
  if (DetectIsa() >= Isa::kAvx512) return {FmaAvx512, 2 * 16};
#endif
  return BaselineLoop();
}

FlopLoop Bf16Loop() {
#if defined(ESPALIER_AVX512)
  if (DetectIsa() == Isa::kAvx512Bf16) return {DotBf16Avx512, 4 * 16};
#elif defined(ESPALIER_ARM64)
  if (DetectIsa() == Isa::kArmBf16) return {DotBf16Arm, 4 * 4};
#endif
  return F32Loop();
}

void Read(const char* from, int64_t bytes) {
#if defined(ESPALIER_X86)
  benchmark::DoNotOptimize(ReadAvx2(from, bytes));
#else
  benchmark::DoNotOptimize(ReadNeon(from, bytes));
#endif
}

void Copy(char* to, const char* from, int64_t bytes) {
#if defined(ESPALIER_X86)
  CopyAvx2(to, from, bytes);
#else
  CopyNeon(to, from, bytes);
#endif
}

void StreamCopy(char* to, const char* from, int64_t bytes) {
#if defined(ESPALIER_X86)
  StreamAvx2(to, from, bytes);
#else
  CopyNeon(to, from, bytes);
#endif
}

// Huge pages and one write to every page, so that no pass meets a fault.
char* MapBuffer() {
  void* const data = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    std::perror("ceilings: mmap");
    std::abort();
  }
  madvise(data, kBufferBytes, MADV_HUGEPAGE);
  std::memset(data, 1, kBufferBytes);
  return static_cast<char*>(data);
}

// Buffers and threads of the measurements, made at the first one.
class Meter {
 public:
  static Meter& Get() {
    static Meter meter;
    return meter;
  }

  double Sample(Peak peak, int num_threads) {
    if (pool_ == nullptr || pool_->num_threads() != num_threads) {
      pool_ = std::make_unique<ThreadPool>(num_threads);
    }
    switch (peak) {
      case Peak::kF32:
        return Flops(F32Loop());
      case Peak::kF32Baseline:
        return Flops(BaselineLoop());
      case Peak::kBf16:
        return Flops(Bf16Loop());
      case Peak::kRead:
        return Bytes(1, [this](int64_t i, int64_t n) { Read(from_ + i, n); });
      case Peak::kCopy:
        return std::max(
            Bytes(2, [this](int64_t i,
                            int64_t n) { Copy(to_ + i, from_ + i, n); }),
            Bytes(2, [this](int64_t i, int64_t n) {
              StreamCopy(to_ + i, from_ + i, n);
            }));
    }
    return 0;
  }

  void Park() { pool_->Park(); }

 private:
  template <typename Fn>
  double Seconds(int64_t n, int64_t grain, Fn fn) {
    // An empty region first: parked workers wake outside the clock.
    pool_->ParallelFor(pool_->num_threads(), 1, [](int64_t, int64_t) {});
    const Clock::time_point start = Clock::now();
    pool_->ParallelFor(n, grain, fn);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double Flops(const FlopLoop& loop) {
    const int64_t chunks = kFlopChunks * pool_->num_threads();
    const double seconds = Seconds(chunks, 1, [&](int64_t, int64_t) {
      benchmark::DoNotOptimize(loop.run(kFlopRounds));
    });
    return static_cast<double>(chunks * kFlopRounds * kChains *
                               loop.flops_per_instruction) /
           seconds;
  }

  template <typename Fn>
  double Bytes(int passes_counted, Fn fn) {
    const double seconds =
        Seconds(kBufferBytes, kChunkBytes,
                [&](int64_t begin, int64_t end) { fn(begin, end - begin); });
    return static_cast<double>(passes_counted * kBufferBytes) / seconds;
  }

  char* const from_ = MapBuffer();
  char* const to_ = MapBuffer();
  std::unique_ptr<ThreadPool> pool_;
};

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Report(benchmark::State& state, const char* name, double amount, Peak peak,
            int num_threads) {
  const double ceiling = MeasurePeak(peak, num_threads);
  const double total = amount * static_cast<double>(state.iterations());
  state.counters[name] =
      benchmark::Counter(total / 1e9, benchmark::Counter::kIsRate);
  state.counters["share"] =
      benchmark::Counter(total / ceiling, benchmark::Counter::kIsRate);
}

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <typename T>
void FillRandom(const Tensor& tensor, uint64_t seed) {
  T* const data = tensor.mutable_data<T>();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto bits = static_cast<double>(NextRandom(seed) >> 11);
    data[i] = T(bits * 0x1p-52 - 1.0);
  }
}

}  // namespace

absl::string_view ToString(Peak peak) {
  switch (peak) {
    case Peak::kF32:
      return "f32";
    case Peak::kF32Baseline:
      return "f32 baseline";
    case Peak::kBf16:
      return "bf16";
    case Peak::kRead:
      return "read";
    case Peak::kCopy:
      return "copy";
  }
  return "unknown";
}

double MeasurePeak(Peak peak, int num_threads, int samples) {
  Meter& meter = Meter::Get();
  std::this_thread::sleep_for(kQuiet);
  double best = 0;
  for (int i = 0; i < samples; ++i) {
    best = std::max(best, meter.Sample(peak, num_threads));
  }
  meter.Park();
  return best;
}

void ReportFlops(benchmark::State& state, double flops, Peak peak,
                 int num_threads) {
  Report(state, "GFLOP/s", flops, peak, num_threads);
}

void ReportBytes(benchmark::State& state, double bytes, int num_threads,
                 Peak peak) {
  Report(state, "GB/s", bytes, peak, num_threads);
}

std::vector<std::pair<std::string, std::string>> DescribeMachine(int rounds) {
  constexpr std::array kPeaks = {Peak::kF32, Peak::kF32Baseline, Peak::kBf16,
                                 Peak::kRead, Peak::kCopy};
  std::vector<int> thread_counts = {1};
  if (MaxThreads() > 1) thread_counts.push_back(MaxThreads());
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("isa", std::string(ToString(DetectIsa())));
  for (int num_threads : thread_counts) {
    std::array<std::vector<double>, kPeaks.size()> rates;
    for (int round = 0; round < rounds; ++round) {
      for (size_t p = 0; p < kPeaks.size(); ++p) {
        rates[p].push_back(MeasurePeak(kPeaks[p], num_threads, 1));
      }
    }
    for (size_t p = 0; p < kPeaks.size(); ++p) {
      const bool flops = kPeaks[p] != Peak::kRead && kPeaks[p] != Peak::kCopy;
      lines.emplace_back(
          absl::StrCat("ceiling, ", num_threads, " thread",
                       num_threads == 1 ? "" : "s", ", ", ToString(kPeaks[p])),
          absl::StrFormat("%.1f %s", Median(rates[p]) / 1e9,
                          flops ? "GFLOP/s" : "GB/s"));
    }
  }
  return lines;
}

int MaxThreads() { return UsableCpus(); }

std::unique_ptr<Context> MakeContext(int num_threads,
                                     std::optional<Isa> max_isa) {
  ContextOptions options;
  options.num_threads = num_threads;
  options.max_isa = max_isa;
  auto context = Context::Create(options);
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", context.status().ToString().c_str());
    std::abort();
  }
  return *std::move(context);
}

Tensor RandomTensor(Device& device, const Shape& shape, DType dtype,
                    uint64_t seed) {
  Tensor host = Tensor::Empty(device.context().cpu(), shape, dtype);
  switch (dtype) {
    case kF64:
      FillRandom<double>(host, seed);
      break;
    case kF32:
      FillRandom<float>(host, seed);
      break;
    case kBF16:
      FillRandom<BFloat16>(host, seed);
      break;
    case kF16:
      FillRandom<Float16>(host, seed);
      break;
    default:
      std::fprintf(stderr, "RandomTensor: not a float type\n");
      std::abort();
  }
  return device.type() == kCpu ? host : host.CopyTo(device);
}

}  // namespace espalier::bench
