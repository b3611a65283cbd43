#include "espalier/io/record_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/record_scanner.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordFileTest : public ::testing::Test {
 protected:
  // "LINE:BYTES" of each record, or the one error.
  std::vector<std::string> Read(const std::string& name,
                                absl::string_view bytes) {
    const auto file = RecordFile::Open(dir_.Write(name, bytes), options_);
    if (!file.ok()) return {std::string(file.status().message())};
    std::vector<std::string> records;
    for (int64_t i = 0; i < (*file)->size(); ++i) {
      const auto record = (*file)->Read(i);
      records.push_back(record.ok()
                            ? absl::StrCat(record->line, ":", record->bytes)
                            : std::string(record.status().message()));
    }
    return records;
  }

  test::TempDir dir_;
  RecordFileOptions options_;
};

// Case D7.
TEST_F(RecordFileTest, JsonLinesSkipBlankOnesAndEndAtLineFeedAlone) {
  EXPECT_THAT(
      Read("a.jsonl",
           "\xEF\xBB\xBF{\"a\":1}\r\n\n  \t\r\n{\"b\":\"x\xE2\x80\xA8y\"}\n{"),
      ElementsAre("1:{\"a\":1}", "4:{\"b\":\"x\xE2\x80\xA8y\"}", "5:{"));
  EXPECT_THAT(Read("empty.jsonl", ""), IsEmpty());
  EXPECT_THAT(Read("bom.jsonl", "\xEF\xBB\xBF"), IsEmpty());
  EXPECT_THAT(Read("blank.jsonl", "\n\r\n"), IsEmpty());
}

TEST_F(RecordFileTest, PlainTextByBlankLines) {
  EXPECT_THAT(Read("t.txt", "\xEF\xBB\xBF\n\na\nb\r\n \t\n\nc\r\nd\r\n\r\ne"),
              ElementsAre("3:a\nb", "7:c\nd", "10:e"));
}

TEST_F(RecordFileTest, PlainTextByOtherBoundaries) {
  options_.boundary = TextBoundary::kNone;
  EXPECT_THAT(Read("t.txt", "a\n\nb\n"), ElementsAre("1:a\n\nb"));
  options_.boundary = TextBoundary::kSeparator;
  EXPECT_THAT(Read("t.txt", "a\n"),
              ElementsAre(HasSubstr("the document separator is empty")));
  options_.separator = "---";
  EXPECT_THAT(Read("t.txt", "---\na\n\n---\r\n----\n--\nb\n---"),
              ElementsAre("2:a\n", "5:----\n--\nb"));
}

TEST_F(RecordFileTest, JsonArrays) {
  EXPECT_THAT(
      Read("a.json", " [ {\"a\": [1, \"]},\\\"\"]} ,\n\n 2,\"x\"\n] \n"),
      ElementsAre("1:{\"a\": [1, \"]},\\\"\"]} ", "3:2", "3:\"x\"\n"));
  EXPECT_THAT(Read("none.json", "[]"), IsEmpty());
  // Objects one a line are JSON lines, whatever the name.
  EXPECT_THAT(Read("lines.json", "{\"a\":1}\n{\"a\":2}\n"),
              ElementsAre("1:{\"a\":1}", "2:{\"a\":2}"));
  for (const auto& [text, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"[1,\n2", ":2: the JSON array does not close"},
           {"[1,", "the JSON array does not close"},
           {"[1]\n x", ":2: text behind the JSON array"},
           {"[,1]", "an element of the array is missing"},
           {"[1,,2]", "an element of the array is missing"},
           {"[1,]", "an element of the array is missing"}}) {
    EXPECT_THAT(Read("bad.json", text),
                ElementsAre(AllOf(HasSubstr("bad.json:"), HasSubstr(what))))
        << text;
  }
  options_.format = RecordFormat::kJsonArray;
  EXPECT_THAT(Read("bad.json", "{}"),
              ElementsAre(HasSubstr(":1: expected \"[\"")));
}

TEST_F(RecordFileTest, LongRecordFailsAlone) {
  options_.max_record_bytes = 4;
  EXPECT_THAT(Read("a.jsonl", "1\n12345\n2\n"),
              ElementsAre("1:1",
                          AllOf(HasSubstr("a.jsonl:2: a record of 5"),
                                HasSubstr("at most 4")),
                          "3:2"));
}

TEST_F(RecordFileTest, ChangedAndMissingFiles) {
  const std::string path = dir_.Write("a.jsonl", "1\n2\n");
  const auto file = RecordFile::Open(path, options_);
  ASSERT_TRUE(file.ok());
  dir_.Write("a.jsonl", "1\n");
  EXPECT_THAT(std::string((*file)->Read(1).status().message()),
              HasSubstr("has changed"));
  EXPECT_EQ(RecordFile::Open(dir_.Path("none"), options_).status().code(),
            absl::StatusCode::kNotFound);
}

// Any buffer length finds the same records, and reading may begin at each.
TEST_F(RecordFileTest, BuffersOfAnyLength) {
  const std::string text =
      "\xEF\xBB\xBF\r\nab\r\n\n---\r\nc\n---x\n\n \r\r\n--\n---\n---\n-";
  const std::string array = "[ {\"a\":\"\\\"]\"}, [1,[2]],\n3 ]\n";
  for (const TextBoundary boundary :
       {TextBoundary::kBlankLine, TextBoundary::kSeparator,
        TextBoundary::kNone}) {
    options_.boundary = boundary;
    options_.separator = "---";
    for (const RecordFormat format :
         {RecordFormat::kPlain, RecordFormat::kJsonl,
          RecordFormat::kJsonArray}) {
      const auto file = internal::ReadableFile::Open(
          dir_.Write("f", format == RecordFormat::kJsonArray ? array : text));
      ASSERT_TRUE(file.ok());
      const auto scan = [&](int64_t offset, int64_t line, int64_t buffer) {
        internal::RecordScanner scanner(*file, format, options_, offset, line,
                                        buffer);
        std::vector<std::vector<int64_t>> spans;
        internal::RecordSpan span;
        while (true) {
          const auto more = scanner.Next(&span);
          EXPECT_TRUE(more.ok()) << more.status();
          if (!more.ok() || !*more) return spans;
          spans.push_back({span.begin, span.end, span.line});
        }
      };
      const auto expected = scan(0, 1, 1 << 20);
      ASSERT_FALSE(expected.empty());
      for (int64_t buffer = 3; buffer < 20; ++buffer) {
        EXPECT_EQ(scan(0, 1, buffer), expected) << buffer;
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_THAT(scan(expected[i][0], expected[i][2], buffer),
                      ElementsAreArray(expected.begin() + static_cast<int>(i),
                                       expected.end()));
        }
      }
    }
  }
}

TEST_F(RecordFileTest, ManyRecordsByNumber) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "\n", i, "\n");
  const auto file = RecordFile::Open(dir_.Write("a.jsonl", text), options_);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ((*file)->size(), 1000);
  for (int64_t i = 999; i >= 0; --i) {
    const auto record = (*file)->Read(i);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->bytes, absl::StrCat(i));
    EXPECT_EQ(record->line, 2 * i + 2);
  }
}

}  // namespace
}  // namespace espalier
