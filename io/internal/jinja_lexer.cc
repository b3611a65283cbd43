#include "espalier/io/internal/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/jinja_unicode.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/unicode.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" as "\n", one line end less at the end.
std::string NormalizeLines(absl::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text.push_back(source[i]);
      continue;
    }
    text.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(absl::string_view source, const JinjaOptions& options)
      : storage_(NormalizeLines(source)), text_(storage_), options_(options) {}

  absl::StatusOr<std::vector<JinjaToken>> Run() {
    while (at_ < text_.size() && status_.ok()) Root();
    if (!status_.ok()) return status_;
    Add(JinjaTokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool Fail(absl::string_view message) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("line ", line_, ": ", message));
    }
    return false;
  }
  bool Unsupported(absl::string_view what) {
    if (status_.ok()) {
      status_ = absl::UnimplementedError(
          absl::StrCat("line ", line_, ": ", what, " is not supported"));
    }
    return false;
  }
  void Add(JinjaTokenType type, absl::string_view text) {
    JinjaToken& token = tokens_.emplace_back();
    token.type = type;
    token.line = line_;
    token.text = std::string(text);
  }
  // Moves on to `end`, counting lines.
  void Advance(size_t end) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                   text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  bool Has(size_t at, absl::string_view what) const {
    return text_.substr(std::min(at, text_.size())).substr(0, what.size()) ==
           what;
  }
  size_t SkipSpace(size_t at) const { return SkipPythonSpaces(text_, at); }
  size_t StripEnd(size_t begin, size_t end) const {
    return std::max(begin, SkipPythonSpacesBack(text_, end));
  }

  // Text up to the next tag, and the tag.
  void Root() {
    size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == absl::string_view::npos || tag + 1 >= text_.size()) {
        Add(JinjaTokenType::kData, text_.substr(at_));
        at_ = text_.size();
        return;
      }
      const char next = text_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    AddText(tag, sign, /*variable=*/kind == '{');
    const size_t inside = tag + (sign == '-' || sign == '+' ? 3 : 2);
    Advance(inside);
    if (kind == '#') return Comment();
    if (kind == '%' && Raw()) return;
    Tag(kind == '{');
  }

  // The text in front of a tag at `end`, as its sign leaves it.
  void AddText(size_t end, char sign, bool variable) {
    size_t stop = end;
    if (sign == '-') {
      stop = StripEnd(at_, end);
    } else if (sign != '+' && options_.lstrip_blocks && !variable) {
      const size_t newline = text_.substr(0, end).rfind('\n');
      const bool in_text = newline != absl::string_view::npos && newline >= at_;
      const size_t line_begin = in_text ? newline + 1 : at_;
      if ((in_text || line_starting_) &&
          StripEnd(line_begin, end) == line_begin) {
        stop = line_begin;
      }
    }
    if (stop > at_) Add(JinjaTokenType::kData, text_.substr(at_, stop - at_));
    Advance(end);
  }

  // Behind "%}", "#}" and their forms with signs; `end` is where the sign or
  // the bracket stands.
  size_t EndOfTag(size_t end, bool trim) const {
    if (text_[end] == '+') return end + 3;
    if (text_[end] == '-') return SkipSpace(end + 3);
    end += 2;
    return trim && options_.trim_blocks && Has(end, "\n") ? end + 1 : end;
  }
  void FinishTag(size_t end) {
    line_starting_ = end > 0 && text_[end - 1] == '\n';
    Advance(end);
  }

  void Comment() {
    size_t close = text_.find("#}", at_);
    if (close == absl::string_view::npos) {
      Fail("a comment is not closed: \"#}\" is missing");
      return;
    }
    if (close > at_ && (text_[close - 1] == '-' || text_[close - 1] == '+')) {
      --close;
    }
    FinishTag(EndOfTag(close, /*trim=*/true));
  }

  // A raw block, if the tag at the cursor opens one.
  bool Raw() {
    size_t at = SkipSpace(at_);
    if (!Has(at, "raw")) return false;
    at = SkipSpace(at + 3);
    const bool strip = Has(at, "-%}");
    if (!strip && !Has(at, "%}")) return false;
    FinishTag(strip ? SkipSpace(at + 3) : at + 2);
    size_t tag = at_;
    while (true) {
      tag = text_.find("{%", tag);
      if (tag == absl::string_view::npos) {
        return Fail("a raw block is not closed: endraw is missing"), true;
      }
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      at = SkipSpace(tag + (sign == '-' || sign == '+' ? 3 : 2));
      const size_t name = at;
      at = SkipSpace(at + 6);
      if (Has(name, "endraw") &&
          (Has(at, "%}") || Has(at, "-%}") || Has(at, "+%}"))) {
        AddText(tag, sign, /*variable=*/false);
        FinishTag(EndOfTag(at, /*trim=*/true));
        return true;
      }
      tag += 2;
    }
  }

  // The tokens of a tag, up to its end.
  void Tag(bool variable) {
    Add(variable ? JinjaTokenType::kVariableBegin : JinjaTokenType::kBlockBegin,
        "");
    std::string open;  // closing brackets that are due
    while (status_.ok()) {
      const size_t begin = SkipSpace(at_);
      Advance(begin);
      if (at_ >= text_.size()) {
        Fail("a tag is not closed");
        return;
      }
      if (open.empty() && IsTagEnd(variable)) {
        Add(variable ? JinjaTokenType::kVariableEnd : JinjaTokenType::kBlockEnd,
            "");
        if (variable) {
          FinishTag(text_[at_] == '-' ? SkipSpace(at_ + 3) : at_ + 2);
        } else {
          FinishTag(EndOfTag(at_, /*trim=*/true));
        }
        return;
      }
      if (!Number() && !Name() && !String()) Operator(&open);
    }
  }
  bool IsTagEnd(bool variable) const {
    if (variable) return Has(at_, "}}") || Has(at_, "-}}");
    return Has(at_, "%}") || Has(at_, "-%}") || Has(at_, "+%}");
  }

  // "12_345": digits with single "_" between them; where they end.
  size_t Digits(size_t at) const {
    while (at < text_.size() &&
           (IsDigit(text_[at]) ||
            (text_[at] == '_' && at + 1 < text_.size() &&
             IsDigit(text_[at + 1]) && at > at_ && IsDigit(text_[at - 1])))) {
      ++at;
    }
    return at;
  }

  bool Number() {
    if (!IsDigit(text_[at_])) return false;
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    size_t end = Digits(at_);
    bool is_float = false;
    if (!after_dot) {
      if (Has(end, ".") && end + 1 < text_.size() && IsDigit(text_[end + 1])) {
        end = Digits(end + 1);
        is_float = true;
      }
      if (end < text_.size() && (text_[end] | 32) == 'e') {
        size_t exponent = end + 1;
        if (Has(exponent, "+") || Has(exponent, "-")) ++exponent;
        if (exponent < text_.size() && IsDigit(text_[exponent])) {
          end = Digits(exponent);
          is_float = true;
        }
      }
    }
    std::string digits;
    for (size_t i = at_; i < end; ++i) {
      if (text_[i] != '_') digits.push_back(text_[i]);
    }
    if (!is_float && digits == "0" && end < text_.size() &&
        absl::string_view("xXoObB").find(text_[end]) !=
            absl::string_view::npos) {
      return Unsupported("an integer in another base");
    }
    Add(is_float ? JinjaTokenType::kFloat : JinjaTokenType::kInteger, digits);
    const char* last = digits.data() + digits.size();
    std::from_chars_result read;
    if (is_float) {
      read = std::from_chars(digits.data(), last, tokens_.back().number);
    } else {
      if (digits.size() > 1 && digits[0] == '0') {
        return Fail("an integer begins with 0");
      }
      read = std::from_chars(digits.data(), last, tokens_.back().integer);
    }
    if (read.ec != std::errc()) {
      return Unsupported("a number this large or small");
    }
    Advance(end);
    return true;
  }

  bool Name() {
    size_t end = at_;
    while (end < text_.size()) {
      const Utf8Char c = DecodeUtf8(text_, end);
      if (!IsWordChar(c.code)) break;
      if (c.code >= 0x80) return Unsupported("a name beyond ASCII");
      end += c.bytes;
    }
    if (end == at_) return false;
    Add(JinjaTokenType::kName, text_.substr(at_, end - at_));
    Advance(end);
    return true;
  }

  bool String() {
    const char quote = text_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) {
      end += text_[end] == '\\' ? 2 : 1;
    }
    if (end >= text_.size()) return Fail("a string is not closed");
    std::string value;
    if (!Unescape(text_.substr(at_ + 1, end - at_ - 1), &value)) return false;
    Add(JinjaTokenType::kString, value);
    Advance(end + 1);
    return true;
  }

  // The escapes of Python's string literals.
  bool Unescape(absl::string_view raw, std::string* out) {
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out->push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      constexpr absl::string_view kFrom = "\\'\"abfnrtv";
      constexpr absl::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      const size_t known = kFrom.find(c);
      if (known != absl::string_view::npos) {
        out->push_back(kTo[known]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        while (digits < 3 && i + digits < raw.size() &&
               raw[i + digits] >= '0' && raw[i + digits] <= '7') {
          code = code * 8 + static_cast<uint32_t>(raw[i + digits++] - '0');
        }
        AppendUtf8(code, out);
        i += digits - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        if (!HexEscape(raw, &i, out)) return false;
      } else if (c == 'N') {
        return Unsupported("the escape \\N");
      } else if (static_cast<uint8_t>(c) >= 0x80) {
        return Unsupported("a backslash before a character beyond ASCII");
      } else {
        *out += {'\\', c};
      }
    }
    return true;
  }
  bool HexEscape(absl::string_view raw, size_t* i, std::string* out) {
    const char kind = raw[*i];
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    if (*i + digits >= raw.size()) return Fail("an escape is cut short");
    uint32_t code = 0;
    const char* begin = raw.data() + *i + 1;
    const auto end = std::from_chars(begin, begin + digits, code, 16);
    if (end.ptr != begin + digits || code > 0x10FFFF) {
      return Fail("an escape is no character");
    }
    if (code >= 0xD800 && code < 0xE000) {
      return Unsupported("an escape of half a character");
    }
    AppendUtf8(code, out);
    *i += digits;
    return true;
  }

  void Operator(std::string* open) {
    if (!status_.ok()) return;
    constexpr absl::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    absl::string_view found;
    for (const absl::string_view two : kTwo) {
      if (Has(at_, two)) found = two;
    }
    constexpr absl::string_view kOne = "+-/*%~[](){}><=.:|,;";
    if (found.empty() && kOne.find(text_[at_]) != absl::string_view::npos) {
      found = text_.substr(at_, 1);
    }
    if (found.empty()) {
      const size_t bytes = DecodeUtf8(text_, at_).bytes;
      Fail(absl::StrCat("unexpected ", Quote(text_.substr(at_, bytes))));
      return;
    }
    const char c = found[0];
    if (c == '(') open->push_back(')');
    if (c == '[') open->push_back(']');
    if (c == '{') open->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) {
        Fail(absl::StrCat("unexpected \"", found, "\""));
        return;
      }
      open->pop_back();
    }
    Add(JinjaTokenType::kOperator, found);
    Advance(at_ + found.size());
  }

  const std::string storage_;
  const absl::string_view text_;
  const JinjaOptions& options_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended a line
  absl::Status status_;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<JinjaToken>> LexJinja(absl::string_view source,
                                                 const JinjaOptions& options) {
  if (static_cast<int64_t>(source.size()) > options.limits.max_template_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "line 1: the template has ", source.size(), " bytes, expected at most ",
        options.limits.max_template_bytes));
  }
  if (!IsValidUtf8(source)) {
    return absl::InvalidArgumentError("line 1: the template is not UTF-8");
  }
  return Lexer(source, options).Run();
}

}  // namespace espalier::internal
