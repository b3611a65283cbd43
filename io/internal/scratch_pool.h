#ifndef ESPALIER_IO_INTERNAL_SCRATCH_POOL_H_
#define ESPALIER_IO_INTERNAL_SCRATCH_POOL_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Working memory that calls of several threads borrow and give back, so that
// each finds what an earlier one left. Thread-safe.
template <typename T>
class ScratchPool {
 public:
  // A loan, given back when it goes; the pool must outlive it.
  class Loan {
   public:
    explicit Loan(ScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
    ~Loan() { pool_.Give(std::move(scratch_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    T& operator*() { return *scratch_; }
    T* operator->() { return scratch_.get(); }

   private:
    ScratchPool& pool_;
    std::unique_ptr<T> scratch_;
  };

 private:
  // No more threads than this keep what they have seen.
  static constexpr size_t kMaxIdle = 64;

  std::unique_ptr<T> Take() {
    MutexLock lock(mutex_);
    if (idle_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> scratch = std::move(idle_.back());
    idle_.pop_back();
    return scratch;
  }
  void Give(std::unique_ptr<T> scratch) {
    MutexLock lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(scratch));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SCRATCH_POOL_H_
