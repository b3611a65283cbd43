#include "espalier/io/checkpoint_reader.h"

#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file with f32 tensors of shape [2, 1], each {value, value}.
std::string File(std::initializer_list<std::pair<const char*, float>> tensors) {
  std::string json = "{";
  std::string data;
  for (const auto& [name, value] : tensors) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "\"", name,
                    "\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[",
                    data.size(), ",", data.size() + 8, "]}");
    data += test::BytesOf<float>({value, value});
  }
  return test::SafetensorsBytes(json + "}", data);
}

constexpr char kIndex[] = "model.safetensors.index.json";

class CheckpointReaderTest : public ::testing::Test {
 protected:
  void WriteShards() {
    dir_.Write("s1.safetensors", File({{"a", 1}, {"b", 2}}));
    dir_.Write("s2.safetensors", File({{"c", 3}}));
  }
  std::string OpenWithIndex(absl::string_view weight_map) {
    dir_.Write(kIndex, absl::StrCat("{\"metadata\":{\"total_size\":5},"
                                    "\"weight_map\":",
                                    weight_map, "}"));
    const auto reader = CheckpointReader::Open(dir_.path());
    return reader.ok() ? "" : std::string(reader.status().message());
  }

  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
};

constexpr char kGoodMap[] =
    "{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
    "\"c\":\"s2.safetensors\"}";

TEST_F(CheckpointReaderTest, AccountsForEveryTensor) {
  dir_.Write("model.safetensors", File({{"a.weight", 1}, {"b", 2}, {"c", 3}}));
  auto reader = CheckpointReader::Open(dir_.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->total_bytes(), 24);
  EXPECT_THAT(reader->names(), ElementsAre("a.weight", "b", "c"));
  Device& cpu = context_->cpu();
  EXPECT_THAT(ToDoubles(reader->Take(cpu, "b", {2, 1}).value()),
              ElementsAre(2, 2));
  EXPECT_TRUE(reader->Take(cpu, "b").ok());
  EXPECT_THAT(ToDoubles(reader->TakeRows(cpu, "c", 1, 1).value()),
              ElementsAre(3));
  EXPECT_EQ(reader->num_consumed(), 2);
  EXPECT_THAT(reader->Unused(), ElementsAre("a.weight"));
  const auto missing = reader->Take(cpu, "a.weigth");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("\"a.weigth\""),
                    HasSubstr("nearest name is \"a.weight\"")));
  EXPECT_THAT(reader->Missing(), ElementsAre("a.weigth"));
  EXPECT_TRUE(reader->MarkConsumed("a.weight"));
  EXPECT_FALSE(reader->MarkConsumed("d"));
  EXPECT_THAT(reader->Unused(), IsEmpty());
}

TEST_F(CheckpointReaderTest, NamesBothShapes) {
  dir_.Write("model.safetensors", File({{"a", 1}}));
  auto reader = CheckpointReader::Open(dir_.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto tensor = reader->Take(context_->cpu(), "a", {2, 3});
  EXPECT_EQ(tensor.status().message(),
            "a: shape [2, 1], expected [2, 3] (model.safetensors)");
  EXPECT_THAT(reader->Unused(), ElementsAre("a"));
}

TEST_F(CheckpointReaderTest, ReadsShards) {
  WriteShards();
  ASSERT_EQ(OpenWithIndex(kGoodMap), "");
  auto reader = CheckpointReader::Open(dir_.path());
  EXPECT_EQ(reader->catalog().files().size(), 2u);
  EXPECT_EQ(reader->num_tensors(), 3);
  EXPECT_THAT(reader->warnings(), IsEmpty());
  EXPECT_THAT(ToDoubles(reader->Take(context_->cpu(), "c").value()),
              ElementsAre(3, 3));
}

TEST_F(CheckpointReaderTest, RefusesAWrongIndex) {
  WriteShards();
  EXPECT_THAT(OpenWithIndex("{\"a\":\"s2.safetensors\",\"b\":"
                            "\"s1.safetensors\",\"c\":\"s2.safetensors\"}"),
              HasSubstr("tensor \"a\" is mapped to s2.safetensors, which does "
                        "not hold it; it is in s1.safetensors"));
  EXPECT_THAT(OpenWithIndex("{\"a\":\"s1.safetensors\",\"d\":"
                            "\"s3.safetensors\"}"),
              HasSubstr("tensor \"d\" is mapped to s3.safetensors, which is "
                        "missing"));
  EXPECT_THAT(OpenWithIndex("{\"a\":\"s1.safetensors\",\"e\":"
                            "\"s1.safetensors\"}"),
              HasSubstr("tensor \"e\" is mapped to s1.safetensors, which does "
                        "not hold it"));
  for (const char* name :
       {"../s1.safetensors", "/etc/passwd", "..", ".", "", "x/s1.safetensors",
        "x\\\\y", "c:s1", "s1\\u0000.safetensors"}) {
    EXPECT_THAT(OpenWithIndex(absl::StrCat("{\"a\":\"", name, "\"}")),
                AllOf(HasSubstr("tensor \"a\""), HasSubstr("plain file name")))
        << name;
  }
  dir_.Write("s3.safetensors", File({{"a", 9}}));
  EXPECT_THAT(OpenWithIndex("{\"a\":\"s1.safetensors\",\"b\":"
                            "\"s1.safetensors\",\"z\":\"s3.safetensors\"}"),
              AllOf(HasSubstr("tensor \"a\" is in both"),
                    HasSubstr("s1.safetensors"), HasSubstr("s3.safetensors")));
}

TEST_F(CheckpointReaderTest, RefusesBrokenIndexJson) {
  WriteShards();
  for (const char* json :
       {"", "[]", "1", "{}", "{\"weight_map\":[]}", "{\"weight_map\":null}",
        "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":{\"a\":[\"s1\"]}}",
        "{\"weight_map\":{\"a\":{}}}", "{\"weight_map\":{},\"weight_map\":{}}",
        R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})",
        "[{\"weight_map\":{}}]"}) {
    dir_.Write(kIndex, json);
    const auto reader = CheckpointReader::Open(dir_.path());
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(kIndex))
        << json;
  }
}

TEST_F(CheckpointReaderTest, MentionsWhatTheIndexLeavesOut) {
  WriteShards();
  dir_.Write("old-00001-of-00002.safetensors", File({{"a", 9}}));
  dir_.Write("old-00002-of-00002.safetensors", File({{"b", 9}}));
  ASSERT_EQ(OpenWithIndex("{\"a\":\"s1.safetensors\","
                          "\"c\":\"s2.safetensors\"}"),
            "");
  const auto reader = CheckpointReader::Open(dir_.path());
  EXPECT_EQ(reader->num_tensors(), 3);
  EXPECT_THAT(
      reader->warnings(),
      ElementsAre(AllOf(HasSubstr("is not in weight_map"), HasSubstr("\"b\"")),
                  HasSubstr("old-00001-of-00002.safetensors: the index does "
                            "not name it; it is ignored"),
                  HasSubstr("old-00002-of-00002.safetensors")));
}

TEST_F(CheckpointReaderTest, RefusesAnAmbiguousFolder) {
  EXPECT_EQ(CheckpointReader::Open(dir_.path()).status().code(),
            absl::StatusCode::kNotFound);
  WriteShards();
  dir_.Write("model.safetensors", File({{"a", 1}}));
  EXPECT_THAT(OpenWithIndex(kGoodMap), HasSubstr("both model.safetensors"));
}

TEST_F(CheckpointReaderTest, RefusesACutShard) {
  WriteShards();
  const std::string bytes = File({{"c", 3}});
  dir_.Write("s2.safetensors",
             absl::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_THAT(OpenWithIndex(kGoodMap),
              AllOf(HasSubstr("s2.safetensors"), HasSubstr("\"c\"")));
}

TEST_F(CheckpointReaderTest, HoldsNoHandlesOpen) {
  constexpr int kShards = 300;
  std::string map = "{";
  for (int i = 0; i < kShards; ++i) {
    const std::string tensor = absl::StrCat("t", i);
    const std::string file = absl::StrCat("m", i, ".safetensors");
    dir_.Write(file, File({{tensor.c_str(), static_cast<float>(i)}}));
    absl::StrAppend(&map, i > 0 ? "," : "", "\"", tensor, "\":\"", file, "\"");
  }
  map += "}";
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  struct rlimit low = old;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const std::string refusal = OpenWithIndex(map);
  auto reader = CheckpointReader::Open(dir_.path());
  std::vector<Tensor> tensors;
  for (int i = 0; i < kShards && reader.ok(); ++i) {
    auto tensor = reader->Take(context_->cpu(), absl::StrCat("t", i));
    if (tensor.ok()) tensors.push_back(*tensor);
  }
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(refusal, "");
  ASSERT_EQ(tensors.size(), static_cast<size_t>(kShards));
  EXPECT_THAT(ToDoubles(tensors[299]), ElementsAre(299, 299));
}

}  // namespace
}  // namespace espalier
