#include "espalier/io/json.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/internal/utf8.h"
#include "espalier/io/json_object.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string RoundTrip(absl::string_view text) {
  const auto value = ParseJsonText(text);
  if (!value.ok()) return value.status().ToString();
  return WriteJson(*value, 0).value();
}

TEST(JsonTest, WritesWhatItReadWithSortedKeys) {
  EXPECT_EQ(RoundTrip(" { \"b\" : [1, -2, 1.5, true, null], \"a\":{} } "),
            "{\"a\":{},\"b\":[1,-2,1.5,true,null]}");
  EXPECT_EQ(RoundTrip("\"\\u00e9\\ud83d\\ude00\\u0001\\n\\\"\""),
            "\"\xC3\xA9\xF0\x9F\x98\x80\\u0001\\n\\\"\"");
  EXPECT_EQ(RoundTrip("1.0"), "1.0");
  EXPECT_EQ(RoundTrip("1e300"), "1e+300");
  EXPECT_EQ(RoundTrip("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(RoundTrip("9223372036854775808"), "9223372036854775808.0");
}

TEST(JsonTest, IndentsForPeople) {
  JsonValue value;
  value.Set("r", 8);
  value.Set("alpha", 16.0);
  value.Set("names", JsonValue::Array{"x", "y"});
  value.Set("none", JsonValue::Array{});
  value.Set("r", 4);
  EXPECT_EQ(WriteJson(value).value(),
            "{\n  \"alpha\": 16.0,\n  \"names\": [\n    \"x\",\n    \"y\"\n  "
            "],\n  \"none\": [],\n  \"r\": 4\n}\n");
}

TEST(JsonTest, RefusesWhatJsonCannotHold) {
  EXPECT_FALSE(WriteJson(std::numeric_limits<double>::quiet_NaN()).ok());
  EXPECT_FALSE(WriteJson(std::numeric_limits<double>::infinity()).ok());
  EXPECT_FALSE(WriteJson("\xff").ok());
}

TEST(JsonTest, RefusesLooseText) {
  for (const char* text :
       {"", " ", "{", "{\"a\":1,}", "[1,]", "{'a':1}", "//x\n1", "1 2", "01",
        "\xEF\xBB\xBF{}", "\"\xff\"", "\"\t\"", "NaN", "1e999", "\"\\ud800\"",
        "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":1,\"\\u0061\":1}"}) {
    const auto value = ParseJsonText(text);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_FALSE(ParseJsonText(absl::string_view("1\0", 2)).ok());
  const std::string deep = std::string(100000, '[');
  EXPECT_THAT(std::string(ParseJsonText(deep).status().message()),
              HasSubstr("deeper"));
  EXPECT_TRUE(
      ParseJsonText(std::string(100, '[') + std::string(100, ']')).ok());
}

TEST(JsonTest, DoublesReadBackBitEqual) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 10000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const auto back = ParseJsonText(WriteJson(value, 0).value());
    ASSERT_TRUE(back.ok());
    ASSERT_EQ(std::bit_cast<uint64_t>(*back->AsDouble()),
              std::bit_cast<uint64_t>(value));
  }
}

TEST(JsonTest, RandomBytesNeverCrash) {
  const std::string good =
      "{\"a\": [1, 2.5e3, \"x\\u00e9\\n\"], \"b\": {\"c\": null, \"d\": true}}";
  std::mt19937 random(4);
  for (int i = 0; i < 10000; ++i) {
    std::string text = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto value = ParseJsonText(text);
    if (value.ok()) {
      EXPECT_TRUE(ParseJsonText(WriteJson(*value).value()).ok());
    }
  }
}

constexpr char kConfig[] = R"({
  "hidden_size": 64, "eps": 1e-5, "theta": 10000, "tied": true,
  "type": "llama", "ids": [1, 2], "names": ["a", "b"], "nothing": null,
  "rope": {"factor": 8.0, "extra": 1, "inner": {"x": 1}},
  "layers": [{"k": 1}, {"k": 2, "z": 0}], "big": 4294967296, "unknown": 0})";

TEST(JsonObjectTest, ReadsTypedKeys) {
  const auto json = JsonObject::Parse(kConfig, "config.json");
  ASSERT_TRUE(json.ok()) << json.status();
  int hidden_size = 0;
  int64_t big = 0;
  double eps = 0, theta = 0, factor = 0, kept = 3;
  bool tied = false;
  std::string type;
  std::vector<int64_t> ids;
  std::vector<std::string> names;
  JsonObject rope;
  std::vector<JsonObject> layers;
  EXPECT_TRUE(json->Get("hidden_size", &hidden_size).ok());
  EXPECT_TRUE(json->Get("big", &big).ok());
  EXPECT_TRUE(json->Get("eps", &eps).ok());
  EXPECT_TRUE(json->Get("theta", &theta).ok());
  EXPECT_TRUE(json->Get("tied", &tied).ok());
  EXPECT_TRUE(json->Get("type", &type).ok());
  EXPECT_TRUE(json->Get("ids", &ids).ok());
  EXPECT_TRUE(json->Get("names", &names).ok());
  EXPECT_TRUE(json->Get("rope", &rope).ok());
  EXPECT_TRUE(rope.Get("factor", &factor).ok());
  EXPECT_TRUE(json->Get("layers", &layers).ok());
  EXPECT_TRUE(json->GetOptional("nothing", &kept).ok());
  EXPECT_TRUE(json->GetOptional("absent", &kept).ok());
  EXPECT_EQ(hidden_size, 64);
  EXPECT_EQ(big, int64_t{1} << 32);
  EXPECT_EQ(eps, 1e-5);
  EXPECT_EQ(theta, 10000);
  EXPECT_TRUE(tied);
  EXPECT_EQ(type, "llama");
  EXPECT_THAT(ids, ElementsAre(1, 2));
  EXPECT_THAT(names, ElementsAre("a", "b"));
  EXPECT_EQ(factor, 8);
  EXPECT_EQ(kept, 3);
  EXPECT_TRUE(json->Has("rope"));
  EXPECT_FALSE(json->Has("nothing"));
  EXPECT_FALSE(json->Has("absent"));
  EXPECT_THAT(json->Unused(),
              ElementsAre("rope.extra", "rope.inner", "unknown"));
  json->Ignore("unknown");
  rope.GetValue("inner");
  EXPECT_THAT(json->Unused(), ElementsAre("rope.extra"));
  EXPECT_THAT(layers[1].keys(), ElementsAre("k", "z"));
}

TEST(JsonObjectTest, SaysWhatIsWrong) {
  const auto json = JsonObject::Parse(kConfig, "config.json");
  ASSERT_TRUE(json.ok()) << json.status();
  int number = 0;
  double real = 0;
  bool boolean = false;
  std::string text;
  std::vector<int64_t> ids;
  JsonObject rope;
  EXPECT_EQ(json->Get("type", &number).message(),
            "config.json: type is the string \"llama\", expected an integer");
  EXPECT_EQ(json->Get("eps", &number).message(),
            "config.json: eps is 1e-05, expected an integer");
  EXPECT_EQ(json->Get("big", &number).message(),
            "config.json: big is 4294967296, expected a 32-bit integer");
  EXPECT_EQ(json->Get("none", &number).message(),
            "config.json: none is missing");
  EXPECT_EQ(json->Get("nothing", &number).message(),
            "config.json: nothing is null");
  EXPECT_EQ(json->Get("names", &ids).message(),
            "config.json: names[0] is the string \"a\", expected an integer");
  EXPECT_EQ(json->Get("hidden_size", &ids).message(),
            "config.json: hidden_size is 64, expected an array");
  EXPECT_EQ(json->Get("hidden_size", &rope).message(),
            "config.json: hidden_size is 64, expected an object");
  EXPECT_EQ(json->Get("hidden_size", &boolean).message(),
            "config.json: hidden_size is 64, expected true or false");
  EXPECT_EQ(json->GetOptional("tied", &real).message(),
            "config.json: tied is a boolean, expected a number");
  EXPECT_EQ(json->Get("rope", &text).message(),
            "config.json: rope is an object, expected a string");
  ASSERT_TRUE(json->Get("rope", &rope).ok());
  EXPECT_EQ(rope.Get("x", &real).message(), "config.json: rope.x is missing");
  EXPECT_EQ(rope.Error("factor", "must not be 8").message(),
            "config.json: rope.factor must not be 8");
  EXPECT_EQ(JsonObject::Parse("[]", "f").status().message(),
            "f: is an array, expected an object");
  EXPECT_THAT(std::string(JsonObject::Parse("{", "f").status().message()),
              HasSubstr("f: invalid JSON"));
}

TEST(JsonObjectTest, LargeObjectsAreReadLikeSmallOnes) {
  for (const int count : {16, 17, 1000}) {
    std::string text = "{\"none\":null";
    for (int i = 1; i < count; ++i) absl::StrAppend(&text, ",\"", i, "\":", -i);
    const auto json = JsonObject::Parse(text + "}", "f");
    ASSERT_TRUE(json.ok()) << json.status();
    for (int i = 1; i < count; ++i) {
      int value = 0;
      EXPECT_TRUE(json->Get(absl::StrCat(i), &value).ok()) << i;
      EXPECT_EQ(value, -i);
    }
    int value = 0;
    EXPECT_EQ(json->Get("0", &value).message(), "f: 0 is missing");
    EXPECT_FALSE(json->Has("none"));
    EXPECT_THAT(json->Unused(), ElementsAre("none"));
    EXPECT_EQ(json->Get("none", &value).message(), "f: none is null");
    EXPECT_THAT(json->Unused(), IsEmpty());
  }
}

TEST(JsonObjectTest, DefaultIsEmpty) {
  JsonObject json;
  EXPECT_THAT(json.keys(), IsEmpty());
  EXPECT_THAT(json.Unused(), IsEmpty());
}

TEST(Utf8Test, ReplacesMaximalInvalidParts) {
  using internal::ReplaceInvalidUtf8;
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("a\xC3\xA9z"), "a\xC3\xA9z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xff\xfe"), r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82z"), r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\x80"), r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), r + r + r + r);
}

TEST(Utf8Test, EncodesWhatItDecodes) {
  for (uint32_t code : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u,
                        0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    internal::AppendUtf8(code, &text);
    const internal::Utf8Char back = internal::DecodeUtf8(text, 0);
    EXPECT_EQ(back.code, code);
    EXPECT_EQ(back.bytes, text.size());
  }
}

}  // namespace
}  // namespace espalier
