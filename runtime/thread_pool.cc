#include "espalier/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/cpu_count.h"
#include "espalier/runtime/mutex.h"

namespace espalier {

namespace {

using Clock = std::chrono::steady_clock;
using ChunkFn = absl::FunctionRef<void(int64_t, int64_t)>;

// Waking a halted virtual CPU takes 70-100 us, so workers stay awake through
// the serial gaps of a step. A pool with more threads than CPUs never gains by
// spinning.
constexpr std::chrono::microseconds kSpinBudget(1500);
constexpr std::chrono::microseconds kCrowdedSpinBudget(20);
// From here on a waiting thread offers its CPU at every look at the clock: the
// thread that it waits for may be queued behind it.
constexpr std::chrono::microseconds kYieldAfter(100);
constexpr int kPausesPerClock = 128;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Moves the calling thread to any other CPU that it may use. In a virtual
// machine the kernel takes a halted CPU for one that the host has preempted,
// and queues a woken thread on the CPU of the waker, behind it, for up to 5 ms.
void LeaveThisCpu() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  cpu_set_t others = usable;
  CPU_CLR(static_cast<size_t>(sched_getcpu()), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof(others), &others) == 0) {
    sched_setaffinity(0, sizeof(usable), &usable);
  }
}

// One wait: pauses, then pauses and yields, then says that it is enough.
class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds budget) : budget_(budget) {}

  // False once the budget is spent.
  bool Turn() {
    Pause();
    if (++turns_ % kPausesPerClock != 0) return true;
    const Clock::time_point now = Clock::now();
    if (turns_ == kPausesPerClock) start_ = now;
    if (now - start_ > budget_) return false;
    if (now - start_ > kYieldAfter) sched_yield();
    return true;
  }

 private:
  const std::chrono::microseconds budget_;
  int64_t turns_ = 0;
  Clock::time_point start_;
};

// Writes the calling thread's id into a slot for the mark's lifetime. A thread
// can meet its own id in a slot only if it put it there, so relaxed order will
// do.
class PresenceMark {
 public:
  explicit PresenceMark(std::atomic<std::thread::id>& slot) : slot_(slot) {
    slot_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~PresenceMark() { slot_.store(std::thread::id(), std::memory_order_relaxed); }
  PresenceMark(const PresenceMark&) = delete;
  PresenceMark& operator=(const PresenceMark&) = delete;

 private:
  std::atomic<std::thread::id>& slot_;
};

// The region being run. Written by its owner before the gate opens, read by
// those who passed the gate.
struct Region {
  int64_t n = 0;
  int64_t grain = 1;
  int64_t num_chunks = 0;
  const ChunkFn* fn = nullptr;
};

void RunChunk(const Region& region, int64_t chunk) {
  const int64_t begin = chunk * region.grain;
  const int64_t count = std::min(region.grain, region.n - begin);
  (*region.fn)(begin, begin + count);
}

// The gate: one word that says whether a region is open, how many more workers
// may enter it, how many are inside, and which region it is.
//   bit 0       open
//   bit 1       park: do not spin for the next region
//   bits 2-12   seats left
//   bits 13-23  workers inside
//   bits 24-63  number of the region
// Only the owner of the region, who holds region_mutex_, opens and closes it;
// workers trade a seat for a place inside and give the place back.
constexpr uint64_t kOpen = 1;
constexpr uint64_t kPark = 2;
constexpr uint64_t kSeat = uint64_t{1} << 2;
constexpr uint64_t kInside = uint64_t{1} << 13;
constexpr uint64_t kRegion = uint64_t{1} << 24;
constexpr uint64_t kSeatMask = kInside - kSeat;
constexpr uint64_t kInsideMask = kRegion - kInside;

}  // namespace

// The padding keeps words that different threads write on lines of their own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): see above
class ThreadPool::Impl {
 public:
  Impl(int num_threads, Executor* executor);
  ~Impl() { StopWorkers(); }

  int num_threads() const { return num_threads_; }
  void ParallelFor(int64_t n, int64_t grain, const ChunkFn& fn);
  void Park();

 private:
  void StartWorkers();
  void StopWorkers();
  void WorkerLoop(int index);
  void WaitForWork(uint64_t seen);
  bool InRegion() const;
  void RunWithWorkers();
  void RunWithExecutor();
  void GrabChunks();
  void WakeWorkers(int wanted);
  void WaitForWorkers();
  void Rethrow();

  const int num_threads_;
  Executor* const executor_;
  const std::chrono::microseconds spin_budget_;

  Mutex region_mutex_;  // held by the thread whose region runs
  Region region_;       // guarded by the gate
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int64_t> next_chunk_{0};

  // Who is in a region of this pool. Workers are marked for life.
  alignas(64) std::atomic<std::thread::id> owner_{};
  std::vector<std::atomic<std::thread::id>> helpers_;

  alignas(64) std::atomic<int> num_parked_{0};
  std::atomic<bool> owner_parked_{false};
  std::atomic<int> owner_cpu_{-1};  // of the owner when it last woke workers
  std::atomic<bool> stopping_{false};
  Mutex park_mutex_;
  CondVar work_arrived_;
  CondVar workers_left_;

  Mutex failure_mutex_;
  int64_t failed_chunk_ ABSL_GUARDED_BY(failure_mutex_) = 0;
  std::exception_ptr failure_ ABSL_GUARDED_BY(failure_mutex_);

  std::vector<std::thread> workers_;
};

ThreadPool::Impl::Impl(int num_threads, Executor* executor)
    : num_threads_(num_threads),
      executor_(executor),
      spin_budget_(num_threads <= UsableCpus() ? kSpinBudget
                                               : kCrowdedSpinBudget),
      helpers_(static_cast<size_t>(std::max(num_threads, 1))) {
  ESPALIER_CHECK(num_threads >= 1 && num_threads <= kMaxThreads,
                 "thread pool of ", num_threads, " threads, expected 1 to ",
                 kMaxThreads);
  if (executor_ == nullptr) StartWorkers();
}

void ThreadPool::Impl::StartWorkers() {
  // Signals are the host application's: its own threads take them.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  std::error_code error;
  workers_.reserve(static_cast<size_t>(num_threads_ - 1));
  for (int i = 1; i < num_threads_ && !error; ++i) {
    try {
      workers_.emplace_back([this, i] { WorkerLoop(i); });
    } catch (const std::system_error& refused) {
      error = refused.code();
    }
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (!error) return;
  const size_t num_started = workers_.size();
  StopWorkers();
  internal::Fail(absl::ResourceExhaustedError(
      absl::StrCat("thread pool: the system started ", num_started, " of ",
                   num_threads_ - 1, " workers: ", error.message())));
}

void ThreadPool::Impl::StopWorkers() {
  stopping_.store(true);
  {
    MutexLock lock(park_mutex_);
    work_arrived_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::Impl::WorkerLoop(int index) {
  const PresenceMark mark(helpers_[static_cast<size_t>(index)]);
  uint64_t seen = 0;  // the region that was last entered or found full
  while (!stopping_.load(std::memory_order_relaxed)) {
    uint64_t gate = gate_.load(std::memory_order_acquire);
    if (gate / kRegion == seen || (gate & kOpen) == 0) {
      // Closed regions are news too: they restart the spinning.
      seen = gate / kRegion;
      WaitForWork(seen);
      continue;
    }
    if ((gate & kSeatMask) == 0) {
      seen = gate / kRegion;
      continue;
    }
    if (!gate_.compare_exchange_weak(gate, gate - kSeat + kInside)) continue;
    seen = gate / kRegion;
    GrabChunks();
    const uint64_t after = gate_.fetch_sub(kInside) - kInside;
    if ((after & (kInsideMask | kOpen)) == 0 && owner_parked_.load()) {
      MutexLock lock(park_mutex_);
      workers_left_.NotifyAll();
    }
  }
}

// Returns when another region than `seen` shows at the gate.
void ThreadPool::Impl::WaitForWork(uint64_t seen) {
  const auto idle = [&](uint64_t gate) {
    return gate / kRegion == seen && !stopping_.load();
  };
  Backoff backoff(spin_budget_);
  for (;;) {
    const uint64_t gate = gate_.load(std::memory_order_relaxed);
    if (!idle(gate)) return;
    if ((gate & kPark) != 0 || !backoff.Turn()) break;
  }
  {
    MutexLock lock(park_mutex_);
    num_parked_.fetch_add(1);
    // Pairs with WakeWorkers: either it sees the count or this sees the gate.
    while (idle(gate_.load())) work_arrived_.Wait(park_mutex_);
    num_parked_.fetch_sub(1);
  }
  if (sched_getcpu() == owner_cpu_.load(std::memory_order_relaxed)) {
    LeaveThisCpu();
  }
}

bool ThreadPool::Impl::InRegion() const {
  const std::thread::id owner = owner_.load(std::memory_order_relaxed);
  if (owner == std::thread::id()) return false;
  const std::thread::id self = std::this_thread::get_id();
  if (owner == self) return true;
  for (const std::atomic<std::thread::id>& helper : helpers_) {
    if (helper.load(std::memory_order_relaxed) == self) return true;
  }
  return false;
}

void ThreadPool::Impl::ParallelFor(int64_t n, int64_t grain,
                                   const ChunkFn& fn) {
  ESPALIER_CHECK(n >= 0 && grain >= 1, "parallel for of ", n, " by ", grain);
  const Region region{n, grain, CeilDiv(n, grain), &fn};
  if (region.num_chunks <= 1 || num_threads_ == 1 || InRegion()) {
    for (int64_t i = 0; i < region.num_chunks; ++i) RunChunk(region, i);
    return;
  }
  MutexLock lock(region_mutex_);
  const PresenceMark mark(owner_);
  region_ = region;
  next_chunk_.store(0, std::memory_order_relaxed);
  if (executor_ != nullptr) {
    RunWithExecutor();
  } else {
    RunWithWorkers();
  }
  Rethrow();
}

// Chunks are taken in ascending order and each taken chunk is run, so the
// lowest failing chunk always runs: which failure is reported does not depend
// on timing.
void ThreadPool::Impl::GrabChunks() {
  for (;;) {
    const int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= region_.num_chunks) return;
    try {
      RunChunk(region_, chunk);
    } catch (...) {
      next_chunk_.store(region_.num_chunks, std::memory_order_relaxed);
      MutexLock lock(failure_mutex_);
      if (failure_ == nullptr || chunk < failed_chunk_) {
        failed_chunk_ = chunk;
        failure_ = std::current_exception();
      }
    }
  }
}

void ThreadPool::Impl::RunWithWorkers() {
  const int64_t wanted =
      std::min<int64_t>(num_threads_ - 1, region_.num_chunks - 1);
  const uint64_t number = gate_.load(std::memory_order_relaxed) / kRegion + 1;
  gate_.store(number * kRegion + static_cast<uint64_t>(wanted) * kSeat + kOpen);
  WakeWorkers(static_cast<int>(wanted));
  GrabChunks();
  // Whoever has not come by now is not waited for.
  const uint64_t gate = gate_.fetch_and(~kOpen);
  if ((gate & kInsideMask) != 0) WaitForWorkers();
}

void ThreadPool::Impl::RunWithExecutor() {
  const int num_tasks =
      static_cast<int>(std::min<int64_t>(num_threads_, region_.num_chunks));
  executor_->Run(num_tasks, [this](int task) {
    const PresenceMark mark(helpers_[static_cast<size_t>(task)]);
    GrabChunks();
  });
  GrabChunks();  // what an executor that is shutting down left undone
}

void ThreadPool::Impl::WakeWorkers(int wanted) {
  const int num_parked = num_parked_.load();
  const int num_awake = num_threads_ - 1 - num_parked;
  if (num_parked == 0 || wanted <= num_awake) return;
  owner_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
  {
    MutexLock lock(park_mutex_);
    for (int i = num_awake; i < wanted; ++i) work_arrived_.NotifyOne();
  }
  sched_yield();
}

void ThreadPool::Impl::WaitForWorkers() {
  const auto inside = [this] { return (gate_.load() & kInsideMask) != 0; };
  Backoff backoff(spin_budget_);
  while (inside()) {
    if (backoff.Turn()) continue;
    MutexLock lock(park_mutex_);
    owner_parked_.store(true);
    while (inside()) workers_left_.Wait(park_mutex_);
    owner_parked_.store(false);
  }
}

void ThreadPool::Impl::Rethrow() {
  std::exception_ptr failure;
  {
    MutexLock lock(failure_mutex_);
    failure.swap(failure_);
  }
  if (failure != nullptr) std::rethrow_exception(std::move(failure));
}

void ThreadPool::Impl::Park() {
  if (InRegion()) return;
  MutexLock lock(region_mutex_);
  gate_.fetch_or(kPark);
}

ThreadPool::ThreadPool(int num_threads, Executor* executor)
    : impl_(std::make_unique<Impl>(num_threads, executor)) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::num_threads() const { return impl_->num_threads(); }
void ThreadPool::ParallelFor(int64_t n, int64_t grain, ChunkFn fn) {
  impl_->ParallelFor(n, grain, fn);
}
void ThreadPool::Park() { impl_->Park(); }

}  // namespace espalier
