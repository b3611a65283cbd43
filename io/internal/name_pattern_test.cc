#include "espalier/io/internal/name_pattern.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// "yes", "no", or why that is not known.
std::string Matches(absl::string_view expression, const std::string& name) {
  const auto pattern = NamePattern::Compile(expression);
  if (!pattern.ok()) return std::string(pattern.status().message());
  const auto matches = (*pattern)->Matches(name);
  if (!matches.ok()) return matches.status().ToString();
  return *matches ? "yes" : "no";
}

TEST(NamePatternTest, MatchesFromTheBeginningAlone) {
  EXPECT_EQ(Matches(R"(model\.layers\.\d+)", "model.layers.12.mlp"), "yes");
  EXPECT_EQ(Matches("layers", "model.layers"), "no");
  EXPECT_THAT(Matches("a(b", "a"),
              HasSubstr("regular expression \"a(b\" at byte 3"));
}

// What passes over the rest of a name at every place of it.
TEST(NamePatternTest, NamesAndStepsAreBounded) {
  EXPECT_EQ(Matches("a+$", std::string(4096, 'a')), "yes");
  EXPECT_THAT(Matches("a+$", std::string(4097, 'a')),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                    HasSubstr("4097 bytes, expected at most 4096")));
  // 2^15 ways to tell 16 letters apart, 2^39 for 40.
  EXPECT_EQ(Matches("(?:a+)+b", std::string(16, 'a') + "cb"), "no");
  EXPECT_THAT(Matches("(?:a+)+b", std::string(40, 'a') + "cb"),
              HasSubstr("RESOURCE_EXHAUSTED"));
}

}  // namespace
}  // namespace espalier::internal
