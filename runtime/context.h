#ifndef ESPALIER_RUNTIME_CONTEXT_H_
#define ESPALIER_RUNTIME_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/log.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {

class Mutex;

struct ContextOptions {
  // 0: the executor's, or without one all that the process may use.
  int num_threads = 0;
  Executor* executor = nullptr;  // the host's threads; must outlive
  std::optional<Isa> max_isa = std::nullopt;  // none: what DetectIsa() finds
  // Of the cpu heap; none: no limit.
  std::optional<int64_t> memory_budget_bytes = std::nullopt;
  bool poison_memory = false;   // NaN fill at allocation and at free
  uint64_t sim_seed = 0;        // of the sim device's delays
  LogSink* log_sink = nullptr;  // must outlive; none: messages are dropped
  Severity min_severity = Severity::kInfo;  // of what reaches the sink
};

// Everything an instance of the engine owns beside its model: devices, thread
// pool, counters. Several contexts live side by side in one process and share
// nothing. Outlives every tensor made with it. Driven by one thread at a time.
class Context {
 public:
  static absl::StatusOr<std::unique_ptr<Context>> Create(
      const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& cpu() { return *cpu_; }
  Device& meta() { return *meta_; }
  Device& sim();  // made at the first call
  ThreadPool& pool() { return *pool_; }
  Isa isa() const { return isa_; }
  // Numbers autograd nodes in the order of their making.
  uint64_t NextSequence() { return next_sequence_.fetch_add(1); }
  // Whether a message would reach the sink: ask before composing a costly one.
  bool logs(Severity severity) const {
    return options_.log_sink != nullptr && severity >= options_.min_severity;
  }
  // Hands a message to the host's sink. Thread-safe.
  void Log(Severity severity, absl::string_view message);

 private:
  explicit Context(const ContextOptions& options);

  const ContextOptions options_;
  const Isa isa_;
  const std::unique_ptr<Mutex> log_mutex_;  // around each call of the sink
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Device> cpu_;
  std::unique_ptr<Device> meta_;
  std::unique_ptr<Device> sim_;
  std::atomic<uint64_t> next_sequence_{1};
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_CONTEXT_H_
