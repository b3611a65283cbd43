#include "espalier/io/internal/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"

namespace espalier::internal {

namespace {

struct UndefinedObject final : JinjaObject {
  std::string reason;
};

int DepthOf(const std::vector<JinjaValue>& items) {
  int depth = 0;
  for (const JinjaValue& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

JinjaValue ListOf(JinjaKind kind, std::vector<JinjaValue> items) {
  auto object = std::make_shared<JinjaListObject>();
  object->depth = DepthOf(items);
  object->items = std::move(items);
  return JinjaValue::Of(kind, std::move(object));
}

// Converts data below one mark.
class Converter {
 public:
  Converter(const JinjaVariable& variable, JinjaMark mark)
      : variable_(variable), mark_(mark) {}

  JinjaValue Convert(const JsonValue& value) const {
    if (const bool* boolean = value.AsBool()) return JinjaValue::Bool(*boolean);
    if (const int64_t* integer = value.AsInt()) {
      return JinjaValue::Int(*integer);
    }
    if (const double* number = value.AsDouble()) {
      return JinjaValue::Float(*number);
    }
    if (const std::string* text = value.AsString()) {
      return JinjaValue::String(JinjaString(*text, mark_));
    }
    if (const JsonValue::Array* array = value.AsArray()) {
      std::vector<JinjaValue> items;
      items.reserve(array->size());
      for (const JsonValue& item : *array) items.push_back(Convert(item));
      JinjaValue list = JinjaValue::List(std::move(items));
      list.object<JinjaListObject>().mark = mark_;
      return list;
    }
    if (value.AsObject() == nullptr) return JinjaValue::None();
    return ConvertObject(value, /*item=*/-1);
  }

  JinjaValue ConvertObject(const JsonValue& value, int32_t item) const {
    auto dict = std::make_shared<JinjaDictObject>();
    dict->mark = mark_;
    dict->item = item;
    for (const JsonMember& member : *value.AsObject()) {
      const bool named = item >= 0 && IsTemplateMember(member);
      dict->Set(JinjaValue::String(JinjaString(member.key, mark_)),
                named ? JinjaValue::String(*member.value.AsString())
                      : Convert(member.value));
    }
    return JinjaValue::Of(JinjaKind::kDict, std::move(dict));
  }

 private:
  bool IsTemplateMember(const JsonMember& member) const {
    const std::string* text = member.value.AsString();
    return text != nullptr &&
           std::find(variable_.template_members.begin(),
                     variable_.template_members.end(),
                     member.key) != variable_.template_members.end() &&
           std::all_of(text->begin(), text->end(), [](char c) {
             return absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
                    c == '_';
           });
  }

  const JinjaVariable& variable_;
  const JinjaMark mark_;
};

}  // namespace

JinjaValue JinjaValue::Undefined(std::string reason) {
  auto object = std::make_shared<UndefinedObject>();
  object->reason = std::move(reason);
  return Of(JinjaKind::kUndefined, std::move(object));
}

JinjaValue JinjaValue::None() {
  JinjaValue value;
  value.kind_ = JinjaKind::kNone;
  return value;
}

JinjaValue JinjaValue::Bool(bool boolean) {
  JinjaValue value;
  value.kind_ = JinjaKind::kBool;
  value.integer_ = boolean ? 1 : 0;
  return value;
}

JinjaValue JinjaValue::Int(int64_t integer) {
  JinjaValue value;
  value.kind_ = JinjaKind::kInt;
  value.integer_ = integer;
  return value;
}

JinjaValue JinjaValue::Float(double number) {
  JinjaValue value;
  value.kind_ = JinjaKind::kFloat;
  value.number_ = number;
  return value;
}

JinjaValue JinjaValue::String(JinjaString text) {
  auto object = std::make_shared<JinjaTextObject>();
  object->text = std::move(text);
  return Of(JinjaKind::kString, std::move(object));
}

JinjaValue JinjaValue::String(absl::string_view text) {
  return String(JinjaString(text, JinjaMark()));
}

JinjaValue JinjaValue::List(std::vector<JinjaValue> items) {
  return ListOf(JinjaKind::kList, std::move(items));
}

JinjaValue JinjaValue::Tuple(std::vector<JinjaValue> items) {
  return ListOf(JinjaKind::kTuple, std::move(items));
}

JinjaValue JinjaValue::DictView(absl::string_view name,
                                std::vector<JinjaValue> items) {
  JinjaValue view = ListOf(JinjaKind::kDictView, std::move(items));
  view.object<JinjaListObject>().view_name = name;
  return view;
}

JinjaValue JinjaValue::Iterator(std::vector<JinjaValue> items) {
  auto object = std::make_shared<JinjaIteratorObject>();
  object->depth = DepthOf(items);
  object->items = std::move(items);
  return Of(JinjaKind::kIterator, std::move(object));
}

const JinjaString& JinjaValue::text() const {
  return object<JinjaTextObject>().text;
}

const std::vector<JinjaValue>& JinjaValue::items() const {
  return object<JinjaListObject>().items;
}

std::string JinjaValue::reason() const {
  return object_ == nullptr ? "the value is undefined"
                            : object<UndefinedObject>().reason;
}

absl::string_view JinjaValue::type_name() const {
  constexpr absl::string_view kNames[] = {
      "Undefined", "NoneType",  "bool",      "int",         "float",
      "str",       "list",      "tuple",     "dict",        "range",
      "generator", "dict view", "Namespace", "LoopContext", "function"};
  return kNames[static_cast<size_t>(kind_)];
}

int64_t JinjaRangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

const JinjaValue* JinjaDictObject::Find(absl::string_view key) const {
  const auto found = by_name_.find(key);
  return found == by_name_.end() ? nullptr : &members_[found->second].second;
}

const JinjaValue* JinjaDictObject::Find(const JinjaValue& key) const {
  if (key.is_string()) return Find(absl::string_view(key.text().bytes()));
  for (const Member& member : members_) {
    if (AreSameKey(member.first, key)) return &member.second;
  }
  return nullptr;
}

void JinjaDictObject::Set(const JinjaValue& key, JinjaValue value) {
  depth = std::max(depth, value.depth() + 1);
  if (JinjaValue* found = const_cast<JinjaValue*>(Find(key))) {
    *found = std::move(value);
    return;
  }
  if (key.is_string()) by_name_.emplace(key.text().bytes(), members_.size());
  members_.emplace_back(key, std::move(value));
}

bool IsTrue(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::kUndefined:
    case JinjaKind::kNone:
      return false;
    case JinjaKind::kBool:
    case JinjaKind::kInt:
      return value.integer() != 0;
    case JinjaKind::kFloat:
      return value.number() != 0;
    case JinjaKind::kString:
      return !value.text().empty();
    case JinjaKind::kList:
    case JinjaKind::kTuple:
    case JinjaKind::kDictView:
      return !value.items().empty();
    case JinjaKind::kDict:
      return !value.object<JinjaDictObject>().members().empty();
    case JinjaKind::kRange:
      return value.object<JinjaRangeObject>().size() > 0;
    case JinjaKind::kIterator:
    case JinjaKind::kNamespace:
    case JinjaKind::kLoop:
    case JinjaKind::kFunction:
      break;
  }
  return true;
}

bool IsKey(const JinjaValue& value) {
  return value.is(JinjaKind::kNone) || value.is_number() || value.is_string();
}

bool AreSameKey(const JinjaValue& left, const JinjaValue& right) {
  if (left.is_string() && right.is_string()) {
    return left.text().bytes() == right.text().bytes();
  }
  if (left.is_integral() && right.is_integral()) {
    return left.integer() == right.integer();
  }
  if (left.is_number() && right.is_number()) {
    const JinjaValue& number = left.is(JinjaKind::kFloat) ? left : right;
    const JinjaValue& other = left.is(JinjaKind::kFloat) ? right : left;
    if (other.is(JinjaKind::kFloat)) return number.number() == other.number();
    // Exact, where a double could not tell neighbours apart.
    constexpr double kBound = 9223372036854775808.0;
    const double value = number.number();
    return value >= -kBound && value < kBound && std::floor(value) == value &&
           static_cast<int64_t>(value) == other.integer();
  }
  return left.is(JinjaKind::kNone) && right.is(JinjaKind::kNone);
}

bool AreSame(const JinjaValue& left, const JinjaValue& right) {
  if (left.kind() != right.kind()) return false;
  if (left.identity() != nullptr || right.identity() != nullptr) {
    return left.identity() == right.identity();
  }
  return left.is_undefined() || AreSameKey(left, right);
}

JinjaValue ToJinja(const JinjaVariable& variable) {
  JinjaMark mark;
  if (variable.origin == JinjaVariable::Origin::kData) {
    mark.source = JinjaMark::kData;
  }
  const JsonValue::Array* array = variable.value->AsArray();
  if (variable.origin != JinjaVariable::Origin::kItems || array == nullptr) {
    return Converter(variable, mark).Convert(*variable.value);
  }
  std::vector<JinjaValue> items;
  items.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    mark.source = static_cast<int32_t>(i);
    const Converter converter(variable, mark);
    const JsonValue& item = (*array)[i];
    items.push_back(item.AsObject() == nullptr
                        ? converter.Convert(item)
                        : converter.ConvertObject(item, mark.source));
  }
  JinjaValue list = JinjaValue::List(std::move(items));
  list.object<JinjaListObject>().mark.source = JinjaMark::kData;
  return list;
}

}  // namespace espalier::internal
