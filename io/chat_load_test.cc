#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_test_util.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using test::ChatOf;
using test::Show;
using ::testing::HasSubstr;

constexpr char kOne[] = R"([{"role":"user","content":"a"}])";

class ChatLoadTest : public ::testing::Test {
 protected:
  // The text of kOne, or what went wrong.
  std::string Text(bool tools) {
    const auto encoder =
        LoadChatEncoder(dir_.path(), tokenizer_, ChatFormat::kAuto);
    if (!encoder.ok()) return std::string(encoder.status().message());
    Chat chat = ChatOf(kOne);
    if (tools) chat.tools = JsonValue(JsonValue::Array{JsonValue("t")});
    ChatOptions options;
    options.loss = ChatLoss::kAll;
    const auto encoded = (*encoder)->Encode(chat, options);
    return encoded.ok() ? encoded->text
                        : std::string(encoded.status().message());
  }
  void WriteConfig(const std::string& chat_template) {
    dir_.Write("tokenizer_config.json",
               "{\"chat_template\": " + chat_template + "}");
  }
  void WriteMore(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(dir_.Path("additional_chat_templates"));
    dir_.Write("additional_chat_templates/" + name, text);
  }

  test::TempDir dir_;
  test::AddedByteTokenizer tokenizer_ = test::MakeTokenizer();
};

TEST_F(ChatLoadTest, ChatsWithToolsGetTheTemplateForThem) {
  WriteConfig(R"([{"name":"rag","template":"r"},)"
              R"({"name":"default","template":"d{{ messages[0].content }}"},)"
              R"({"name":"tool_use","template":"u{{ tools[0] }}"}])");
  EXPECT_EQ(Text(false), "da");
  EXPECT_EQ(Text(true), "ut");
  WriteConfig(R"([{"name":"default","template":"d{{ tools | length }}"}])");
  EXPECT_EQ(Text(true), "d1");
  // The last of a name counts.
  WriteConfig(R"([{"name":"default","template":"x"},)"
              R"({"name":"default","template":"y"}])");
  EXPECT_EQ(Text(false), "y");
  WriteConfig(R"([{"name":"tool_use","template":"u"}])");
  EXPECT_EQ(Text(true), "u");
  EXPECT_THAT(Text(false), HasSubstr("has no template named default"));
}

TEST_F(ChatLoadTest, FilesCountBeforeTheConfig) {
  WriteConfig(R"("config")");
  EXPECT_EQ(Text(true), "config");
  dir_.Write("chat_template.jinja", "file");
  EXPECT_EQ(Text(false), "file");
  EXPECT_EQ(Text(true), "file");
  WriteMore("tool_use.jinja", "tools");
  WriteMore("default", "not a template");
  EXPECT_EQ(Text(false), "file");
  EXPECT_EQ(Text(true), "tools");
  // As transformers has it: one file is enough for the config not to count.
  std::filesystem::remove(dir_.Path("chat_template.jinja"));
  EXPECT_THAT(Text(false), HasSubstr("has no template named default"));
}

TEST_F(ChatLoadTest, WhatIsNoTemplateIsNamed) {
  EXPECT_THAT(Text(false), HasSubstr("has no chat_template.jinja"));
  WriteConfig("null");
  EXPECT_THAT(Text(false), HasSubstr("has no chat_template.jinja"));
  WriteConfig("3");
  EXPECT_THAT(Text(false), HasSubstr("tokenizer_config.json: chat_template is "
                                     "an integer, expected a string or an "
                                     "array"));
  WriteConfig(R"([{"name":"default"}])");
  EXPECT_THAT(Text(false), HasSubstr("an item that is no {\"name\""));
  WriteConfig(R"([{"name":"rag","template":"r"}])");
  EXPECT_THAT(Text(false),
              HasSubstr("no template named default or tool_use, but rag"));
  WriteConfig(R"([{"name":"default","template":"\n{% bad %}"}])");
  EXPECT_THAT(Text(false), HasSubstr("chat_template default: line 2"));
  WriteConfig(R"("d")");
  for (const char* ids : {"[\"x\"]", "[1, -1]", "-1", "4194304", "{}"}) {
    dir_.Write("generation_config.json",
               absl::StrCat("{\"eos_token_id\": ", ids, "}"));
    EXPECT_THAT(Text(false), HasSubstr("eos_token_id is no token id")) << ids;
  }
  dir_.Write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(Text(false), "d");
  dir_.Write("additional_chat_templates", "no folder");
  EXPECT_THAT(Text(false),
              HasSubstr("additional_chat_templates: cannot be listed"));
}

// Case D2: every end token of the model ends a turn, and is trained.
TEST_F(ChatLoadTest, SeveralEndTokensAreHonoured) {
  const std::string chat_template =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
      "{% if m.role == 'assistant' %}{{ '<pad>' if loop.last else '<table>' }}"
      "<|system|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  dir_.Write("chat_template.jinja", chat_template);
  const auto trained = [&](const std::string& generation) {
    dir_.Write("generation_config.json", generation);
    const auto encoder = LoadChatEncoder(dir_.path(), tokenizer_);
    if (!encoder.ok()) return std::string(encoder.status().message());
    const auto encoded =
        (*encoder)->Encode(ChatOf(R"([{"role":"user","content":"a"},)"
                                  R"({"role":"assistant","content":"x"},)"
                                  R"({"role":"user","content":"b"},)"
                                  R"({"role":"assistant","content":"y"}])"),
                           ChatOptions());
    return encoded.ok() ? Show(tokenizer_, *encoded)
                        : std::string(encoded.status().message());
  };
  const auto id = [&](absl::string_view name) {
    return absl::StrCat(*tokenizer_.IdOf(name));
  };
  EXPECT_EQ(trained("{\"eos_token_id\": [" + id("<pad>") + ", " +
                    id("<table>") + "]}"),
            "<|user|>a<|assistant|>[x<table>]<|system|><|user|>b<|assistant|>"
            "[y<pad>]<|system|>");
  EXPECT_EQ(trained("{\"eos_token_id\": " + id("<pad>") + "}"),
            "<|user|>a<|assistant|>[x<table><|system|>]<|user|>b<|assistant|>"
            "[y<pad>]<|system|>");
}

TEST_F(ChatLoadTest, TheModelTypeSaysTheLayout) {
  WriteConfig(R"("d")");
  dir_.Write("config.json", R"({"model_type": "kimi_linear"})");
  EXPECT_THAT(Text(false), HasSubstr("the tokenizer has no token <|im_user|>"));
  dir_.Write("config.json", R"({"model_type": "kimi"})");
  EXPECT_EQ(Text(false), "d");
  dir_.Write("config.json", R"({"model_type": 3})");
  EXPECT_EQ(Text(false), "d");
}

TEST_F(ChatLoadTest, K3ReadsTheTextsOfItsFolder) {
  dir_.Write("config.json", R"({"model_type": "kimi_k3"})");
  EXPECT_THAT(Text(true), HasSubstr("encoding_k3.py, which its folder lacks"));
  dir_.Write("encoding_k3.py", "def build():\n    return 1\n");
  EXPECT_THAT(Text(false), HasSubstr("encoding_k3.py: has 0 texts"));
}

}  // namespace
}  // namespace espalier
