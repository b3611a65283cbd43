#include "espalier/model/window_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JsonObject Json(absl::string_view text) {
  auto json = JsonObject::Parse(text, "config.json");
  EXPECT_TRUE(json.ok()) << json.status();
  return *std::move(json);
}

// Windows of 4 layers; every key is taken.
std::vector<int64_t> Windows(absl::string_view text) {
  const JsonObject json = Json(text);
  const auto windows = ParseWindows(json, 4);
  EXPECT_TRUE(windows.ok()) << windows.status();
  EXPECT_THAT(json.Unused(), ElementsAre());
  return windows.ok() ? *windows : std::vector<int64_t>();
}

TEST(WindowConfigTest, OffUnlessUsed) {
  EXPECT_THAT(Windows("{}"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Windows(R"({"use_sliding_window":false,"sliding_window":9,
                          "max_window_layers":2})"),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Windows(R"({"sliding_window":null,"max_window_layers":0,
                          "layer_types":["full_attention","full_attention",
                          "full_attention","full_attention"]})"),
              ElementsAre(0, 0, 0, 0));
}

TEST(WindowConfigTest, FromALayerOnOrByTheList) {
  EXPECT_THAT(Windows(R"({"use_sliding_window":true,"sliding_window":9,
                          "max_window_layers":3,"layer_types":null})"),
              ElementsAre(0, 0, 0, 9));
  EXPECT_THAT(Windows(R"({"use_sliding_window":true,"sliding_window":9,
                          "max_window_layers":70})"),
              ElementsAre(0, 0, 0, 0));
  // The list rules.
  EXPECT_THAT(Windows(R"({"use_sliding_window":true,"sliding_window":9,
                  "max_window_layers":3,"layer_types":["sliding_attention",
                  "full_attention","sliding_attention","full_attention"]})"),
              ElementsAre(9, 0, 9, 0));
}

TEST(WindowConfigTest, Refuses) {
  for (const auto& [text, message] :
       {std::pair{R"({"use_sliding_window":true,"max_window_layers":3})",
                  "sliding_window"},
        {R"({"use_sliding_window":true,"sliding_window":0})",
         "sliding_window is 0, expected 1 or more"},
        {R"({"use_sliding_window":true,"sliding_window":4})",
         "max_window_layers"},
        {R"({"use_sliding_window":true,"sliding_window":4,
             "max_window_layers":-1})",
         "max_window_layers is -1"},
        {R"({"layer_types":["full_attention"]})",
         "layer_types has 1 entries, expected one for each of 4 layers"},
        {R"({"layer_types":["full_attention","full_attention",
             "full_attention","linear_attention"]})",
         "layer_types[3] is \"linear_attention\""},
        {R"({"layer_types":["full_attention","sliding_attention",
             "full_attention","full_attention"]})",
         "layer_types[1] is \"sliding_attention\", but use_sliding_window"}}) {
    const auto windows = ParseWindows(Json(text), 4);
    EXPECT_EQ(windows.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(windows.status().message()),
                HasSubstr(absl::StrCat("config.json: ", message)));
  }
}

}  // namespace
}  // namespace espalier
