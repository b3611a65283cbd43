// The texts of K3's layout, out of the Python source that a checkpoint carries.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

// String literals of Python that stand side by side, joined.
struct PythonText {
  size_t begin = 0, end = 0;              // of all of them in the source
  std::vector<std::string> texts = {""};  // around the fields of f-strings
  std::vector<std::string> fields;
};

// Finds the texts of a stretch of Python source.
class PythonReader {
 public:
  explicit PythonReader(absl::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<PythonText>> Run() {
    bool joins = false;  // nothing but space since the last literal
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else if (const std::optional<size_t> quote = FindQuote()) {
        if (!joins) {
          texts_.emplace_back();
          texts_.back().begin = at_;
        }
        joins = true;
        absl::Status status = ReadLiteral(*quote);
        if (!status.ok()) return status;
        texts_.back().end = at_;
      } else {
        joins = false;
        SkipWord();
      }
    }
    return std::move(texts_);
  }

 private:
  static bool IsName(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  }
  // The quote of the literal that begins here, behind its letters.
  std::optional<size_t> FindQuote() const {
    size_t at = at_;
    while (at < source_.size() && at - at_ < 3 &&
           absl::ascii_isalpha(static_cast<unsigned char>(source_[at]))) {
      ++at;
    }
    if (at == source_.size() || at - at_ > 2) return std::nullopt;
    if (source_[at] != '"' && source_[at] != '\'') return std::nullopt;
    return at;
  }
  void SkipWord() {
    const bool name = IsName(source_[at_]);
    ++at_;
    while (name && at_ < source_.size() && IsName(source_[at_])) ++at_;
  }

  absl::Status ReadLiteral(size_t quote) {
    const std::string prefix =
        absl::AsciiStrToLower(source_.substr(at_, quote - at_));
    const char mark = source_[quote];
    const std::string three(3, mark);
    const bool is_long = absl::StartsWith(source_.substr(quote), three);
    const std::string end = is_long ? three : std::string(1, mark);
    if (prefix != "" && prefix != "f") return Unknown("a literal", at_);
    at_ = quote + end.size();
    while (!absl::StartsWith(source_.substr(at_), end)) {
      if (at_ >= source_.size() || (!is_long && source_[at_] == '\n')) {
        return Unknown("a literal without an end", quote);
      }
      absl::Status status = ReadChar(prefix == "f");
      if (!status.ok()) return status;
    }
    at_ += end.size();
    return absl::OkStatus();
  }

  absl::Status ReadChar(bool has_fields) {
    const char c = source_[at_];
    const char next = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    PythonText& text = texts_.back();
    if (c == '\\') {
      constexpr absl::string_view kFrom = "nt\\'\"\n", kTo = "\n\t\\'\"";
      const size_t escape = kFrom.find(next);
      if (escape == absl::string_view::npos) return Unknown("an escape", at_);
      if (escape < kTo.size()) text.texts.back().push_back(kTo[escape]);
      at_ += 2;
    } else if (has_fields && (c == '{' || c == '}') && next == c) {
      text.texts.back().push_back(c);
      at_ += 2;
    } else if (has_fields && c == '{') {
      const size_t close = source_.find_first_of("{}'\"\n", at_ + 1);
      if (close == absl::string_view::npos || source_[close] != '}') {
        return Unknown("a field", at_);
      }
      text.fields.emplace_back(source_.substr(at_ + 1, close - at_ - 1));
      text.texts.emplace_back();
      at_ = close + 1;
    } else {
      text.texts.back().push_back(c);
      ++at_;
    }
    return absl::OkStatus();
  }

  absl::Status Unknown(absl::string_view what, size_t at) const {
    return absl::UnimplementedError(absl::StrCat(
        what, " is not known: ", internal::Quote(source_.substr(at, 40), 40)));
  }

  const absl::string_view source_;
  size_t at_ = 0;
  std::vector<PythonText> texts_;
};

// The function's source, up to the next that is not indented.
absl::string_view FunctionOf(absl::string_view source, absl::string_view head) {
  const size_t begin = source.find(head);
  if (begin == absl::string_view::npos) return "";
  size_t end = begin + 1;  // behind the newline in front
  do {
    end = source.find('\n', end);
    if (end == absl::string_view::npos) return source.substr(begin);
    ++end;
  } while (end < source.size() &&
           (absl::ascii_isspace(static_cast<unsigned char>(source[end])) ||
            source[end] == ')'));
  return source.substr(begin, end - begin);
}

// Whether the text is all that a name becomes, `name = (text)`: nothing is
// added to it, cut off or put in.
bool IsValue(absl::string_view source, const PythonText& text) {
  const absl::string_view before =
      absl::StripTrailingAsciiWhitespace(source.substr(0, text.begin));
  const absl::string_view behind =
      absl::StripLeadingAsciiWhitespace(source.substr(text.end));
  return absl::EndsWith(before, " = (") && absl::StartsWith(behind, ")\n");
}

// A message that the system adds: the text that is the last argument of
// `_internal_system_message("KIND", TEXT)`, and what the nearest `== "WHEN"` in
// front of it asks for.
struct SystemText {
  std::string when;
  PythonText text;
};

std::vector<SystemText> SystemTexts(absl::string_view source,
                                    const std::vector<PythonText>& texts,
                                    absl::string_view kind) {
  const auto before = [&](const PythonText& text) {
    return absl::StripTrailingAsciiWhitespace(source.substr(0, text.begin));
  };
  std::vector<SystemText> found;
  for (size_t i = 0; i + 1 < texts.size(); ++i) {
    const PythonText& text = texts[i + 1];
    absl::string_view behind =
        absl::StripLeadingAsciiWhitespace(source.substr(text.end));
    if (absl::ConsumePrefix(&behind, ",")) {
      behind = absl::StripLeadingAsciiWhitespace(behind);
    }
    if (texts[i].texts != std::vector<std::string>{std::string(kind)} ||
        !absl::EndsWith(before(texts[i]), "_internal_system_message(") ||
        absl::StripAsciiWhitespace(
            source.substr(texts[i].end, text.begin - texts[i].end)) != "," ||
        !absl::StartsWith(behind, ")")) {
      continue;
    }
    size_t asked = i;
    while (asked > 0 && !absl::EndsWith(before(texts[asked]), "==")) --asked;
    found.push_back({texts[asked].texts[0], text});
  }
  return found;
}

absl::Status ReadToolTexts(absl::string_view source, KimiK3Options* options) {
  constexpr absl::string_view kField = "_json_compact(tools)";
  const absl::string_view function =
      FunctionOf(source, "\ndef _render_tool_declare(");
  const auto texts = PythonReader(function).Run();
  if (!texts.ok()) return texts.status();
  std::vector<PythonText> found;
  for (const PythonText& text : *texts) {
    if (text.fields == std::vector<std::string>{std::string(kField)} &&
        IsValue(function, text)) {
      found.push_back(text);
    }
  }
  const size_t dynamic = function.find("if dynamic:");
  if (found.size() != 2 || dynamic > found[0].begin ||
      function.find("else:", found[0].begin) > found[1].begin) {
    return absl::UnimplementedError(absl::StrCat(
        "has ", found.size(),
        " texts that declare tools, expected two in _render_tool_declare, one "
        "if dynamic and one else, each NAME = (TEXT) around {",
        kField, "}"));
  }
  options->declare_more_tools = {found[0].texts[0], found[0].texts[1]};
  options->declare_tools = {found[1].texts[0], found[1].texts[1]};
  return absl::OkStatus();
}

absl::Status ReadRequestTexts(absl::string_view source,
                              KimiK3Options* options) {
  struct Wanted {
    absl::string_view kind, when;
    std::vector<std::string> fields;
    std::string* before;
    std::string* behind;  // where there is a field
  };
  const Wanted all[] = {
      {"thinking-effort",
       "",
       {"thinking_effort"},
       &options->thinking_effort.before,
       &options->thinking_effort.behind},
      {"tool-choice", "required", {}, &options->tools_required, nullptr},
      {"tool-choice", "none", {}, &options->tools_forbidden, nullptr},
      {"response-format", "json_object", {}, &options->json_answer, nullptr},
      {"response-format",
       "json_schema",
       {"schema"},
       &options->schema_answer.before,
       &options->schema_answer.behind}};
  const absl::string_view function =
      FunctionOf(source, "\ndef build_chat_segments(");
  const auto texts = PythonReader(function).Run();
  if (!texts.ok()) return texts.status();
  for (const Wanted& wanted : all) {
    int count = 0;
    for (const SystemText& found : SystemTexts(function, *texts, wanted.kind)) {
      if ((!wanted.when.empty() && found.when != wanted.when) ||
          found.text.fields != wanted.fields) {
        continue;
      }
      ++count;
      // Such a message is stripped.
      std::vector<std::string> around = found.text.texts;
      absl::StripLeadingAsciiWhitespace(&around.front());
      absl::StripTrailingAsciiWhitespace(&around.back());
      *wanted.before = around.front();
      if (wanted.behind != nullptr) *wanted.behind = around.back();
    }
    if (count != 1) {
      return absl::UnimplementedError(
          absl::StrCat("has ", count, " messages of type ", wanted.kind,
                       wanted.when.empty() ? "" : " for ", wanted.when,
                       ", expected one in build_chat_segments, "
                       "_internal_system_message(\"",
                       wanted.kind, "\", TEXT",
                       wanted.fields.empty()
                           ? ""
                           : absl::StrCat(" around {", wanted.fields[0], "}"),
                       ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadKimiK3Texts(absl::string_view source, const std::string& where,
                             KimiK3Options* options) {
  absl::Status status = ReadToolTexts(source, options);
  if (status.ok()) status = ReadRequestTexts(source, options);
  if (status.ok()) return status;
  return absl::UnimplementedError(absl::StrCat(where, ": ", status.message()));
}

}  // namespace espalier
