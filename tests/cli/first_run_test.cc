// From nothing to an adapter, as the README says it: demo, finetune, and the
// commands that look at texts.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/tests/cli/command.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

class FirstRunTest : public ::testing::Test {
 protected:
  // One demo folder for all tests, untrained.
  static void SetUpTestSuite() {
    demo_dir_ = new test::TempDir();
    const test::CommandResult made = test::Espalier(
        {"demo", "--output", demo_dir_->Path("demo"), "--pretrain-steps", "0"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.out, HasSubstr("demo folder: "));
  }
  static void TearDownTestSuite() {
    delete demo_dir_;
    demo_dir_ = nullptr;
  }

  static std::string Model() { return demo_dir_->Path("demo/model"); }
  std::string Chats() const {
    return dir_.Write("chats.jsonl",
                      "{\"text\":\"one tale\"}\n"
                      "{\"prompt\":\"one\",\"completion\":\" tale\"}\n");
  }
  // One short step, but for what `more` has.
  Arguments Finetune(const Arguments& more) const {
    const Arguments usual = {"--model=" + Model(),
                             "--data=" + demo_dir_->Path("demo/finetune.txt"),
                             "--output=" + dir_.Path("adapter"),
                             "--max-steps=1",
                             "--micro-batch-tokens=64",
                             "--max-sample-tokens=64",
                             "--held-out-fraction=0.01"};
    Arguments words = {"finetune"};
    for (const std::string& word : usual) {
      const std::string name = word.substr(0, word.find('=') + 1);
      if (std::none_of(more.begin(), more.end(), [&](const std::string& m) {
            return absl::StartsWith(m, name);
          })) {
        words.push_back(word);
      }
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  test::TempDir dir_;
  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a suite's
  static test::TempDir* demo_dir_;
};
test::TempDir* FirstRunTest::demo_dir_ = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

TEST_F(FirstRunTest, DemoRefusesATakenName) {
  const test::CommandResult again =
      test::Espalier({"demo", "--output", demo_dir_->Path("demo")});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.err, HasSubstr("is there already"));
}

TEST_F(FirstRunTest, DemoRemovesWhatAKilledOneLeft) {
  const std::string out = dir_.Path("demo");
  test::CommandOptions killed;
  killed.kill_after_lines = 1;
  EXPECT_EQ(test::Espalier(
                {"demo", "--output", out, "--pretrain-steps", "100000"}, killed)
                .exit_code,
            -9);
  EXPECT_FALSE(std::filesystem::is_empty(dir_.path()));
  EXPECT_FALSE(std::filesystem::exists(out));
  const test::CommandResult next =
      test::Espalier({"demo", "--output", out, "--pretrain-steps", "0"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.err, AllOf(StartsWith(absl::StrCat("removed ", dir_.path())),
                              HasSubstr("left by a run that was killed")));
  int64_t names = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_EQ(entry.path().string(), out);
    ++names;
  }
  EXPECT_EQ(names, 1);
}

TEST_F(FirstRunTest, Finetune) {
  const test::CommandResult run = test::Espalier(Finetune({}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(
      run.out,
      AllOf(
          HasSubstr("step 1/1  loss "), HasSubstr("adapter: "),
          // The words of data inspect.
          ContainsRegex("\ntrained on: [0-9]+ tokens kept \\([0-9]+ trained\\) "
                        "in 1 steps\n"),
          ContainsRegex(
              "\nread: .* = [0-9]+ kept \\([0-9]+ trained\\) .*; more "
              "of what is kept waits in up to 16 open "
              "micro-batches\n")));
  // One micro-batch of 64 tokens at most; much more is read.
  const size_t at = run.out.find("\ntrained on: ");
  ASSERT_NE(at, std::string::npos) << run.out;
  const int64_t num_tokens = std::stoll(run.out.substr(at + 13));
  EXPECT_GT(num_tokens, 0);
  EXPECT_LE(num_tokens, 64);
  EXPECT_TRUE(
      std::filesystem::exists(dir_.Path("adapter/adapter_model.safetensors")));
  // The name is taken now.
  const test::CommandResult again = test::Espalier(Finetune({}));
  EXPECT_NE(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr(dir_.Path("adapter")));
}

TEST_F(FirstRunTest, FinetuneFlagsThatDoNotSuitAreTwo) {
  for (const char* flag :
       {"--lora-rank=0", "--dtype=f64", "--lr=nan", "--lr=-1", "--lr=1e999",
        "--max-steps=0", "--warmup-ratio=2", "--held-out-fraction=1",
        "--micro-batch-tokens=16777217", "--grad-accum-steps=1048577",
        "--lora-rank=65536", "--threads=1025", "--target-modules=nope"}) {
    const test::CommandResult result = test::Espalier(Finetune({flag}));
    EXPECT_EQ(result.exit_code, 2) << flag << result.err;
    const std::string name(flag, std::string(flag).find('='));
    EXPECT_THAT(result.err, HasSubstr(name)) << flag;
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("adapter")));
}

// By the names that a user gave them, not the library's.
TEST_F(FirstRunTest, ErrorsNameFlags) {
  const std::pair<Arguments, std::string> cases[] = {
      {{"--lr=-1"}, "finetune: --lr is -1, expected a number above 0"},
      {{"--dtype=f64"}, "finetune: --dtype is \"f64\""},
      {{"--max-sample-tokens=65"},
       "--max-sample-tokens is 65, expected at most --micro-batch-tokens = 64"},
      {{"--max-sample-tokens=0"},
       "--max-sample-tokens: got 0, expected a whole number of 1 or more"},
      {{"--data-weights=1,2"},
       "--data-weights has 2 values, expected one for each of the 1 --data"},
      {{"--prompt-field=a"},
       "--prompt-field is \"a\" and --completion-field is \"\""},
      {{"--lora-rank=65536"}, "finetune: --lora-rank is 65536, expected 1 to "},
      {{"--target-modules=q9"}, "--target-modules: \"q9\" matches no"},
      {{"--output=" + Model()}, "--output: " + Model() + " is there already"}};
  for (const auto& [flags, text] : cases) {
    const test::CommandResult result = test::Espalier(Finetune(flags));
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  const test::CommandResult none =
      test::Espalier(Finetune({"--held-out-fraction=0"}));
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr("--held-out-fraction is 0"));
}

TEST_F(FirstRunTest, NumbersThatAreNotFiniteAreSix) {
  const test::CommandResult result = test::Espalier(Finetune(
      {"--lr=1e30", "--max-steps=8", "--warmup-ratio=0", "--max-grad-norm=0"}));
  EXPECT_EQ(result.exit_code, 6) << result.err << result.out;
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("adapter")));
}

TEST_F(FirstRunTest, AStoreThatDoesNotAnswerIsFive) {
  const test::CommandResult result =
      test::Espalier({"data", "inspect", "--tokenizer", Model(), "--data",
                      "s3://bucket/key", "--s3-endpoint", "http://127.0.0.1:1",
                      "--s3-attempts", "1", "--cache-dir", dir_.Path("cache")});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1"));
}

TEST_F(FirstRunTest, TokenizeBothWays) {
  test::CommandOptions text;
  text.input = "one tale\n\n";
  const test::CommandResult ids =
      test::Espalier({"tokenize", "--tokenizer", Model()}, text);
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  test::CommandOptions back;
  back.input = ids.out;
  EXPECT_EQ(
      test::Espalier({"tokenize", "--tokenizer", Model(), "--decode"}, back)
          .out,
      text.input);
  test::CommandOptions json;
  json.input = "{\"text\": \"one tale\"}\nnonsense\n";
  const test::CommandResult lines =
      test::Espalier({"tokenize", "--tokenizer", Model(), "--json"}, json);
  EXPECT_EQ(lines.exit_code, 3);
  const size_t end = lines.out.find('\n');
  const auto first = ParseJsonText(lines.out.substr(0, end));
  const auto second = ParseJsonText(lines.out.substr(end + 1));
  ASSERT_TRUE(first.ok() && second.ok()) << lines.out;
  EXPECT_NE(first->Find("ids"), nullptr);
  EXPECT_NE(second->Find("error"), nullptr);
}

TEST_F(FirstRunTest, AnUnknownFamilyIsTwo) {
  const test::CommandResult result =
      test::Espalier({"tokenize", "--tokenizer", Model(), "--family", "gpt9"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--family"), HasSubstr("gpt9")));
}

TEST_F(FirstRunTest, Render) {
  const Arguments words = {"render", "--tokenizer", Model(), "--data",
                           Chats(),  "--count",     "2"};
  const test::CommandResult text = test::Espalier(words);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("chats.jsonl:2: "));
  Arguments json = words;
  json.emplace_back("--json");
  const test::CommandResult lines = test::Espalier(json);
  EXPECT_EQ(lines.exit_code, 0) << lines.err;
  EXPECT_TRUE(ParseJsonText(lines.out.substr(0, lines.out.find('\n'))).ok());
}

TEST_F(FirstRunTest, DataInspectAndPack) {
  const JsonValue seen = test::EspalierJson(
      {"data", "inspect", "--tokenizer", Model(), "--data", Chats()});
  EXPECT_NE(seen.AsObject(), nullptr);
  const JsonValue packed =
      test::EspalierJson({"data", "pack", "--tokenizer", Model(), "--data",
                          Chats(), "--output", dir_.Path("tokens")});
  ASSERT_NE(packed.Find("num_samples"), nullptr);
  EXPECT_EQ(*packed.Find("num_samples")->AsInt(), 2);
  const test::CommandResult again =
      test::Espalier({"data", "inspect", "--tokenizer", Model(), "--data",
                      dir_.Path("tokens")});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  dir_.Write("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":\n");
  const test::CommandResult bad =
      test::Espalier({"data", "pack", "--tokenizer", Model(), "--data",
                      dir_.Path("bad.jsonl"), "--output", dir_.Path("bad")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("bad.jsonl:2"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("bad")));
}

// Settings, not records, are at fault: nothing is read, whatever is skipped.
TEST_F(FirstRunTest, ChatsWithoutALayoutAndUnknownContentTokensAreRefused) {
  const std::string chats =
      dir_.Write("real.jsonl",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"},"
                 "{\"role\":\"assistant\",\"content\":\"tale\"}]}\n");
  const std::string model = Model(), new_name = dir_.Path("new");
  const std::vector<Arguments> commands = {
      {"data", "inspect", "--tokenizer", model},
      {"data", "pack", "--tokenizer", model, "--output", new_name},
      {"finetune", "--model", model, "--output", new_name}};
  for (Arguments words : commands) {
    words.insert(words.end(), {"--skip-bad-records", "--data", chats});
    const test::CommandResult none = test::Espalier(words);
    EXPECT_EQ(none.exit_code, 3) << words[0];
    EXPECT_EQ(none.out, "");
    EXPECT_THAT(none.err, AllOf(HasSubstr("real.jsonl:1: "),
                                HasSubstr("has no chat_template.jinja"),
                                HasSubstr("put the model's template there")));
    words.back() = Chats();
    words.insert(words.end(), {"--content-token", "<thunk>"});
    const test::CommandResult unknown = test::Espalier(words);
    EXPECT_EQ(unknown.exit_code, 2) << words[0];
    EXPECT_EQ(unknown.out, "");
    EXPECT_THAT(unknown.err, HasSubstr("content token \"<thunk>\" is no "));
  }
  const test::CommandResult unknown =
      test::Espalier({"render", "--tokenizer", model, "--data", Chats(),
                      "--content-token", "<thunk>"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("content token \"<thunk>\" is no "));
}

// Nor is it a number when a chat shows it in the middle of training.
TEST_F(FirstRunTest, AFolderThatLacksWhatAChatNeedsEndsTrainingWithThree) {
  std::string records;
  for (int i = 0; i < 200; ++i) records += "{\"text\":\"one tale\"}\n";
  const std::string data =
      dir_.Write("late.jsonl",
                 records +
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"},"
                     "{\"role\":\"assistant\",\"content\":\"tale\"}]}\n");
  const test::CommandResult run = test::Espalier(Finetune(
      {"--data=" + data, "--layout=kimi-linear", "--seed=1",
       "--held-out-fraction=0", "--skip-bad-records", "--max-steps=200"}));
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_THAT(run.out, HasSubstr("step 1/200  loss "));
  EXPECT_THAT(run.err, AllOf(HasSubstr("late.jsonl:201: "),
                             HasSubstr("has no token <|im_user|>")));
}

TEST_F(FirstRunTest, DataInspectFindsIdsThatTheModelHasNoRowFor) {
  const std::string folder = dir_.Path("tokenizer");
  std::filesystem::copy(Model(), folder);
  const Arguments words = {"data", "inspect", "--tokenizer",
                           folder, "--data",  Chats()};
  const auto inspect = [&words](const std::string& more) {
    Arguments all = words;
    if (!more.empty()) all.push_back(more);
    return test::Espalier(all);
  };
  EXPECT_THAT(inspect("").out,
              HasSubstr("held against the model's vocab_size "));
  for (const char* config :
       {R"({"vocab_size":5})", R"({"text_config":{"vocab_size":5}})"}) {
    dir_.Write("tokenizer/config.json", config);
    const test::CommandResult found = inspect("--json");
    EXPECT_EQ(found.exit_code, 3) << found.err;
    const auto json = ParseJsonText(found.out);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(*json->Find("vocab_size")->AsInt(), 5);
    EXPECT_EQ(*json->Find("report")->Find("num_bad_records")->AsInt(), 2);
    EXPECT_THAT(found.out, HasSubstr("below the model's vocab_size 5"));
  }
  dir_.Write("tokenizer/config.json", "{}");
  EXPECT_THAT(inspect("").out,
              AllOf(HasSubstr("not held against a model: "),
                    HasSubstr("config.json: no vocab_size above 0")));
  std::filesystem::remove(folder + "/config.json");
  EXPECT_THAT(inspect("").out, HasSubstr("not held against a model: "));
  EXPECT_THAT(inspect("--json").out, HasSubstr("\"vocab_size\": null"));
}

// With the same flags finetune has the totals of data inspect, here of the data
// that it reads once.
TEST_F(FirstRunTest, FinetuneReadsWhatDataInspectShows) {
  std::string records = "{\"text\":1}\n{\"text\":\"\"}\n";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&records, R"({"question":"one )", i, R"(","answer":")",
                    i % 2 == 0 ? "tale" : "tale of a very old fox, number ", i,
                    "\"}\n");
  }
  const std::string data = dir_.Write("pairs.jsonl", records);
  for (const char* policy : {"split", "truncate", "drop"}) {
    const Arguments flags = {"--data",
                             data,
                             "--prompt-field",
                             "question",
                             "--completion-field",
                             "answer",
                             "--max-sample-tokens",
                             "20",
                             "--long-samples",
                             policy,
                             "--skip-bad-records"};
    Arguments inspect = {"data", "inspect", "--tokenizer", Model()};
    inspect.insert(inspect.end(), flags.begin(), flags.end());
    const JsonValue seen = test::EspalierJson(inspect);
    const auto total = [&seen](const char* name) {
      const JsonValue* report = seen.Find("report");
      const JsonValue* value = report ? report->Find(name) : nullptr;
      EXPECT_NE(value, nullptr) << name;
      return value ? *value->AsInt() : -1;
    };
    Arguments finetune = {"finetune", "--model",         Model(),
                          "--output", dir_.Path(policy), "--held-out-data",
                          data,       "--max-steps",     "1"};
    finetune.insert(finetune.end(), flags.begin(), flags.end());
    const test::CommandResult run = test::Espalier(finetune);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(
        run.out,
        HasSubstr(absl::StrCat(
            total("num_kept_tokens"), " tokens, from ", total("num_samples"),
            " samples (", total("num_long_samples"), " too long, ",
            total("num_dropped_samples"), " dropped, ",
            total("num_untrained_samples"), " untrained), ",
            total("num_bad_records"), " bad records (first: ", data, ":1: ")));
    EXPECT_THAT(run.out, HasSubstr(absl::StrCat(
                             "; ", total("num_tokens"),
                             " tokens = ", total("num_kept_tokens"), " kept (",
                             total("num_trained_tokens"), " trained) + ",
                             total("num_truncated_tokens"), " truncated + ",
                             total("num_dropped_tokens"), " dropped + ",
                             total("num_untrained_tokens"), " untrained")));
  }
}

TEST_F(FirstRunTest, NothingToPackIsThree) {
  const std::string empty = dir_.Write("empty.txt", "");
  const std::string broken = dir_.Write("broken.jsonl", "{\n");
  for (const std::string& path : {empty, broken}) {
    const test::CommandResult result = test::Espalier(
        {"data", "pack", "--tokenizer", Model(), "--data", Chats(), "--data",
         path, "--skip-bad-records", "--output", dir_.Path("tokens")});
    EXPECT_EQ(result.exit_code, path == empty ? 3 : 0) << result.err;
    const test::CommandResult alone =
        test::Espalier({"data", "pack", "--tokenizer", Model(), "--data", path,
                        "--skip-bad-records", "--output", dir_.Path("alone")});
    EXPECT_EQ(alone.exit_code, 3) << path;
    EXPECT_THAT(alone.err, HasSubstr(path));
    EXPECT_FALSE(std::filesystem::exists(dir_.Path("alone")));
    std::filesystem::remove_all(dir_.Path("tokens"));
  }
}

TEST_F(FirstRunTest, ConvertLlama2c) {
  // dim 8, hidden 6, 1 layer, 2 heads, 1 of keys, 259 tokens, 3 positions.
  std::string model = test::BytesOf<int32_t>({8, 6, 1, 2, 1, 259, 3});
  model.resize(
      model.size() +
      size_t{4} * (259 * 8 + (8 + 64 + 32 + 32 + 64 + 8 + 3 * 48) + 8 + 3 * 4));
  std::string tokenizer = test::BytesOf<int32_t>({9});
  for (int i = 0; i < 259; ++i) {
    const std::string piece = i == 0   ? "<unk>"
                              : i == 1 ? "\n<s>\n"
                              : i == 2 ? "\n</s>\n"
                                       : absl::StrFormat("<0x%02X>", i - 3);
    tokenizer += test::BytesOf<float>({0});
    tokenizer += test::BytesOf<int32_t>({static_cast<int32_t>(piece.size())});
    tokenizer += piece;
  }
  const Arguments words = {"convert-llama2c",
                           "--model",
                           dir_.Write("model.bin", model),
                           "--tokenizer",
                           dir_.Write("tokenizer.bin", tokenizer),
                           "--output",
                           dir_.Path("folder")};
  const test::CommandResult run = test::Espalier(words);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(test::Espalier({"verify", dir_.Path("folder")}).exit_code, 0);
  EXPECT_EQ(test::Espalier(words).exit_code, 3);
  dir_.Write("model.bin", model.substr(0, model.size() - 1));
  std::filesystem::remove_all(dir_.Path("folder"));
  const test::CommandResult cut = test::Espalier(words);
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_THAT(cut.err, HasSubstr("model.bin"));
  EXPECT_THAT(cut.out, IsEmpty());
}

}  // namespace
}  // namespace espalier
