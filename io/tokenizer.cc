#include "espalier/io/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/hugging_face_tokenizer.h"
#include "espalier/io/internal/sentence_piece_tokenizer.h"
#include "espalier/io/internal/tiktoken_tokenizer.h"
#include "espalier/io/internal/tokenizer_config.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// The file that holds the vocabulary of a folder; `dir` itself if it is a file.
absl::StatusOr<std::string> FindVocabulary(const std::string& dir) {
  if (IsFile(dir)) return dir;
  for (const char* name : {"tokenizer.json", "tiktoken.model"}) {
    std::string path = internal::JoinPath(dir, name);
    if (IsFile(path)) return path;
  }
  std::vector<std::string> ranks;
  std::error_code error;
  std::filesystem::directory_iterator items(dir, error);
  for (; !error && items != std::filesystem::directory_iterator();
       items.increment(error)) {
    const std::string name = items->path().filename().string();
    if (absl::EndsWith(name, ".tiktoken")) ranks.push_back(name);
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat(dir, ": ", error.message()));
  }
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": several rank files, ", absl::StrJoin(ranks, ", "),
                     "; name the one that is meant"));
  }
  if (!ranks.empty()) return internal::JoinPath(dir, ranks[0]);
  std::string path = internal::JoinPath(dir, "tokenizer.model");
  if (IsFile(path)) return path;
  return absl::NotFoundError(
      absl::StrCat(dir,
                   ": no tokenizer: expected tokenizer.json, "
                   "tiktoken.model, a .tiktoken file or tokenizer.model"));
}

template <typename T>
absl::StatusOr<std::unique_ptr<Tokenizer>> Upcast(
    absl::StatusOr<std::unique_ptr<T>> tokenizer) {
  if (!tokenizer.ok()) return tokenizer.status();
  return std::unique_ptr<Tokenizer>(*std::move(tokenizer));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadHuggingFace(
    absl::string_view text, const internal::TokenizerConfig& config,
    const std::string& where) {
  const absl::StatusOr<JsonObject> json = JsonObject::Parse(text, where);
  if (!json.ok()) return json.status();
  absl::StatusOr<std::unique_ptr<internal::HuggingFaceTokenizer>> result =
      internal::HuggingFaceTokenizer::Load(*json);
  if (!result.ok()) return result.status();
  absl::Status status = (*result)->SetConfig(config, where);
  if (!status.ok()) return status;
  return Upcast(std::move(result));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(
    absl::string_view vocabulary, absl::string_view config,
    const std::string& where, absl::string_view family) {
  const absl::StatusOr<internal::TokenizerConfig> parsed =
      internal::ParseTokenizerConfig(
          config, absl::StrCat(where, " (tokenizer_config.json)"));
  if (!parsed.ok()) return parsed.status();
  const size_t first = vocabulary.find_first_not_of(" \t\r\n");
  if (first == absl::string_view::npos || vocabulary[first] == '{') {
    return LoadHuggingFace(vocabulary, *parsed, where);
  }
  if (internal::LooksLikeRanks(vocabulary)) {
    return Upcast(
        internal::TiktokenTokenizer::Load(vocabulary, *parsed, family, where));
  }
  if (vocabulary[first] == '[' || vocabulary[first] == '"') {
    return LoadHuggingFace(vocabulary, *parsed, where);  // says what is wrong
  }
  return Upcast(
      internal::SentencePieceTokenizer::Load(vocabulary, *parsed, where));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& dir, absl::string_view family) {
  const absl::StatusOr<std::string> path = FindVocabulary(dir);
  if (!path.ok()) return path.status();
  const absl::StatusOr<std::string> text =
      internal::ReadWholeFile(*path, kMaxFileBytes);
  if (!text.ok()) return text.status();
  const auto config = internal::ReadFileIfThere(
      internal::JoinPath(std::filesystem::path(*path).parent_path().string(),
                         "tokenizer_config.json"),
      kMaxFileBytes);
  if (!config.ok()) return config.status();
  return ParseTokenizer(*text, config->value_or(""), *path, family);
}

}  // namespace espalier
