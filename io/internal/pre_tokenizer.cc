#include "espalier/io/internal/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/normalizer.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

std::string EscapePattern(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::StrContains("\\^$.|?*+()[]{}#&- ", absl::string_view(&c, 1))) {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Load(const JsonObject& tokenizer) {
  PreTokenizer result;
  if (!tokenizer.Has("pre_tokenizer")) {
    tokenizer.Ignore("pre_tokenizer");
    return result;
  }
  JsonObject json;
  absl::Status status = tokenizer.Get("pre_tokenizer", &json);
  if (status.ok()) status = result.Add(json);
  if (!status.ok()) return status;
  return result;
}

absl::Status PreTokenizer::Add(const JsonObject& json) {
  const absl::StatusOr<std::string> type = TypeOf(json);
  if (!type.ok()) return type.status();
  if (byte_level_ || !space_.empty()) {
    return absl::UnimplementedError(
        json.Error("type", absl::StrCat("is ", *type, " behind ",
                                        byte_level_ ? "ByteLevel" : "Metaspace",
                                        ", which is not supported"))
            .message());
  }
  absl::Status status = limits_.AddStep(json);
  if (!status.ok()) return status;
  if (*type == "Sequence") {
    std::vector<JsonObject> items;
    status = json.Get("pretokenizers", &items);
    for (size_t i = 0; status.ok() && i < items.size(); ++i) {
      status = Add(items[i]);
    }
  } else if (*type == "Split") {
    status = AddSplit(json);
  } else if (*type == "ByteLevel") {
    status = AddByteLevel(json);
  } else if (*type == "Digits") {
    status = AddDigits(json);
  } else if (*type == "Metaspace") {
    status = AddMetaspace(json);
  } else {
    return UnsupportedType(json);
  }
  return status.ok() ? CheckAllRead(json) : status;
}

absl::Status PreTokenizer::AddSplit(const JsonObject& json) {
  JsonObject pattern;
  std::string expression, behavior;
  bool invert = false;
  absl::Status status = json.Get("pattern", &pattern);
  if (status.ok()) status = json.Get("behavior", &behavior);
  if (status.ok()) status = json.GetOptional("invert", &invert);
  if (status.ok() && pattern.Has("String")) {
    status = GetStringPattern(json, &expression);
    expression = EscapePattern(expression);
  } else if (status.ok()) {
    status = pattern.Get("Regex", &expression);
  }
  if (status.ok()) status = CheckAllRead(pattern);
  if (!status.ok()) return status;
  // Isolated keeps matches and what is between them, so invert changes
  // nothing.
  if (behavior != "Isolated") {
    return absl::UnimplementedError(
        json.Error("behavior", absl::StrCat("is ", Quote(behavior),
                                            ", which is not supported"))
            .message());
  }
  status = AddExpression(expression);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      json.Error("pattern", status.message()).message());
}

absl::Status PreTokenizer::AddExpression(absl::string_view expression) {
  Splitter splitter;
  splitter.scan = FindScanner(expression);
  if (splitter.scan == nullptr) {
    absl::StatusOr<std::shared_ptr<const Pattern>> compiled =
        Pattern::Compile(expression);
    if (!compiled.ok()) return compiled.status();
    splitter.pattern = *std::move(compiled);
  }
  splitters_.push_back(std::move(splitter));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer> PreTokenizer::ByExpression(
    absl::string_view expression) {
  PreTokenizer result;
  absl::Status status = result.AddExpression(expression);
  if (!status.ok()) return status;
  result.byte_level_ = true;
  return result;
}

absl::Status PreTokenizer::AddByteLevel(const JsonObject& json) {
  bool use_regex = true;
  absl::Status status = json.GetOptional("use_regex", &use_regex);
  if (status.ok()) {
    status = json.GetOptional("add_prefix_space", &add_prefix_space_);
  }
  if (!status.ok()) return status;
  json.Ignore("trim_offsets");  // concerns offsets, not ids
  if (add_prefix_space_ && !splitters_.empty()) {
    return absl::UnimplementedError(
        json.Error("add_prefix_space", "behind a Split is not supported")
            .message());
  }
  if (use_regex) {
    status = AddExpression(kGpt2Expression.expression);
    if (!status.ok()) return status;
  }
  byte_level_ = true;
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddDigits(const JsonObject& json) {
  bool individual = false;
  absl::Status status = json.GetOptional("individual_digits", &individual);
  if (!status.ok()) return status;
  return AddExpression(individual ? "\\p{N}" : "\\p{N}+");
}

absl::Status PreTokenizer::AddMetaspace(const JsonObject& json) {
  if (!splitters_.empty()) {
    return absl::UnimplementedError(
        json.Error("type",
                   "is Metaspace behind a Split, which is not supported")
            .message());
  }
  absl::Status status =
      ParseMetaspace(json, &space_, &prepend_, &split_at_space_);
  return status.ok() ? limits_.AddReplace(json, " ", space_) : status;
}

absl::Status ParseMetaspace(const JsonObject& json, std::string* space,
                            PrependScheme* prepend, bool* split) {
  bool add_prefix_space = true;
  std::string scheme;
  for (const absl::Status& status :
       {json.Get("replacement", space), json.GetOptional("split", split),
        json.GetOptional("prepend_scheme", &scheme),
        json.GetOptional("add_prefix_space", &add_prefix_space)}) {
    if (!status.ok()) return status;
  }
  json.Ignore("str_rep");  // the replacement again, in older files
  if (space->empty()) return json.Error("replacement", "is empty");
  if (scheme.empty()) scheme = add_prefix_space ? "always" : "never";
  for (const auto& [name, value] :
       {std::pair("always", PrependScheme::kAlways),
        std::pair("first", PrependScheme::kFirst),
        std::pair("never", PrependScheme::kNever)}) {
    if (scheme != name) continue;
    *prepend = value;
    return absl::OkStatus();
  }
  return json.Error("prepend_scheme", absl::StrCat("is ", Quote(scheme)));
}

absl::Status PreTokenizer::SplitMetaspace(
    absl::string_view text, bool at_start,
    absl::FunctionRef<absl::Status(absl::string_view)> on_word) const {
  const std::string spaced = ReplaceEvery(text, " ", space_);
  const bool prepend = prepend_ == PrependScheme::kAlways ||
                       (prepend_ == PrependScheme::kFirst && at_start);
  std::string storage;
  absl::string_view whole = spaced;
  if (prepend && !absl::StartsWith(spaced, space_)) {
    storage = absl::StrCat(space_, spaced);
    whole = storage;
  }
  if (!split_at_space_) return on_word(whole);
  // Each one begins a word.
  for (size_t begin = 0; begin < whole.size();) {
    const size_t behind = absl::StartsWith(whole.substr(begin), space_)
                              ? begin + space_.size()
                              : begin;
    const size_t end = std::min(whole.find(space_, behind), whole.size());
    absl::Status status = on_word(whole.substr(begin, end - begin));
    if (!status.ok()) return status;
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::SplitFrom(
    size_t step, absl::string_view text,
    absl::Span<const std::unique_ptr<PatternMatcher>> matchers,
    absl::FunctionRef<absl::Status(absl::string_view)> on_word) const {
  const auto next = [&](size_t begin, size_t end) {
    if (begin == end) return absl::OkStatus();
    const absl::string_view piece = text.substr(begin, end - begin);
    return step + 1 == splitters_.size()
               ? on_word(piece)
               : SplitFrom(step + 1, piece, matchers, on_word);
  };
  if (step == splitters_.size()) return on_word(text);
  const Splitter& splitter = splitters_[step];
  size_t covered = 0;
  size_t at = 0;
  Match match;
  while (at < text.size()) {
    if (splitter.scan != nullptr) {
      if (!splitter.scan(text, at, &match)) break;
    } else {
      const absl::StatusOr<bool> found = matchers[step]->Find(text, at, &match);
      if (!found.ok()) return found.status();
      if (!*found) break;
    }
    if (match.end == match.begin) {  // cuts nothing out
      at = match.end + 1;
      while (at < text.size() && IsContinuation(text[at])) ++at;
      continue;
    }
    absl::Status status = next(covered, match.begin);
    if (status.ok()) status = next(match.begin, match.end);
    if (!status.ok()) return status;
    covered = at = match.end;
  }
  return next(covered, text.size());
}

absl::Status PreTokenizer::Split(
    absl::string_view text, bool at_start,
    absl::FunctionRef<absl::Status(absl::string_view)> on_word) const {
  if (text.empty()) return absl::OkStatus();
  if (!space_.empty()) return SplitMetaspace(text, at_start, on_word);
  std::string prefixed;
  if (add_prefix_space_ && text[0] != ' ') {
    prefixed = absl::StrCat(" ", text);
    text = prefixed;
  }
  std::vector<std::unique_ptr<PatternMatcher>> matchers;
  for (const Splitter& splitter : splitters_) {
    matchers.push_back(
        splitter.scan != nullptr
            ? nullptr
            : std::make_unique<PatternMatcher>(*splitter.pattern, text.size()));
  }
  return SplitFrom(0, text, matchers, on_word);
}

}  // namespace espalier::internal
