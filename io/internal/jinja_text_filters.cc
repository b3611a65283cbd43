// Filters of text and of single values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"

#include "espalier/io/internal/jinja_filters.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

JinjaValue Text(JinjaString text) {
  return JinjaValue::String(std::move(text));
}

// str(value) of Python for a filter that maps its letters.
template <typename Fn>
JinjaValue Letters(JinjaRuntime& runtime, absl::string_view what,
                   const JinjaValue& value, const JinjaArguments& arguments,
                   const Fn& fn) {
  JinjaBound bound;
  if (!Bind(runtime, what, {}, 0, arguments, &bound)) return {};
  const JinjaString text = ToStr(runtime, value);
  if (!runtime.MakeCase(what, text)) return {};
  return Text(fn(text));
}

JinjaValue Upper(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  return Letters(runtime, "upper", value, arguments, [](const JinjaString& t) {
    return MapCase(t, LetterCase::kUpper);
  });
}

JinjaValue Lower(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  return Letters(runtime, "lower", value, arguments, [](const JinjaString& t) {
    return MapCase(t, LetterCase::kLower);
  });
}

JinjaValue CapitalizeText(JinjaRuntime& runtime, const JinjaValue& value,
                          const JinjaArguments& arguments) {
  return Letters(runtime, "capitalize", value, arguments, Capitalize);
}

// Words begin behind white space, "-", "(", "{", "[" and "<".
JinjaString TitleWords(const JinjaString& text) {
  const auto begins_word = [&](size_t at) {
    const uint32_t code = DecodeUtf8(text.bytes(), at).code;
    return IsPythonSpace(code) || code == '-' || code == '(' || code == '{' ||
           code == '[' || code == '<';
  };
  JinjaString out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const bool gap = begins_word(at);
    while (end < text.size() && begins_word(end) == gap) {
      end += DecodeUtf8(text.bytes(), end).bytes;
    }
    const size_t first = at + DecodeUtf8(text.bytes(), at).bytes;
    out.Append(MapCase(text.Slice(at, first), LetterCase::kUpper));
    out.Append(MapCase(text.Slice(first, end), LetterCase::kLower));
    at = end;
  }
  return out;
}

JinjaValue TitleText(JinjaRuntime& runtime, const JinjaValue& value,
                     const JinjaArguments& arguments) {
  return Letters(runtime, "title", value, arguments, TitleWords);
}

JinjaValue Trim(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "trim", {"chars"}, 0, arguments, &bound)) return {};
  const JinjaString text = ToStr(runtime, value);
  if (!runtime.Make("trim", text.cost())) return {};
  if (!bound.has(0) || bound[0].is(JinjaKind::kNone)) {
    return Text(Strip(text, nullptr, true, true));
  }
  if (!bound[0].is_string()) return runtime.Fail("trim needs a str");
  return Text(Strip(text, &bound[0].text(), true, true));
}

JinjaValue ReplaceText(JinjaRuntime& runtime, const JinjaValue& value,
                       const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "replace", {"old", "new", "count"}, 2, arguments,
            &bound)) {
    return {};
  }
  int64_t count = -1;
  if (bound.has(2) && !bound[2].is(JinjaKind::kNone) &&
      !IntOf(runtime, "replace", bound[2], &count)) {
    return {};
  }
  JinjaArguments texts;
  texts.positional = {Text(ToStr(runtime, bound[0])),
                      Text(ToStr(runtime, bound[1])), JinjaValue::Int(count)};
  const JinjaValue replace =
      GetMethod(runtime, Text(ToStr(runtime, value)), "replace");
  return replace.object<JinjaFunctionObject>().Call(runtime, texts);
}

JinjaValue String(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "string", {}, 0, arguments, &bound)) return {};
  return value.is_string() ? value : Text(ToStr(runtime, value));
}

// The lines of text + "\n"; `first` and `blank` ones are indented, too.
JinjaString IndentLines(JinjaRuntime& runtime, const JinjaString& text,
                        const JinjaString& indention, bool first, bool blank) {
  JinjaTextMaker out(runtime, "indent");
  const std::string& bytes = text.bytes();
  bool more = true;
  for (size_t begin = 0; more && !runtime.failed();) {
    size_t end = begin, next = begin;
    more = false;
    while (end < bytes.size() && !more) {
      const Utf8Char c = DecodeUtf8(bytes, end);
      next = end + c.bytes;
      more = IsPythonLineEnd(c.code);
      if (!more) end = next;
    }
    if (begin > 0) out.Append("\n", JinjaMark());
    if (begin == 0 ? first : blank || end > begin) out.Append(indention);
    out.Append(text, begin, end);
    if (more && bytes[end] == '\r') {
      if (next == bytes.size()) break;  // one line end with the "\n" behind
      if (bytes[next] == '\n') ++next;
    }
    begin = next;
  }
  return out.Take();
}

JinjaValue Indent(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "indent", {"width", "first", "blank"}, 0, arguments,
            &bound)) {
    return {};
  }
  if (!value.is_string()) {
    if (!runtime.IsDefined(value)) return {};
    return runtime.Fail("indent needs a str, got a ", value.type_name());
  }
  JinjaString indention("    ", JinjaMark());
  if (bound.has(0) && bound[0].is_string()) {
    indention = bound[0].text();
  } else if (bound.has(0)) {
    int64_t width = 0;
    if (!IntOf(runtime, "indent", bound[0], &width)) return {};
    const size_t spaces = static_cast<size_t>(std::max<int64_t>(width, 0));
    if (!runtime.Make("indent", spaces)) return {};
    indention = JinjaString(std::string(spaces, ' '), JinjaMark());
  }
  return Text(IndentLines(runtime, value.text(), indention, IsTrue(bound[1]),
                          IsTrue(bound[2])));
}

JinjaValue Truncate(JinjaRuntime& runtime, const JinjaValue& value,
                    const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "truncate", {"length", "killwords", "end", "leeway"}, 0,
            arguments, &bound)) {
    return {};
  }
  int64_t length = 255, leeway = 5;
  if ((bound.has(0) && !IntOf(runtime, "truncate", bound[0], &length)) ||
      (bound.has(3) && !bound[3].is(JinjaKind::kNone) &&
       !IntOf(runtime, "truncate", bound[3], &leeway))) {
    return {};
  }
  const JinjaString end =
      bound.has(2) ? ToStr(runtime, bound[2]) : JinjaString("...", JinjaMark());
  if (length < end.num_chars() || leeway < 0 || length > (int64_t{1} << 40) ||
      leeway > (int64_t{1} << 40)) {
    return runtime.Fail("truncate needs room for its end");
  }
  int64_t size = 0;
  if (!value.is_string()) {
    if (!LengthOf(runtime, value, &size)) return {};
    if (size <= length + leeway) return value;
    return runtime.Unsupported("truncate of a ", value.type_name());
  }
  const JinjaString& text = value.text();
  if (!runtime.Make("truncate", text.cost() + end.cost())) return {};
  if (text.num_chars() <= length + leeway) return value;
  JinjaString out = text.Slice(0, text.ByteOfChar(length - end.num_chars()));
  if (!IsTrue(bound[1])) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.Slice(0, space);
  }
  out.Append(end);
  return Text(std::move(out));
}

JinjaValue Center(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "center", {"width"}, 0, arguments, &bound)) return {};
  int64_t width = 80;
  if (bound.has(0) && !IntOf(runtime, "center", bound[0], &width)) return {};
  JinjaString text = ToStr(runtime, value);
  if (width <= text.num_chars()) return Text(std::move(text));
  const int64_t missing = width - text.num_chars();
  // CPython puts the odd space in front where the width is odd, too.
  const int64_t left = missing / 2 + (missing & width & 1);
  JinjaTextMaker out(runtime, "center");
  out.AppendFill(left, ' ');
  out.Append(text);
  out.AppendFill(missing - left, ' ');
  return Text(out.Take());
}

// Digits of a number as Python reads them: no white space around, one "_"
// between digits. False when it is none.
bool CleanNumber(const JinjaString& text, std::string* clean) {
  const JinjaString stripped = Strip(text, nullptr, true, true);
  const std::string& bytes = stripped.bytes();
  clean->clear();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      clean->push_back(bytes[i]);
      continue;
    }
    const auto digit = [&](size_t at) {
      return at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9';
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return false;
  }
  if (!clean->empty() && (*clean)[0] == '+') clean->erase(0, 1);
  return !clean->empty() && (*clean)[0] != '+' &&
         !absl::StartsWith(*clean, "-+");
}

bool ReadFloat(const JinjaString& text, double* number) {
  std::string clean;
  if (!CleanNumber(text, &clean)) return false;
  const auto end =
      std::from_chars(clean.data(), clean.data() + clean.size(), *number);
  if (end.ptr != clean.data() + clean.size() ||
      clean.find('(') != std::string::npos) {
    return false;
  }
  if (end.ec == std::errc::result_out_of_range) {
    const size_t exponent = clean.find_first_of("eE");
    const bool small = exponent != std::string::npos &&
                       clean.compare(exponent + 1, 1, "-") == 0;
    *number =
        std::copysign(small ? 0.0 : std::numeric_limits<double>::infinity(),
                      clean[0] == '-' ? -1.0 : 1.0);
    return true;
  }
  return end.ec == std::errc();
}

// Of int(text, base): 1 read, 0 no number, -1 beyond 64 bits.
int ReadInt(const JinjaString& text, int base, int64_t* number) {
  std::string clean;
  if (!CleanNumber(text, &clean)) return 0;
  const bool negative = clean[0] == '-';
  size_t begin = negative ? 1 : 0;
  const char prefix = base == 16  ? 'x'
                      : base == 8 ? 'o'
                      : base == 2 ? 'b'
                                  : '?';
  if (clean.size() > begin + 2 && clean[begin] == '0' &&
      (clean[begin + 1] | 32) == prefix) {
    begin += 2;
  }
  uint64_t magnitude = 0;
  const char* last = clean.data() + clean.size();
  const auto end = std::from_chars(clean.data() + begin, last, magnitude, base);
  if (end.ptr != last || begin == clean.size()) return 0;
  const uint64_t limit =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (end.ec != std::errc() || magnitude > limit) return -1;
  *number = negative ? -static_cast<int64_t>(magnitude)
                     : static_cast<int64_t>(magnitude);
  return 1;
}

JinjaValue FloatToInt(JinjaRuntime& runtime, double number,
                      const JinjaValue& fallback) {
  if (!std::isfinite(number)) return fallback;
  if (std::fabs(number) >= 9.2e18) {
    return runtime.Unsupported("an integer beyond 64 bits");
  }
  return JinjaValue::Int(static_cast<int64_t>(number));
}

JinjaValue Int(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "int", {"default", "base"}, 0, arguments, &bound)) {
    return {};
  }
  const JinjaValue fallback = bound.has(0) ? bound[0] : JinjaValue::Int(0);
  int64_t base = 10;
  if (bound.has(1) && !IntOf(runtime, "int", bound[1], &base)) return {};
  if (base != 2 && base != 8 && base != 10 && base != 16) {
    return runtime.Unsupported("int with base ", base);
  }
  if (value.is_integral()) return JinjaValue::Int(value.integer());
  if (value.is_number()) return FloatToInt(runtime, value.number(), fallback);
  if (!value.is_string()) {
    return runtime.IsDefined(value) ? fallback : JinjaValue();
  }
  int64_t number = 0;
  const int read = ReadInt(value.text(), static_cast<int>(base), &number);
  if (read > 0) return JinjaValue::Int(number);
  if (read < 0) return runtime.Unsupported("an integer beyond 64 bits");
  double real = 0;
  return ReadFloat(value.text(), &real) ? FloatToInt(runtime, real, fallback)
                                        : fallback;
}

JinjaValue Float(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "float", {"default"}, 0, arguments, &bound)) return {};
  if (value.is_number()) return JinjaValue::Float(value.number());
  double number = 0;
  if (value.is_string() && ReadFloat(value.text(), &number)) {
    return JinjaValue::Float(number);
  }
  if (!runtime.IsDefined(value)) return {};
  return bound.has(0) ? bound[0] : JinjaValue::Float(0);
}

JinjaValue Abs(JinjaRuntime& runtime, const JinjaValue& value,
               const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "abs", {}, 0, arguments, &bound)) return {};
  if (value.is_integral() && value.integer() >= 0) {
    return JinjaValue::Int(value.integer());
  }
  if (value.is(JinjaKind::kFloat)) {
    return JinjaValue::Float(std::fabs(value.number()));
  }
  return Negate(runtime, value);
}

// Rounds half to even in decimal, of the exact value.
double RoundDecimal(double value, int64_t precision) {
  char buffer[700];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    std::chars_format::fixed, static_cast<int>(precision));
  double rounded = value;
  std::from_chars(buffer, end.ptr, rounded);
  return rounded;
}

JinjaValue Round(JinjaRuntime& runtime, const JinjaValue& value,
                 const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "round", {"precision", "method"}, 0, arguments, &bound)) {
    return {};
  }
  int64_t precision = 0;
  if (bound.has(0) && !IntOf(runtime, "round", bound[0], &precision)) {
    return {};
  }
  const std::string method =
      bound.has(1) ? ToStr(runtime, bound[1]).bytes() : "common";
  if (!value.is_number()) {
    if (!runtime.IsDefined(value)) return {};
    return runtime.Fail("round needs a number, got a ", value.type_name());
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return runtime.Fail("round has no method \"", method, "\"");
  }
  if (precision < 0 || precision > 300) {
    return runtime.Unsupported("round to ", precision, " digits");
  }
  if (method == "common") {
    if (value.is_integral()) return JinjaValue::Int(value.integer());
    if (!std::isfinite(value.number())) return value;
    return JinjaValue::Float(RoundDecimal(value.number(), precision));
  }
  if (precision > 15) return runtime.Unsupported("round to so many digits");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * scale;
  return JinjaValue::Float(
      (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

JinjaValue ToJsonText(JinjaRuntime& runtime, const JinjaValue& value,
                      const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "tojson",
            {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, arguments,
            &bound)) {
    return {};
  }
  JinjaJsonStyle style;
  style.ensure_ascii = IsTrue(bound[0]);
  style.sort_keys = IsTrue(bound[3]);
  if (bound.has(1) && !bound[1].is(JinjaKind::kNone)) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    int64_t width = 0;
    if (bound[1].is_string()) {
      style.indent = bound[1].text().bytes();
    } else if (!IntOf(runtime, "tojson", bound[1], &width)) {
      return {};
    } else if (width > 1000) {
      return runtime.Fail("tojson indents by at most 1000");
    } else {
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)),
                          ' ');
    }
  }
  if (bound.has(2) && !bound[2].is(JinjaKind::kNone)) {
    const std::vector<JinjaValue> pair = Iterate(runtime, bound[2]);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return runtime.Fail("tojson: separators are two texts");
    }
    style.item_separator = pair[0].text().bytes();
    style.key_separator = pair[1].text().bytes();
  }
  return Text(ToJson(runtime, value, style));
}

JinjaValue Default(JinjaRuntime& runtime, const JinjaValue& value,
                   const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "default", {"default_value", "boolean"}, 0, arguments,
            &bound)) {
    return {};
  }
  if (!value.is_undefined() && (!IsTrue(bound[1]) || IsTrue(value))) {
    return value;
  }
  return bound.has(0) ? bound[0] : JinjaValue::String("");
}

JinjaValue Format(JinjaRuntime& runtime, const JinjaValue& value,
                  const JinjaArguments& arguments) {
  const JinjaString text = ToStr(runtime, value);
  if (arguments.named.empty()) {
    return FormatPercent(runtime, text,
                         JinjaValue::Tuple(arguments.positional));
  }
  if (!arguments.positional.empty()) {
    return runtime.Fail("format takes values by place or by name, not both");
  }
  auto dict = std::make_shared<JinjaDictObject>();
  for (const auto& [name, argument] : arguments.named) {
    dict->Set(JinjaValue::String(name), argument);
  }
  return FormatPercent(runtime, text,
                       JinjaValue::Of(JinjaKind::kDict, std::move(dict)));
}

constexpr JinjaFilter kFilters[] = {
    {"upper", Upper},     {"lower", Lower},   {"capitalize", CapitalizeText},
    {"title", TitleText}, {"trim", Trim},     {"replace", ReplaceText},
    {"string", String},   {"indent", Indent}, {"truncate", Truncate},
    {"center", Center},   {"int", Int},       {"float", Float},
    {"abs", Abs},         {"round", Round},   {"tojson", ToJsonText},
    {"default", Default}, {"d", Default},     {"format", Format},
};

}  // namespace

absl::Span<const JinjaFilter> TextFilters() { return kFilters; }

}  // namespace espalier::internal
