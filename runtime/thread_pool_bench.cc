#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"

#include "espalier/runtime/thread_pool.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

void BusyWait(std::chrono::microseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

// Percentiles beside the mean that Google Benchmark prints: a region that
// meets a sleeping worker is rare and slow.
void ReportPercentiles(benchmark::State& state, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const auto at = [&](double p) {
    return us[static_cast<size_t>(p * static_cast<double>(us.size() - 1))];
  };
  state.counters["median_us"] = at(0.5);
  state.counters["p90_us"] = at(0.9);
  state.counters["p99_us"] = at(0.99);
}

// Manual time would repeat until the regions alone fill the minimum time, and
// wait out a gap each time: the gap sets the number of repetitions instead.
void OneSecondOfGaps(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"threads", "gap_us"})->UseManualTime();
  benchmark->Iterations(1000);
  for (int64_t gap_us : {0, 50, 1000}) benchmark->Args({2, gap_us});
}

// A region of one empty chunk for each thread after a serial gap.
void BM_EmptyRegion(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const std::chrono::microseconds gap(state.range(1));
  ThreadPool pool(threads);
  std::vector<double> us;
  for ([[maybe_unused]] auto _ : state) {
    BusyWait(gap);
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(threads, 1, [](int64_t, int64_t) {});
    const Clock::duration time = Clock::now() - start;
    us.push_back(Microseconds(time));
    state.SetIterationTime(std::chrono::duration<double>(time).count());
  }
  ReportPercentiles(state, std::move(us));
}
BENCHMARK(BM_EmptyRegion)->Apply(OneSecondOfGaps);

// The same where each chunk waits until all have begun, so that no thread can
// run two: the cost of real fork and join.
void BM_Rendezvous(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const std::chrono::microseconds gap(state.range(1));
  ThreadPool pool(threads);
  std::vector<double> us;
  for ([[maybe_unused]] auto _ : state) {
    BusyWait(gap);
    std::atomic<int> arrived{0};
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(threads, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < threads) {
      }
    });
    const Clock::duration time = Clock::now() - start;
    us.push_back(Microseconds(time));
    state.SetIterationTime(std::chrono::duration<double>(time).count());
  }
  ReportPercentiles(state, std::move(us));
}
BENCHMARK(BM_Rendezvous)->Apply(OneSecondOfGaps);

// Fork and join after Park(): the price of the first region of a step.
void BM_RendezvousAfterPark(benchmark::State& state) {
  ThreadPool pool(2);
  std::vector<double> us;
  for ([[maybe_unused]] auto _ : state) {
    pool.Park();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::atomic<int> arrived{0};
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < 2) {
      }
    });
    const Clock::duration time = Clock::now() - start;
    us.push_back(Microseconds(time));
    state.SetIterationTime(std::chrono::duration<double>(time).count());
  }
  ReportPercentiles(state, std::move(us));
}
BENCHMARK(BM_RendezvousAfterPark)->UseManualTime()->Iterations(200);

// 2 threads that share the machine with `neighbours` busy ones: 64 chunks of
// 20 us each. The ideal is 640 us times (2 + neighbours) / 2 CPUs.
void BM_BusyNeighbours(benchmark::State& state) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> neighbours;
  neighbours.reserve(static_cast<size_t>(state.range(0)));
  for (int64_t i = 0; i < state.range(0); ++i) {
    neighbours.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  ThreadPool pool(2);
  std::vector<double> us;
  for ([[maybe_unused]] auto _ : state) {
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(64, 1, [](int64_t, int64_t) {
      // About 20 us of CPU, however often it is interrupted.
      uint64_t x = 1;
      for (int i = 0; i < 20'000; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        benchmark::DoNotOptimize(x);
      }
    });
    us.push_back(Microseconds(Clock::now() - start));
  }
  ReportPercentiles(state, std::move(us));
  stop.store(true);
  for (std::thread& neighbour : neighbours) neighbour.join();
}
BENCHMARK(BM_BusyNeighbours)
    ->ArgName("neighbours")
    ->Arg(0)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();

}  // namespace
}  // namespace espalier
