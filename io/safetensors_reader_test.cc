#include "espalier/io/safetensors_reader.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Entry(absl::string_view name, absl::string_view dtype,
                  absl::string_view shape, int begin, int end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype,
                      "\",\"shape\":", shape, ",\"data_offsets\":[", begin, ",",
                      end, "]}");
}

std::string TwoTensors() {
  std::string json = absl::StrCat("{", Entry("b", "BF16", "[3]", 24, 30), ",",
                                  Entry("a", "F32", "[2,3]", 0, 24), "}");
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the data
  return test::SafetensorsBytes(
      json, test::BytesOf<float>({1, 2, 3, 4, 5, 6}) +
                test::BytesOf<uint16_t>({0x3f80, 0x4000, 0xc000}));
}

class SafetensorsReaderTest : public ::testing::TestWithParam<ReadMode> {
 protected:
  absl::StatusOr<SafetensorsFile> Open(absl::string_view bytes) {
    return SafetensorsFile::Open(dir_.Write("t.safetensors", bytes),
                                 GetParam());
  }
  absl::StatusOr<SafetensorsFile> OpenJson(absl::string_view json,
                                           int data_bytes = 0) {
    return Open(test::SafetensorsBytes(
        json, std::string(static_cast<size_t>(data_bytes), '\1')));
  }
  // The message with which a header is refused, "" if it is not.
  std::string Refusal(absl::string_view json, int data_bytes = 0) {
    const auto file = OpenJson(json, data_bytes);
    return file.ok() ? "" : std::string(file.status().message());
  }

  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
};

INSTANTIATE_TEST_SUITE_P(Modes, SafetensorsReaderTest,
                         ::testing::Values(ReadMode::kMap, ReadMode::kRead),
                         [](const auto& info) {
                           return info.param == ReadMode::kMap ? "Map" : "Read";
                         });

TEST_P(SafetensorsReaderTest, LoadsNamesShapesAndValues) {
  const auto file = Open(TwoTensors());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(file->entries()[0].name, "a");
  EXPECT_EQ(Describe(file->entries()[1]), "BF16 [3]");
  const auto a = file->Load(context_->cpu(), "a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(ToString(*a), "f32 [2, 3] on cpu");
  EXPECT_THAT(ToDoubles(*a), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto b = file->Load(context_->cpu(), "b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_THAT(ToDoubles(*b), ElementsAre(1, 2, -2));
  const auto c = file->Load(context_->cpu(), "c");
  EXPECT_EQ(c.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(c.status().message()),
              AllOf(HasSubstr("t.safetensors"), HasSubstr("\"c\"")));
}

TEST_P(SafetensorsReaderTest, MapsWithoutCopying) {
  const auto file = Open(TwoTensors());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto b = file->Load(context_->cpu(), "b");
  ASSERT_TRUE(b.ok()) << b.status();
  if (GetParam() == ReadMode::kMap) {
    EXPECT_EQ(b->storage_kind(), StorageKind::kFileMap);
    EXPECT_TRUE(b->read_only());
  } else {
    EXPECT_EQ(b->storage_kind(), StorageKind::kHeap);
  }
}

TEST_P(SafetensorsReaderTest, TensorOutlivesTheFile) {
  Tensor a;
  {
    const auto file = Open(TwoTensors());
    ASSERT_TRUE(file.ok()) << file.status();
    a = file->Load(context_->cpu(), "a").value();
  }
  EXPECT_THAT(ToDoubles(a), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_P(SafetensorsReaderTest, SlicesRows) {
  const auto file = Open(TwoTensors());
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsEntry& a = *file->Find("a");
  Device& cpu = context_->cpu();
  EXPECT_THAT(ToDoubles(file->LoadRows(cpu, a, 1, 1).value()),
              ElementsAre(4, 5, 6));
  EXPECT_EQ(file->LoadRows(cpu, a, 2, 0).value().shape(), (Shape{0, 3}));
  for (const auto& [start, count] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 2}, {3, 0}, {-1, 1}, {0, -1}, {1, INT64_MAX}}) {
    const auto rows = file->LoadRows(cpu, a, start, count);
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(SafetensorsReaderTest, CopiesToADeviceThatTheHostCannotReach) {
  const auto file = Open(TwoTensors());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto a = file->Load(context_->sim(), "a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->device().type(), kSim);
  EXPECT_THAT(ToDoubles(*a), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_P(SafetensorsReaderTest, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(Refusal("{}"), "");
  EXPECT_EQ(Refusal("{} \n\t "), "");
  EXPECT_EQ(Refusal("{\"__metadata__\":null}"), "");
  EXPECT_EQ(Refusal("{\"__metadata__\":{\"format\":\"pt\",\"n\":\"\"}}"), "");
  EXPECT_EQ(Refusal(absl::StrCat("{", Entry("s", "F32", "[]", 0, 4), "}"), 4),
            "");
  EXPECT_EQ(Refusal(absl::StrCat("{", Entry("z", "F32", "[0,3]", 0, 0), ",",
                                 Entry("y", "I64", "[0]", 0, 0), ",",
                                 Entry("x", "U8", "[2]", 0, 2), "}"),
                    2),
            "");
  EXPECT_EQ(Refusal("{\"a\":{\"extra\":{\"x\":[1,{}]},\"dtype\":\"U8\","
                    "\"shape\":[1],\"data_offsets\":[0,1],\"more\":null}}",
                    1),
            "");
  const auto file = OpenJson(
      "{\"a\":{\"extra\":1,\"dtype\":\"U8\",\"shape\":[1],"
      "\"data_offsets\":[0,1]},\"__metadata__\":{\"k\":\"v\"}}",
      1);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->warnings(), ElementsAre("unknown field \"extra\""));
  EXPECT_EQ(file->metadata().at("k"), "v");
}

TEST_P(SafetensorsReaderTest, ReadsEveryDType) {
  const char* const kNames[] = {
      "BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
      "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
      "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
      "C64",     "F64",     "I64",     "U64"};
  const int kBits[] = {8,  4,  6,  6,  8,  8,  8,  8,  8,  8,  8,
                       16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    SCOPED_TRACE(kNames[i]);
    const int bytes = 2 * 8 * kBits[i] / 8;
    const auto file = OpenJson(
        absl::StrCat("{", Entry("t", kNames[i], "[2,8]", 0, bytes), "}"),
        bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const SafetensorsEntry& entry = file->entries()[0];
    EXPECT_EQ(ToString(entry.dtype), kNames[i]);
    const auto whole = file->Load(context_->cpu(), entry);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(whole->num_bytes(), bytes);
    const auto row = file->LoadRows(context_->cpu(), entry, 1, 1);
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ(row->num_bytes(), bytes / 2);
    if (TensorDType(entry.dtype)) {
      EXPECT_EQ(whole->shape(), (Shape{2, 8}));
      EXPECT_EQ(ToSafetensors(whole->dtype()), entry.dtype);
    } else {
      EXPECT_EQ(ToString(*whole),
                absl::StrCat("u8 [2, ", kBits[i], "] on cpu"));
    }
  }
}

TEST_P(SafetensorsReaderTest, SubByteRowsFillWholeBytes) {
  EXPECT_EQ(Refusal(absl::StrCat("{", Entry("t", "F4", "[2,8]", 0, 8), "}"), 8),
            "");
  EXPECT_THAT(
      Refusal(absl::StrCat("{", Entry("t", "F4", "[2,7]", 0, 7), "}"), 7),
      HasSubstr("F4 [2, 7] do not fill whole bytes"));
  const auto file =
      OpenJson(absl::StrCat("{", Entry("t", "F4", "[8]", 0, 4), "}"), 4);
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsEntry& entry = file->entries()[0];
  EXPECT_EQ(file->LoadRows(context_->cpu(), entry, 2, 4).value().num_bytes(),
            2);
  EXPECT_THAT(
      std::string(
          file->LoadRows(context_->cpu(), entry, 1, 2).status().message()),
      HasSubstr("do not fill whole bytes"));
}

TEST_P(SafetensorsReaderTest, RefusesBadLayouts) {
  const std::string a = Entry("a", "U8", "[4]", 0, 4);
  // Short range, backwards, shared, hole, trailing bytes.
  EXPECT_THAT(
      Refusal(absl::StrCat("{", Entry("w", "F32", "[1000,1000]", 0, 4), "}"),
              4),
      AllOf(HasSubstr("\"w\""),
            HasSubstr("takes 4000000 bytes, data_offsets give 4")));
  EXPECT_THAT(Refusal(absl::StrCat("{", Entry("w", "U8", "[4]", 4, 0), "}"), 4),
              AllOf(HasSubstr("\"w\""), HasSubstr("run backwards")));
  EXPECT_THAT(
      Refusal(absl::StrCat("{", a, ",", Entry("b", "U8", "[4]", 0, 4), "}"), 4),
      HasSubstr("overlap another tensor"));
  EXPECT_THAT(
      Refusal(absl::StrCat("{", a, ",", Entry("b", "U8", "[4]", 8, 12), "}"),
              12),
      AllOf(HasSubstr("\"b\""), HasSubstr("leave a hole")));
  EXPECT_THAT(Refusal(absl::StrCat("{", a, "}"), 8),
              HasSubstr("4 trailing bytes"));
  EXPECT_THAT(
      Refusal(absl::StrCat("{", a, ",", Entry("b", "U8", "[4]", 4, 8), "}"), 6),
      AllOf(HasSubstr("cut short"), HasSubstr("8 bytes of data, got 6"),
            HasSubstr("first tensor affected is \"b\"")));
  // A tensor without bytes inside another's range.
  EXPECT_THAT(
      Refusal(absl::StrCat("{", a, ",", Entry("z", "U8", "[0]", 2, 2), "}"), 4),
      HasSubstr("\"z\""));
}

TEST_P(SafetensorsReaderTest, RefusesOverflow) {
  const auto with_shape = [](absl::string_view shape) {
    return absl::StrCat("{", Entry("t", "F32", shape, 0, 0), "}");
  };
  EXPECT_THAT(Refusal(with_shape("[4294967296,4294967296,0]")),
              HasSubstr("overflows"));
  EXPECT_THAT(Refusal(with_shape("[4611686018427387904]")),
              HasSubstr("overflows"));
  EXPECT_THAT(Refusal(with_shape("[18446744073709551615]")),
              HasSubstr("18446744073709551615"));
  // Legal by the format's rule (left to right), but no Tensor.
  const auto file = OpenJson(with_shape("[0,4294967296,4294967296]"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Load(context_->cpu(), "t").status().code(),
            absl::StatusCode::kUnimplemented);
  const auto deep = OpenJson(with_shape("[0,1,1,1,1,1,1,1,1]"));
  ASSERT_TRUE(deep.ok()) << deep.status();
  EXPECT_THAT(std::string(deep->Load(context_->cpu(), "t").status().message()),
              HasSubstr("9 dims"));
}

TEST_P(SafetensorsReaderTest, RefusesBadJson) {
  const std::string ok =
      "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]";
  const std::vector<std::string> bad = {
      "",
      " {}",
      "\n{}",
      "[]",
      "null",
      "{",
      "{}x",
      "{},",
      std::string("{}\0", 3),
      "\xEF\xBB\xBF{}",
      "{\"a\":{" + ok + "},}",
      "{\"a\":[\"U8\",[1],[0,1]]}",
      "{\"a\":null}",
      "{\"a\":1}",
      "{\"a\":{" + ok + "},\"a\":{" + ok + "}}",
      "{\"a\":{" + ok + "},\"\\u0061\":{" + ok + "}}",
      "{\"\":{" + ok + "}}",
      "{\"\\u0000\":{" + ok + "}}",
      "{\"\\ud800\":{" + ok + "}}",
      "{\"a\x01\":{" + ok + "}}",
      "{\"a\xff\":{" + ok + "}}",
      "{\"a\":{" + ok + ",\"dtype\":\"U8\"}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}",
      "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":[\"U8\"],\"shape\":[1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,-0],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.5]}}",
      "{\"a\":{" + ok + ",\"x\":" + std::string(200, '[') +
          std::string(200, ']') + "}}",
      "{\"__metadata__\":[],\"a\":{" + ok + "}}",
      "{\"__metadata__\":{\"k\":1},\"a\":{" + ok + "}}",
      "{\"__metadata__\":{\"k\":{}},\"a\":{" + ok + "}}",
      "{\"__metadata__\":{\"k\":null},\"a\":{" + ok + "}}",
      "{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"},\"a\":{" + ok + "}}",
      "{\"__metadata__\":{},\"__metadata__\":{},\"a\":{" + ok + "}}",
  };
  ASSERT_EQ(Refusal("{\"a\":{" + ok + "}}", 1), "");
  for (const std::string& json : bad) {
    const bool has_data = json.find("U8") != std::string::npos;
    const std::string refusal = Refusal(json, has_data ? 1 : 0);
    EXPECT_THAT(refusal, HasSubstr("t.safetensors: ")) << json;
    EXPECT_LT(refusal.size(), 600u);
  }
}

TEST_P(SafetensorsReaderTest, NamesWhatIsWrong) {
  EXPECT_THAT(Refusal("{\"a.b\":{\"dtype\":\"q4\",\"shape\":[1]}}"),
              HasSubstr("tensor \"a.b\": unknown dtype \"q4\""));
  EXPECT_THAT(Refusal("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
                      "\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\","
                      "\"shape\":[0],\"data_offsets\":[0,0]}}"),
              HasSubstr("tensor \"a\": named twice"));
  const auto huge = Open(std::string("\0\0\0\0\0\0\0\x80{}", 10));
  EXPECT_THAT(std::string(huge.status().message()),
              HasSubstr("header of 9223372036854775808 bytes"));
}

TEST_P(SafetensorsReaderTest, EveryTruncationIsRefused) {
  const std::string bytes = TwoTensors();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto file = Open(absl::string_view(bytes).substr(0, length));
    EXPECT_FALSE(file.ok()) << length;
    EXPECT_THAT(std::string(file.status().message()),
                HasSubstr("t.safetensors: "));
  }
}

TEST_P(SafetensorsReaderTest, RandomBytesNeverCrash) {
  const std::string good = TwoTensors();
  std::mt19937 random(7);
  int opened = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = good;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto file = Open(bytes);
    if (!file.ok()) continue;
    ++opened;
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto tensor = file->Load(context_->cpu(), entry);
      if (tensor.ok()) ToDoubles(*tensor);
    }
  }
  EXPECT_GT(opened, 20);
}

TEST(SafetensorsHeaderTest, RandomBytesNeverCrash) {
  const std::string bytes = TwoTensors();
  const std::string good = bytes.substr(8, bytes.size() - 38);
  ASSERT_TRUE(ParseSafetensorsHeader(good, 30).ok());
  std::mt19937 random(8);
  for (int round = 0; round < 10000; ++round) {
    std::string json = good;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      const char kLikely[] = "{}[],:\"0159-.eE\\ua";
      json[random() % json.size()] =
          random() % 2 == 0 ? static_cast<char>(random())
                            : kLikely[random() % (sizeof(kLikely) - 1)];
    }
    const auto header = ParseSafetensorsHeader(json, 30);
    if (!header.ok()) continue;
    int64_t total = 0;
    for (const SafetensorsEntry& entry : header->entries) {
      total += entry.num_bytes();
      EXPECT_EQ(header->Find(entry.name), &entry);
    }
    EXPECT_EQ(total, 30);
  }
}

TEST(SafetensorsHeaderTest, CountsTheTensorsThatItAllocatesFor) {
  std::string json = "{";
  for (int64_t i = 0; i <= kMaxSafetensorsEntries; ++i) {
    absl::StrAppend(&json, i > 0 ? "," : "", "\"", i,
                    "\":{\"dtype\":\"U8\",\"shape\":[0],"
                    "\"data_offsets\":[0,0]}");
  }
  json += "}";
  ASSERT_LT(json.size(), static_cast<size_t>(kMaxSafetensorsHeaderBytes));
  const auto header = ParseSafetensorsHeader(json, 0);
  EXPECT_THAT(std::string(header.status().message()),
              HasSubstr("more than 1000000 tensors"));
}

TEST_P(SafetensorsReaderTest, UnalignedDataIsCopied) {
  const auto file = Open(test::SafetensorsBytes(
      absl::StrCat("{", Entry("a", "U8", "[1]", 0, 1), ",",
                   Entry("b", "F32", "[2]", 1, 9), "}"),
      std::string(1, '\7') + test::BytesOf<float>({1.5f, -2})));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto b = file->Load(context_->cpu(), "b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data<float>()) % 4, 0u);
  EXPECT_THAT(ToDoubles(*b), ElementsAre(1.5, -2));
}

TEST_P(SafetensorsReaderTest, BoolHoldsZeroAndOneOnly) {
  const std::string json =
      absl::StrCat("{", Entry("m", "BOOL", "[2]", 0, 2), "}");
  const auto good = Open(test::SafetensorsBytes(json, std::string("\0\1", 2)));
  EXPECT_THAT(ToDoubles(good->Load(context_->cpu(), "m").value()),
              ElementsAre(0, 1));
  const auto bad = Open(test::SafetensorsBytes(json, std::string("\0\2", 2)));
  EXPECT_THAT(std::string(bad->Load(context_->cpu(), "m").status().message()),
              HasSubstr("BOOL"));
}

TEST_P(SafetensorsReaderTest, NoticesThatTheFileChanged) {
  const auto file = Open(TwoTensors());
  ASSERT_TRUE(file.ok()) << file.status();
  // Longer, so that no mapped page is lost.
  dir_.Write("t.safetensors", TwoTensors() + std::string(100, 'x'));
  EXPECT_EQ(file->Load(context_->cpu(), "a").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_P(SafetensorsReaderTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(SafetensorsFile::Open(dir_.path(), GetParam()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      SafetensorsFile::Open(dir_.Path("none"), GetParam()).status().code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace espalier
