#include "espalier/io/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/hugging_face_tokenizer.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(
    absl::string_view tokenizer, absl::string_view config,
    const std::string& where) {
  const absl::StatusOr<JsonObject> json = JsonObject::Parse(tokenizer, where);
  if (!json.ok()) return json.status();
  absl::StatusOr<std::unique_ptr<internal::HuggingFaceTokenizer>> result =
      internal::HuggingFaceTokenizer::Load(*json);
  if (!result.ok()) return result.status();
  if (!config.empty()) {
    const absl::StatusOr<JsonObject> config_json =
        JsonObject::Parse(config, where + " (tokenizer_config.json)");
    if (!config_json.ok()) return config_json.status();
    absl::Status status = (*result)->LoadConfig(*config_json);
    if (!status.ok()) return status;
  }
  return *std::move(result);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& dir) {
  const std::string path = internal::JoinPath(dir, "tokenizer.json");
  const absl::StatusOr<std::string> text =
      internal::ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) return text.status();
  const std::string config_path =
      internal::JoinPath(dir, "tokenizer_config.json");
  absl::StatusOr<std::string> config = std::string();
  std::error_code ignored;
  if (std::filesystem::exists(config_path, ignored)) {
    config = internal::ReadWholeFile(config_path, kMaxFileBytes);
    if (!config.ok()) return config.status();
  }
  return ParseTokenizer(*text, *config, path);
}

}  // namespace espalier
