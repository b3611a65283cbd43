#ifndef ESPALIER_RUNTIME_BACKGROUND_WORKER_H_
#define ESPALIER_RUNTIME_BACKGROUND_WORKER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"

#include "espalier/runtime/mutex.h"

namespace espalier {

// One thread for work that waits on files and must not hold up the thread pool.
// Tasks run one after another in the order they were posted. Thread-safe.
class BackgroundWorker {
 public:
  BackgroundWorker();
  // Finishes the task that runs; those that wait are dropped.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // `task` does not throw.
  void Post(std::function<void()> task);

 private:
  void Run();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_BACKGROUND_WORKER_H_
