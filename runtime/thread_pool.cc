#include "espalier/runtime/thread_pool.h"

#include <algorithm>

namespace espalier {

class ThreadPool::Impl {
 public:
  explicit Impl(int num_threads) : num_threads(num_threads) {}
  const int num_threads;
};

ThreadPool::ThreadPool(int num_threads, Executor*)
    : impl_(std::make_unique<Impl>(num_threads)) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::num_threads() const { return impl_->num_threads; }

void ThreadPool::ParallelFor(int64_t n, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t)> fn) {
  for (int64_t begin = 0; begin < n; begin += grain) {
    fn(begin, std::min(n, begin + grain));
  }
}

void ThreadPool::Park() {}

}  // namespace espalier
