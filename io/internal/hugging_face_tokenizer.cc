#include "espalier/io/internal/hugging_face_tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

// Each of a few items of a template may name a list of any length.
constexpr size_t kMaxTemplateTokens = 1024;

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(Bpe bpe, Normalizer normalizer,
                                           PreTokenizer pre_tokenizer,
                                           TokenDecoder decoder)
    : normalizer_(std::move(normalizer)),
      words_(std::move(pre_tokenizer), std::move(bpe)),
      decoder_(std::move(decoder)),
      vocab_size_(words_.bpe().size()) {}

absl::StatusOr<std::unique_ptr<HuggingFaceTokenizer>>
HuggingFaceTokenizer::Load(const JsonObject& json) {
  for (const char* key : {"version", "truncation", "padding"}) {
    json.Ignore(key);  // this tokenizer never cuts or pads
  }
  absl::StatusOr<Normalizer> normalizer = Normalizer::Load(json);
  if (!normalizer.ok()) return normalizer.status();
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Load(json);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  absl::StatusOr<TokenDecoder> decoder = TokenDecoder::Load(json);
  if (!decoder.ok()) return decoder.status();
  JsonObject model;
  absl::Status status = json.Get("model", &model);
  std::string type = "BPE";  // older files have none
  if (status.ok()) status = model.GetOptional("type", &type);
  if (!status.ok()) return status;
  if (type != "BPE") return UnsupportedType(model);
  absl::StatusOr<Bpe> bpe = Bpe::Load(model, pre_tokenizer->byte_level());
  if (!bpe.ok()) return bpe.status();
  std::unique_ptr<HuggingFaceTokenizer> tokenizer(
      new HuggingFaceTokenizer(*std::move(bpe), *std::move(normalizer),
                               *std::move(pre_tokenizer), *std::move(decoder)));
  status = tokenizer->LoadAddedTokens(json);
  if (status.ok()) status = tokenizer->LoadPostProcessor(json);
  if (status.ok()) status = CheckAllRead(json);
  if (!status.ok()) return status;
  return tokenizer;
}

absl::Status HuggingFaceTokenizer::LoadAddedTokens(const JsonObject& json) {
  std::vector<JsonObject> items;
  absl::Status status = json.GetOptional("added_tokens", &items);
  if (!status.ok()) return status;
  for (const JsonObject& item : items) {
    AddedToken token;
    status = ParseAddedToken(item, &token);
    if (status.ok()) status = CheckAllRead(item);
    if (!status.ok()) return status;
    if (token.content.empty()) continue;
    const int32_t known = bpe().IdOf(token.content);
    const bool same_id = known < 0 || known == token.id;
    const absl::string_view other = bpe().TokenOf(token.id);
    const bool free_id = other.empty() || other == token.content;
    if (!same_id || !free_id || !added_.AddUnmatched(token)) {
      return item.Error("id",
                        absl::StrCat(token.id, " of ", Quote(token.content),
                                     " contradicts another token"));
    }
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
  // The library looks for special tokens first.
  for (const bool special : {true, false}) {
    for (const JsonObject& item : items) {
      std::string content;
      status = item.Get("content", &content);
      if (!status.ok()) return status;
      if (content.empty()) continue;
      const AddedToken& token = *added_.Find(*added_.IdOf(content));
      if (token.special != special) continue;
      if (token.normalized) {
        std::string storage;
        const absl::string_view spelling = normalizer_.Apply(content, &storage);
        if (spelling.size() > kMaxAddedTokenBytes) {
          return item.Error("content",
                            absl::StrCat("has ", spelling.size(),
                                         " bytes when normalized, expected at "
                                         "most ",
                                         kMaxAddedTokenBytes));
        }
        normalized_tokens_.Add(token, spelling);
      } else {
        plain_tokens_.Add(token, content);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status HuggingFaceTokenizer::LoadPostProcessor(const JsonObject& json) {
  if (!json.Has("post_processor")) {
    json.Ignore("post_processor");
    return absl::OkStatus();
  }
  JsonObject processor;
  absl::Status status = json.Get("post_processor", &processor);
  if (!status.ok()) return status;
  std::vector<JsonObject> steps = {processor};
  absl::StatusOr<std::string> type = TypeOf(processor);
  if (!type.ok()) return type.status();
  if (*type == "Sequence") {
    status = processor.Get("processors", &steps);
    if (status.ok()) status = CheckAllRead(processor);
    if (!status.ok()) return status;
  }
  for (const JsonObject& step : steps) {
    type = TypeOf(step);
    if (!type.ok()) return type.status();
    if (*type == "TemplateProcessing") {
      status = LoadTemplate(step);
    } else if (*type == "ByteLevel") {
      for (const char* key :
           {"add_prefix_space", "trim_offsets", "use_regex"}) {
        step.Ignore(key);  // concern offsets, not ids
      }
    } else {
      return UnsupportedType(step);
    }
    if (status.ok()) status = CheckAllRead(step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HuggingFaceTokenizer::LoadTemplate(const JsonObject& json) {
  JsonObject special_tokens;
  std::vector<JsonObject> items;
  absl::Status status = json.Get("special_tokens", &special_tokens);
  if (status.ok()) status = json.Get("single", &items);
  if (!status.ok()) return status;
  json.Ignore("pair");
  std::vector<int32_t> prefix, suffix;
  bool before = true;
  for (const JsonObject& item : items) {
    if (item.Has("Sequence")) {
      if (!before) return item.Error("Sequence", "stands twice");
      before = false;
      item.Ignore("Sequence");
      status = CheckAllRead(item);
      if (!status.ok()) return status;
      continue;
    }
    JsonObject named, definition;
    std::string name;
    std::vector<int> ids;
    status = item.Get("SpecialToken", &named);
    if (status.ok()) status = named.Get("id", &name);
    if (status.ok()) status = special_tokens.Get(name, &definition);
    if (status.ok()) status = definition.Get("ids", &ids);
    if (!status.ok()) return status;
    named.Ignore("type_id");
    definition.Ignore("id");
    definition.Ignore("tokens");
    for (const int id : ids) {
      if (TokenOf(id).empty()) {
        return definition.Error(
            "ids", absl::StrCat("names ", id, ", which is no token"));
      }
      (before ? prefix : suffix).push_back(id);
    }
    if (prefix_.size() + prefix.size() + suffix_.size() + suffix.size() >
        kMaxTemplateTokens) {
      return json.Error("single",
                        absl::StrCat("adds more than ", kMaxTemplateTokens,
                                     " special tokens"));
    }
  }
  if (before) return json.Error("single", "has no Sequence");
  for (const std::string& key : special_tokens.keys()) {
    special_tokens.Ignore(key);
  }
  prefix_.insert(prefix_.begin(), prefix.begin(), prefix.end());
  suffix_.insert(suffix_.end(), suffix.begin(), suffix.end());
  return absl::OkStatus();
}

absl::Status HuggingFaceTokenizer::SetConfig(const TokenizerConfig& config,
                                             const std::string& where) {
  return FindBosAndEos(config, where, *this, &bos_id_, &eos_id_);
}

absl::StatusOr<std::vector<int32_t>> HuggingFaceTokenizer::Encode(
    absl::string_view text, const EncodeOptions& options) const {
  absl::Status status = CheckText(text);
  if (!status.ok()) return status;
  std::vector<int32_t> ids;
  WordEncoder::Call call(words_);
  if (options.add_special_tokens) ids = prefix_;
  for (const Stretch& stretch : plain_tokens_.Split(text, options)) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
      continue;
    }
    const absl::string_view piece =
        text.substr(stretch.begin, stretch.end - stretch.begin);
    std::string storage;
    const absl::string_view normalized = normalizer_.Apply(piece, &storage);
    for (const Stretch& inner : normalized_tokens_.Split(normalized, options)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      status = call.Encode(
          normalized.substr(inner.begin, inner.end - inner.begin),
          stretch.begin == 0 && inner.begin == 0, options.drop_unknown, &ids);
      if (!status.ok()) return status;
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  }
  return ids;
}

std::string HuggingFaceTokenizer::Decode(absl::Span<const int32_t> ids,
                                         bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (skip_special_tokens && IsSpecial(id)) continue;
    std::string token = TokenOf(id);
    if (!token.empty()) tokens.push_back(std::move(token));
  }
  return decoder_.Decode(std::move(tokens));
}

std::optional<int32_t> HuggingFaceTokenizer::IdOf(
    absl::string_view token) const {
  if (const std::optional<int32_t> added = added_.IdOf(token)) return added;
  const int32_t id = bpe().IdOf(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string HuggingFaceTokenizer::TokenOf(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added != nullptr ? added->content : std::string(bpe().TokenOf(id));
}

bool HuggingFaceTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added != nullptr && added->special;
}

}  // namespace espalier::internal
