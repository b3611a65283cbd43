#include "espalier/io/internal/pattern.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace espalier::internal {

namespace {

// White_Space of Unicode. PCRE2's own \s has U+180E besides.
constexpr char kSpaces[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
// Oniguruma's \w; PCRE2's knows all numbers and no marks.
constexpr char kWordChars[] =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
         (c >= 'A' && c <= 'F');
}

class Translator {
 public:
  explicit Translator(absl::string_view in) : in_(in) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      absl::Status status = Step();
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  absl::Status Unsupported(absl::string_view what) const {
    return absl::UnimplementedError(
        absl::StrCat("regular expression ", Quote(in_), ": ", what, " at byte ",
                     at_, " is not supported"));
  }

  absl::Status Step() {
    const char c = in_[at_];
    if (c == '\\') return Escape();
    if (in_class_) {
      if (c == '[') return Unsupported("a class in a class");
      if (in_.substr(at_, 2) == "&&") return Intersection();
      const bool literal = at_ == class_start_;  // "]" first in the class
      if (c != ']' || literal) return Copy(1);
      in_class_ = false;
      return outer_.empty() ? Copy(1) : EndIntersection();
    }
    if (c == '[') {
      in_class_ = true;
      const size_t length = in_.substr(at_, 2) == "[^" ? 2 : 1;
      class_start_ = at_ + length;
      class_out_ = out_.size();
      return Copy(length);
    }
    if (c == '^' || c == '$') return Unsupported("a line anchor");
    if (in_.substr(at_, 2) == "}+") return Unsupported("\"}+\"");
    if (in_.substr(at_, 2) == "(?") return Group();
    return Copy(1);
  }

  // [A&&[B]], which PCRE2 has not, becomes (?:(?=[B])[A]).
  absl::Status Intersection() {
    if (in_.substr(at_, 3) != "&&[" || !outer_.empty() ||
        out_.compare(class_out_, 2, "[^") == 0 ||
        out_.size() == class_out_ + 1) {
      return Unsupported("&& other than of a class and one in brackets");
    }
    outer_ = absl::StrCat(out_.substr(class_out_), "]");
    out_.resize(class_out_);
    const bool negated = in_.substr(at_, 4) == "&&[^";
    absl::StrAppend(&out_, "(?:(?", negated ? "!" : "=", "[");
    at_ += negated ? 4 : 3;
    class_start_ = at_;
    return absl::OkStatus();
  }

  absl::Status EndIntersection() {
    if (in_.substr(at_, 2) != "]]") return Unsupported("a class behind &&");
    absl::StrAppend(&out_, "])", outer_, ")");
    outer_.clear();
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status Group() {
    for (const absl::string_view start :
         {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (in_.substr(at_, start.size()) == start) return Copy(start.size());
    }
    return Unsupported(absl::StrCat("group ", Quote(in_.substr(at_, 4))));
  }

  absl::Status Escape() {
    if (at_ + 1 == in_.size()) return Unsupported("a lone backslash");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        return Class(kSpaces, false);
      case 'S':
        return Class(kSpaces, true);
      case 'd':
        return Class("\\p{Nd}", false);
      case 'D':
        return Class("\\p{Nd}", true);
      case 'w':
        return Class(kWordChars, false);
      case 'W':
        return Class(kWordChars, true);
      case 'p':
      case 'P':
      case 'x': {
        const size_t close = in_.find('}', at_);
        if (in_.substr(at_ + 2, 1) != "{" || close == absl::string_view::npos) {
          return Unsupported("an escape without braces");
        }
        return c == 'x' ? Copy(close + 1 - at_) : Property(close);
      }
      case 'r':
      case 'n':
      case 't':
        return Copy(2);
      case 'u':
        return CodePoint();
      default:
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
            (c >= 'A' && c <= 'Z')) {
          return Unsupported(absl::StrCat("\\", in_.substr(at_ + 1, 1)));
        }
        return Copy(2);  // a sign that stands for itself
    }
  }

  // A script, without "sc:", is more than that to PCRE2.
  absl::Status Property(size_t close) {
    const absl::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const absl::string_view letters = absl::StripPrefix(name, "^");
    const bool script = letters.size() > 2 && letters != "Alphabetic" &&
                        !absl::StrContains(letters, ':');
    absl::StrAppend(&out_, in_.substr(at_, 3),
                    letters.size() < name.size() ? "^" : "",
                    script ? "sc:" : "", letters, "}");
    at_ = close + 1;
    return absl::OkStatus();
  }

  absl::Status Class(absl::string_view items, bool negated) {
    if (in_class_ && negated) return Unsupported("a negated class in a class");
    if (in_class_) {
      absl::StrAppend(&out_, items);
    } else {
      absl::StrAppend(&out_, negated ? "[^" : "[", items, "]");
    }
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status CodePoint() {
    const absl::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4) return Unsupported("\\u");
    for (const char c : digits) {
      if (!IsHex(c)) return Unsupported("\\u");
    }
    absl::StrAppend(&out_, "\\x{", digits, "}");
    at_ += 6;
    return absl::OkStatus();
  }

  absl::Status Copy(size_t bytes) {
    absl::StrAppend(&out_, in_.substr(at_, bytes));
    at_ += bytes;
    return absl::OkStatus();
  }

  const absl::string_view in_;
  std::string out_;
  std::string outer_;  // of an intersection whose second class is being read
  size_t at_ = 0;
  size_t class_start_ = 0;  // in in_
  size_t class_out_ = 0;    // in out_
  bool in_class_ = false;
};

pcre2_code* CodeOf(void* code) { return static_cast<pcre2_code*>(code); }

}  // namespace

absl::StatusOr<std::string> TranslatePattern(absl::string_view expression) {
  return Translator(expression).Run();
}

absl::StatusOr<std::shared_ptr<const Pattern>> Pattern::Compile(
    absl::string_view expression) {
  const absl::StatusOr<std::string> text = TranslatePattern(expression);
  if (!text.ok()) return text.status();
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(text->data()), text->size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
      &error, &position, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression ", Quote(expression), ": ",
                     reinterpret_cast<const char*>(message)));
  }
  // Without it (no executable memory) the interpreter does the work.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const Pattern>(new Pattern(code));
}

Pattern::~Pattern() { pcre2_code_free(CodeOf(code_)); }

// Steps are items of the expression that are tried, and bytes that are passed
// over or given back between two of them.
struct PatternMatcher::Steps {
  static constexpr size_t kPerByte = 256;
  static constexpr size_t kAtLeast = 1 << 16;

  static int Count(pcre2_callout_block* block, void* steps) {
    return static_cast<Steps*>(steps)->Take(block->current_position);
  }
  int Take(size_t position) {
    const size_t moved = position > last ? position - last : last - position;
    last = position;
    if (moved + 1 > left) return PCRE2_ERROR_MATCHLIMIT;
    left -= moved + 1;
    return 0;
  }

  size_t left;
  size_t last = 0;
};

PatternMatcher::PatternMatcher(const Pattern& pattern, size_t text_bytes)
    : pattern_(pattern),
      steps_(new Steps{Steps::kAtLeast + Steps::kPerByte * text_bytes}),
      data_(
          pcre2_match_data_create_from_pattern(CodeOf(pattern.code_), nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (context_ == nullptr) return;
  pcre2_set_callout(static_cast<pcre2_match_context*>(context_), Steps::Count,
                    steps_.get());
}

PatternMatcher::~PatternMatcher() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
}

absl::StatusOr<bool> PatternMatcher::Find(absl::string_view text, size_t start,
                                          Match* match) {
  pcre2_match_data* const data = static_cast<pcre2_match_data*>(data_);
  if (data == nullptr || context_ == nullptr) {
    return absl::ResourceExhaustedError("out of memory");
  }
  steps_->last = start;
  const auto run = [&](uint32_t options) {
    return pcre2_match(CodeOf(pattern_.code_),
                       reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       start, PCRE2_NO_UTF_CHECK | options, data,
                       static_cast<pcre2_match_context*>(context_));
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(result, message, sizeof(message));
    return absl::ResourceExhaustedError(
        absl::StrCat("splitting text at byte ", start, ": ",
                     reinterpret_cast<const char*>(message)));
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data);
  match->begin = ends[0];
  match->end = ends[1];
  return true;
}

}  // namespace espalier::internal
