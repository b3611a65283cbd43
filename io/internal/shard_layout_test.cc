#include "espalier/io/internal/shard_layout.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier::internal {
namespace {

using ::testing::HasSubstr;

constexpr char kSource[] =
    R"({"name":"a","bytes":100,"header":"","header_bytes":8})";

// What reading a list with these parts says; "" where it is read.
std::string Refusal(const std::string& source, const std::string& file,
                    const std::string& copied) {
  test::TempDir dir;
  dir.Write(kShardsName,
            absl::StrCat(R"({"format":"espalier-shards","version":2,)"
                         R"("mesh":{"tp":1,"ep":1,"pp":1,"etp":1},)"
                         R"("max_shard_bytes":1,"index":"",)"
                         R"("left_out":[],"sources":[)",
                         source, "],\"files\":[", file, "],\"copied\":[",
                         copied, "]}"));
  return std::string(ReadLayout(dir.path()).status().message());
}

std::string File(int64_t tensors, int64_t data_bytes) {
  return absl::StrCat(R"({"name":"f","group":{"pp":0},"tensors":)", tensors,
                      ",\"data_bytes\":", data_bytes,
                      R"(,"header":"","data":""})");
}

std::string Copied(int64_t bytes) {
  return absl::StrCat(R"({"name":"c","hash":"","bytes":)", bytes, "}");
}

TEST(ShardLayoutTest, SizesAreNumbersThatCanBeAdded) {
  constexpr int64_t kMost = int64_t{1} << 50;  // of one file
  EXPECT_EQ(Refusal(kSource, File(0, 0), Copied(0)), "");
  EXPECT_THAT(Refusal(kSource, File(-1, 0), Copied(0)),
              HasSubstr("files[0].tensors is -1, expected 0 to "));
  EXPECT_THAT(Refusal(kSource, File(0, -1), Copied(0)),
              HasSubstr("files[0].data_bytes is -1, expected 0 to "));
  for (const int64_t bytes : {int64_t{-1}, kMost + 1, INT64_MAX}) {
    EXPECT_THAT(Refusal(kSource, File(0, 0), Copied(bytes)),
                HasSubstr(absl::StrCat("copied[0].bytes is ", bytes,
                                       ", expected 0 to ", kMost)));
  }
  std::string copied = Copied(kMost - 100);
  for (int i = 1; i < 1024; ++i) {
    absl::StrAppend(&copied, ",", Copied(kMost));
  }
  EXPECT_EQ(Refusal(kSource, File(0, 0), copied), "");
  absl::StrAppend(&copied, ",", Copied(1));
  EXPECT_THAT(Refusal(kSource, File(0, 0), copied),
              HasSubstr("sources and copied are too large a sum"));
}

}  // namespace
}  // namespace espalier::internal
