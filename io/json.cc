#include "espalier/io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/json_parser.h"
#include "espalier/io/internal/json_text.h"
#include "espalier/io/internal/text.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace {

// Builds the tree; open containers stand on a stack.
class TreeEvents final : public internal::JsonEvents {
 public:
  JsonValue TakeRoot() { return std::move(root_); }

  absl::Status Null() override { return Add(JsonValue()); }
  absl::Status Bool(bool value) override { return Add(value); }
  absl::Status Unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(static_cast<int64_t>(value));
    }
    return Add(static_cast<double>(value));
  }
  absl::Status Negative(int64_t value) override { return Add(value); }
  absl::Status Double(double value) override { return Add(value); }
  absl::Status String(std::string& value) override {
    return Add(std::move(value));
  }
  absl::Status Key(std::string& key) override {
    open_.back().keys.push_back(std::move(key));
    return absl::OkStatus();
  }
  absl::Status StartObject() override { return Open(/*object=*/true); }
  absl::Status StartArray() override { return Open(/*object=*/false); }
  absl::Status EndObject() override {
    Container done = Close();
    if (absl::Status status = CheckKeys(done.keys); !status.ok()) {
      return status;
    }
    JsonValue::Object object(done.keys.size());
    for (size_t i = 0; i < object.size(); ++i) {
      object[i].key = std::move(done.keys[i]);
      object[i].value = std::move(done.values[i]);
    }
    return Add(std::move(object));
  }
  absl::Status EndArray() override { return Add(std::move(Close().values)); }

 private:
  struct Container {
    bool object = false;
    std::vector<std::string> keys;
    JsonValue::Array values;
  };

  absl::Status Open(bool object) {
    open_.emplace_back().object = object;
    return absl::OkStatus();
  }
  Container Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    return done;
  }
  absl::Status Add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return absl::OkStatus();
  }
  static absl::Status CheckKeys(const std::vector<std::string>& keys) {
    std::vector<absl::string_view> sorted(keys.begin(), keys.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid JSON: key ", internal::Quote(*twice), " stands twice"));
  }

  JsonValue root_;
  std::vector<Container> open_;
};

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  absl::Status Write(const JsonValue& value, int depth) {
    if (value.is_null()) {
      text_ += "null";
    } else if (const bool* boolean = value.AsBool()) {
      text_ += *boolean ? "true" : "false";
    } else if (const int64_t* integer = value.AsInt()) {
      absl::StrAppend(&text_, *integer);
    } else if (const double* number = value.AsDouble()) {
      return WriteDouble(*number);
    } else if (const std::string* string = value.AsString()) {
      return internal::AppendJsonString(*string, &text_);
    } else if (const JsonValue::Array* array = value.AsArray()) {
      return WriteArray(*array, depth);
    } else {
      return WriteObject(*value.AsObject(), depth);
    }
    return absl::OkStatus();
  }
  std::string& text() { return text_; }

 private:
  absl::Status WriteDouble(double number) {
    if (!std::isfinite(number)) {
      return absl::InvalidArgumentError("JSON has no NaN and no infinity");
    }
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof(digits), number);
    const absl::string_view shortest(digits,
                                     static_cast<size_t>(end.ptr - digits));
    absl::StrAppend(&text_, shortest);
    // 1.0 stays a number with a fraction.
    if (shortest.find_first_of(".e") == absl::string_view::npos) text_ += ".0";
    return absl::OkStatus();
  }
  absl::Status WriteArray(const JsonValue::Array& array, int depth) {
    text_ += '[';
    for (size_t i = 0; i < array.size(); ++i) {
      Separate(i, depth);
      absl::Status status = Write(array[i], depth + 1);
      if (!status.ok()) return status;
    }
    CloseWith(']', array.empty(), depth);
    return absl::OkStatus();
  }
  absl::Status WriteObject(const JsonValue::Object& object, int depth) {
    std::vector<const JsonMember*> members;
    members.reserve(object.size());
    for (const JsonMember& member : object) members.push_back(&member);
    std::sort(members.begin(), members.end(),
              [](const JsonMember* a, const JsonMember* b) {
                return a->key < b->key;
              });
    text_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      Separate(i, depth);
      absl::Status status = internal::AppendJsonString(members[i]->key, &text_);
      if (!status.ok()) return status;
      text_ += indent_ > 0 ? ": " : ":";
      status = Write(members[i]->value, depth + 1);
      if (!status.ok()) return status;
    }
    CloseWith('}', object.empty(), depth);
    return absl::OkStatus();
  }
  void Separate(size_t index, int depth) {
    if (index > 0) text_ += ',';
    NewLine(depth + 1);
  }
  void CloseWith(char bracket, bool empty, int depth) {
    if (!empty) NewLine(depth);
    text_ += bracket;
  }
  void NewLine(int depth) {
    if (indent_ <= 0) return;
    text_ += '\n';
    text_.append(static_cast<size_t>(indent_) * static_cast<size_t>(depth),
                 ' ');
  }

  const int indent_;
  std::string text_;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(bool value) : kind_(Kind::kBool), bool_(value) {}
JsonValue::JsonValue(int value) : JsonValue(int64_t{value}) {}
JsonValue::JsonValue(int64_t value) : kind_(Kind::kInt), int_(value) {}
JsonValue::JsonValue(double value) : kind_(Kind::kDouble), double_(value) {}
JsonValue::JsonValue(const char* value) : JsonValue(std::string(value)) {}
JsonValue::JsonValue(absl::string_view value) : JsonValue(std::string(value)) {}
JsonValue::JsonValue(std::string value)
    : kind_(Kind::kString), string_(std::move(value)) {}
JsonValue::JsonValue(Array value)
    : kind_(Kind::kArray), array_(std::move(value)) {}
JsonValue::JsonValue(Object value)
    : kind_(Kind::kObject), object_(std::move(value)) {}
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

bool JsonValue::is_null() const { return kind_ == Kind::kNull; }
const bool* JsonValue::AsBool() const {
  return kind_ == Kind::kBool ? &bool_ : nullptr;
}
const int64_t* JsonValue::AsInt() const {
  return kind_ == Kind::kInt ? &int_ : nullptr;
}
const double* JsonValue::AsDouble() const {
  return kind_ == Kind::kDouble ? &double_ : nullptr;
}
const std::string* JsonValue::AsString() const {
  return kind_ == Kind::kString ? &string_ : nullptr;
}
const JsonValue::Array* JsonValue::AsArray() const {
  return kind_ == Kind::kArray ? &array_ : nullptr;
}
const JsonValue::Object* JsonValue::AsObject() const {
  return kind_ == Kind::kObject ? &object_ : nullptr;
}
JsonValue::Object* JsonValue::AsObject() {
  return kind_ == Kind::kObject ? &object_ : nullptr;
}

const JsonValue* JsonValue::Find(absl::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const JsonMember& member : *object) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void JsonValue::Set(absl::string_view key, JsonValue value) {
  if (is_null()) *this = Object();
  ESPALIER_CHECK(kind_ == Kind::kObject, "set ", key, " of ", kind());
  for (JsonMember& member : object_) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  object_.push_back({std::string(key), std::move(value)});
}

absl::string_view JsonValue::kind() const {
  constexpr absl::string_view kKinds[] = {"null",     "a boolean", "an integer",
                                          "a number", "a string",  "an array",
                                          "an object"};
  return kKinds[static_cast<size_t>(kind_)];
}

absl::StatusOr<JsonValue> ParseJsonText(absl::string_view text) {
  TreeEvents events;
  if (absl::Status status = internal::ParseJson(text, events); !status.ok()) {
    return status;
  }
  return events.TakeRoot();
}

absl::StatusOr<JsonValue> ReadJsonFile(const std::string& path,
                                       int64_t max_bytes) {
  const absl::StatusOr<std::string> text =
      internal::ReadWholeFile(path, max_bytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<JsonValue> value = ParseJsonText(*text);
  if (value.ok()) return value;
  return absl::Status(value.status().code(),
                      absl::StrCat(path, ": ", value.status().message()));
}

absl::StatusOr<std::string> WriteJson(const JsonValue& value, int indent) {
  Writer writer(indent);
  absl::Status status = writer.Write(value, 0);
  if (!status.ok()) return status;
  if (indent > 0) writer.text() += '\n';
  return std::move(writer.text());
}

}  // namespace espalier
