#ifndef ESPALIER_IO_INTERNAL_JSON_PARSER_H_
#define ESPALIER_IO_INTERNAL_JSON_PARSER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// Receives a JSON text piece by piece. A call that fails ends the parse with
// its status. Strings are valid UTF-8 and may be moved from.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual absl::Status Null() = 0;
  virtual absl::Status Bool(bool value) = 0;
  virtual absl::Status Unsigned(uint64_t value) = 0;  // no sign, no fraction
  virtual absl::Status Negative(int64_t value) = 0;   // a minus sign; -0 too
  virtual absl::Status Double(double value) = 0;      // all other numbers
  virtual absl::Status String(std::string& value) = 0;
  virtual absl::Status StartObject() = 0;
  virtual absl::Status Key(std::string& key) = 0;
  virtual absl::Status EndObject() = 0;
  virtual absl::Status StartArray() = 0;
  virtual absl::Status EndArray() = 0;
};

inline constexpr int kMaxJsonDepth = 100;

// Strict RFC 8259: no byte order mark, comments, NUL bytes, trailing commas,
// raw control characters, invalid UTF-8 or lone surrogates. Duplicate keys are
// the receiver's to refuse. Fails INVALID_ARGUMENT, with the position, and
// where arrays and objects nest deeper than kMaxJsonDepth. Uses no recursion.
absl::Status ParseJson(absl::string_view text, JsonEvents& events);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JSON_PARSER_H_
