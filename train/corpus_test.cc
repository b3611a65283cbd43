#include "espalier/train/internal/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/data_inspect.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/support/letter_tokenizer.h"
#include "espalier/tests/support/refusals.h"
#include "espalier/train/open_data.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;

constexpr int64_t kVocabSize = 10;  // a to h, <s> 8, </s> 9

// A batch as the model sees it: "id>label*weight@position", and a "|" where a
// document begins.
std::string Text(const Batch& batch) {
  const auto* ids = batch.ids.data<int32_t>();
  const auto* labels = batch.labels.data<int32_t>();
  const auto* weights = batch.weights.data<float>();
  const auto* positions = batch.positions.data<int32_t>();
  std::string text;
  for (int64_t i = 0; i < batch.ids.num_elements(); ++i) {
    const bool begins =
        std::count(batch.cu_seqlens->begin(), batch.cu_seqlens->end(),
                   static_cast<int32_t>(i)) > 0;
    absl::StrAppend(&text, begins ? "| " : "", ids[i], ">", labels[i], "*",
                    weights[i], "@", positions[i], " ");
  }
  return text;
}

class CorpusTest : public ::testing::Test {
 protected:
  CorpusTest() {
    std::string pattern = ::testing::TempDir() + "/corpus.XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) dir_ = pattern;
    Write("tokenizer.json", test::LetterTokenizer('h'));
    Write("tokenizer_config.json", test::kLetterTokenizerConfig);
    Write("chat_template.jinja",
          "{% for m in messages %}{{ m.content }}</s>{% endfor %}");
    data_.max_sample_tokens = 32;
    options_.micro_batch_tokens = 32;
    options_.held_out_fraction = 0;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }
  // `count` distinct documents.
  std::string WriteDocuments(const std::string& name, int count) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      for (int digit = i + 64; digit > 0; digit /= 8) {
        text += static_cast<char>('a' + digit % 8);
      }
      text += "\n\n";
    }
    return Write(name, text);
  }

  absl::StatusOr<std::unique_ptr<Corpus>> Open(
      const JsonValue* cursor = nullptr) {
    return Corpus::Open(dir_, data_, kVocabSize, options_, cursor);
  }
  std::string Error() { return std::string(Open().status().message()); }
  // The next `count` micro-batches, or all.
  std::vector<std::string> Train(Corpus& corpus, int count = 1 << 20) {
    std::vector<std::string> texts;
    for (Batch batch; count > 0; --count) {
      const auto more = corpus.NextTrain(context_->cpu(), &batch);
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok() || !*more) break;
      texts.push_back(Text(batch));
    }
    return texts;
  }
  std::vector<std::string> HeldOut(const Corpus& corpus) {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < corpus.num_held_out_batches(); ++i) {
      texts.push_back(Text(corpus.HeldOut(context_->cpu(), i)));
    }
    return texts;
  }

  std::string dir_;
  DataConfig data_;
  CorpusOptions options_;
  std::unique_ptr<Context> context_ = *Context::Create(ContextOptions());
};

// Documents share a batch but nothing else; the last token of each predicts
// nothing, and what is not an answer has no weight.
TEST_F(CorpusTest, BatchesKeepDocumentsApartAndCarryWeights) {
  options_.num_epochs = 1;
  data_.paths = {Write("all.jsonl",
                       R"({"messages":[{"role":"user","content":"a"},)"
                       R"({"role":"assistant","content":"b","weight":0.5}]})"
                       "\n"
                       R"({"prompt":"cd","completion":"e"})"
                       "\n"
                       R"({"text":"f"})"
                       "\n")};
  const auto corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  Batch batch;
  ASSERT_TRUE(*(*corpus)->NextTrain(context_->cpu(), &batch));
  EXPECT_EQ(batch.num_trained, 2 + 2 + 2);
  EXPECT_EQ(batch.cu_seqlens->size(), 4u);
  const std::string text = Text(batch);
  EXPECT_THAT(text, HasSubstr("| 0>-100*0@0 9>1*0.5@1 1>9*0.5@2 9>-100*0@3 "));
  EXPECT_THAT(text, HasSubstr("| 8>-100*0@0 2>-100*0@1 3>4*1@2 4>9*1@3 "
                              "9>-100*0@4 "));
  EXPECT_THAT(text, HasSubstr("| 8>5*1@0 5>9*1@1 9>-100*0@2 "));
  EXPECT_FALSE(*(*corpus)->NextTrain(context_->cpu(), &batch));
  EXPECT_EQ((*corpus)->report().num_trained_tokens, 6);

  data_.loss = "all";
  const auto whole = Open();
  ASSERT_TRUE(whole.ok());
  ASSERT_TRUE(*(*whole)->NextTrain(context_->cpu(), &batch));
  EXPECT_THAT(Text(batch), HasSubstr("8>2*1@0 2>3*1@1 3>4*1@2 "));
}

// What `data inspect` counts is what is trained on, whatever the settings.
TEST_F(CorpusTest, InspectionCountsWhatIsTrainedOn) {
  data_.paths = {Write("a.jsonl",
                       "{\"text\":\"abcdefghabcdefghabcdefghabcdefghabcdefgh\"}"
                       "\n{\"text\":\"\"}\n{\"text\":1}\n"
                       "{\"prompt\":\"abc\",\"completion\":\"d\"}\n{\n"),
                 WriteDocuments("b.txt", 50)};
  data_.skip_bad_records = true;
  data_.max_sample_tokens = 6;
  options_.num_epochs = 1;
  for (const char* policy : {"split", "truncate", "drop"}) {
    for (const char* loss : {"assistant", "all"}) {
      data_.long_samples = policy;
      data_.loss = loss;
      const auto corpus = Open();
      ASSERT_TRUE(corpus.ok()) << corpus.status();
      Train(**corpus);
      DataReport trained = (*corpus)->report();
      EXPECT_THAT(trained.num_packs, Gt(5));
      trained.num_packs = 0;

      const auto set = OpenData(dir_, data_);
      ASSERT_TRUE(set.ok());
      DataInspectOptions inspect;
      inspect.max_sample_tokens = data_.max_sample_tokens;
      inspect.long_samples = LongSamplesOf(data_);
      const auto shown = InspectData(set->groups, inspect);
      ASSERT_TRUE(shown.ok());
      EXPECT_EQ(shown->num_records, 55);
      EXPECT_EQ(shown->report.num_bad_records, 2);
      // The first bad record is the first of the shuffled order in one.
      EXPECT_THAT(trained.first_bad_record, HasSubstr("a.jsonl:"));
      trained.first_bad_record = shown->report.first_bad_record;
      EXPECT_EQ(*WriteJson(ToJson(trained)), *WriteJson(ToJson(shown->report)))
          << policy << " " << loss;
      EXPECT_EQ(trained.num_tokens,
                trained.num_kept_tokens + trained.num_truncated_tokens +
                    trained.num_dropped_tokens + trained.num_untrained_tokens);
    }
  }
}

TEST_F(CorpusTest, HeldOutRecordsAreNotTrainedOn) {
  data_.paths = {WriteDocuments("a.txt", 200)};
  options_.held_out_fraction = 0.25;
  options_.num_epochs = 1;
  const auto corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  std::vector<std::string> documents[2];
  const std::vector<std::string> batches[2] = {Train(**corpus),
                                               HeldOut(**corpus)};
  for (const int part : {0, 1}) {
    for (const std::string& batch : batches[part]) {
      for (size_t at = 0; at != std::string::npos;) {
        const size_t end = batch.find('|', at + 1);
        documents[part].push_back(batch.substr(at, end - at));
        at = end;
      }
    }
    std::sort(documents[part].begin(), documents[part].end());
  }
  EXPECT_EQ(documents[0].size() + documents[1].size(), 200u);
  EXPECT_NEAR(static_cast<double>(documents[1].size()), 50, 20);
  std::vector<std::string> both;
  std::set_intersection(documents[0].begin(), documents[0].end(),
                        documents[1].begin(), documents[1].end(),
                        std::back_inserter(both));
  EXPECT_THAT(both, ElementsAre());
  EXPECT_EQ((*corpus)->held_out_report().num_samples,
            static_cast<int64_t>(documents[1].size()));
  EXPECT_THAT((*corpus)->Summary(),
              ElementsAre(AllOf(HasSubstr("data: "), HasSubstr("200 records")),
                          HasSubstr("held out: ")));
  // Another seed shuffles training alone.
  options_.seed = 1;
  const auto other = Open();
  EXPECT_EQ(HeldOut(**other), batches[1]);
  EXPECT_NE(Train(**other), batches[0]);
}

TEST_F(CorpusTest, HeldOutDataIsBoundedAndMayBeOtherFiles) {
  data_.paths = {WriteDocuments("a.txt", 40)};
  options_.held_out_paths = {Write("b.txt", "abc\n\ndef\n\n")};
  options_.held_out_fraction = 0.5;  // not used
  options_.num_epochs = 1;
  const auto corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(HeldOut(**corpus),
              ElementsAre("| 8>0*1@0 0>1*1@1 1>2*1@2 2>9*1@3 9>-100*0@4 "
                          "| 8>3*1@0 3>4*1@1 4>5*1@2 5>9*1@3 9>-100*0@4 "));
  Train(**corpus);
  EXPECT_EQ((*corpus)->report().num_samples, 40);

  options_.held_out_paths = {WriteDocuments("c.txt", 300)};
  options_.max_held_out_tokens = 100;
  const auto bounded = Open();
  ASSERT_TRUE(bounded.ok()) << bounded.status();
  // Packs of 30 or 32 tokens.
  EXPECT_EQ((*bounded)->num_held_out_batches(), 4);
  EXPECT_THAT((*bounded)->Summary()[1],
              HasSubstr("beyond max_held_out_tokens 100 is left out"));
}

TEST_F(CorpusTest, NothingHeldOutIsSaid) {
  data_.paths = {WriteDocuments("a.txt", 9)};
  auto corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ((*corpus)->Summary()[1],
            "held out: nothing (held_out_fraction is 0)");
  options_.held_out_fraction = 1e-9;
  corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ((*corpus)->num_held_out_batches(), 0);
  EXPECT_THAT((*corpus)->Summary()[1],
              HasSubstr("no record's hash is below held_out_fraction 1e-09"));
}

TEST_F(CorpusTest, CursorContinuesBitForBit) {
  data_.paths = {WriteDocuments("a.txt", 30), WriteDocuments("b.txt", 7)};
  data_.weights = {2, 1};
  const auto whole = Open();
  ASSERT_TRUE(whole.ok());
  const std::vector<std::string> expected = Train(**whole, 40);
  for (const int at : {0, 1, 13, 40}) {
    const auto first = Open();
    ASSERT_TRUE(first.ok());
    Train(**first, at);
    const auto saved = ParseJsonText(*WriteJson((*first)->Cursor()));
    ASSERT_TRUE(saved.ok());
    const auto second = Open(&*saved);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_THAT(
        Train(**second, 40 - at),
        ::testing::ElementsAreArray(expected.begin() + at, expected.end()));
    EXPECT_EQ(*WriteJson((*second)->Cursor()), *WriteJson((*whole)->Cursor()));
  }
  const auto saved = (*whole)->Cursor();
  options_.seed = 5;
  EXPECT_EQ(Open(&saved).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CorpusTest, FaultsAreNamed) {
  data_.paths = {Write("a.jsonl", "{\"text\":1}\n")};
  EXPECT_THAT(Error(), HasSubstr("a.jsonl:1: text is an integer"));
  data_.skip_bad_records = true;
  EXPECT_THAT(Error(), AllOf(HasSubstr("no sample of 1 to train on: 1 bad"),
                             HasSubstr("a.jsonl:1: text is an integer")));
  data_.skip_bad_records = false;
  data_.paths = {Write("b.jsonl", "\n")};
  EXPECT_THAT(Error(), HasSubstr("no record in"));
  data_.paths = {WriteDocuments("c.txt", 40)};
  EXPECT_THAT(
      std::string(Corpus::Open(dir_, data_, 7, options_).status().message()),
      AllOf(HasSubstr("c.txt:"), HasSubstr("token id "),
            HasSubstr("expected below the model's vocab_size 7")));
  // A record beyond the first packs is met while training, and stays.
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "{\"text\":\"abcdefgh\"}\n";
  data_.paths = {Write("d.jsonl", text + "{\n")};
  const auto corpus = Open();
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  Batch batch;
  absl::StatusOr<bool> more = true;
  for (int i = 0; i < 2000 && more.ok(); ++i) {
    more = (*corpus)->NextTrain(context_->cpu(), &batch);
  }
  EXPECT_THAT(more.status().message(), HasSubstr("d.jsonl:4001: "));
  EXPECT_EQ((*corpus)->NextTrain(context_->cpu(), &batch).status(),
            more.status());
}

TEST(DataConfigTest, RefusalsNameTheField) {
  DataConfig good;
  good.paths = {"a", "b"};
  const test::Refusals<DataConfig> refusals = {
      {[](DataConfig& c) { c.paths.clear(); }, "data.paths is empty"},
      {[](DataConfig& c) { c.paths[1].clear(); }, "data.paths holds an empty"},
      {[](DataConfig& c) { c.weights = {1}; }, "data.weights has 1 values"},
      {[](DataConfig& c) {
         c.weights = {1, 0};
       },
       "data.weights holds 0"},
      {[](DataConfig& c) { c.prompt_field = "question"; },
       "data.prompt_field is"},
      {[](DataConfig& c) { c.text_boundary = "other"; },
       "data.text_boundary is \"other\", expected one of \"blank-line\", "
       "\"separator\", \"none\""},
      {[](DataConfig& c) { c.text_boundary = "separator"; },
       "data.text_separator is \"\""},
      {[](DataConfig& c) { c.text_separator = "---"; },
       "data.text_separator is \"---\""},
      {[](DataConfig& c) { c.loss = "some"; }, "data.loss is \"some\""},
      {[](DataConfig& c) { c.chat_layout = "other"; },
       "data.chat_layout is \"other\""},
      {[](DataConfig& c) { c.thinking_effort = "hard"; },
       "data.thinking_effort is \"hard\", expected one of \"auto\", \"low\", "
       "\"medium\", \"high\", \"max\", \"none\""},
      {[](DataConfig& c) { c.long_samples = "other"; },
       "data.long_samples is \"other\""},
      {[](DataConfig& c) { c.max_sample_tokens = 1; },
       "data.max_sample_tokens is 1"}};
  test::ExpectRefused(good, refusals);
}

}  // namespace
}  // namespace espalier
