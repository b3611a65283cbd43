#ifndef ESPALIER_RUNTIME_LOG_H_
#define ESPALIER_RUNTIME_LOG_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace espalier {

enum class Severity : uint8_t { kDebug, kInfo, kWarning, kError };

// "debug", "info", ...
absl::string_view ToString(Severity severity);

// Where the engine's messages go: the host's logger, a terminal, a test. The
// library itself never prints. What a caller must act on is a Status; messages
// tell what happened on the way.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // One message, one or more lines without a newline at the end. Called from
  // any thread of a context, by one at a time. Must not throw and must not
  // call back into the engine. `message` is gone after the call.
  virtual void Write(Severity severity, absl::string_view message) = 0;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_LOG_H_
