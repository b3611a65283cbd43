#ifndef ESPALIER_IO_JSON_H_
#define ESPALIER_IO_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

struct JsonMember;

// A JSON value. Objects keep the order of their text, and no key stands twice.
// Numbers without fraction and exponent that fit int64 are integers.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  JsonValue();  // null
  // NOLINTBEGIN(google-explicit-constructor): literals stand for values
  JsonValue(bool value);
  JsonValue(int value);
  JsonValue(int64_t value);
  JsonValue(double value);
  JsonValue(const char* value);
  JsonValue(absl::string_view value);
  JsonValue(std::string value);
  JsonValue(Array value);
  JsonValue(Object value);
  // NOLINTEND(google-explicit-constructor)
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  bool is_null() const;
  // Null when the value is of another kind.
  const bool* AsBool() const;
  const int64_t* AsInt() const;
  const double* AsDouble() const;  // not for integers
  const std::string* AsString() const;
  const Array* AsArray() const;
  const Object* AsObject() const;
  Object* AsObject();

  // Of an object; null when there is none, or this is no object.
  const JsonValue* Find(absl::string_view key) const;
  // Replaces or adds a member of an object; a null value becomes an object.
  void Set(absl::string_view key, JsonValue value);

  // "a string", "an object", ... for messages.
  absl::string_view kind() const;

 private:
  enum class Kind : uint8_t {
    kNull,
    kBool,
    kInt,
    kDouble,
    kString,
    kArray,
    kObject,
  };

  // Only the field of the kind is in use.
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  int64_t int_ = 0;
  double double_ = 0;
  std::string string_;
  Array array_;
  Object object_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Strict RFC 8259 text without a byte order mark; a key that stands twice in
// one object is refused. Fails INVALID_ARGUMENT with the position.
absl::StatusOr<JsonValue> ParseJsonText(absl::string_view text);

// The same for a file, named in the message.
absl::StatusOr<JsonValue> ReadJsonFile(const std::string& path,
                                       int64_t max_bytes = int64_t{64} << 20);

// Text with the keys of every object ascending, so that equal values give
// equal bytes; ends with a newline when `indent` > 0, one line without it.
// Doubles are written so that they read back bit-equal. Fails INVALID_ARGUMENT
// on NaN, infinity and text that is not UTF-8.
absl::StatusOr<std::string> WriteJson(const JsonValue& value, int indent = 2);

}  // namespace espalier

#endif  // ESPALIER_IO_JSON_H_
