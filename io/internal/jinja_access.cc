// object.name, object[index], object[start:stop:step].
#include <algorithm>

#include "absl/strings/match.h"

#include "espalier/io/internal/jinja_loop.h"
#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

JinjaValue NoSuch(const JinjaValue& object, const JinjaValue& index) {
  const std::string name =
      index.is_string()
          ? Quote(index.text().bytes(), 60)
          : absl::StrCat(
                index.is_integral() ? "" : index.type_name(),
                index.is_integral() ? absl::StrCat(index.integer()) : "");
  return JinjaValue::Undefined(
      absl::StrCat("a ", object.type_name(), " has no ", name));
}

JinjaValue NoSuch(const JinjaValue& object, absl::string_view name) {
  return NoSuch(object, JinjaValue::String(name));
}

// What Python has beyond methods.
bool IsPythonAttribute(const JinjaValue& object, absl::string_view name) {
  return object.is_number() &&
         (name == "real" || name == "imag" || name == "conjugate" ||
          name == "numerator" || name == "denominator" ||
          name == "bit_length" || name == "bit_count" || name == "to_bytes" ||
          name == "from_bytes" || name == "as_integer_ratio" ||
          name == "is_integer" || name == "hex");
}

JinjaValue CharAt(JinjaRuntime& runtime, const JinjaString& text,
                  int64_t index) {
  if (!runtime.Spend(static_cast<int64_t>(text.size() / 64) + 1)) return {};
  const int64_t count = text.num_chars();
  if (index < 0) index += count;
  if (index < 0 || index >= count) return JinjaValue();
  const size_t begin = text.ByteOfChar(index);
  return JinjaValue::String(
      text.Slice(begin, begin + DecodeUtf8(text.bytes(), begin).bytes));
}

// object[index] of Python; undefined where that raises.
JinjaValue Subscript(JinjaRuntime& runtime, const JinjaValue& object,
                     const JinjaValue& index) {
  if (object.is(JinjaKind::kDict)) {
    const auto& dict = object.object<JinjaDictObject>();
    if (!IsKey(index) ||
        !runtime.Spend(index.is_string()
                           ? 1
                           : static_cast<int64_t>(dict.members().size()))) {
      return JinjaValue();
    }
    const JinjaValue* found = dict.Find(index);
    return found == nullptr ? JinjaValue() : *found;
  }
  if (!index.is_integral()) return JinjaValue();
  int64_t i = index.integer();
  if (object.is_string()) return CharAt(runtime, object.text(), i);
  if (object.is(JinjaKind::kList) || object.is(JinjaKind::kTuple)) {
    const int64_t size = static_cast<int64_t>(object.items().size());
    if (i < 0) i += size;
    if (i < 0 || i >= size) return JinjaValue();
    return object.items()[static_cast<size_t>(i)];
  }
  if (object.is(JinjaKind::kRange)) {
    const auto& range = object.object<JinjaRangeObject>();
    if (i < 0) i += range.size();
    if (i < 0 || i >= range.size()) return JinjaValue();
    return JinjaValue::Int(range.start + i * range.step);
  }
  return JinjaValue();
}

JinjaValue AttributeOf(JinjaRuntime& runtime, const JinjaValue& object,
                       absl::string_view name) {
  if (absl::StartsWith(name, "__")) {
    return JinjaValue::Undefined(
        absl::StrCat("access to ", name, " is not safe"));
  }
  if (IsPythonAttribute(object, name)) {
    return runtime.Unsupported("the attribute ", name, " of a ",
                               object.type_name());
  }
  if (object.is(JinjaKind::kNamespace)) {
    const auto& members = object.object<JinjaNamespaceObject>().members;
    const auto found = members.find(name);
    return found == members.end() ? JinjaValue() : found->second;
  }
  if (object.is(JinjaKind::kLoop)) {
    return object.object<JinjaLoopObject>().Get(name);
  }
  return GetMethod(runtime, object, name);
}

}  // namespace

JinjaValue GetAttribute(JinjaRuntime& runtime, const JinjaValue& object,
                        absl::string_view name) {
  if (!runtime.Spend() || !runtime.IsDefined(object)) return {};
  JinjaValue value = AttributeOf(runtime, object, name);
  if (!value.is_undefined() || value.identity() != nullptr) return value;
  value = Subscript(runtime, object, JinjaValue::String(name));
  if (!value.is_undefined() || value.identity() != nullptr) return value;
  return NoSuch(object, name);
}

JinjaValue GetItem(JinjaRuntime& runtime, const JinjaValue& object,
                   const JinjaValue& index) {
  if (!runtime.Spend() || !runtime.IsDefined(object)) return {};
  JinjaValue value = Subscript(runtime, object, index);
  if (!value.is_undefined() || value.identity() != nullptr) return value;
  if (index.is_string()) {
    value = AttributeOf(runtime, object, index.text().bytes());
    if (!value.is_undefined() || value.identity() != nullptr) return value;
  }
  return NoSuch(object, index);
}

namespace {

// Bounds of a slice over `size` items, as slice.indices of Python.
struct Bounds {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;

  int64_t count() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
};

bool ReadBound(JinjaRuntime& runtime, const JinjaValue& value, int64_t* out) {
  if (value.is_undefined() || value.is(JinjaKind::kNone)) return false;
  if (!value.is_integral()) {
    runtime.Fail("a bound of a slice is a ", value.type_name(),
                 ", expected an int");
    return false;
  }
  *out = value.integer();
  return true;
}

bool FindBounds(JinjaRuntime& runtime, const JinjaValue& start,
                const JinjaValue& stop, const JinjaValue& step, int64_t size,
                Bounds* bounds) {
  if (ReadBound(runtime, step, &bounds->step) && bounds->step == 0) {
    runtime.Fail("the step of a slice is 0");
  }
  // Steps beyond the size reach one item; -2^63 has no negative.
  bounds->step = std::clamp<int64_t>(bounds->step, -(size + 1), size + 1);
  const bool back = bounds->step < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? size - 1 : size;
  const auto place = [&](int64_t at) {
    if (at < 0) at += size;
    return std::clamp(at, low, high);
  };
  bounds->start = back ? high : low;
  bounds->stop = back ? low : high;
  int64_t at = 0;
  if (ReadBound(runtime, start, &at)) bounds->start = place(at);
  if (ReadBound(runtime, stop, &at)) bounds->stop = place(at);
  return !runtime.failed();
}

JinjaValue SliceText(JinjaRuntime& runtime, const JinjaString& text,
                     const Bounds& bounds) {
  if (!runtime.Make("a slice", text.cost())) return {};
  if (bounds.count() == 0) return JinjaValue::String(JinjaString());
  if (bounds.step == 1) {
    const size_t begin = text.ByteOfChar(bounds.start);
    const size_t end = text.ByteOfChar(bounds.stop);
    return JinjaValue::String(text.Slice(begin, end));
  }
  // Where every character begins.
  const uint64_t num_chars = static_cast<uint64_t>(text.num_chars()) + 1;
  if (!runtime.Make("a slice",
                    JinjaRuntime::Product(num_chars, sizeof(size_t)))) {
    return {};
  }
  std::vector<size_t> begins;
  begins.reserve(num_chars);
  for (size_t at = 0; at < text.size();
       at += DecodeUtf8(text.bytes(), at).bytes) {
    begins.push_back(at);
  }
  begins.push_back(text.size());
  if (!runtime.Spend(static_cast<int64_t>(begins.size()))) return {};
  JinjaString out;
  for (int64_t i = 0; i < bounds.count(); ++i) {
    const size_t at = static_cast<size_t>(bounds.start + i * bounds.step);
    out.Append(text, begins[at], begins[at + 1]);
  }
  return JinjaValue::String(std::move(out));
}

}  // namespace

JinjaValue GetSlice(JinjaRuntime& runtime, const JinjaValue& object,
                    const JinjaValue& start, const JinjaValue& stop,
                    const JinjaValue& step) {
  if (!runtime.Spend() || !runtime.IsDefined(object)) return {};
  Bounds bounds;
  if (object.is_string()) {
    if (!FindBounds(runtime, start, stop, step, object.text().num_chars(),
                    &bounds)) {
      return {};
    }
    return SliceText(runtime, object.text(), bounds);
  }
  const bool list = object.is(JinjaKind::kList);
  if (!list && !object.is(JinjaKind::kTuple)) {
    if (object.is(JinjaKind::kRange)) {
      return runtime.Unsupported("a slice of a range");
    }
    return runtime.Fail("a ", object.type_name(), " has no slices");
  }
  if (!FindBounds(runtime, start, stop, step,
                  static_cast<int64_t>(object.items().size()), &bounds) ||
      !runtime.Spend(bounds.count()) ||
      !runtime.MakeItems("a slice", static_cast<uint64_t>(bounds.count()))) {
    return {};
  }
  std::vector<JinjaValue> items;
  items.reserve(static_cast<size_t>(bounds.count()));
  for (int64_t i = 0; i < bounds.count(); ++i) {
    items.push_back(
        object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  JinjaValue slice = list ? JinjaValue::List(std::move(items))
                          : JinjaValue::Tuple(std::move(items));
  slice.object<JinjaListObject>().mark = object.object<JinjaListObject>().mark;
  return slice;
}

}  // namespace espalier::internal
