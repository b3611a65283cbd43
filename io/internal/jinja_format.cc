// "..." % values, "...".format(values), strftime_now.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

namespace {

// A width or precision beyond this is an error, not a wish.
constexpr int64_t kMaxWidth = 10000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  char align = '\0';  // < > ^ =
  char fill = ' ';
  char sign = '-';
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

bool ReadNumber(absl::string_view* text, int64_t* number) {
  size_t size = 0;
  *number = 0;
  while (size < text->size() && (*text)[size] >= '0' && (*text)[size] <= '9') {
    *number = std::min(*number * 10 + ((*text)[size] - '0'), kMaxWidth + 1);
    ++size;
  }
  text->remove_prefix(size);
  return size > 0;
}

bool CheckSpec(JinjaRuntime& runtime, const Spec& spec) {
  if (spec.width <= kMaxWidth && spec.precision <= kMaxWidth) return true;
  runtime.Fail("a format wider than ", kMaxWidth);
  return false;
}

std::string FixedDigits(double value, int64_t precision) {
  std::string buffer(static_cast<size_t>(precision) + 340, '\0');
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    std::chars_format::fixed, static_cast<int>(precision));
  buffer.resize(static_cast<size_t>(end.ptr - buffer.data()));
  return buffer;
}

std::string IntDigits(uint64_t value, char type) {
  const int base = type == 'x' || type == 'X' ? 16
                   : type == 'o'              ? 8
                   : type == 'b'              ? 2
                                              : 10;
  char buffer[70];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, base);
  std::string digits(buffer, end.ptr);
  if (type == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(), [](char c) {
      return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c;
    });
  }
  return digits;
}

// "1234567.5" as "1,234,567.5".
std::string WithCommas(absl::string_view digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < end && (end - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

// How many of the missing characters stand in front.
int64_t SpacesBefore(int64_t missing, const Spec& spec, char default_align) {
  const char align = spec.align == '\0' ? default_align : spec.align;
  if (missing <= 0 || align == '<') return 0;
  return align == '^' ? missing / 2 : missing;
}

// A number without its sign, and the sign; kMaxWidth bounds it.
std::string PadNumber(std::string digits, bool negative, const Spec& spec) {
  if (spec.comma) digits = WithCommas(digits);
  std::string sign;
  if (negative) {
    sign.push_back('-');
  } else if (spec.sign != '-') {
    sign.push_back(spec.sign);
  }
  if (spec.align == '=') {
    const int64_t missing =
        spec.width - static_cast<int64_t>(sign.size() + digits.size());
    if (missing > 0) sign.append(static_cast<size_t>(missing), spec.fill);
  }
  std::string number = sign + digits;
  const int64_t missing = spec.width - static_cast<int64_t>(number.size());
  const int64_t left = SpacesBefore(missing, spec, '>');
  if (missing <= 0) return number;
  return absl::StrCat(
      std::string(static_cast<size_t>(left), spec.fill), number,
      std::string(static_cast<size_t>(missing - left), spec.fill));
}

std::string FormatNumber(JinjaRuntime& runtime, const JinjaValue& value,
                         const Spec& spec) {
  const bool as_float = value.is(JinjaKind::kFloat) || spec.type == 'f' ||
                        spec.type == 'F' || spec.type == '%';
  if (!as_float) {
    if (spec.type != '\0' && spec.type != 'd' && spec.type != 'x' &&
        spec.type != 'X' && spec.type != 'o' && spec.type != 'b') {
      runtime.Unsupported("the format type ", std::string(1, spec.type),
                          " of an int");
      return {};
    }
    const int64_t integer = value.integer();
    const uint64_t magnitude = integer < 0 ? 0 - static_cast<uint64_t>(integer)
                                           : static_cast<uint64_t>(integer);
    return PadNumber(IntDigits(magnitude, spec.type), integer < 0, spec);
  }
  const double number = value.number();
  if (!std::isfinite(number) ||
      (spec.type != 'f' && spec.type != 'F' && spec.type != '%' &&
       (spec.type != '\0' || spec.precision >= 0))) {
    runtime.Unsupported("this format of a float");
    return {};
  }
  const bool negative = std::signbit(number);
  if (spec.type == '\0') {
    return PadNumber(FloatRepr(std::fabs(number)), negative, spec);
  }
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  const double scaled = spec.type == '%' ? number * 100 : number;
  std::string digits = FixedDigits(std::fabs(scaled), precision);
  if (spec.type == '%') digits += '%';
  return PadNumber(std::move(digits), negative, spec);
}

void AppendText(const JinjaString& text, const Spec& spec,
                JinjaTextMaker* out) {
  const int64_t num_chars = text.num_chars();
  const bool cut = spec.precision >= 0 && spec.precision < num_chars;
  const int64_t missing = spec.width - (cut ? spec.precision : num_chars);
  const int64_t left = SpacesBefore(missing, spec, '<');
  out->AppendFill(left, spec.fill);
  out->Append(text, 0, cut ? text.ByteOfChar(spec.precision) : text.size());
  out->AppendFill(missing - left, spec.fill);
}

// One conversion of "%": flags, width, precision, type.
class PercentFormatter {
 public:
  PercentFormatter(JinjaRuntime& runtime, const JinjaString& format,
                   const JinjaValue& values)
      : runtime_(runtime),
        format_(format),
        values_(values),
        out_(runtime, "%") {
    if (values.is(JinjaKind::kTuple)) {
      arguments_ = values.items();
    } else {
      arguments_ = {values};
    }
  }

  JinjaValue Run() {
    const absl::string_view text = format_.bytes();
    size_t at = 0;
    while (!runtime_.failed()) {
      const size_t percent = text.find('%', at);
      out_.Append(format_, at, std::min(percent, text.size()));
      if (percent == absl::string_view::npos) break;
      absl::string_view rest = text.substr(percent + 1);
      One(&rest);
      at = text.size() - rest.size();
    }
    if (!runtime_.failed() && next_ < arguments_.size() &&
        !(next_ == 0 && MayBeLeft())) {
      return runtime_.Fail("% has more values than places");
    }
    return JinjaValue::String(out_.Take());
  }

 private:
  // What has members by key may go unused.
  bool MayBeLeft() const {
    return values_.is(JinjaKind::kDict) || values_.is(JinjaKind::kList) ||
           values_.is(JinjaKind::kRange) || values_.is_undefined();
  }
  void One(absl::string_view* rest) {
    Spec spec;
    JinjaValue value;
    bool named = false;
    if (!rest->empty() && (*rest)[0] == '(') {
      const size_t close = rest->find(')');
      if (close == absl::string_view::npos || !values_.is(JinjaKind::kDict)) {
        runtime_.Fail("% needs a dict and a closed name");
        return;
      }
      const absl::string_view name = rest->substr(1, close - 1);
      const JinjaValue* found = values_.object<JinjaDictObject>().Find(name);
      if (found == nullptr) {
        runtime_.Fail("% finds no value \"", name, "\"");
        return;
      }
      value = *found;
      named = true;
      rest->remove_prefix(close + 1);
    }
    bool zero = false;
    while (!rest->empty() && absl::string_view("-+ 0#").find((*rest)[0]) !=
                                 absl::string_view::npos) {
      if ((*rest)[0] == '-') spec.align = '<';
      if ((*rest)[0] == '0') zero = true;
      if ((*rest)[0] == '+' || ((*rest)[0] == ' ' && spec.sign != '+')) {
        spec.sign = (*rest)[0];
      }
      if ((*rest)[0] == '#') runtime_.Unsupported("the flag # of %");
      rest->remove_prefix(1);
    }
    ReadNumber(rest, &spec.width);
    if (!rest->empty() && (*rest)[0] == '.') {
      rest->remove_prefix(1);
      ReadNumber(rest, &spec.precision);
    }
    if (rest->empty()) {
      runtime_.Fail("% without a type");
      return;
    }
    const char type = (*rest)[0];
    rest->remove_prefix(1);
    if (type == '%') return out_.Append("%", JinjaMark());
    if (!CheckSpec(runtime_, spec)) return;
    if (!named) {
      if (next_ == arguments_.size()) {
        runtime_.Fail("% has fewer values than places");
        return;
      }
      value = arguments_[next_++];
    }
    if (spec.align == '\0') spec.align = '>';
    if (zero && spec.align != '<') spec.fill = '0';
    Convert(type, value, spec);
  }

  void Convert(char type, const JinjaValue& value, Spec spec) {
    if (type == 's' || type == 'r') {
      spec.fill = ' ';
      const JinjaString text =
          type == 's' ? ToStr(runtime_, value) : ToRepr(runtime_, value);
      AppendText(text, spec, &out_);
      return;
    }
    if (absl::string_view("dixXofF").find(type) == absl::string_view::npos) {
      runtime_.Unsupported("the format type %", std::string(1, type));
      return;
    }
    if (!value.is_number()) {
      if (!runtime_.IsDefined(value)) return;
      runtime_.Fail("%", std::string(1, type), " needs a number, got a ",
                    value.type_name());
      return;
    }
    spec.type = type == 'i' ? 'd' : type;
    JinjaValue number = value;
    if (type == 'd' || type == 'i') {
      if (std::fabs(value.number()) >= 9.2e18) {
        runtime_.Unsupported("an integer beyond 64 bits");
        return;
      }
      if (value.is(JinjaKind::kFloat)) {
        number = JinjaValue::Int(static_cast<int64_t>(value.number()));
      }
      if (spec.precision >= 0) runtime_.Unsupported("a precision of %d");
    }
    if (spec.fill == '0') spec.align = '=';
    out_.Append(FormatNumber(runtime_, number, spec), JinjaMark());
  }

  JinjaRuntime& runtime_;
  const JinjaString& format_;
  const JinjaValue& values_;
  std::vector<JinjaValue> arguments_;
  size_t next_ = 0;
  JinjaTextMaker out_;
};

bool ReadSpec(JinjaRuntime& runtime, absl::string_view text, Spec* spec) {
  const absl::string_view aligns = "<>=^";
  if (text.size() > 1 && aligns.find(text[1]) != absl::string_view::npos) {
    spec->fill = text[0];
    spec->align = text[1];
    text.remove_prefix(2);
  } else if (!text.empty() && aligns.find(text[0]) != absl::string_view::npos) {
    spec->align = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() && (text[0] == '+' || text[0] == '-' || text[0] == ' ')) {
    spec->sign = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() && text[0] == '0') {
    if (spec->align == '\0') {
      spec->fill = '0';
      spec->align = '=';
    }
    text.remove_prefix(1);
  }
  ReadNumber(&text, &spec->width);
  if (!text.empty() && text[0] == ',') {
    spec->comma = true;
    text.remove_prefix(1);
  }
  if (text.size() > 1 && text[0] == '.') {
    text.remove_prefix(1);
    if (!ReadNumber(&text, &spec->precision)) text = "?";
  }
  if (!text.empty()) spec->type = text[0];
  if (text.size() > 1 || static_cast<uint8_t>(spec->fill) >= 0x80 ||
      (spec->comma && spec->align == '=' && spec->fill == '0')) {
    runtime.Unsupported("this format specification");
    return false;
  }
  return CheckSpec(runtime, *spec);
}

// One field of "{}": name, conversion, specification.
class BraceFormatter {
 public:
  BraceFormatter(JinjaRuntime& runtime, const JinjaString& format,
                 const JinjaArguments& arguments)
      : runtime_(runtime),
        format_(format),
        arguments_(arguments),
        out_(runtime, "format") {}

  JinjaValue Run() {
    const absl::string_view text = format_.bytes();
    size_t at = 0;
    while (at < text.size() && !runtime_.failed()) {
      const size_t brace = text.find_first_of("{}", at);
      out_.Append(format_, at, std::min(brace, text.size()));
      if (brace == absl::string_view::npos) break;
      at = brace + 1;
      if (at < text.size() && text[at] == text[brace]) {  // {{ or }}
        out_.Append(format_, at, at + 1);
        ++at;
        continue;
      }
      const size_t close = text.find('}', at);
      if (text[brace] == '}' || close == absl::string_view::npos) {
        return runtime_.Fail("format: a single \"", std::string(1, text[brace]),
                             "\"");
      }
      Field(text.substr(at, close - at));
      at = close + 1;
    }
    return JinjaValue::String(out_.Take());
  }

 private:
  void Field(absl::string_view field) {
    absl::string_view spec_text;
    const size_t colon = field.find(':');
    if (colon != absl::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    const size_t mark = field.find('!');
    if (mark != absl::string_view::npos) {
      conversion = mark + 2 == field.size() ? field[mark + 1] : '?';
      field = field.substr(0, mark);
    }
    const JinjaValue value = Find(field);
    Spec spec;
    if (runtime_.failed() || !ReadSpec(runtime_, spec_text, &spec)) return;
    if (conversion == '\0' && value.is_number() &&
        !value.is(JinjaKind::kBool) && !spec_text.empty()) {
      out_.Append(FormatNumber(runtime_, value, spec), JinjaMark());
      return;
    }
    const JinjaString text =
        conversion == 'r' ? ToRepr(runtime_, value) : ToStr(runtime_, value);
    const bool plain = value.is_string() || conversion != '\0';
    if ((conversion != '\0' && conversion != 'r' && conversion != 's') ||
        (!plain && !spec_text.empty()) || spec.align == '=' ||
        (spec.type != '\0' && spec.type != 's')) {
      runtime_.Unsupported("this format specification of a ",
                           value.type_name());
      return;
    }
    AppendText(text, spec, &out_);
  }

  JinjaValue Find(absl::string_view name) {
    if (name.find_first_of(".[{") != absl::string_view::npos) {
      return runtime_.Unsupported("format with attributes");
    }
    int64_t index = static_cast<int64_t>(next_);
    absl::string_view digits = name;
    if (name.empty()) {
      ++next_;
    } else if (!ReadNumber(&digits, &index) || !digits.empty()) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      return runtime_.Fail("format finds no value \"", name, "\"");
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      return runtime_.Fail("format has fewer values than places");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  JinjaRuntime& runtime_;
  const JinjaString& format_;
  const JinjaArguments& arguments_;
  size_t next_ = 0;
  JinjaTextMaker out_;
};

struct Clock {
  int64_t year, month, day, hour, minute, second, weekday, yearday;
};

// Civil time of seconds since 1970 (Howard Hinnant, days_from_civil).
Clock ClockOf(int64_t seconds) {
  Clock c{};
  const int64_t days = seconds / 86400 - (seconds % 86400 < 0 ? 1 : 0);
  const int64_t rest = seconds - days * 86400;
  c.hour = rest / 3600;
  c.minute = rest / 60 % 60;
  c.second = rest % 60;
  c.weekday = ((days + 4) % 7 + 7) % 7;  // from Sunday
  const int64_t z = days + 719468;
  const int64_t era = (z >= 0 ? z : z - 146096) / 146097;
  const int64_t doe = z - era * 146097;
  const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  const int64_t mp = (5 * doy + 2) / 153;
  c.day = doy - (153 * mp + 2) / 5 + 1;
  c.month = mp < 10 ? mp + 3 : mp - 9;
  c.year = yoe + era * 400 + (c.month <= 2 ? 1 : 0);
  const bool leap = c.year % 4 == 0 && (c.year % 100 != 0 || c.year % 400 == 0);
  constexpr int64_t kBefore[] = {0,   31,  59,  90,  120, 151,
                                 181, 212, 243, 273, 304, 334};
  c.yearday = kBefore[c.month - 1] + c.day + (leap && c.month > 2 ? 1 : 0);
  return c;
}

constexpr absl::string_view kMonths[] = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr absl::string_view kDays[] = {"Sunday",    "Monday",   "Tuesday",
                                       "Wednesday", "Thursday", "Friday",
                                       "Saturday"};

std::string Digits(int64_t value, int width, bool padded) {
  std::string digits = absl::StrCat(value);
  const int missing = width - static_cast<int>(digits.size());
  if (!padded || missing <= 0) return digits;
  return absl::StrCat(std::string(static_cast<size_t>(missing), '0'), digits);
}

// What a directive of strftime shows in the C locale; empty: not known.
std::string ClockPart(const Clock& c, char directive, bool padded) {
  const int64_t hour12 = c.hour % 12 == 0 ? 12 : c.hour % 12;
  switch (directive) {
    case 'Y':
      return Digits(c.year, 4, padded);
    case 'y':
      return Digits(c.year % 100, 2, padded);
    case 'm':
      return Digits(c.month, 2, padded);
    case 'd':
      return Digits(c.day, 2, padded);
    case 'e':
      return c.day < 10 && padded ? absl::StrCat(" ", c.day)
                                  : absl::StrCat(c.day);
    case 'H':
      return Digits(c.hour, 2, padded);
    case 'I':
      return Digits(hour12, 2, padded);
    case 'M':
      return Digits(c.minute, 2, padded);
    case 'S':
      return Digits(c.second, 2, padded);
    case 'j':
      return Digits(c.yearday, 3, padded);
    case 'p':
      return c.hour < 12 ? "AM" : "PM";
    case 'B':
      return std::string(kMonths[c.month - 1]);
    case 'b':
    case 'h':
      return std::string(kMonths[c.month - 1].substr(0, 3));
    case 'A':
      return std::string(kDays[c.weekday]);
    case 'a':
      return std::string(kDays[c.weekday].substr(0, 3));
    case 'w':
      return absl::StrCat(c.weekday);
    case 'u':
      return absl::StrCat(c.weekday == 0 ? 7 : c.weekday);
    case 'f':
      return "000000";
    case 'F':
      return absl::StrCat(Digits(c.year, 4, true), "-",
                          Digits(c.month, 2, true), "-",
                          Digits(c.day, 2, true));
    case 'T':
      return absl::StrCat(Digits(c.hour, 2, true), ":",
                          Digits(c.minute, 2, true), ":",
                          Digits(c.second, 2, true));
    case '%':
      return "%";
    default:
      return "";
  }
}

}  // namespace

JinjaValue FormatPercent(JinjaRuntime& runtime, const JinjaString& format,
                         const JinjaValue& values) {
  return PercentFormatter(runtime, format, values).Run();
}

JinjaValue FormatBraces(JinjaRuntime& runtime, const JinjaString& format,
                        const JinjaArguments& arguments) {
  return BraceFormatter(runtime, format, arguments).Run();
}

JinjaValue FormatNow(JinjaRuntime& runtime, const JinjaString& format) {
  if (!runtime.options().now_seconds.has_value()) {
    return runtime.Fail(
        "strftime_now needs a clock: give the time to render with");
  }
  constexpr int64_t kYear9999 = 253402300799;
  const int64_t now = *runtime.options().now_seconds;
  if (now < 0 || now > kYear9999) return runtime.Fail("the clock is off");
  const Clock clock = ClockOf(now);
  const absl::string_view text = format.bytes();
  constexpr uint64_t kGrowth = 5;  // of "%F", which shows ten characters
  if (!runtime.Make("strftime_now", kGrowth * text.size())) return {};
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out.push_back(text[at]);
      continue;
    }
    ++at;
    const bool padded = at >= text.size() || text[at] != '-';
    if (!padded) ++at;
    const std::string part =
        at < text.size() ? ClockPart(clock, text[at], padded) : "";
    if (part.empty()) {
      return runtime.Unsupported("the directive %",
                                 at < text.size() ? text.substr(at, 1) : "",
                                 " of strftime_now");
    }
    out += part;
  }
  return JinjaValue::String(out);
}

}  // namespace espalier::internal
