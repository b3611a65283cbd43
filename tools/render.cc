#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "espalier/io/chat.h"
#include "espalier/io/chat_sample.h"
#include "espalier/io/example.h"
#include "espalier/io/json.h"
#include "espalier/io/record_file.h"
#include "espalier/io/sample.h"
#include "espalier/tools/chat_flags.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/whole_number.h"
#include "espalier/train/open_data.h"

namespace espalier::tools {

namespace {

struct RenderFlags {
  std::string tokenizer;
  std::string data;
  int64_t count = 1;
  int64_t first = 0;
  bool prompt = false;
  bool json = false;
  DataConfig chat;  // its settings of chats
};

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

// A record that is no chat, as two messages: its text, or prompt and
// completion.
absl::StatusOr<EncodedChat> EncodePlain(const Example& example,
                                        const SampleEncoder& encoder) {
  const auto sample = encoder.Encode(example);
  if (!sample.ok()) return sample.status();
  const bool is_text = example.kind == Example::Kind::kText;
  EncodedChat encoded;
  encoded.text =
      is_text ? example.text : absl::StrCat(example.prompt, example.completion);
  encoded.roles = {
      std::string(ToString(is_text ? TokenRole::kText : TokenRole::kPrompt))};
  if (!is_text) encoded.roles.emplace_back(ToString(TokenRole::kCompletion));
  encoded.ids = sample->ids;
  encoded.weights = sample->weights;
  for (const TokenRole role : sample->roles) {
    encoded.messages.push_back(role == TokenRole::kControl      ? -1
                               : role == TokenRole::kCompletion ? 1
                                                                : 0);
  }
  return encoded;
}

struct Encoders {
  ChatOptions options;
  // Data without chats needs no layout.
  absl::StatusOr<std::unique_ptr<ChatEncoder>> chats;
  std::unique_ptr<SampleEncoder> plain;
};

absl::StatusOr<EncodedChat> EncodeExample(const Example& example,
                                          const Encoders& encoders) {
  if (example.kind != Example::Kind::kChat) {
    return EncodePlain(example, *encoders.plain);
  }
  if (!encoders.chats.ok()) return encoders.chats.status();
  return (*encoders.chats)->Encode(ToChat(example), encoders.options);
}

absl::Status RenderRecord(const RenderFlags& flags, const RecordFile& file,
                          int64_t index, const Tokenizer& tokenizer,
                          const Encoders& encoders) {
  const auto record = file.Read(index);
  if (!record.ok()) return record.status();
  const std::string where = absl::StrCat(flags.data, ":", record->line);
  const auto example = ParseExample(record->bytes, ExampleFields(), where);
  if (!example.ok()) return example.status();
  const auto encoded = EncodeExample(*example, encoders);
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
  ChatOptions options = ChatOptionsOf(flags.chat);
  options.add_generation_prompt = flags.prompt;
  const auto tokenizer = LoadTokenizer(flags.tokenizer);
  if (!tokenizer.ok()) return tokenizer.status();
  absl::Status known = CheckContentTokens(options, **tokenizer);
  if (!known.ok()) return known;
  PlainEncoderOptions plain;
  plain.train_prompt = options.loss == ChatLoss::kAll;
  const Encoders encoders = {
      options,
      LoadChatEncoder(flags.tokenizer, **tokenizer, ChatFormatOf(flags.chat)),
      MakePlainEncoder(**tokenizer, plain)};
  const auto file = RecordFile::Open(flags.data, RecordFileOptions());
  if (!file.ok()) return file.status();
  for (int64_t i = flags.first;
       i < (*file)->size() && i - flags.first < flags.count; ++i) {
    absl::Status status = RenderRecord(flags, **file, i, **tokenizer, encoders);
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
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  cmd->add_option("--count", f.count, "How many")
      ->check(WholeNumber(1, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  cmd->add_flag("--prompt", f.prompt, "End with the prompt for an answer");
  cmd->add_flag("--json", f.json, "Print a JSON object a chat");
  AddChatFlags(cmd, &f.chat);
  cmd->callback([flags, &exit_code] {
    const absl::Status status = Render(*flags);
    exit_code = status.ok() ? 0 : FailOnFolder("render", status);
  });
}

}  // namespace espalier::tools
