#include "espalier/io/data_set.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/data_inspect.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/tests/support/letter_tokenizer.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DataSetTest : public ::testing::Test {
 protected:
  DataSetTest() {
    // <s> is 5, </s> 6.
    dir_.Write("tokenizer.json", test::LetterTokenizer('e'));
    dir_.Write("tokenizer_config.json", test::kLetterTokenizerConfig);
  }
  std::string Error(const DataSetConfig& config) {
    return std::string(OpenDataSet(dir_.path(), config).status().message());
  }

  test::TempDir dir_;
};

TEST_F(DataSetTest, PackedDataIsTheData) {
  DataSetConfig config;
  config.paths = {dir_.Write("a.jsonl",
                             "{\"text\":\"abc\"}\n{\"prompt\":\"a\","
                             "\"completion\":\"de\"}\n{\"text\":1}\n"),
                  dir_.Write("b.txt", "cab\n\nbad")};
  const auto set = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->groups.size(), 1u);
  EXPECT_THAT(
      std::string(PackDataSet(*set, dir_.Path("p"), false).status().message()),
      HasSubstr("a.jsonl:3: text is"));
  const auto report = PackDataSet(*set, dir_.Path("p"), true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_samples, 4);
  EXPECT_EQ(report->num_tokens, 5 + 5 + 5 + 5);
  EXPECT_EQ(report->num_bad_records, 1);

  DataSetConfig packed;
  packed.paths = {dir_.Path("p")};
  const auto again = OpenDataSet(dir_.path(), packed);
  ASSERT_TRUE(again.ok()) << again.status();
  int64_t next = 0;
  for (const auto& source : set->groups[0].sources) {
    for (int64_t i = 0; i < source->size(); ++i) {
      const auto expected = source->Get(i);
      if (!expected.ok()) continue;
      const auto sample = again->groups[0].sources[0]->Get(next++);
      ASSERT_TRUE(sample.ok());
      EXPECT_EQ(sample->ids, expected->ids);
      EXPECT_EQ(sample->weights, expected->weights);
      EXPECT_EQ(sample->content_hash, expected->content_hash);
    }
  }
  EXPECT_EQ(next, 4);
  // Another tokenizer's tokens are not taken.
  dir_.Write("tokenizer_config.json", R"({"bos_token":"<s>"})");
  EXPECT_THAT(Error(packed), HasSubstr("pack the data again"));
}

TEST_F(DataSetTest, ChatsFollowTheConfig) {
  dir_.Write("chat_template.jinja",
             "{{ 'abcde'[strftime_now('%d') | int] }}{% for m in messages %}"
             "{{ m.content }}</s>{% endfor %}");
  DataSetConfig config;
  config.paths = {dir_.Write(
      "a.jsonl",
      R"({"messages":[{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"b"},{"role":"user","content":"c"},)"
      R"({"role":"assistant","content":"d"}]})"
      "\n{\"prompt\":\"a\",\"completion\":\"b\"}\n")};
  config.chat.now_seconds = 3 * 86400;  // 4 January 1970
  const auto weights = [&](int64_t index) {
    const auto set = OpenDataSet(dir_.path(), config);
    EXPECT_TRUE(set.ok()) << set.status();
    const auto sample = set->groups[0].sources[0]->Get(index);
    EXPECT_TRUE(sample.ok()) << sample.status();
    if (sample.ok() && index == 0) {
      EXPECT_THAT(sample->ids, ElementsAre(4, 0, 6, 1, 6, 2, 6, 3, 6));
    }
    return sample.ok() ? sample->weights : std::vector<float>();
  };
  EXPECT_THAT(weights(0), ElementsAre(0, 0, 0, 1, 1, 0, 0, 1, 1));
  config.chat.loss = ChatLoss::kLastAssistant;
  EXPECT_THAT(weights(0), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(weights(1), ElementsAre(0, 0, 1, 1));
  // All is all, whichever kind of data it is said for.
  config.chat.loss = ChatLoss::kAll;
  EXPECT_THAT(weights(0), Each(1));
  EXPECT_THAT(weights(1), ElementsAre(0, 1, 1, 1));
  config.chat.loss = ChatLoss::kAssistant;
  config.plain.train_prompt = true;
  EXPECT_THAT(weights(0), Each(1));
  EXPECT_THAT(weights(1), ElementsAre(0, 1, 1, 1));
  config.chat_format = ChatFormat::kKimiLinear;
  EXPECT_THAT(Error(config), HasSubstr("has no token <|im_user|>"));
}

TEST_F(DataSetTest, WeightsMakeGroups) {
  DataSetConfig config;
  config.paths = {dir_.Write("a.txt", "a"), dir_.Write("b.txt", "b")};
  config.weights = {3, 1};
  const auto set = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(set.ok());
  ASSERT_EQ(set->groups.size(), 2u);
  EXPECT_EQ(set->groups[0].weight, 3);
  config.weights = {1};
  EXPECT_THAT(Error(config), HasSubstr("1 weights for 2 data paths"));
  config.weights.clear();
  config.paths = {dir_.Path("none")};
  EXPECT_THAT(Error(config), HasSubstr("none"));
  config.paths = {dir_.path()};
  EXPECT_THAT(Error(config), HasSubstr("is a folder without tokens.json"));
  config.paths.clear();
  EXPECT_THAT(Error(config), HasSubstr("no data"));
}

// Case L8: a model may have more rows than the tokenizer has tokens; a token
// without a row is a fault of the record that holds it.
TEST_F(DataSetTest, TokensThatTheModelLacksAreBadRecords) {
  DataSetConfig config;
  config.plain.add_bos = config.plain.add_eos = false;
  config.paths = {dir_.Write("a.txt", "abc\n\nade\n")};
  const auto plain = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(plain.ok());
  ASSERT_TRUE(PackDataSet(*plain, dir_.Path("p"), false).ok());
  config.paths.push_back(dir_.Path("p"));
  config.vocab_size = 4;
  const auto set = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(set.ok()) << set.status();
  for (const auto& [source, place] :
       {std::pair(0, "a.txt:3: "), std::pair(1, "p: sample 1: ")}) {
    const SampleSource& from =
        *set->groups[0].sources[static_cast<size_t>(source)];
    EXPECT_TRUE(from.Get(0).ok());
    const absl::Status refused = from.Get(1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr(place),
                      HasSubstr("token id 4 (\"e\"), expected below the "
                                "model's vocab_size 4")));
  }
  config.vocab_size = 5;
  const auto wider = OpenDataSet(dir_.path(), config);
  EXPECT_TRUE(wider->groups[0].sources[0]->Get(1).ok());
}

// No record's fault: a run would end at it, whatever is skipped.
TEST_F(DataSetTest, ChatsWithoutALayoutFailBeforeAnythingIsRead) {
  const std::string chat =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
      "{\"role\":\"assistant\",\"content\":\"b\"}]}\n";
  const auto open = [&](const std::string& bytes) {
    DataSetConfig config;
    config.paths = {dir_.Write("a.txt", "abc"), dir_.Write("b.jsonl", bytes)};
    return OpenDataSet(dir_.path(), config).status();
  };
  const absl::Status none = open("{\"text\":1}\n" + chat);
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(none.message()),
      AllOf(HasSubstr("b.jsonl:2: "), HasSubstr("has no chat_template.jinja"),
            HasSubstr("; put the model's template there, or give prompts and "
                      "completions in place of chats")));
  dir_.Write("chat_template.jinja", "\n{% broken %}");
  const absl::Status broken = open(chat);
  EXPECT_EQ(broken.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(broken.message()),
              AllOf(HasSubstr("b.jsonl:1: "),
                    HasSubstr("chat_template.jinja: line 2: ")));
  // The first record tells; others end what reads them.
  const std::string text = "{\"text\":\"ab\"}\n";
  EXPECT_TRUE(open(text).ok());
  DataSetConfig config;
  config.paths = {dir_.Write("c.jsonl", text + chat)};
  const auto mixed = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(InspectData(mixed->groups, {}).status().code(),
            absl::StatusCode::kNotFound);
  dir_.Write("chat_template.jinja",
             "{% for m in messages %}{{ m.content }}</s>{% endfor %}");
  EXPECT_TRUE(open(chat).ok());
}

TEST_F(DataSetTest, ContentTokensAreTokens) {
  DataSetConfig config;
  config.paths = {dir_.Write("a.txt", "abc")};
  config.chat.content_tokens = {"<think>"};
  const absl::Status none = OpenDataSet(dir_.path(), config).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(none.message()),
      HasSubstr("content token \"<think>\" is no token that was added to "
                "the tokenizer, expected none: all of those are "
                "special"));
  std::string tokenizer = test::LetterTokenizer('e');
  const size_t special = tokenizer.find("\"special\":true");
  dir_.Write("tokenizer.json",
             tokenizer.replace(special, 14, "\"special\":false"));
  EXPECT_THAT(Error(config), HasSubstr("expected one of \"<s>\""));
  config.chat.content_tokens = {"<s>", "</s>"};
  EXPECT_THAT(Error(config),
              HasSubstr("\"</s>\" is a special token, expected"));
  config.chat.content_tokens = {"<s>", "a"};
  EXPECT_THAT(Error(config), HasSubstr("\"a\" is no token that was added"));
  config.chat.content_tokens = {"<s>"};
  EXPECT_EQ(Error(config), "");
}

TEST_F(DataSetTest, InspectionCountsAndShows) {
  DataSetConfig config;
  config.paths = {dir_.Write(
      "a.jsonl",
      "{\"prompt\":\"ab\",\"completion\":\"<\"}\n"  // no token for "<"
      "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n{\"text\":\"\"}\n"
      "{\"text\":\"abcdeabcde\"}\n{\"text\":\"abcdeabcde\"}\n")};
  const auto set = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(set.ok());
  DataInspectOptions options;
  options.num_shown = 2;
  options.max_sample_tokens = 8;
  for (const LongSamplePolicy policy :
       {LongSamplePolicy::kSplit, LongSamplePolicy::kTruncate,
        LongSamplePolicy::kDrop}) {
    options.long_samples = policy;
    const auto got = InspectData(set->groups, options);
    ASSERT_TRUE(got.ok());
    const DataReport& report = got->report;
    EXPECT_EQ(got->num_records, 5);
    EXPECT_EQ(got->num_duplicates, 1);
    EXPECT_EQ(report.num_bad_records, 1);
    EXPECT_THAT(report.first_bad_record, HasSubstr("a.jsonl:1: "));
    EXPECT_EQ(report.num_samples, 4);
    EXPECT_EQ(report.num_long_samples, 2);
    EXPECT_EQ(report.num_tokens, 6 + 12 + 12);
    EXPECT_EQ(report.num_truncated_tokens,
              policy == LongSamplePolicy::kTruncate ? 8 : 0);
    EXPECT_EQ(report.num_dropped_tokens,
              policy == LongSamplePolicy::kDrop ? 24 : 0);
    EXPECT_EQ(report.num_untrained_samples, 1);
    EXPECT_EQ(got->max_tokens, 12);
    EXPECT_EQ(got->lengths[2], 1);
    EXPECT_EQ(got->lengths[3], 2);
    // Bos predicts from nothing; what is lost is not trained.
    const int64_t trained = policy == LongSamplePolicy::kSplit      ? 3 + 22
                            : policy == LongSamplePolicy::kTruncate ? 3 + 14
                                                                    : 3;
    EXPECT_EQ(got->report.num_trained_tokens, trained);
    EXPECT_EQ(got->sum_weights, static_cast<double>(trained));
    ASSERT_EQ(got->shown.size(), 2u);
    EXPECT_THAT(
        InspectionText(*got, *set->tokenizer, false),
        AllOf(HasSubstr("[control] <s>|\n[prompt] a|b|\n[completion] "
                        "{c}{d}\n[control] {</s>}\n"),
              HasSubstr("records        5\n"), HasSubstr("samples        4\n"),
              HasSubstr("bad: "), HasSubstr("a.jsonl:1: "),
              HasSubstr("8 tokens and up          2  ####")));
    EXPECT_THAT(InspectionText(*got, *set->tokenizer, true),
                HasSubstr("\033[1;32m"));
    EXPECT_THAT(
        InspectionHtml(*got, *set->tokenizer),
        AllOf(HasSubstr("<span class=\"t prompt u\" title=\"0 prompt weight "
                        "0\">a</span>"),
              HasSubstr("<span class=\"t control\" title=\"6 control weight "
                        "1\">&lt;/s&gt;</span>"),
              Not(HasSubstr(">\"<\""))));
    const auto json = WriteJson(InspectionJson(*got, *set->tokenizer));
    ASSERT_TRUE(json.ok());
    EXPECT_THAT(*json,
                HasSubstr("\"num_trained_tokens\": " + absl::StrCat(trained)));
  }
}

// The first token of a sample predicts from nothing, whatever its weight.
TEST_F(DataSetTest, FirstTokenIsNotTrained) {
  DataSetConfig config;
  config.paths = {dir_.Write("a.txt", "abc")};
  config.plain.add_bos = config.plain.add_eos = false;
  const auto set = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->groups[0].sources[0]->Get(0)->weights[0], 1);
  const auto got = InspectData(set->groups, DataInspectOptions());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->report.num_tokens, 3);
  EXPECT_EQ(got->report.num_trained_tokens, 2);
  EXPECT_EQ(got->sum_weights, 2);
}

}  // namespace
}  // namespace espalier
