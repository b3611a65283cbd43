#include "espalier/runtime/background_worker.h"

#include <utility>

namespace espalier {

BackgroundWorker::BackgroundWorker() : thread_([this] { Run(); }) {}

BackgroundWorker::~BackgroundWorker() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void BackgroundWorker::Post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void BackgroundWorker::Run() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(mutex_);
      while (tasks_.empty() && !stop_) wake_.Wait(mutex_);
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace espalier
