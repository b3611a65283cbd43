#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "espalier/io/json.h"
#include "espalier/io/json_object.h"
#include "espalier/io/tokenizer.h"
#include "espalier/tools/commands.h"

namespace espalier::tools {

namespace {

struct TokenizeFlags {
  std::string tokenizer;
  std::string family;
  bool decode = false;
  bool json = false;
  bool skip_special = false;
  EncodeOptions encode;
};

// A line of standard input without its end; false at the end of input.
bool ReadLine(std::string* line) {
  char* buffer = nullptr;
  size_t capacity = 0;
  const ssize_t bytes = getline(&buffer, &capacity, stdin);
  if (bytes > 0) {
    line->assign(buffer, static_cast<size_t>(bytes));
    if (line->back() == '\n') line->pop_back();
  }
  std::free(buffer);
  return bytes > 0;
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view line) {
  std::vector<int32_t> ids;
  for (absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" ,\t\r"), absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat(word, " is no token id"));
    }
  }
  return ids;
}

// Text of a line in, ids out; or ids in, text out.
absl::StatusOr<std::string> AnswerPlain(const Tokenizer& tokenizer,
                                        const TokenizeFlags& flags,
                                        const std::string& line) {
  if (flags.decode) {
    const auto ids = ParseIds(line);
    if (!ids.ok()) return ids.status();
    return tokenizer.Decode(*ids, flags.skip_special);
  }
  const auto ids = tokenizer.Encode(line, flags.encode);
  if (!ids.ok()) return ids.status();
  return absl::StrJoin(*ids, " ");
}

// {"text": ...} or {"hex": ...} gives {"ids": [...]}, {"ids": [...]} gives
// {"text": ...}.
absl::StatusOr<std::string> AnswerJson(const Tokenizer& tokenizer,
                                       const TokenizeFlags& flags,
                                       const std::string& line) {
  const absl::StatusOr<JsonObject> json = JsonObject::Parse(line, "line");
  if (!json.ok()) return json.status();
  if (json->Has("ids")) {
    std::vector<int> ids;
    absl::Status status = json->Get("ids", &ids);
    if (!status.ok()) return status;
    const std::string text = tokenizer.Decode(
        std::vector<int32_t>(ids.begin(), ids.end()), flags.skip_special);
    return WriteJson(JsonValue::Object{{"text", text}}, 0);
  }
  std::string text;
  EncodeOptions options = flags.encode;
  absl::Status status =
      json->GetOptional("match_special_tokens", &options.match_special_tokens);
  if (!status.ok()) return status;
  if (json->Has("hex")) {
    status = json->Get("hex", &text);
    const bool digits = std::all_of(text.begin(), text.end(), [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c));
    });
    if (!digits || text.size() % 2 != 0) {
      return absl::InvalidArgumentError(
          "hex is no even number of hexadecimal digits");
    }
    text = absl::HexStringToBytes(text);
  } else {
    status = json->Get("text", &text);
  }
  if (!status.ok()) return status;
  const auto ids = tokenizer.Encode(text, options);
  if (!ids.ok()) return ids.status();
  return absl::StrCat("{\"ids\":[", absl::StrJoin(*ids, ","), "]}");
}

int Run(const TokenizeFlags& flags) {
  const auto tokenizer = LoadTokenizer(flags.tokenizer, flags.family);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "espalier tokenize: %s\n",
                 std::string(tokenizer.status().message()).c_str());
    return kExitBadInput;
  }
  int exit_code = 0;
  std::string line;
  for (int64_t number = 1; ReadLine(&line); ++number) {
    absl::StatusOr<std::string> answer =
        flags.json ? AnswerJson(**tokenizer, flags, line)
                   : AnswerPlain(**tokenizer, flags, line);
    if (!answer.ok()) {
      const std::string message(answer.status().message());
      exit_code = kExitBadInput;
      if (flags.json) {
        answer = WriteJson(JsonValue::Object{{"error", message}}, 0);
      } else {
        std::fprintf(stderr, "espalier tokenize: line %lld: %s\n",
                     static_cast<long long>(number), message.c_str());
        answer = std::string();
      }
    }
    answer->push_back('\n');
    std::fwrite(answer->data(), 1, answer->size(), stdout);
  }
  if (std::fflush(stdout) != 0) return kExitBadInput;
  return exit_code;
}

}  // namespace

void AddTokenize(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* cmd = app.add_subcommand(
      "tokenize", "Turn lines of standard input into token ids, or back");
  cmd->add_option("--tokenizer", flags->tokenizer,
                  "Model folder, or a tokenizer file")
      ->required();
  cmd->add_option("--family", flags->family,
                  "How a tiktoken file splits text: gpt2, cl100k, o200k, "
                  "llama3, qwen, kimi")
      ->check(
          CLI::IsMember({"gpt2", "cl100k", "o200k", "llama3", "qwen", "kimi"}));
  cmd->add_flag("--decode", flags->decode, "Lines are ids, print their text");
  cmd->add_flag("--json", flags->json,
                "Lines are {\"text\": ...}, {\"hex\": ...} or {\"ids\": ...}");
  cmd->add_flag("--add-special", flags->encode.add_special_tokens,
                "Put the tokenizer's own tokens around each text");
  cmd->add_flag("--match-special", flags->encode.match_special_tokens,
                "Special tokens spelled in a text become tokens");
  cmd->add_flag("--drop-unknown", flags->encode.drop_unknown,
                "Leave out characters that the vocabulary cannot express");
  cmd->add_flag("--skip-special", flags->skip_special,
                "Leave special tokens out of decoded text");
  cmd->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace espalier::tools
