#ifndef ESPALIER_RUNTIME_STREAM_H_
#define ESPALIER_RUNTIME_STREAM_H_

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

class Stream;

// A point in the order of a stream's work: everything queued before Record().
struct Event {
  const Stream* stream = nullptr;
  uint64_t position = 0;
};

// One piece of memory that queued work reads or writes.
struct Access {
  const void* data = nullptr;  // anywhere inside one allocation
  int64_t bytes = 0;
  bool write = false;
};

// An in-order queue of work of one device. Work of two streams is ordered only
// through events. On the cpu device queueing runs the work at once.
// Driven by one host thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual absl::string_view name() const = 0;
  // Queues work. `accesses` names all device memory it touches.
  virtual void Enqueue(absl::string_view op, absl::Span<const Access> accesses,
                       std::function<void()> work) = 0;
  virtual Event Record() = 0;
  // Later work of this stream starts after the event has passed.
  virtual void Wait(const Event& event) = 0;
  // Whether the event, of this stream, has passed. Orders nothing: work that
  // relies on it waits for it. May be called from any thread, as Record().
  virtual bool Passed(const Event& event) const = 0;
  // Blocks the host until all queued work is done. Rethrows, as Failure, the
  // first failure of queued work.
  virtual void Synchronize() = 0;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_STREAM_H_
