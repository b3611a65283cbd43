#ifndef ESPALIER_RUNTIME_THREAD_POOL_H_
#define ESPALIER_RUNTIME_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace espalier {

// A host application's own threads. Run(num_tasks, task) calls task(i) once
// for every i in [0, num_tasks), from any threads, and returns when all have
// returned. Tasks do not throw and never wait for one another.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int num_threads() const = 0;
  virtual void Run(int num_tasks, absl::FunctionRef<void(int)> task) = 0;
};

// All parallel work of the project. The caller's thread takes part; workers
// spin for about a millisecond after a region and then park. A worker that is
// late (parked, or its CPU is busy) is not waited for unless it holds a chunk.
// Workers take no signals.
// Thread-safe: regions started from several threads run one after another.
// A region inside a region, and a region of one chunk, is a plain loop on the
// calling thread.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;
  // num_threads counts the caller; 1 to kMaxThreads. With an executor the pool
  // owns no threads; `executor` must outlive the pool. Fails RESOURCE_EXHAUSTED
  // when the system refuses a thread.
  explicit ThreadPool(int num_threads, Executor* executor = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls fn(begin, end) for the chunks [i * grain, min(n, (i + 1) * grain))
  // of [0, n), each once, in any order and from any thread of the pool. The
  // chunks depend on n and grain alone. n >= 0, grain >= 1. A Failure in fn
  // reaches the caller after every running chunk has ended; chunks not yet
  // started are then skipped. Of several, that of the lowest chunk is thrown,
  // whatever the timing.
  void ParallelFor(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t, int64_t)> fn);

  // Lets the workers sleep at once (between steps).
  void Park();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_THREAD_POOL_H_
