#include "espalier/io/text_documents.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/utf8.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace {

constexpr int64_t kMaxTextFileBytes = int64_t{1} << 32;

// Takes the next line, without its end, off the front of `rest`.
absl::string_view NextLine(absl::string_view& rest) {
  const size_t end = rest.find('\n');
  absl::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
  absl::ConsumeSuffix(&line, "\r");
  return line;
}

bool IsBlank(absl::string_view line) {
  return absl::StripAsciiWhitespace(line).empty();
}

// Fails on a line that is not UTF-8, naming it.
absl::Status CheckUtf8(const std::string& path, absl::string_view text) {
  if (internal::IsValidUtf8(text)) return absl::OkStatus();
  for (int64_t number = 1; !text.empty(); ++number) {
    if (internal::IsValidUtf8(NextLine(text))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number, ": is not UTF-8"));
  }
  return absl::OkStatus();
}

std::vector<std::string> SplitPlain(absl::string_view text) {
  std::vector<std::string> documents;
  std::string document;
  const auto finish = [&] {
    if (!document.empty()) documents.push_back(std::move(document));
    document.clear();
  };
  while (!text.empty()) {
    const absl::string_view line = NextLine(text);
    if (IsBlank(line)) {
      finish();
      continue;
    }
    if (!document.empty()) document += '\n';
    document.append(line.data(), line.size());
  }
  finish();
  return documents;
}

absl::StatusOr<std::vector<std::string>> SplitJsonLines(
    const std::string& path, absl::string_view text) {
  std::vector<std::string> documents;
  for (int64_t number = 1; !text.empty(); ++number) {
    const absl::string_view line = NextLine(text);
    if (IsBlank(line)) continue;
    const auto json = JsonObject::Parse(line, absl::StrCat(path, ":", number));
    if (!json.ok()) return json.status();
    std::string document;
    const absl::Status status = json->Get("text", &document);
    if (!status.ok()) return status;
    if (!IsBlank(document)) documents.push_back(std::move(document));
  }
  return documents;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadTextDocuments(
    const std::string& path) {
  const auto content = internal::ReadWholeFile(path, kMaxTextFileBytes);
  if (!content.ok()) return content.status();
  absl::string_view text = *content;
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");
  const absl::Status utf8 = CheckUtf8(path, text);
  if (!utf8.ok()) return utf8;
  std::vector<std::string> documents;
  if (absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".json")) {
    auto lines = SplitJsonLines(path, text);
    if (!lines.ok()) return lines.status();
    documents = *std::move(lines);
  } else {
    documents = SplitPlain(text);
  }
  if (documents.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no document"));
  }
  return documents;
}

}  // namespace espalier
