#ifndef ESPALIER_RUNTIME_INTERNAL_SIM_ENGINE_H_
#define ESPALIER_RUNTIME_INTERNAL_SIM_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "espalier/runtime/internal/sim_order.h"
#include "espalier/runtime/mutex.h"
#include "espalier/runtime/stream.h"

namespace espalier::internal {

// The streams of an emulated device: a queue and a worker thread each, with
// random delays between the items, and one judge (SimOrder) of all they do.
//
// The first failure, of queued work or of its order, stays: from then on work
// is skipped and every call that can fail reports it. Thread-safe.
class SimEngine {
 public:
  SimEngine(std::vector<std::string> stream_names, uint64_t seed);
  ~SimEngine();
  SimEngine(const SimEngine&) = delete;
  SimEngine& operator=(const SimEngine&) = delete;

  Stream& stream(int index);
  // Queues work of the allocator's own, which orders it itself.
  void Fill(Stream& stream, void* data, int64_t bytes, int value);
  // Waits for all work and ends the workers. No calls to streams after it.
  void Finish();

  // Blocks as the allocator hands them out. RemoveBlock says whether the
  // memory may be used again; else the device has failed.
  void AddBlock(const void* data, int64_t bytes, Stream& owner);
  void AddUser(const void* data, Stream& user);
  bool RemoveBlock(const void* data);

 private:
  class SimStream;
  struct Item {
    std::string op;
    std::function<void()> work;
    int source = -1;  // of an event to wait for
    uint64_t position = 0;
  };
  struct Queue {
    std::unique_ptr<SimStream> stream;
    std::deque<Item> items;
    uint64_t queued = 0;
    uint64_t done = 0;
    std::thread worker;
    std::thread::id worker_id;
  };

  int IndexOf(const Stream* stream) const;
  void Enqueue(int index, absl::string_view op,
               absl::Span<const Access> accesses, std::function<void()> work);
  Event Record(int index);
  void Wait(int index, const Event& event);
  bool Passed(const Event& event);
  void Synchronize(int index);
  void Push(int index, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckAlive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(int index, uint64_t seed);

  Mutex mutex_;
  CondVar changed_;  // a queue grew, an item is done, or the end has come
  SimOrder order_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  // The vector, the streams and the threads are fixed; the rest of a Queue is
  // guarded by mutex_.
  std::vector<Queue> queues_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_SIM_ENGINE_H_
