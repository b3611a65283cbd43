#include "espalier/io/text_documents.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextDocumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/text.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  absl::StatusOr<std::vector<std::string>> Read(const std::string& name,
                                                const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return ReadTextDocuments(dir_ + "/" + name);
  }
  std::string dir_;
};

TEST_F(TextDocumentsTest, PlainTextSplitsAtBlankLines) {
  const auto documents = Read("a.txt",
                              "\xef\xbb\xbfone\r\nstill one\r\n\r\n \t\n"
                              "two\n\n\nthree without end");
  ASSERT_TRUE(documents.ok()) << documents.status();
  EXPECT_THAT(*documents,
              ElementsAre("one\nstill one", "two", "three without end"));
}

TEST_F(TextDocumentsTest, JsonLinesKeepOddCharactersInside) {
  const auto documents =
      Read("a.jsonl",
           "\xef\xbb\xbf{\"text\": \"a\\n\\nb\", \"id\": 3}\n\n"
           "{\"text\": \"line\xe2\x80\xa8separator\"}\r\n{\"text\": \"last\"}");
  ASSERT_TRUE(documents.ok()) << documents.status();
  EXPECT_THAT(*documents,
              ElementsAre("a\n\nb", "line\xe2\x80\xa8separator", "last"));
}

TEST_F(TextDocumentsTest, ErrorsNameFileAndLine) {
  EXPECT_THAT(Read("a.jsonl", "{\"text\": \"x\"}\n\n{\"text\": 3}\n")
                  .status()
                  .message(),
              HasSubstr("a.jsonl:3: text is"));
  EXPECT_THAT(
      Read("b.jsonl", "{\"text\": \"x\"}\n{broken\n").status().message(),
      HasSubstr("b.jsonl:2"));
  EXPECT_THAT(Read("c.txt", "fine\n\xff\xfe\n").status().message(),
              HasSubstr("c.txt:2: is not UTF-8"));
  EXPECT_THAT(Read("d.txt", "\n \n").status().message(),
              HasSubstr("holds no document"));
  EXPECT_EQ(ReadTextDocuments(dir_ + "/none.txt").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace espalier
