#include "espalier/io/internal/object_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

using Kind = ObjectChecksum::Kind;
using ::testing::HasSubstr;

constexpr int64_t kBlockBytes = 100;
constexpr Kind kKinds[] = {Kind::kMd5,   Kind::kSha1,   Kind::kSha256,
                           Kind::kCrc32, Kind::kCrc32c, Kind::kCrc64Nvme};

std::string Bytes(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(i * 131 % 251));
  }
  return bytes;
}

ObjectChecksum ChecksumOf(Kind kind, const std::string& bytes,
                          int64_t part_bytes) {
  if (part_bytes == 0) return {kind, DigestOf(kind, bytes), 0};
  std::string all;
  for (size_t at = 0; at < bytes.size();
       at += static_cast<size_t>(part_bytes)) {
    all += DigestOf(kind, bytes.substr(at, static_cast<size_t>(part_bytes)));
  }
  return {kind, DigestOf(kind, all), part_bytes};
}

absl::Status Take(ObjectCheck& check, const std::string& bytes, int64_t block) {
  const std::string part =
      bytes.substr(static_cast<size_t>(block * kBlockBytes), kBlockBytes);
  return check.Take(
      block, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(part.data()),
                                 part.size()));
}

// All blocks in an order, with those that are wanted again.
absl::Status TakeAll(ObjectCheck& check, const std::string& bytes,
                     const std::vector<int64_t>& order) {
  for (int64_t block : order) {
    for (; block >= 0; block = check.Wanted()) {
      if (absl::Status status = Take(check, bytes, block); !status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

TEST(ObjectCheckTest, KnownDigests) {
  const auto hex = [](Kind kind) {
    return absl::BytesToHexString(DigestOf(kind, "hello world"));
  };
  EXPECT_EQ(hex(Kind::kMd5), "5eb63bbbe01eeed093cb22bb8f5acdc3");
  EXPECT_EQ(hex(Kind::kSha1), "2aae6c35c94fcfb415dbe95f408b9ce91ee846ed");
  EXPECT_EQ(absl::Base64Escape(DigestOf(Kind::kSha256, "hello world")),
            "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=");
  EXPECT_EQ(absl::BytesToHexString(DigestOf(Kind::kCrc32, "123456789")),
            "cbf43926");
}

TEST(ObjectCheckTest, BlocksInAnyOrder) {
  const std::string bytes = Bytes(1234);
  const std::vector<std::vector<int64_t>> orders = {
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
      {12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
      {5, 5, 0, 12, 1, 3, 2, 11, 10, 4, 6, 0, 7, 9, 8}};
  for (const Kind kind : kKinds) {
    for (const int64_t part_bytes : {0, 1234, 500, 250, 30}) {
      const ObjectChecksum right = ChecksumOf(kind, bytes, part_bytes);
      for (const auto& order : orders) {
        ObjectCheck check(right, 1234, kBlockBytes);
        std::vector<int64_t> some = order;
        some.erase(std::remove(some.begin(), some.end(), 7), some.end());
        ASSERT_EQ(TakeAll(check, bytes, some), absl::OkStatus());
        EXPECT_FALSE(check.compared());
        ASSERT_EQ(TakeAll(check, bytes, {7}), absl::OkStatus())
            << static_cast<int>(kind) << " " << part_bytes;
        EXPECT_TRUE(check.compared());
        // A flipped bit.
        std::string wrong = bytes;
        wrong[1000] = static_cast<char>(wrong[1000] ^ 4);
        ObjectCheck other(right, 1234, kBlockBytes);
        const absl::Status status = TakeAll(other, wrong, order);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(absl::BytesToHexString(right.value)));
        EXPECT_FALSE(other.compared());
        EXPECT_FALSE(Take(other, bytes, 0).ok());
      }
    }
  }
}

TEST(ObjectCheckTest, TwoReadsOfABlockAreCompared) {
  const std::string bytes = Bytes(300);
  std::string wrong = bytes;
  wrong[150] = 'x';
  ObjectCheck check(ObjectChecksum(), 300, kBlockBytes);
  EXPECT_EQ(TakeAll(check, bytes, {0, 1, 1, 2}), absl::OkStatus());
  EXPECT_FALSE(check.compared());
  EXPECT_THAT(std::string(Take(check, wrong, 1).message()),
              HasSubstr("two reads of the 100 bytes at 100"));
}

TEST(ObjectCheckTest, Headers) {
  using Headers = std::map<std::string, std::string>;
  const std::string md5 = "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"";
  const auto kind = [](const Headers& headers, const std::string& bucket) {
    return ChecksumFromHeaders(bucket, headers).checksum.kind;
  };
  EXPECT_EQ(kind({{"etag", md5}}, "b"), Kind::kMd5);
  EXPECT_EQ(
      kind({{"etag", md5}, {"x-amz-server-side-encryption", "AES256"}}, "b"),
      Kind::kMd5);
  // What is no MD5.
  EXPECT_EQ(kind({{"etag", md5}}, "b--use1-az4--x-s3"), Kind::kNone);
  for (const auto& [name, value] :
       Headers{{"x-amz-server-side-encryption", "aws:kms"},
               {"x-obs-server-side-encryption", "kms"},
               {"x-amz-server-side-encryption-customer-algorithm", "AES256"}}) {
    EXPECT_EQ(kind({{"etag", md5}, {name, value}}, "b"), Kind::kNone) << name;
  }
  for (const char* etag :
       {"", "\"\"", "x", "\"v1\"", "W/\"5eb63bbbe01eeed093cb22bb8f5acdc3\"",
        "\"5eb63bbbe01eeed093cb22bb8f5acdcx\"",
        "\"5eb63bbbe01eeed093cb22bb8f5acdc3-0\"",
        "\"5eb63bbbe01eeed093cb22bb8f5acdc3-x\"",
        "\"5eb63bbbe01eeed093cb22bb8f5acdc3-99999999999999\""}) {
    EXPECT_EQ(kind({{"etag", etag}}, "b"), Kind::kNone) << etag;
  }
  const ToldChecksum parts = ChecksumFromHeaders(
      "b", {{"etag", "\"5eb63bbbe01eeed093cb22bb8f5acdc3-12\""}});
  EXPECT_EQ(parts.num_parts, 12);
  // Its own header goes before the ETag, unless it cannot be read.
  const std::string crc = absl::Base64Escape("12345678");
  EXPECT_EQ(kind({{"etag", md5}, {"x-amz-checksum-crc64nvme", crc}}, "b"),
            Kind::kCrc64Nvme);
  EXPECT_EQ(kind({{"etag", md5}, {"x-amz-checksum-crc32", crc}}, "b"),
            Kind::kMd5);
  const ToldChecksum composite = ChecksumFromHeaders(
      "b", {{"x-amz-checksum-crc32c",
             absl::StrCat(absl::Base64Escape("1234"), "-3")}});
  EXPECT_EQ(composite.checksum.kind, Kind::kCrc32c);
  EXPECT_EQ(composite.checksum.value, "1234");
  EXPECT_EQ(composite.num_parts, 3);
}

}  // namespace
}  // namespace espalier::internal
