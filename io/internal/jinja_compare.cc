// Equality, order, membership and iteration, as Python has them.
#include <algorithm>

#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

bool AreEqualItems(JinjaRuntime& runtime, const std::vector<JinjaValue>& left,
                   const std::vector<JinjaValue>& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!AreEqual(runtime, left[i], right[i])) return false;
  }
  return true;
}

bool AreEqualDicts(JinjaRuntime& runtime, const JinjaDictObject& left,
                   const JinjaDictObject& right) {
  if (left.members().size() != right.members().size()) return false;
  for (const auto& [key, value] : left.members()) {
    const JinjaValue* other = right.Find(key);
    if (other == nullptr || !AreEqual(runtime, value, *other)) return false;
  }
  return true;
}

int Sign(int comparison) { return comparison < 0 ? -1 : comparison > 0; }

}  // namespace

bool AreEqual(JinjaRuntime& runtime, const JinjaValue& left,
              const JinjaValue& right) {
  if (!runtime.Spend()) return false;
  if (left.is_string() && right.is_string()) {
    const std::string& a = left.text().bytes();
    const std::string& b = right.text().bytes();
    return a.size() == b.size() &&
           runtime.Spend(static_cast<int64_t>(a.size() / 64)) && a == b;
  }
  if (left.is_number() && right.is_number()) return AreSameKey(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case JinjaKind::kUndefined:
    case JinjaKind::kNone:
      return true;
    case JinjaKind::kList:
    case JinjaKind::kTuple:
      return AreEqualItems(runtime, left.items(), right.items());
    case JinjaKind::kDict:
      return AreEqualDicts(runtime, left.object<JinjaDictObject>(),
                           right.object<JinjaDictObject>());
    case JinjaKind::kRange:
    case JinjaKind::kDictView:
      runtime.Unsupported("comparing a ", left.type_name());
      return false;
    default:
      return left.identity() == right.identity();
  }
}

int Compare(JinjaRuntime& runtime, const JinjaValue& left,
            const JinjaValue& right) {
  if (!runtime.Spend()) return 0;
  if (left.is_number() && right.is_number()) {
    if (AreSameKey(left, right)) return 0;
    if (left.is_integral() && right.is_integral()) {
      return left.integer() < right.integer() ? -1 : 1;
    }
    return left.number() < right.number() ? -1 : 1;
  }
  if (left.is_string() && right.is_string()) {
    // UTF-8 sorts like its code points.
    return Sign(left.text().bytes().compare(right.text().bytes()));
  }
  if (left.kind() == right.kind() &&
      (left.is(JinjaKind::kList) || left.is(JinjaKind::kTuple))) {
    const auto& a = left.items();
    const auto& b = right.items();
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!AreEqual(runtime, a[i], b[i])) return Compare(runtime, a[i], b[i]);
    }
    return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
  }
  if (runtime.IsDefined(left) && runtime.IsDefined(right)) {
    runtime.Fail("a ", left.type_name(), " and a ", right.type_name(),
                 " have no order");
  }
  return 0;
}

bool IsIn(JinjaRuntime& runtime, const JinjaValue& item,
          const JinjaValue& container) {
  if (!runtime.Spend()) return false;
  if (container.is_string()) {
    if (!item.is_string()) {
      runtime.Fail("\"in\" of a str needs a str, got a ", item.type_name());
      return false;
    }
    return runtime.Spend(static_cast<int64_t>(container.text().size() / 64)) &&
           container.text().bytes().find(item.text().bytes()) !=
               std::string::npos;
  }
  if (container.is(JinjaKind::kDict)) {
    const auto& dict = container.object<JinjaDictObject>();
    if (item.is(JinjaKind::kTuple)) return false;  // never a key here
    if (!IsKey(item) && !item.is_undefined()) {
      runtime.Fail("a ", item.type_name(), " is no key of a dict");
      return false;
    }
    return runtime.Spend(item.is_string()
                             ? 1
                             : static_cast<int64_t>(dict.members().size())) &&
           IsKey(item) && dict.Find(item) != nullptr;
  }
  for (const JinjaValue& other : Iterate(runtime, container)) {
    if (AreSame(item, other) || AreEqual(runtime, item, other)) return true;
    if (runtime.failed()) return false;
  }
  return false;
}

std::vector<JinjaValue> Iterate(JinjaRuntime& runtime,
                                const JinjaValue& value) {
  constexpr absl::string_view kWhat = "iterating over a value";
  const auto may = [&](uint64_t count) {
    return runtime.Spend(static_cast<int64_t>(count)) &&
           runtime.MakeItems(kWhat, count);
  };
  std::vector<JinjaValue> items;
  switch (value.kind()) {
    case JinjaKind::kUndefined:
      break;
    case JinjaKind::kList:
    case JinjaKind::kTuple:
    case JinjaKind::kDictView:
      if (may(value.items().size())) items = value.items();
      break;
    case JinjaKind::kString: {
      const JinjaString& text = value.text();
      const uint64_t count = static_cast<uint64_t>(text.num_chars());
      if (!may(count) || !runtime.MakeTexts(kWhat, count)) break;
      items.reserve(count);
      for (size_t at = 0; at < text.size();) {
        const size_t next = at + DecodeUtf8(text.bytes(), at).bytes;
        items.push_back(JinjaValue::String(text.Slice(at, next)));
        at = next;
      }
      break;
    }
    case JinjaKind::kDict: {
      const auto& members = value.object<JinjaDictObject>().members();
      if (!may(members.size())) break;
      for (const auto& member : members) items.push_back(member.first);
      break;
    }
    case JinjaKind::kRange: {
      const auto& range = value.object<JinjaRangeObject>();
      if (!may(static_cast<uint64_t>(range.size()))) break;
      for (int64_t i = 0; i < range.size(); ++i) {
        items.push_back(JinjaValue::Int(range.start + i * range.step));
      }
      break;
    }
    case JinjaKind::kIterator: {
      auto& iterator = value.object<JinjaIteratorObject>();
      if (!may(iterator.items.size())) break;
      items.assign(
          iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next),
          iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    case JinjaKind::kLoop:
      runtime.Unsupported("iterating over loop");
      break;
    default:
      runtime.Fail("a ", value.type_name(), " cannot be iterated over");
  }
  return items;
}

}  // namespace espalier::internal
