#ifndef ESPALIER_IO_JSON_OBJECT_H_
#define ESPALIER_IO_JSON_OBJECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json.h"

namespace espalier {

// Reads the keys of a JSON object into the fields of a config struct and
// remembers which were read, so that a key nobody knows is not passed over.
//
//   JsonObject json = ...;
//   RETURN json.Get("hidden_size", &config.hidden_size);
//   RETURN json.GetOptional("rope_theta", &config.rope_theta);
//   for (const std::string& key : json.Unused()) ...
//
// A handle: copies and nested objects share the value and the account.
// Thread-compatible.
class JsonObject {
 public:
  JsonObject();  // empty
  // `where` goes in front of messages: a file, usually.
  static absl::StatusOr<JsonObject> Parse(absl::string_view text,
                                          std::string where);
  static absl::StatusOr<JsonObject> ReadFile(const std::string& path);
  // Fails when `value` is no object.
  static absl::StatusOr<JsonObject> From(JsonValue value, std::string where);

  // In the order of the text.
  std::vector<std::string> keys() const;
  // Whether the key is there with another value than null. Does not count as
  // reading it.
  bool Has(absl::string_view key) const;

  // Required: an absent key and null fail. T is bool, int, int64_t, double
  // (integers too), std::string, JsonObject, or a vector of one of these
  // (no bool). Fails INVALID_ARGUMENT: "config.json: rope_scaling.factor is a
  // string, expected a number".
  template <typename T>
  absl::Status Get(absl::string_view key, T* out) const {
    const JsonValue* value = Use(key);
    if (value == nullptr) return Missing(key);
    return Convert(*value, PathOf(key), out);
  }
  // Optional: an absent key and null leave *out as it is.
  template <typename T>
  absl::Status GetOptional(absl::string_view key, T* out) const {
    const JsonValue* value = Use(key);
    if (value == nullptr) return absl::OkStatus();
    return Convert(*value, PathOf(key), out);
  }
  // Any value, read as a whole; null when absent.
  const JsonValue* GetValue(absl::string_view key) const;
  // Counts a key as read, if it is there.
  void Ignore(absl::string_view key) const;

  // Keys that were not read, with their path ("rope_scaling.beta"), in the
  // order of the text; below an object only where the object was read as a
  // JsonObject.
  std::vector<std::string> Unused() const;

  // "config.json: rope_scaling.factor <what>", for the caller's own checks.
  absl::Status Error(absl::string_view key, absl::string_view what) const;
  const std::string& where() const;

 private:
  struct State;

  JsonObject(std::shared_ptr<State> state, const JsonValue* value,
             std::string path);
  const JsonValue* Use(absl::string_view key) const;
  std::string PathOf(absl::string_view key) const;
  absl::Status Missing(absl::string_view key) const;
  absl::Status Wrong(const std::string& path, const JsonValue& got,
                     absl::string_view expected) const;

  absl::Status Convert(const JsonValue& value, const std::string& path,
                       bool* out) const;
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       int* out) const;
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       int64_t* out) const;
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       double* out) const;
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       std::string* out) const;
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       JsonObject* out) const;
  template <typename T>
  absl::Status Convert(const JsonValue& value, const std::string& path,
                       std::vector<T>* out) const {
    const JsonValue::Array* array = value.AsArray();
    if (array == nullptr) return Wrong(path, value, "an array");
    out->clear();
    for (size_t i = 0; i < array->size(); ++i) {
      absl::Status status =
          Convert((*array)[i], ItemPath(path, i), &out->emplace_back());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  static std::string ItemPath(const std::string& path, size_t index);

  std::shared_ptr<State> state_;
  const JsonValue* value_ = nullptr;  // inside *state_
  std::string path_;                  // "" or "rope_scaling."
};

}  // namespace espalier

#endif  // ESPALIER_IO_JSON_OBJECT_H_
