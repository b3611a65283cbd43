#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "espalier/io/chat.h"
#include "espalier/io/example.h"
#include "espalier/io/json.h"
#include "espalier/io/record_file.h"
#include "espalier/tools/commands.h"

namespace espalier::tools {

namespace {

struct RenderFlags {
  std::string tokenizer;
  std::string data;
  std::string loss = "assistant";
  std::string layout = "auto";
  int64_t count = 1;
  int64_t first = 0;
  bool json = false;
  ChatOptions options;
};

ChatFormat FormatOf(const std::string& name) {
  return name == "template"      ? ChatFormat::kTemplate
         : name == "kimi-linear" ? ChatFormat::kKimiLinear
         : name == "kimi-k3"     ? ChatFormat::kKimiK3
                                 : ChatFormat::kAuto;
}

JsonValue ToJson(const EncodedChat& encoded, const std::string& where) {
  JsonValue::Array weights(encoded.weights.begin(), encoded.weights.end());
  JsonValue::Array ids, messages;
  for (const int32_t id : encoded.ids) ids.push_back(int{id});
  for (const int32_t message : encoded.messages) {
    messages.push_back(int{message});
  }
  return JsonValue::Object{
      {"ids", std::move(ids)},
      {"messages", std::move(messages)},
      {"roles", JsonValue::Array(encoded.roles.begin(), encoded.roles.end())},
      {"text", encoded.text},
      {"warnings",
       JsonValue::Array(encoded.warnings.begin(), encoded.warnings.end())},
      {"weights", std::move(weights)},
      {"where", where}};
}

// The text, what is trained between marks, and a line a token.
void Show(const EncodedChat& encoded, const Tokenizer& tokenizer,
          const std::string& where) {
  std::printf("%s: %zu tokens\n%s\n\n", where.c_str(), encoded.ids.size(),
              encoded.text.c_str());
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const int32_t message = encoded.messages[i];
    const auto text =
        WriteJson(JsonValue(tokenizer.Decode({encoded.ids[i]})), 0);
    std::printf(
        "%7d  %-5g %-10s %s\n", encoded.ids[i],
        static_cast<double>(encoded.weights[i]),
        message < 0 ? "-" : encoded.roles[static_cast<size_t>(message)].c_str(),
        text.value_or("?").c_str());
  }
  for (const std::string& warning : encoded.warnings) {
    std::fprintf(stderr, "%s: %s\n", where.c_str(), warning.c_str());
  }
}

absl::Status RenderRecord(const RenderFlags& flags, const RecordFile& file,
                          int64_t index, const Tokenizer& tokenizer,
                          const ChatEncoder& encoder) {
  const auto record = file.Read(index);
  if (!record.ok()) return record.status();
  const std::string where = absl::StrCat(flags.data, ":", record->line);
  const auto example = ParseExample(record->bytes, ExampleFields(), where);
  if (!example.ok()) return example.status();
  absl::StatusOr<EncodedChat> encoded;
  if (example->kind == Example::Kind::kChat) {
    Chat chat;
    chat.messages = example->messages;
    chat.tools = example->tools;
    encoded = encoder.Encode(chat, flags.options);
  } else {
    encoded = EncodePromptCompletion(tokenizer, example->prompt,
                                     example->kind == Example::Kind::kText
                                         ? example->text
                                         : example->completion);
  }
  if (!encoded.ok()) {
    return absl::Status(encoded.status().code(),
                        absl::StrCat(where, ": ", encoded.status().message()));
  }
  if (flags.json) {
    const auto text = WriteJson(ToJson(*encoded, where), 0);
    if (!text.ok()) return text.status();
    std::printf("%s\n", text->c_str());
  } else {
    Show(*encoded, tokenizer, where);
  }
  return absl::OkStatus();
}

absl::Status Render(RenderFlags& flags) {
  flags.options.loss = flags.loss == "all"    ? ChatLoss::kAll
                       : flags.loss == "last" ? ChatLoss::kLastAssistant
                                              : ChatLoss::kAssistant;
  flags.options.now_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
  const auto tokenizer = LoadTokenizer(flags.tokenizer);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto encoder =
      LoadChatEncoder(flags.tokenizer, **tokenizer, FormatOf(flags.layout));
  if (!encoder.ok()) return encoder.status();
  const auto file = RecordFile::Open(flags.data, RecordFileOptions());
  if (!file.ok()) return file.status();
  for (int64_t i = flags.first;
       i < (*file)->size() && i - flags.first < flags.count; ++i) {
    absl::Status status =
        RenderRecord(flags, **file, i, **tokenizer, **encoder);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

void AddRender(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  RenderFlags& f = *flags;
  CLI::App* cmd = app.add_subcommand(
      "render", "Show chats of a data file as text, tokens and weights");
  cmd->add_option("--tokenizer", f.tokenizer,
                  "Folder with the tokenizer and its chat template")
      ->required();
  cmd->add_option("--data", f.data, "JSON lines or an array of chats")
      ->required();
  cmd->add_option("--first", f.first, "Number of the first chat, from 0")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  cmd->add_option("--count", f.count, "How many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  cmd->add_option("--loss", f.loss, "What is trained")
      ->check(CLI::IsMember({"assistant", "last", "all"}))
      ->capture_default_str();
  cmd->add_option("--layout", f.layout, "Of the chats")
      ->check(CLI::IsMember({"auto", "template", "kimi-linear", "kimi-k3"}))
      ->capture_default_str();
  cmd->add_option("--content-token", f.options.content_tokens,
                  "An added token that assistant content may spell, such as "
                  "<think>; may stand several times");
  cmd->add_flag("--prompt", f.options.add_generation_prompt,
                "End with the prompt for an answer");
  cmd->add_flag("--json", f.json, "Print a JSON object a chat");
  cmd->callback([flags, &exit_code] {
    const absl::Status status = Render(*flags);
    exit_code = status.ok() ? 0 : FailOnFolder("render", status);
  });
}

}  // namespace espalier::tools
