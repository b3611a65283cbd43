#include "espalier/io/internal/normalizer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/internal/unicode.h"

namespace espalier::internal {

absl::StatusOr<std::string> TypeOf(const JsonObject& json) {
  std::string type;
  absl::Status status = json.Get("type", &type);
  if (!status.ok()) return status;
  return type;
}

absl::Status UnsupportedType(const JsonObject& json) {
  std::string type;
  absl::Status status = json.Get("type", &type);
  if (!status.ok()) return status;
  return absl::UnimplementedError(
      json.Error("type",
                 absl::StrCat("is ", Quote(type), ", which is not supported"))
          .message());
}

absl::Status CheckAllRead(const JsonObject& json) {
  const std::vector<std::string> unused = json.Unused();
  if (unused.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      json.where(), ": ", absl::StrJoin(unused, ", "), " is not supported"));
}

absl::Status GetStringPattern(const JsonObject& json, std::string* pattern) {
  JsonObject object;
  absl::Status status = json.Get("pattern", &object);
  if (!status.ok()) return status;
  status = object.Get("String", pattern);
  if (!status.ok()) {
    return absl::UnimplementedError(
        json.Error("pattern", "other than a String is not supported")
            .message());
  }
  if (pattern->empty()) return json.Error("pattern", "is empty");
  return CheckAllRead(object);
}

std::string ReplaceEvery(absl::string_view text, absl::string_view from,
                         absl::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  size_t at = 0;
  for (;;) {
    const size_t found = text.find(from, at);
    if (found == absl::string_view::npos) break;
    absl::StrAppend(&result, text.substr(at, found - at), to);
    at = found + from.size();
  }
  absl::StrAppend(&result, text.substr(at));
  return result;
}

absl::StatusOr<Normalizer> Normalizer::Load(const JsonObject& tokenizer) {
  Normalizer normalizer;
  if (!tokenizer.Has("normalizer")) {
    tokenizer.Ignore("normalizer");
    return normalizer;
  }
  JsonObject json;
  absl::Status status = tokenizer.Get("normalizer", &json);
  if (status.ok()) status = normalizer.Add(json);
  if (!status.ok()) return status;
  return normalizer;
}

absl::Status Normalizer::Add(const JsonObject& json) {
  const absl::StatusOr<std::string> type = TypeOf(json);
  if (!type.ok()) return type.status();
  if (*type == "Sequence") {
    std::vector<JsonObject> items;
    absl::Status status = json.Get("normalizers", &items);
    for (size_t i = 0; status.ok() && i < items.size(); ++i) {
      status = Add(items[i]);
    }
    return status.ok() ? CheckAllRead(json) : status;
  }
  Step step;
  absl::Status status;
  if (*type == "Prepend") {
    step.kind = Kind::kPrepend;
    status = json.Get("prepend", &step.content);
    if (status.ok()) status = limits_.AddReplace(json, " ", step.content);
  } else if (*type == "Replace") {
    step.kind = Kind::kReplace;
    status = GetStringPattern(json, &step.pattern);
    if (status.ok()) status = json.Get("content", &step.content);
    if (status.ok()) {
      status = limits_.AddReplace(json, step.pattern, step.content);
    }
  } else if (*type == "NFC") {
    step.kind = Kind::kNfc;
    status = limits_.AddStep(json);
  } else {
    return UnsupportedType(json);
  }
  if (!status.ok()) return status;
  steps_.push_back(std::move(step));
  return CheckAllRead(json);
}

absl::string_view Normalizer::Apply(absl::string_view text,
                                    std::string* storage) const {
  for (const Step& step : steps_) {
    std::string next;
    switch (step.kind) {
      case Kind::kPrepend:
        if (text.empty()) continue;
        next = absl::StrCat(step.content, text);
        break;
      case Kind::kReplace:
        if (!absl::StrContains(text, step.pattern)) continue;
        next = ReplaceEvery(text, step.pattern, step.content);
        break;
      case Kind::kNfc:
        if (IsSurelyNfc(text)) continue;
        next = ToNfc(text);
        break;
    }
    *storage = std::move(next);  // `text` may stand in *storage till here
    text = *storage;
  }
  return text;
}

}  // namespace espalier::internal
