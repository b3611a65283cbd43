#include "espalier/io/json_object.h"

#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

// Objects with more members are looked up by hash: a loop over the keys of one
// does not take time in the square of their number.
constexpr size_t kMaxMembersToScan = 16;

}  // namespace

struct JsonObject::State {
  using Members = absl::flat_hash_map<absl::string_view, const JsonValue*>;

  // The value of a member; null when there is none.
  const JsonValue* Find(const JsonValue& value, absl::string_view key) {
    const JsonValue::Object& object = *value.AsObject();
    if (object.size() <= kMaxMembersToScan) return value.Find(key);
    Members& by_key = members[&value];
    if (by_key.empty()) {
      for (const JsonMember& member : object) {
        by_key.try_emplace(member.key, &member.value);
      }
    }
    const auto found = by_key.find(key);
    return found == by_key.end() ? nullptr : found->second;
  }

  JsonValue root;
  std::string where;
  absl::flat_hash_set<const JsonValue*> used;    // read members
  absl::flat_hash_set<const JsonValue*> opened;  // read as a JsonObject
  absl::flat_hash_map<const JsonValue*, Members> members;  // of large objects
};

JsonObject::JsonObject() : state_(std::make_shared<State>()) {
  state_->root = JsonValue::Object();
  value_ = &state_->root;
}

JsonObject::JsonObject(std::shared_ptr<State> state, const JsonValue* value,
                       std::string path)
    : state_(std::move(state)), value_(value), path_(std::move(path)) {}

absl::StatusOr<JsonObject> JsonObject::From(JsonValue value,
                                            std::string where) {
  if (value.AsObject() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is ", value.kind(), ", expected an object"));
  }
  auto state = std::make_shared<State>();
  state->root = std::move(value);
  state->where = std::move(where);
  const JsonValue* root = &state->root;
  return JsonObject(std::move(state), root, "");
}

absl::StatusOr<JsonObject> JsonObject::Parse(absl::string_view text,
                                             std::string where) {
  absl::StatusOr<JsonValue> value = ParseJsonText(text);
  if (!value.ok()) {
    return absl::Status(value.status().code(),
                        absl::StrCat(where, ": ", value.status().message()));
  }
  return From(*std::move(value), std::move(where));
}

absl::StatusOr<JsonObject> JsonObject::ReadFile(const std::string& path) {
  absl::StatusOr<JsonValue> value = ReadJsonFile(path);
  if (!value.ok()) return value.status();
  return From(*std::move(value), path);
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> keys;
  for (const JsonMember& member : *value_->AsObject()) {
    keys.push_back(member.key);
  }
  return keys;
}

bool JsonObject::Has(absl::string_view key) const {
  const JsonValue* value = state_->Find(*value_, key);
  return value != nullptr && !value->is_null();
}

const JsonValue* JsonObject::GetValue(absl::string_view key) const {
  const JsonValue* value = state_->Find(*value_, key);
  if (value != nullptr) state_->used.insert(value);
  return value;
}

const JsonValue* JsonObject::Use(absl::string_view key) const {
  const JsonValue* value = GetValue(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void JsonObject::Ignore(absl::string_view key) const { GetValue(key); }

std::vector<std::string> JsonObject::Unused() const {
  std::vector<std::string> unused;
  for (const JsonMember& member : *value_->AsObject()) {
    if (!state_->used.contains(&member.value)) {
      unused.push_back(PathOf(member.key));
    } else if (state_->opened.contains(&member.value)) {
      const JsonObject nested(state_, &member.value,
                              absl::StrCat(PathOf(member.key), "."));
      for (std::string& key : nested.Unused()) {
        unused.push_back(std::move(key));
      }
    }
  }
  return unused;
}

const std::string& JsonObject::where() const { return state_->where; }

std::string JsonObject::PathOf(absl::string_view key) const {
  return absl::StrCat(path_, key);
}

std::string JsonObject::ItemPath(const std::string& path, size_t index) {
  return absl::StrCat(path, "[", index, "]");
}

absl::Status JsonObject::Error(absl::string_view key,
                               absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(state_->where, ": ", PathOf(key), " ", what));
}

absl::Status JsonObject::Missing(absl::string_view key) const {
  return Error(
      key, state_->Find(*value_, key) == nullptr ? "is missing" : "is null");
}

absl::Status JsonObject::Wrong(const std::string& path, const JsonValue& got,
                               absl::string_view expected) const {
  std::string what(got.kind());
  if (const std::string* text = got.AsString()) {
    what = absl::StrCat("the string ", internal::Quote(*text, 40));
  } else if (got.AsInt() != nullptr || got.AsDouble() != nullptr) {
    what = WriteJson(got, 0).value_or(what);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      state_->where, ": ", path, " is ", what, ", expected ", expected));
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path, bool* out) const {
  if (value.AsBool() == nullptr) return Wrong(path, value, "true or false");
  *out = *value.AsBool();
  return absl::OkStatus();
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path, int64_t* out) const {
  if (value.AsInt() == nullptr) return Wrong(path, value, "an integer");
  *out = *value.AsInt();
  return absl::OkStatus();
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path, int* out) const {
  int64_t wide = 0;
  absl::Status status = Convert(value, path, &wide);
  if (!status.ok()) return status;
  if (wide < std::numeric_limits<int>::min() ||
      wide > std::numeric_limits<int>::max()) {
    return Wrong(path, value, "a 32-bit integer");
  }
  *out = static_cast<int>(wide);
  return absl::OkStatus();
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path, double* out) const {
  if (const int64_t* integer = value.AsInt()) {
    *out = static_cast<double>(*integer);
    return absl::OkStatus();
  }
  if (value.AsDouble() == nullptr) return Wrong(path, value, "a number");
  *out = *value.AsDouble();
  return absl::OkStatus();
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path,
                                 std::string* out) const {
  if (value.AsString() == nullptr) return Wrong(path, value, "a string");
  *out = *value.AsString();
  return absl::OkStatus();
}

absl::Status JsonObject::Convert(const JsonValue& value,
                                 const std::string& path,
                                 JsonObject* out) const {
  if (value.AsObject() == nullptr) return Wrong(path, value, "an object");
  state_->opened.insert(&value);
  *out = JsonObject(state_, &value, absl::StrCat(path, "."));
  return absl::OkStatus();
}

}  // namespace espalier
