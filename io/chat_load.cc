// What a folder says about its chats.
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/added_tokens.h"
#include "espalier/io/internal/chat_template.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

constexpr int64_t kMaxConfigBytes = int64_t{64} << 20;
constexpr char kDefault[] = "default", kToolUse[] = "tool_use";

struct NamedTemplate {
  std::string text;
  std::string where;
};
using Templates = std::map<std::string, NamedTemplate>;

// Null where the file is absent.
absl::StatusOr<JsonValue> ReadJsonIfThere(const std::string& path) {
  const auto text = internal::ReadFileIfThere(path, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return JsonValue();
  auto value = ParseJsonText(**text);
  if (!value.ok()) {
    return absl::Status(value.status().code(),
                        absl::StrCat(path, ": ", value.status().message()));
  }
  return value;
}

absl::Status AddFile(const std::string& path, const std::string& name,
                     Templates* templates) {
  auto text = internal::ReadFileIfThere(path, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  if (text->has_value()) (*templates)[name] = {**std::move(text), path};
  return absl::OkStatus();
}

// chat_template.jinja, and additional_chat_templates/NAME.jinja.
absl::StatusOr<Templates> TemplateFiles(const std::string& dir) {
  Templates templates;
  absl::Status status = AddFile(internal::JoinPath(dir, "chat_template.jinja"),
                                kDefault, &templates);
  if (!status.ok()) return status;
  const std::string more = internal::JoinPath(dir, "additional_chat_templates");
  std::error_code error;
  std::filesystem::directory_iterator items(more, error), end;
  if (error == std::errc::no_such_file_or_directory) return templates;
  for (; !error && items != end; items.increment(error)) {
    const std::string file = items->path().filename().string();
    absl::string_view name = file;
    if (!absl::ConsumeSuffix(&name, ".jinja")) continue;
    status = AddFile(items->path().string(), std::string(name), &templates);
    if (!status.ok()) return status;
  }
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat(more, ": cannot be listed: ", error.message()));
  }
  return templates;
}

// chat_template of tokenizer_config.json: a text, or several with names.
absl::StatusOr<Templates> TemplatesOf(const JsonValue& config,
                                      const std::string& path) {
  const std::string where = absl::StrCat(path, ": chat_template");
  Templates templates;
  const JsonValue* value = config.Find("chat_template");
  if (value == nullptr || value->is_null()) return templates;
  if (const std::string* text = value->AsString()) {
    templates[kDefault] = {*text, where};
    return templates;
  }
  if (value->AsArray() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, " is ", value->kind(), ", expected a string or an array"));
  }
  for (const JsonValue& item : *value->AsArray()) {
    const JsonValue* name = item.Find("name");
    const JsonValue* text = item.Find("template");
    if (name == nullptr || name->AsString() == nullptr || text == nullptr ||
        text->AsString() == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, " has an item that is no {\"name\", \"template\"}"));
    }
    // The last of a name counts, as in a dict.
    templates[*name->AsString()] = {
        *text->AsString(), absl::StrCat(where, " ", *name->AsString())};
  }
  return templates;
}

// Chats with tools by one template, all others by another.
class ByTools final : public ChatEncoder {
 public:
  ByTools(std::unique_ptr<ChatEncoder> plain,
          std::unique_ptr<ChatEncoder> tools, std::string where)
      : plain_(std::move(plain)),
        tools_(std::move(tools)),
        where_(std::move(where)) {}

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    const bool has_tools = !chat.tools.is_null();
    if (has_tools) return tools_->Encode(chat, options);
    if (plain_ != nullptr) return plain_->Encode(chat, options);
    return absl::FailedPreconditionError(absl::StrCat(
        where_, ": has no template named default, for a chat without tools"));
  }

 private:
  const std::unique_ptr<ChatEncoder> plain_, tools_;
  const std::string where_;
};

// The ids that generation_config.json ends with.
absl::StatusOr<std::vector<int32_t>> StopsOf(const std::string& dir) {
  const std::string path = internal::JoinPath(dir, "generation_config.json");
  const auto config = ReadJsonIfThere(path);
  if (!config.ok()) return config.status();
  std::vector<int32_t> stops;
  const JsonValue* ids = config->Find("eos_token_id");
  if (ids == nullptr || ids->is_null()) return stops;
  JsonValue::Array all = {*ids};
  if (ids->AsArray() != nullptr) all = *ids->AsArray();
  for (const JsonValue& id : all) {
    if (id.AsInt() == nullptr || *id.AsInt() < 0 ||
        *id.AsInt() > internal::kMaxTokenId) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": eos_token_id is no token id and no list of them"));
    }
    stops.push_back(static_cast<int32_t>(*id.AsInt()));
  }
  return stops;
}

absl::StatusOr<std::unique_ptr<ChatEncoder>> LoadTemplates(
    const std::string& dir, const Tokenizer& tokenizer) {
  const std::string path = internal::JoinPath(dir, "tokenizer_config.json");
  const auto config = ReadJsonIfThere(path);
  if (!config.ok()) return config.status();
  auto templates = TemplateFiles(dir);
  if (templates.ok() && templates->empty()) {
    templates = TemplatesOf(*config, path);
  }
  if (!templates.ok()) return templates.status();
  if (templates->empty()) {
    return absl::NotFoundError(absl::StrCat(
        dir,
        ": has no chat_template.jinja, and its tokenizer_config.json no "
        "chat_template; put the model's template there, or give prompts and "
        "completions in place of chats"));
  }
  const auto stops = StopsOf(dir);
  if (!stops.ok()) return stops.status();
  std::unique_ptr<ChatEncoder> encoders[2];
  for (size_t i = 0; i < 2; ++i) {
    const auto found = templates->find(i == 0 ? kDefault : kToolUse);
    if (found == templates->end()) continue;
    auto encoder = internal::NewTemplateEncoder(
        found->second.text, *config, found->second.where, tokenizer, *stops);
    if (!encoder.ok()) return encoder.status();
    encoders[i] = *std::move(encoder);
  }
  if (encoders[1] != nullptr) {
    return std::make_unique<ByTools>(std::move(encoders[0]),
                                     std::move(encoders[1]), dir);
  }
  if (encoders[0] != nullptr) return std::move(encoders[0]);
  return absl::NotFoundError(absl::StrCat(
      dir, ": has no template named default or tool_use, but ",
      absl::StrJoin(*templates, ", ", [](std::string* out, const auto& named) {
        absl::StrAppend(out, named.first);
      })));
}

absl::StatusOr<std::unique_ptr<ChatEncoder>> LoadKimiK3(
    const std::string& dir, const Tokenizer& tokenizer) {
  KimiK3Options options;
  const std::string path = internal::JoinPath(dir, "encoding_k3.py");
  const auto source = internal::ReadFileIfThere(path, kMaxConfigBytes);
  if (!source.ok()) return source.status();
  if (source->has_value()) {
    const absl::Status status = ReadKimiK3Texts(**source, path, &options);
    if (!status.ok()) return status;
  }
  return MakeKimiK3Encoder(tokenizer, options);
}

}  // namespace

absl::Status CheckContentTokens(const ChatOptions& options,
                                const Tokenizer& tokenizer) {
  constexpr size_t kMaxNamed = 8;
  const std::vector<AddedToken> added = tokenizer.added_tokens();
  for (const std::string& name : options.content_tokens) {
    std::vector<std::string> known;
    bool is_special = false, is_known = false;
    for (const AddedToken& token : added) {
      if (token.content == name) (token.special ? is_special : is_known) = true;
      if (!token.special) known.push_back(internal::Quote(token.content));
    }
    if (is_known) continue;
    const bool more = known.size() > kMaxNamed;
    if (more) known.resize(kMaxNamed);
    return absl::OutOfRangeError(absl::StrCat(
        "content token ", internal::Quote(name),
        is_special ? " is a special token" : " is no token that was added to",
        is_special ? "" : " the tokenizer", ", expected ",
        known.empty() ? "none: all of those are special"
                      : absl::StrCat("one of ", absl::StrJoin(known, ", ")),
        more ? ", ..." : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChatEncoder>> LoadChatEncoder(
    const std::string& dir, const Tokenizer& tokenizer, ChatFormat format) {
  if (format == ChatFormat::kAuto) {
    const auto model = ReadJsonIfThere(internal::JoinPath(dir, "config.json"));
    if (!model.ok()) return model.status();
    const JsonValue* type = model->Find("model_type");
    const std::string name =
        type != nullptr && type->AsString() != nullptr ? *type->AsString() : "";
    format = name == "kimi_linear" ? ChatFormat::kKimiLinear
             : name == "kimi_k3"   ? ChatFormat::kKimiK3
                                   : ChatFormat::kTemplate;
  }
  switch (format) {
    case ChatFormat::kKimiLinear:
      return MakeKimiLinearEncoder(tokenizer);
    case ChatFormat::kKimiK3:
      return LoadKimiK3(dir, tokenizer);
    default:
      return LoadTemplates(dir, tokenizer);
  }
}

}  // namespace espalier
