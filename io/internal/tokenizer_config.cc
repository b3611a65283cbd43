#include "espalier/io/internal/tokenizer_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

// A string, or the object of an added token.
absl::Status GetToken(const JsonObject& config, absl::string_view key,
                      std::string* token) {
  const JsonValue* value = config.GetValue(key);
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  if (value->AsObject() != nullptr) value = value->Find("content");
  if (value == nullptr || value->AsString() == nullptr) {
    return config.Error(key, "is no token");
  }
  *token = *value->AsString();
  return absl::OkStatus();
}

absl::Status GetFlag(const JsonObject& config, absl::string_view key,
                     std::optional<bool>* flag) {
  if (!config.Has(key)) return absl::OkStatus();
  bool value = false;
  absl::Status status = config.Get(key, &value);
  *flag = value;
  return status;
}

absl::Status GetAddedTokens(const JsonObject& config,
                            std::vector<AddedToken>* tokens) {
  if (!config.Has("added_tokens_decoder")) return absl::OkStatus();
  JsonObject items;
  absl::Status status = config.Get("added_tokens_decoder", &items);
  if (!status.ok()) return status;
  for (const std::string& key : items.keys()) {
    JsonObject item;
    AddedToken token;
    status = items.Get(key, &item);
    if (!status.ok()) return status;
    status = ParseAddedTokenFlags(item, &token);
    if (!status.ok()) return status;
    if (!absl::SimpleAtoi(key, &token.id) || token.id < 0 ||
        token.id > kMaxTokenId) {
      return items.Error(key, "is no token id");
    }
    tokens->push_back(std::move(token));
  }
  std::sort(
      tokens->begin(), tokens->end(),
      [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(absl::string_view text,
                                                     const std::string& where) {
  TokenizerConfig config;
  if (text.empty()) return config;
  const absl::StatusOr<JsonObject> json = JsonObject::Parse(text, where);
  if (!json.ok()) return json.status();
  absl::Status status =
      json->GetOptional("tokenizer_class", &config.tokenizer_class);
  if (status.ok()) {
    status = GetFlag(*json, "add_bos_token", &config.add_bos_token);
  }
  if (status.ok()) {
    status = GetFlag(*json, "add_eos_token", &config.add_eos_token);
  }
  if (status.ok()) status = GetToken(*json, "bos_token", &config.bos_token);
  if (status.ok()) status = GetToken(*json, "eos_token", &config.eos_token);
  if (status.ok()) status = GetAddedTokens(*json, &config.added_tokens);
  if (!status.ok()) return status;
  return config;
}

absl::Status FindBosAndEos(const TokenizerConfig& config,
                           const std::string& where, const Tokenizer& tokenizer,
                           std::optional<int32_t>* bos,
                           std::optional<int32_t>* eos) {
  for (const auto& [key, token, id] :
       {std::tuple("bos_token", &config.bos_token, bos),
        std::tuple("eos_token", &config.eos_token, eos)}) {
    if (token->empty()) continue;
    *id = tokenizer.IdOf(*token);
    if (!id->has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": ", key, " ", Quote(*token), " is not in the vocabulary"));
    }
  }
  return absl::OkStatus();
}

bool AddedVocabulary::Add(const AddedToken& token) {
  if (!AddUnmatched(token)) return false;
  matcher_.Add(token, token.content);
  return true;
}

bool AddedVocabulary::AddUnmatched(const AddedToken& token) {
  if (token.content.empty()) return true;
  if (!tokens_.try_emplace(token.id, token).second) return false;
  if (!ids_.try_emplace(token.content, token.id).second) return false;
  size_ = std::max(size_, token.id + 1);
  return true;
}

const AddedToken* AddedVocabulary::Find(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::optional<int32_t> AddedVocabulary::IdOf(absl::string_view spelling) const {
  const auto found = ids_.find(spelling);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<AddedToken> AddedVocabulary::tokens() const {
  std::vector<AddedToken> list;
  for (const auto& [id, token] : tokens_) list.push_back(token);
  std::sort(
      list.begin(), list.end(),
      [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return list;
}

}  // namespace espalier::internal
