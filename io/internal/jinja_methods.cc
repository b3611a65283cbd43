// Methods of str, dict, list and tuple.
#include <algorithm>
#include <iterator>
#include <utility>

#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

using MethodFn = JinjaValue(JinjaRuntime& runtime, const JinjaValue& self,
                            const JinjaArguments& arguments);

struct Method {
  absl::string_view name;
  MethodFn* call;
};

struct MethodObject final : JinjaFunctionObject {
  JinjaValue self;
  Method method;

  JinjaValue Call(JinjaRuntime& runtime,
                  const JinjaArguments& arguments) override {
    if (self.is_string() && !runtime.Make(method.name, self.text().cost())) {
      return {};
    }
    return method.call(runtime, self, arguments);
  }
};

JinjaValue Text(JinjaString text) {
  return JinjaValue::String(std::move(text));
}

JinjaValue Texts(JinjaRuntime& runtime, absl::string_view what,
                 std::vector<JinjaString> texts) {
  if (!runtime.Spend(static_cast<int64_t>(texts.size())) ||
      !runtime.MakeTexts(what, texts.size())) {
    return {};
  }
  std::vector<JinjaValue> values;
  values.reserve(texts.size());
  for (JinjaString& text : texts) values.push_back(Text(std::move(text)));
  return JinjaValue::List(std::move(values));
}

// An argument that has to be a str; null after a failure.
const JinjaString* TextOf(JinjaRuntime& runtime, absl::string_view what,
                          const JinjaValue& value) {
  if (value.is_string()) return &value.text();
  if (runtime.IsDefined(value)) {
    runtime.Fail(what, " needs a str, got a ", value.type_name());
  }
  return nullptr;
}

// Methods without arguments that map letters.
template <typename Fn>
JinjaValue Letters(JinjaRuntime& runtime, absl::string_view what,
                   const JinjaValue& self, const JinjaArguments& arguments,
                   const Fn& fn) {
  JinjaBound bound;
  if (!Bind(runtime, what, {}, 0, arguments, &bound) ||
      !runtime.MakeCase(what, self.text())) {
    return {};
  }
  return Text(fn(self.text()));
}

JinjaValue Upper(JinjaRuntime& runtime, const JinjaValue& self,
                 const JinjaArguments& arguments) {
  return Letters(runtime, "upper", self, arguments, [](const JinjaString& t) {
    return MapCase(t, LetterCase::kUpper);
  });
}
JinjaValue Lower(JinjaRuntime& runtime, const JinjaValue& self,
                 const JinjaArguments& arguments) {
  return Letters(runtime, "lower", self, arguments, [](const JinjaString& t) {
    return MapCase(t, LetterCase::kLower);
  });
}
JinjaValue TitleOf(JinjaRuntime& runtime, const JinjaValue& self,
                   const JinjaArguments& arguments) {
  return Letters(runtime, "title", self, arguments, Title);
}
JinjaValue CapitalizeOf(JinjaRuntime& runtime, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  return Letters(runtime, "capitalize", self, arguments, Capitalize);
}

JinjaValue StripSides(JinjaRuntime& runtime, const JinjaValue& self,
                      const JinjaArguments& arguments, bool left, bool right) {
  JinjaBound bound;
  if (!Bind(runtime, "strip", {"chars"}, 0, arguments, &bound)) return {};
  const JinjaString* chars = nullptr;
  if (bound.has(0) && !bound[0].is(JinjaKind::kNone)) {
    chars = TextOf(runtime, "strip", bound[0]);
    if (chars == nullptr) return {};
  }
  return Text(Strip(self.text(), chars, left, right));
}
JinjaValue StripBoth(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  return StripSides(runtime, self, arguments, true, true);
}
JinjaValue StripLeft(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  return StripSides(runtime, self, arguments, true, false);
}
JinjaValue StripRight(JinjaRuntime& runtime, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return StripSides(runtime, self, arguments, false, true);
}

JinjaValue SplitSide(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments, bool from_end) {
  JinjaBound bound;
  if (!Bind(runtime, "split", {"sep", "maxsplit"}, 0, arguments, &bound)) {
    return {};
  }
  int64_t max_splits = -1;
  if (bound.has(1) && !IntOf(runtime, "split", bound[1], &max_splits)) {
    return {};
  }
  // More parts than there is room for are not looked for.
  const int64_t most = static_cast<int64_t>(runtime.max_texts());
  if (max_splits < 0 || max_splits > most) max_splits = most;
  if (!bound.has(0) || bound[0].is(JinjaKind::kNone)) {
    return Texts(runtime, "split",
                 from_end ? SplitWordsFromEnd(self.text(), max_splits)
                          : SplitWords(self.text(), max_splits));
  }
  const JinjaString* separator = TextOf(runtime, "split", bound[0]);
  if (separator == nullptr) return {};
  if (separator->empty()) return runtime.Fail("split at an empty separator");
  return Texts(runtime, "split",
               from_end
                   ? SplitFromEnd(self.text(), separator->bytes(), max_splits)
                   : Split(self.text(), separator->bytes(), max_splits));
}
JinjaValue SplitLeft(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  return SplitSide(runtime, self, arguments, false);
}
JinjaValue SplitRight(JinjaRuntime& runtime, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return SplitSide(runtime, self, arguments, true);
}

JinjaValue SplitLinesOf(JinjaRuntime& runtime, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "splitlines", {"keepends"}, 0, arguments, &bound)) {
    return {};
  }
  return Texts(runtime, "splitlines",
               SplitLines(self.text(), IsTrue(bound[0]), runtime.max_texts()));
}

JinjaValue Affix(JinjaRuntime& runtime, const JinjaValue& self,
                 const JinjaArguments& arguments, bool at_end) {
  const absl::string_view what = at_end ? "endswith" : "startswith";
  JinjaBound bound;
  if (!Bind(runtime, what, {"affix"}, 1, arguments, &bound)) return {};
  const absl::string_view text = self.text().bytes();
  std::vector<JinjaValue> affixes = {bound[0]};
  if (bound[0].is(JinjaKind::kTuple)) affixes = bound[0].items();
  for (const JinjaValue& value : affixes) {
    const JinjaString* affix = TextOf(runtime, what, value);
    if (affix == nullptr) return {};
    const size_t size = affix->size();
    if (size <= text.size() &&
        text.substr(at_end ? text.size() - size : 0, size) == affix->bytes()) {
      return JinjaValue::Bool(true);
    }
  }
  return JinjaValue::Bool(false);
}
JinjaValue StartsWith(JinjaRuntime& runtime, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return Affix(runtime, self, arguments, false);
}
JinjaValue EndsWith(JinjaRuntime& runtime, const JinjaValue& self,
                    const JinjaArguments& arguments) {
  return Affix(runtime, self, arguments, true);
}

JinjaValue RemoveAffix(JinjaRuntime& runtime, const JinjaValue& self,
                       const JinjaArguments& arguments, bool at_end) {
  JinjaBound bound;
  if (!Bind(runtime, "remove", {"affix"}, 1, arguments, &bound)) return {};
  const JinjaString* affix = TextOf(runtime, "remove", bound[0]);
  if (affix == nullptr) return {};
  const JinjaString& text = self.text();
  const size_t size = affix->size();
  const size_t rest = text.size() - std::min(size, text.size());
  if (size > text.size() ||
      text.bytes().compare(at_end ? rest : 0, size, affix->bytes()) != 0) {
    return self;
  }
  return Text(at_end ? text.Slice(0, rest) : text.Slice(size, text.size()));
}
JinjaValue RemovePrefix(JinjaRuntime& runtime, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  return RemoveAffix(runtime, self, arguments, false);
}
JinjaValue RemoveSuffix(JinjaRuntime& runtime, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  return RemoveAffix(runtime, self, arguments, true);
}

// Every `from`, at most max_count (negative: all), is `to`.
JinjaString Replace(JinjaRuntime& runtime, const JinjaString& text,
                    const JinjaString& from, const JinjaString& to,
                    int64_t max_count) {
  JinjaTextMaker out(runtime, "replace");
  size_t at = 0;
  if (from.empty()) {  // `to` stands before every character and at the end
    while (max_count != 0 && !runtime.failed()) {
      --max_count;
      out.Append(to);
      if (at == text.size()) return out.Take();
      const size_t next = at + DecodeUtf8(text.bytes(), at).bytes;
      out.Append(text, at, next);
      at = next;
    }
  }
  while (max_count != 0 && !runtime.failed()) {
    const size_t found = text.bytes().find(from.bytes(), at);
    if (found == std::string::npos) break;
    --max_count;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
  }
  out.Append(text, at, text.size());
  return out.Take();
}

JinjaValue ReplaceIn(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "replace", {"old", "new", "count"}, 2, arguments,
            &bound)) {
    return {};
  }
  const JinjaString* from = TextOf(runtime, "replace", bound[0]);
  const JinjaString* to = TextOf(runtime, "replace", bound[1]);
  int64_t count = -1;
  if (from == nullptr || to == nullptr ||
      (bound.has(2) && !IntOf(runtime, "replace", bound[2], &count))) {
    return {};
  }
  return Text(Replace(runtime, self.text(), *from, *to, count));
}

JinjaValue Position(JinjaRuntime& runtime, const JinjaValue& self,
                    const JinjaArguments& arguments, bool from_end,
                    bool must_exist) {
  JinjaBound bound;
  if (!Bind(runtime, "find", {"sub"}, 1, arguments, &bound)) return {};
  const JinjaString* part = TextOf(runtime, "find", bound[0]);
  if (part == nullptr) return {};
  const std::string& text = self.text().bytes();
  const size_t found =
      from_end ? text.rfind(part->bytes()) : text.find(part->bytes());
  if (found != std::string::npos) {
    return JinjaValue::Int(
        CountChars(absl::string_view(text).substr(0, found)));
  }
  if (must_exist) return runtime.Fail("index: the text is not there");
  return JinjaValue::Int(-1);
}
JinjaValue Find(JinjaRuntime& runtime, const JinjaValue& self,
                const JinjaArguments& arguments) {
  return Position(runtime, self, arguments, false, false);
}
JinjaValue FindFromEnd(JinjaRuntime& runtime, const JinjaValue& self,
                       const JinjaArguments& arguments) {
  return Position(runtime, self, arguments, true, false);
}
JinjaValue IndexOfText(JinjaRuntime& runtime, const JinjaValue& self,
                       const JinjaArguments& arguments) {
  return Position(runtime, self, arguments, false, true);
}

JinjaValue CountText(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "count", {"sub"}, 1, arguments, &bound)) return {};
  const JinjaString* part = TextOf(runtime, "count", bound[0]);
  if (part == nullptr) return {};
  if (part->empty()) return JinjaValue::Int(self.text().num_chars() + 1);
  int64_t count = 0;
  for (size_t at = 0;
       (at = self.text().bytes().find(part->bytes(), at)) != std::string::npos;
       at += part->size()) {
    ++count;
  }
  return JinjaValue::Int(count);
}

JinjaValue JoinItems(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "join", {"iterable"}, 1, arguments, &bound)) return {};
  JinjaTextMaker out(runtime, "join");
  bool first = true;
  for (const JinjaValue& item : Iterate(runtime, bound[0])) {
    const JinjaString* text = TextOf(runtime, "join", item);
    if (text == nullptr || runtime.failed()) return {};
    if (!first) out.Append(self.text());
    first = false;
    out.Append(*text);
  }
  return Text(out.Take());
}

JinjaValue Format(JinjaRuntime& runtime, const JinjaValue& self,
                  const JinjaArguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

// Whether every character is of a kind, for ASCII text.
JinjaValue IsAll(JinjaRuntime& runtime, const JinjaValue& self,
                 bool (*has)(char)) {
  const std::string& text = self.text().bytes();
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) {
      return runtime.Unsupported("isdigit and the like beyond ASCII");
    }
    if (!has(c)) return JinjaValue::Bool(false);
  }
  return JinjaValue::Bool(!text.empty());
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
JinjaValue IsDigits(JinjaRuntime& runtime, const JinjaValue& self,
                    const JinjaArguments& /*arguments*/) {
  return IsAll(runtime, self, IsDigit);
}
JinjaValue IsLetters(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& /*arguments*/) {
  return IsAll(runtime, self, IsLetter);
}
JinjaValue IsSpaces(JinjaRuntime& /*runtime*/, const JinjaValue& self,
                    const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(!self.text().empty() &&
                          Strip(self.text(), nullptr, true, false).empty());
}

JinjaValue GetMember(JinjaRuntime& runtime, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "get", {"key", "default"}, 1, arguments, &bound)) {
    return {};
  }
  if (!IsKey(bound[0]) && !bound[0].is_undefined()) {
    return runtime.Fail("a ", bound[0].type_name(), " is no key of a dict");
  }
  const JinjaValue* found = nullptr;
  if (IsKey(bound[0])) found = self.object<JinjaDictObject>().Find(bound[0]);
  if (found != nullptr) return *found;
  return bound.has(1) ? bound[1] : JinjaValue::None();
}

JinjaValue View(JinjaRuntime& runtime, const JinjaValue& self,
                const JinjaArguments& arguments, absl::string_view name) {
  JinjaBound bound;
  const auto& members = self.object<JinjaDictObject>().members();
  if (!Bind(runtime, name, {}, 0, arguments, &bound) ||
      !runtime.Spend(static_cast<int64_t>(members.size())) ||
      !runtime.MakeTexts(name, members.size())) {
    return {};
  }
  std::vector<JinjaValue> items;
  items.reserve(members.size());
  for (const auto& [key, value] : members) {
    items.push_back(name == "dict_keys"     ? key
                    : name == "dict_values" ? value
                                            : JinjaValue::Tuple({key, value}));
  }
  return JinjaValue::DictView(name, std::move(items));
}
JinjaValue Keys(JinjaRuntime& runtime, const JinjaValue& self,
                const JinjaArguments& arguments) {
  return View(runtime, self, arguments, "dict_keys");
}
JinjaValue Values(JinjaRuntime& runtime, const JinjaValue& self,
                  const JinjaArguments& arguments) {
  return View(runtime, self, arguments, "dict_values");
}
JinjaValue Items(JinjaRuntime& runtime, const JinjaValue& self,
                 const JinjaArguments& arguments) {
  return View(runtime, self, arguments, "dict_items");
}

// What it copies never changes.
JinjaValue Copy(JinjaRuntime& runtime, const JinjaValue& self,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "copy", {}, 0, arguments, &bound)) return {};
  return self;
}

JinjaValue CountItems(JinjaRuntime& runtime, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "count", {"value"}, 1, arguments, &bound)) return {};
  int64_t count = 0;
  for (const JinjaValue& item : self.items()) {
    if (AreEqual(runtime, item, bound[0])) ++count;
  }
  return JinjaValue::Int(count);
}

JinjaValue IndexOfItem(JinjaRuntime& runtime, const JinjaValue& self,
                       const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "index", {"value"}, 1, arguments, &bound)) return {};
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (AreEqual(runtime, self.items()[i], bound[0])) {
      return JinjaValue::Int(static_cast<int64_t>(i));
    }
  }
  return runtime.Fail("index: the value is not in the list");
}

constexpr Method kTextMethods[] = {
    {"upper", Upper},
    {"lower", Lower},
    {"title", TitleOf},
    {"capitalize", CapitalizeOf},
    {"strip", StripBoth},
    {"lstrip", StripLeft},
    {"rstrip", StripRight},
    {"split", SplitLeft},
    {"rsplit", SplitRight},
    {"splitlines", SplitLinesOf},
    {"startswith", StartsWith},
    {"endswith", EndsWith},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"replace", ReplaceIn},
    {"find", Find},
    {"rfind", FindFromEnd},
    {"index", IndexOfText},
    {"count", CountText},
    {"join", JoinItems},
    {"format", Format},
    {"isdigit", IsDigits},
    {"isdecimal", IsDigits},
    {"isnumeric", IsDigits},
    {"isalpha", IsLetters},
    {"isspace", IsSpaces},
};
constexpr absl::string_view kUnknownTextMethods[] = {
    "casefold", "center",  "encode",       "expandtabs", "format_map",
    "isalnum",  "isascii", "isidentifier", "islower",    "isprintable",
    "istitle",  "isupper", "ljust",        "maketrans",  "partition",
    "rindex",   "rjust",   "rpartition",   "swapcase",   "translate",
    "zfill",
};
constexpr Method kDictMethods[] = {
    {"get", GetMember}, {"keys", Keys}, {"values", Values},
    {"items", Items},   {"copy", Copy},
};
constexpr absl::string_view kUnknownDictMethods[] = {"fromkeys"};
constexpr Method kListMethods[] = {
    {"count", CountItems}, {"index", IndexOfItem}, {"copy", Copy}};
constexpr Method kTupleMethods[] = {{"count", CountItems},
                                    {"index", IndexOfItem}};
constexpr absl::string_view kUnknownRangeMethods[] = {"count", "index", "start",
                                                      "stop", "step"};
// What the reference's sandbox refuses.
constexpr absl::string_view kDictChanges[] = {"clear", "pop", "popitem",
                                              "setdefault", "update"};
constexpr absl::string_view kListChanges[] = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};

struct Methods {
  absl::Span<const Method> known;
  absl::Span<const absl::string_view> unknown;
  absl::Span<const absl::string_view> changes;
};

Methods MethodsOf(const JinjaValue& object) {
  switch (object.kind()) {
    case JinjaKind::kString:
      return {kTextMethods, kUnknownTextMethods, {}};
    case JinjaKind::kDict:
      return {kDictMethods, kUnknownDictMethods, kDictChanges};
    case JinjaKind::kList:
      return {kListMethods, {}, kListChanges};
    case JinjaKind::kTuple:
      return {kTupleMethods, {}, {}};
    case JinjaKind::kRange:
      return {{}, kUnknownRangeMethods, {}};
    default:
      return {};
  }
}

}  // namespace

JinjaValue GetMethod(JinjaRuntime& runtime, const JinjaValue& object,
                     absl::string_view name) {
  const Methods methods = MethodsOf(object);
  for (const Method& method : methods.known) {
    if (method.name != name) continue;
    auto bound = std::make_shared<MethodObject>();
    bound->self = object;
    bound->method = method;
    bound->depth = object.depth() + 1;
    return JinjaValue::Of(JinjaKind::kFunction, std::move(bound));
  }
  for (const absl::string_view unknown : methods.unknown) {
    if (unknown == name) {
      return runtime.Unsupported("the method ", name, " of a ",
                                 object.type_name());
    }
  }
  for (const absl::string_view change : methods.changes) {
    if (change == name) {
      return JinjaValue::Undefined(absl::StrCat(
          "the method ", name, " would change a ", object.type_name(),
          ", which the sandbox of chat templates refuses: make a new one"));
    }
  }
  return JinjaValue();
}

}  // namespace espalier::internal
