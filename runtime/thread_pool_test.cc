#include "espalier/runtime/thread_pool.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/mutex.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

// Runs each task on a fresh thread, or all on the caller's.
class TestExecutor final : public Executor {
 public:
  explicit TestExecutor(int num_threads, bool spawn = true)
      : num_threads_(num_threads), spawn_(spawn) {}
  int num_threads() const override { return num_threads_; }
  void Run(int num_tasks, absl::FunctionRef<void(int)> task) override {
    ++num_runs;
    std::vector<std::thread> threads;
    for (int i = 0; i < num_tasks; ++i) {
      if (spawn_) {
        threads.emplace_back([task, i] { task(i); });
      } else {
        task(i);
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::atomic<int> num_runs{0};

 private:
  const int num_threads_;
  const bool spawn_;
};

// Adds up how often each index of [0, n) is visited.
std::vector<int> CountVisits(ThreadPool& pool, int64_t n, int64_t grain) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
  pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      visits[static_cast<size_t>(i)].fetch_add(1);
    }
  });
  return {visits.begin(), visits.end()};
}

TEST(ThreadPoolTest, VisitsEachIndexOnce) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int64_t n : {0, 1, 2, 3, 64, 1000}) {
      for (int64_t grain : {1, 2, 7, 999, 1000, 5000}) {
        EXPECT_THAT(CountVisits(pool, n, grain), ::testing::Each(1))
            << num_threads << " threads, " << n << " by " << grain;
      }
    }
  }
}

TEST(ThreadPoolTest, ChunksDependOnSizeAndGrainAlone) {
  using Chunks = std::set<std::pair<int64_t, int64_t>>;
  const Chunks expected = {{0, 4}, {4, 8}, {8, 11}};
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    Mutex mutex;
    Chunks chunks;
    pool.ParallelFor(11, 4, [&](int64_t begin, int64_t end) {
      MutexLock lock(mutex);
      chunks.emplace(begin, end);
    });
    EXPECT_EQ(chunks, expected);
  }
}

TEST(ThreadPoolTest, HugeGrainDoesNotOverflow) {
  ThreadPool pool(2);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> total{0};
  pool.ParallelFor(kMax, kMax / 2, [&](int64_t begin, int64_t end) {
    total.fetch_add(end - begin);
  });
  EXPECT_EQ(total.load(), kMax);
}

TEST(ThreadPoolTest, TwoThreadsWorkAtOnce) {
  ThreadPool pool(2);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1);  // each chunk waits for the other
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, OneThreadMeansTheCaller) {
  ThreadPool pool(1);
  const std::thread::id self = std::this_thread::get_id();
  pool.ParallelFor(10, 1, [&](int64_t, int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), self);
  });
}

void RunNested(ThreadPool& pool) {
  std::atomic<int> visits{0};
  std::atomic<int> strangers{0};
  pool.ParallelFor(8, 1, [&](int64_t, int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool.ParallelFor(5, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != self) strangers.fetch_add(1);
      pool.ParallelFor(3, 1, [&](int64_t, int64_t) { visits.fetch_add(1); });
    });
    pool.Park();  // inside a region: no effect
  });
  EXPECT_EQ(visits.load(), 8 * 5 * 3);
  EXPECT_EQ(strangers.load(), 0);
}

TEST(ThreadPoolTest, NestedRegionsRunOnTheCallingThread) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 20; ++round) RunNested(pool);
  }
}

TEST(ThreadPoolTest, TwoPoolsNest) {
  ThreadPool outer(2);
  ThreadPool inner(2);
  std::atomic<int> visits{0};
  for (int round = 0; round < 50; ++round) {
    outer.ParallelFor(4, 1, [&](int64_t, int64_t) {
      inner.ParallelFor(4, 1, [&](int64_t, int64_t) { visits.fetch_add(1); });
    });
  }
  EXPECT_EQ(visits.load(), 50 * 4 * 4);
}

TEST(ThreadPoolTest, RegionsOfSeveralThreadsRunOneAfterAnother) {
  ThreadPool pool(3);
  std::atomic<int> current{0};  // the region that runs; 0: none
  std::atomic<int> overlaps{0};
  std::vector<std::thread> callers;
  for (int caller = 1; caller <= 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int> left{4};
        pool.ParallelFor(4, 1, [&](int64_t, int64_t) {
          const int found = current.exchange(caller);
          if (found != 0 && found != caller) overlaps.fetch_add(1);
          if (left.fetch_sub(1) == 1) current.store(0);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(overlaps.load(), 0);
}

// The message of the failure of a region in which the given chunks fail.
std::string FailureOf(ThreadPool& pool, const std::set<int64_t>& failing,
                      int64_t num_chunks) {
  return std::string(internal::Guard([&] {
                       pool.ParallelFor(num_chunks, 1, [&](int64_t i, int64_t) {
                         if (failing.contains(i)) {
                           internal::Fail(
                               absl::DataLossError(absl::StrCat("chunk ", i)));
                         }
                       });
                     }).message());
}

TEST(ThreadPoolTest, LowestFailureReachesTheCaller) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 100; ++round) {
      EXPECT_EQ(FailureOf(pool, {3, 4, 5, 6, 30}, 40), "chunk 3");
      EXPECT_EQ(FailureOf(pool, {39}, 40), "chunk 39");
      EXPECT_EQ(FailureOf(pool, {}, 40), "");
    }
    EXPECT_THAT(CountVisits(pool, 100, 1), ::testing::Each(1));
  }
}

TEST(ThreadPoolTest, ChunksAfterAFailureAreSkipped) {
  ThreadPool pool(2);
  std::atomic<int64_t> visits{0};
  constexpr int64_t kChunks = 1'000'000;
  const absl::Status status = internal::Guard([&] {
    pool.ParallelFor(kChunks, 1, [&](int64_t i, int64_t) {
      visits.fetch_add(1);
      if (i == 0) internal::Fail(absl::AbortedError("first"));
    });
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_LT(visits.load(), kChunks);
}

TEST(ThreadPoolTest, RefusesImpossibleRegions) {
  ThreadPool pool(2);
  const auto status = [&](int64_t n, int64_t grain) {
    return internal::Guard(
        [&] { pool.ParallelFor(n, grain, [](int64_t, int64_t) {}); });
  };
  EXPECT_THAT(status(-1, 1).message(), HasSubstr("parallel for of -1 by 1"));
  EXPECT_THAT(status(4, 0).message(), HasSubstr("parallel for of 4 by 0"));
  EXPECT_THAT(internal::Guard([] { ThreadPool(0); }).message(),
              HasSubstr("thread pool of 0 threads"));
}

TEST(ThreadPoolTest, HostExecutorRunsTheChunks) {
  for (bool spawn : {true, false}) {
    TestExecutor executor(3, spawn);
    ThreadPool pool(executor.num_threads(), &executor);
    EXPECT_EQ(pool.num_threads(), 3);
    EXPECT_THAT(CountVisits(pool, 100, 7), ::testing::Each(1));
    EXPECT_EQ(executor.num_runs.load(), 1);
    RunNested(pool);
    EXPECT_EQ(executor.num_runs.load(), 2);
    EXPECT_EQ(FailureOf(pool, {5, 6, 7}, 40), "chunk 5");
    pool.Park();
    EXPECT_THAT(CountVisits(pool, 100, 1), ::testing::Each(1));
  }
}

// An executor that is shutting down may leave tasks out: the caller does them.
TEST(ThreadPoolTest, ChunksThatAnExecutorLeavesOutAreRun) {
  class Idle final : public Executor {
   public:
    int num_threads() const override { return 3; }
    void Run(int, absl::FunctionRef<void(int)>) override {}
  } executor;
  ThreadPool pool(executor.num_threads(), &executor);
  EXPECT_THAT(CountVisits(pool, 100, 7), ::testing::Each(1));
  EXPECT_EQ(FailureOf(pool, {5, 6, 7}, 40), "chunk 5");
}

TEST(ThreadPoolTest, ParkedWorkersComeBack) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    pool.Park();
    if (round % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
}

// CPU seconds of the process over a pause of the caller.
double CpuSecondsWhileIdle(std::chrono::milliseconds pause) {
  const std::clock_t start = std::clock();
  std::this_thread::sleep_for(pause);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(ThreadPoolTest, IdleWorkersCostNothing) {
  ThreadPool pool(2);
  CountVisits(pool, 100, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(CpuSecondsWhileIdle(std::chrono::milliseconds(100)), 0.01);
}

TEST(ThreadPoolTest, MoreThreadsThanCpusFinish) {
  ThreadPool pool(16);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t) { sum += begin; });
  }
  EXPECT_EQ(sum.load(), 200 * 64 * 63 / 2);
}

}  // namespace
}  // namespace espalier
