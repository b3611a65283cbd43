#include "espalier/io/internal/object_listing.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

using ::testing::HasSubstr;

constexpr char kObject[] =
    "<Contents><Key>k</Key><Size>1</Size><ETag>\"e\"</ETag></Contents>";

std::string Refusal(const std::string& xml) {
  return std::string(ParseObjectListing(xml, "s3://b").status().message());
}

std::string Attributes(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, " a", i, "='>\"'");
  return text;
}

TEST(ObjectListingTest, AttributesOfATagAreFew) {
  const auto page = [](int count, const std::string& before) {
    return Refusal(
        absl::StrCat(before, "<r", Attributes(count), ">", kObject, "</r>"));
  };
  // What is no tag, with what would be the quotes and brackets of one.
  const std::string no_tags[] = {"", "<?xml version=\"1.0\"?>", "<!-- <' -->",
                                 "<!DOCTYPE r>"};
  for (const std::string& before : no_tags) {
    EXPECT_EQ(page(64, before), "") << before;
    EXPECT_THAT(page(65, before), HasSubstr("a tag of too many attributes"));
  }
  const std::string cdata =
      absl::StrCat("<r><![CDATA[<' ]]><c", Attributes(65), "/></r>");
  EXPECT_THAT(Refusal(cdata), HasSubstr("a tag of too many attributes"));
}

TEST(ObjectListingTest, QuotesInTextAreNoAttributes) {
  std::string xml = "<r>";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&xml, kObject);
  EXPECT_EQ(Refusal(xml + "</r>"), "");
}

TEST(ObjectListingTest, KeysThatWereAskedForEncoded) {
  const auto keys = [](const std::string& before, const std::string& key) {
    const auto page = ParseObjectListing(
        absl::StrCat("<r>", before, "<Contents><Key>", key,
                     "</Key><Size>9007199254740993</Size></Contents></r>"),
        "s3://b");
    EXPECT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(page->objects.at(0).size, 9007199254740993);
    return page->objects.at(0).key;
  };
  const std::string url = "<EncodingType>url</EncodingType>";
  EXPECT_EQ(keys(url, "a+b%2Bc%0D%01/%C3%A9%25"),
            std::string("a b+c\r\x01/\xC3\xA9%"));
  EXPECT_EQ(keys(url, "%zz%2"), "%zz%2");
  EXPECT_EQ(keys("", "a+b%2Bc"), "a+b%2Bc");  // a store that does not know it
}

}  // namespace
}  // namespace espalier::internal
