// Filters of sequences and dicts, and the table of all.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "espalier/io/internal/jinja_filters.h"

namespace espalier::internal {

namespace {

using Values = std::vector<JinjaValue>;

constexpr absl::string_view kPairs = "a list of a dict's items";

// "user.name" or 0: what map, sort and their like look up in each item.
class AttributePath {
 public:
  AttributePath() = default;
  AttributePath(JinjaRuntime& runtime, const JinjaValue& attribute) {
    if (attribute.is_integral()) {
      parts_.push_back(attribute);
    } else if (attribute.is_string()) {
      Add(attribute.text().bytes());
    } else if (!attribute.is(JinjaKind::kNone)) {
      runtime.Fail("an attribute is named by a str, got a ",
                   attribute.type_name());
    }
  }
  explicit AttributePath(absl::string_view path) { Add(path); }

  JinjaValue Get(JinjaRuntime& runtime, JinjaValue item) const {
    for (const JinjaValue& part : parts_) item = GetItem(runtime, item, part);
    return item;
  }

 private:
  void Add(absl::string_view path) {
    for (const absl::string_view part : absl::StrSplit(path, '.')) {
      int64_t number = 0;
      const bool digits =
          !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
            return absl::ascii_isdigit(static_cast<unsigned char>(c));
          });
      parts_.push_back(digits && absl::SimpleAtoi(part, &number)
                           ? JinjaValue::Int(number)
                           : JinjaValue::String(part));
    }
  }

  Values parts_;
};

JinjaValue IgnoreCase(JinjaRuntime& runtime, JinjaValue value) {
  if (!value.is_string() ||
      !runtime.MakeCase("a key without case", value.text())) {
    return value;
  }
  return JinjaValue::String(MapCase(value.text(), LetterCase::kLower));
}

// Items in the order of their keys, equal ones as they were.
Values SortBy(JinjaRuntime& runtime, Values items, const Values& keys,
              bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int compared = Compare(runtime, keys[a], keys[b]);
    return !runtime.failed() && (reverse ? compared > 0 : compared < 0);
  });
  Values sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

JinjaValue Length(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  JinjaBound bound;
  int64_t length = 0;
  if (!Bind(runtime, "length", {}, 0, arguments, &bound) ||
      !LengthOf(runtime, value, &length)) {
    return {};
  }
  return JinjaValue::Int(length);
}

JinjaValue First(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "first", {}, 0, arguments, &bound)) return {};
  if (value.is(JinjaKind::kIterator)) {
    auto& iterator = value.object<JinjaIteratorObject>();
    if (iterator.next < iterator.items.size()) {
      return iterator.items[iterator.next++];
    }
  }
  const Values items = Iterate(runtime, value);
  return items.empty() ? JinjaValue::Undefined("there is no first item")
                       : items.front();
}

// What reversed() of Python takes.
bool IsReversible(JinjaRuntime& runtime, const JinjaValue& value) {
  if (!value.is(JinjaKind::kIterator)) return true;
  runtime.Fail("a ", value.type_name(), " has no last item: make it a list");
  return false;
}

JinjaValue Last(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "last", {}, 0, arguments, &bound) ||
      !IsReversible(runtime, value)) {
    return {};
  }
  const Values items = Iterate(runtime, value);
  return items.empty() ? JinjaValue::Undefined("there is no last item")
                       : items.back();
}

JinjaValue Reverse(JinjaRuntime& runtime, const JinjaValue& value,
                   const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "reverse", {}, 0, arguments, &bound)) return {};
  if (value.is_string()) {
    return GetSlice(runtime, value, JinjaValue(), JinjaValue(),
                    JinjaValue::Int(-1));
  }
  Values items = Iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  // A generator becomes a list first.
  return value.is(JinjaKind::kIterator)
             ? JinjaValue::List(std::move(items))
             : JinjaValue::Iterator(std::move(items));
}

JinjaValue List(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "list", {}, 0, arguments, &bound)) return {};
  return JinjaValue::List(Iterate(runtime, value));
}

JinjaValue Join(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "join", {"d", "attribute"}, 0, arguments, &bound)) {
    return {};
  }
  const JinjaString separator =
      bound.has(0) ? ToStr(runtime, bound[0]) : JinjaString();
  AttributePath path;
  if (bound.has(1)) path = AttributePath(runtime, bound[1]);
  JinjaTextMaker out(runtime, "join");
  bool first = true;
  for (const JinjaValue& item : Iterate(runtime, value)) {
    const JinjaValue part = path.Get(runtime, item);
    if (!first) out.Append(separator);
    first = false;
    out.Append(part);
    if (runtime.failed()) return {};
  }
  return JinjaValue::String(out.Take());
}

JinjaValue Map(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  Values mapped;
  if (!IsTrue(value)) return JinjaValue::Iterator({});
  if (arguments.positional.empty()) {
    JinjaBound bound;
    if (!Bind(runtime, "map", {"attribute", "default"}, 1, arguments, &bound)) {
      return {};
    }
    const AttributePath path(runtime, bound[0]);
    for (const JinjaValue& item : Iterate(runtime, value)) {
      JinjaValue found = path.Get(runtime, item);
      if (found.is_undefined() && bound.has(1) &&
          !bound[1].is(JinjaKind::kNone)) {
        found = bound[1];
      }
      mapped.push_back(std::move(found));
    }
    return JinjaValue::Iterator(std::move(mapped));
  }
  const JinjaValue& name = arguments.positional[0];
  if (!name.is_string()) return runtime.Fail("map needs a filter's name");
  JinjaArguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const JinjaValue& item : Iterate(runtime, value)) {
    mapped.push_back(ApplyFilter(runtime, name.text().bytes(), item, rest));
    if (runtime.failed()) return {};
  }
  return JinjaValue::Iterator(std::move(mapped));
}

JinjaValue Choose(JinjaRuntime& runtime, const JinjaValue& value,
                  JinjaArguments arguments, bool attribute, bool wanted) {
  if (!IsTrue(value)) return JinjaValue::Iterator({});
  AttributePath path;
  if (attribute) {
    if (arguments.positional.empty()) {
      return runtime.Fail("selectattr needs an attribute");
    }
    path = AttributePath(runtime, arguments.positional[0]);
    arguments.positional.erase(arguments.positional.begin());
  }
  std::string test;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is_string()) {
      return runtime.Fail("select needs a test's name");
    }
    test = arguments.positional[0].text().bytes();
    arguments.positional.erase(arguments.positional.begin());
  }
  Values chosen;
  for (const JinjaValue& item : Iterate(runtime, value)) {
    const JinjaValue tested = path.Get(runtime, item);
    const bool passes = test.empty()
                            ? IsTrue(tested)
                            : ApplyTest(runtime, test, tested, arguments);
    if (runtime.failed()) return {};
    if (passes == wanted) chosen.push_back(item);
  }
  return JinjaValue::Iterator(std::move(chosen));
}
JinjaValue Select(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  return Choose(runtime, value, arguments, false, true);
}
JinjaValue Reject(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  return Choose(runtime, value, arguments, false, false);
}
JinjaValue SelectAttr(JinjaRuntime& runtime, const JinjaValue& value,
                      const JinjaArguments& arguments) {
  return Choose(runtime, value, arguments, true, true);
}
JinjaValue RejectAttr(JinjaRuntime& runtime, const JinjaValue& value,
                      const JinjaArguments& arguments) {
  return Choose(runtime, value, arguments, true, false);
}

JinjaValue Sort(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "sort", {"reverse", "case_sensitive", "attribute"}, 0,
            arguments, &bound)) {
    return {};
  }
  std::vector<AttributePath> paths;
  if (bound.has(2) && bound[2].is_string()) {
    for (const absl::string_view path :
         absl::StrSplit(bound[2].text().bytes(), ',')) {
      paths.emplace_back(path);
    }
  } else {
    paths.push_back(bound.has(2) ? AttributePath(runtime, bound[2])
                                 : AttributePath());
  }
  Values items = Iterate(runtime, value);
  Values keys;
  for (const JinjaValue& item : items) {
    Values key;
    for (const AttributePath& path : paths) {
      JinjaValue part = path.Get(runtime, item);
      key.push_back(IsTrue(bound[1]) ? part : IgnoreCase(runtime, part));
    }
    keys.push_back(JinjaValue::List(std::move(key)));
  }
  return JinjaValue::List(
      SortBy(runtime, std::move(items), keys, IsTrue(bound[0])));
}

JinjaValue DictSort(JinjaRuntime& runtime, const JinjaValue& value,
                    const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "dictsort", {"case_sensitive", "by", "reverse"}, 0,
            arguments, &bound)) {
    return {};
  }
  const std::string by =
      bound.has(1) ? ToStr(runtime, bound[1]).bytes() : "key";
  if (by != "key" && by != "value") {
    return runtime.Fail("dictsort sorts by \"key\" or \"value\"");
  }
  if (!value.is(JinjaKind::kDict)) {
    if (!runtime.IsDefined(value)) return {};
    return runtime.Fail("dictsort needs a dict, got a ", value.type_name());
  }
  Values items, keys;
  for (const auto& [key, member] : value.object<JinjaDictObject>().members()) {
    if (!runtime.Spend() || !runtime.MakeTexts(kPairs, 1)) return {};
    items.push_back(JinjaValue::Tuple({key, member}));
    const JinjaValue& sorted = by == "key" ? key : member;
    keys.push_back(IsTrue(bound[0]) ? sorted : IgnoreCase(runtime, sorted));
  }
  return JinjaValue::List(
      SortBy(runtime, std::move(items), keys, IsTrue(bound[2])));
}

JinjaValue Items(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "items", {}, 0, arguments, &bound)) return {};
  if (value.is_undefined()) return JinjaValue::Iterator({});
  if (!value.is(JinjaKind::kDict)) {
    return runtime.Fail("items needs a dict, got a ", value.type_name());
  }
  Values items;
  for (const auto& [key, member] : value.object<JinjaDictObject>().members()) {
    if (!runtime.Spend() || !runtime.MakeTexts(kPairs, 1)) return {};
    items.push_back(JinjaValue::Tuple({key, member}));
  }
  return JinjaValue::Iterator(std::move(items));
}

JinjaValue Unique(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "unique", {"case_sensitive", "attribute"}, 0, arguments,
            &bound)) {
    return {};
  }
  AttributePath path;
  if (bound.has(1)) path = AttributePath(runtime, bound[1]);
  absl::flat_hash_set<std::string> texts;
  Values others, unique;
  for (const JinjaValue& item : Iterate(runtime, value)) {
    JinjaValue key = path.Get(runtime, item);
    if (!IsTrue(bound[0])) key = IgnoreCase(runtime, key);
    if (key.is_string()) {
      if (!runtime.Make("unique", key.text().size())) return {};
      if (texts.insert(key.text().bytes()).second) unique.push_back(item);
      continue;
    }
    if (key.is_undefined()) key = JinjaValue::None();  // equal to each other
    if (!IsKey(key)) {
      return runtime.Fail("unique needs text or numbers, got a ",
                          key.type_name());
    }
    if (!runtime.Spend(static_cast<int64_t>(others.size()))) return {};
    if (std::none_of(
            others.begin(), others.end(),
            [&](const JinjaValue& other) { return AreSameKey(other, key); })) {
      others.push_back(key);
      unique.push_back(item);
    }
  }
  return JinjaValue::Iterator(std::move(unique));
}

JinjaValue Extreme(JinjaRuntime& runtime, const JinjaValue& value,
                   const JinjaArguments& arguments, int sign) {
  JinjaBound bound;
  if (!Bind(runtime, sign < 0 ? "min" : "max", {"case_sensitive", "attribute"},
            0, arguments, &bound)) {
    return {};
  }
  AttributePath path;
  if (bound.has(1)) path = AttributePath(runtime, bound[1]);
  JinjaValue best = JinjaValue::Undefined("there is no item to choose");
  JinjaValue best_key;
  bool first = true;
  for (const JinjaValue& item : Iterate(runtime, value)) {
    JinjaValue key = path.Get(runtime, item);
    if (!IsTrue(bound[0])) key = IgnoreCase(runtime, key);
    if (first || Compare(runtime, key, best_key) * sign > 0) {
      best = item;
      best_key = std::move(key);
    }
    first = false;
  }
  return best;
}
JinjaValue Min(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  return Extreme(runtime, value, arguments, -1);
}
JinjaValue Max(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  return Extreme(runtime, value, arguments, 1);
}

JinjaValue Sum(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "sum", {"attribute", "start"}, 0, arguments, &bound)) {
    return {};
  }
  AttributePath path;
  if (bound.has(0)) path = AttributePath(runtime, bound[0]);
  JinjaValue sum = bound.has(1) ? bound[1] : JinjaValue::Int(0);
  if (sum.is_string()) return runtime.Fail("sum does not join text");
  for (const JinjaValue& item : Iterate(runtime, value)) {
    sum = Calculate(runtime, JinjaOperator::kAdd, sum, path.Get(runtime, item));
    if (runtime.failed()) return {};
  }
  return sum;
}

JinjaValue Batch(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "batch", {"linecount", "fill_with"}, 1, arguments,
            &bound)) {
    return {};
  }
  if (!bound[0].is_integral() || bound[0].integer() < 1) {
    return runtime.Fail("batch needs a count");
  }
  const size_t count = static_cast<size_t>(bound[0].integer());
  Values batches, batch;
  for (const JinjaValue& item : Iterate(runtime, value)) {
    if (batch.size() == count) {
      batches.push_back(JinjaValue::List(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (bound.has(1) && !bound[1].is(JinjaKind::kNone)) {
      if (!runtime.MakeItems("batch", count) ||
          !runtime.Spend(static_cast<int64_t>(count - batch.size()))) {
        return {};
      }
      batch.resize(count, bound[1]);
    }
    batches.push_back(JinjaValue::List(std::move(batch)));
  }
  return JinjaValue::Iterator(std::move(batches));
}

constexpr JinjaFilter kFilters[] = {
    {"length", Length},
    {"count", Length},
    {"first", First},
    {"last", Last},
    {"reverse", Reverse},
    {"list", List},
    {"join", Join},
    {"map", Map},
    {"select", Select},
    {"reject", Reject},
    {"selectattr", SelectAttr},
    {"rejectattr", RejectAttr},
    {"sort", Sort},
    {"dictsort", DictSort},
    {"items", Items},
    {"unique", Unique},
    {"min", Min},
    {"max", Max},
    {"sum", Sum},
    {"batch", Batch},
};

const JinjaFilter* FindFilter(absl::string_view name) {
  for (const absl::Span<const JinjaFilter> filters :
       {TextFilters(), ListFilters()}) {
    for (const JinjaFilter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace

absl::Span<const JinjaFilter> ListFilters() { return kFilters; }

bool LengthOf(JinjaRuntime& runtime, const JinjaValue& value, int64_t* length) {
  switch (value.kind()) {
    case JinjaKind::kUndefined:
      *length = 0;
      return true;
    case JinjaKind::kString:
      *length = value.text().num_chars();
      return runtime.Spend(static_cast<int64_t>(value.text().size() / 64));
    case JinjaKind::kList:
    case JinjaKind::kTuple:
    case JinjaKind::kDictView:
      *length = static_cast<int64_t>(value.items().size());
      return true;
    case JinjaKind::kDict:
      *length = static_cast<int64_t>(
          value.object<JinjaDictObject>().members().size());
      return true;
    case JinjaKind::kRange:
      *length = value.object<JinjaRangeObject>().size();
      return true;
    default:
      runtime.Fail("a ", value.type_name(), " has no length");
      return false;
  }
}

bool IsKnownFilter(absl::string_view name) {
  return FindFilter(name) != nullptr;
}

JinjaValue ApplyFilter(JinjaRuntime& runtime, absl::string_view name,
                       const JinjaValue& value,
                       const JinjaArguments& arguments) {
  if (!runtime.Spend()) return {};
  const JinjaFilter* filter = FindFilter(name);
  if (filter == nullptr) return runtime.Unsupported("the filter ", name);
  return filter->apply(runtime, value, arguments);
}

}  // namespace espalier::internal
