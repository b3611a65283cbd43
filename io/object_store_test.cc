#include "espalier/io/object_store.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/digest.h"
#include "espalier/io/internal/http_client.h"
#include "espalier/io/internal/test_object_server.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using test::HttpServer;
using test::ObjectServer;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kETag[] = "\"v1\"";

class ObjectStoreTest : public ::testing::Test {
 protected:
  using Response = HttpServer::Response;
  using Request = HttpServer::Request;

  void SetUp() override {
    config_.endpoint = server_.url() + "/";
    config_.first_backoff_ms = 1;
    config_.part_bytes = 100;
    config_.access_key = "AK";
    config_.secret_key = "secret";
  }

  std::unique_ptr<ObjectStore> Store() {
    auto store = ObjectStore::Create(config_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  test::TempDir dir_;
  ObjectServer server_;
  ObjectStoreConfig config_;
};

std::string Bytes(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(i * 131 % 251));
  }
  return bytes;
}

TEST(ObjectUrlTest, Parse) {
  const auto url = ObjectUrl::Parse("s3://my-bucket.x/a//b c");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->bucket, "my-bucket.x");
  EXPECT_EQ(url->key, "a//b c");
  EXPECT_EQ(url->ToString(), "s3://my-bucket.x/a//b c");
  EXPECT_EQ(ObjectUrl::Parse("s3://b")->key, "");
  for (const char* bad : {"", "s3://", "s3:///k", "s3://a b/k", "s3://../k",
                          "http://b/k", "s3://b?x/k"}) {
    EXPECT_THAT(std::string(ObjectUrl::Parse(bad).status().message()),
                HasSubstr("expected s3://bucket/key"))
        << bad;
  }
}

TEST(PercentEncodeTest, KeepsTheUnreservedOnly) {
  EXPECT_EQ(internal::PercentEncode("a-_.~/b c+\xC3\xA9", true),
            "a-_.~/b%20c%2B%C3%A9");
  EXPECT_EQ(internal::PercentEncode("a/b", false), "a%2Fb");
}

TEST_F(ObjectStoreTest, FetchesInPartsAndSigns) {
  server_.Put("dir/model x.bin", Bytes(1234));
  const auto store = Store();
  const auto object = store->Head("bucket", "dir/model x.bin");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->size, 1234);
  EXPECT_EQ(object->etag, "\"v1\"");
  ASSERT_EQ(store->Fetch("bucket", *object, dir_.Path("f")), absl::OkStatus());
  EXPECT_EQ(test::ReadFile(dir_.Path("f")), Bytes(1234));
  EXPECT_EQ(store->num_requests(), 1 + 13 + 1);
  EXPECT_EQ(store->num_retries(), 0);
  for (const Request& request : server_.requests()) {
    EXPECT_THAT(request.headers.at("authorization"),
                AllOf(HasSubstr("AWS4-HMAC-SHA256 Credential=AK/"),
                      HasSubstr("/us-east-1/s3/aws4_request"),
                      HasSubstr("x-amz-content-sha256")));
  }
}

TEST_F(ObjectStoreTest, ReadsRanges) {
  server_.Put("k", Bytes(500));
  const auto store = Store();
  const ObjectInfo object{"k", 500, kETag};
  EXPECT_EQ(*store->Read("bucket", object, 17, 300),
            Bytes(500).substr(17, 300));
  EXPECT_EQ(*store->Read("bucket", object, 500, 0), "");
  EXPECT_EQ(store->Read("bucket", object, 400, 101).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(ObjectStoreTest, EmptyObject) {
  server_.Put("k", "");
  const auto store = Store();
  ASSERT_EQ(store->Fetch("bucket", {"k", 0, kETag}, dir_.Path("f")),
            absl::OkStatus());
  EXPECT_EQ(std::filesystem::file_size(dir_.Path("f")), 0u);
}

TEST_F(ObjectStoreTest, ListsAllPages) {
  server_.SetFault([](const Request& request, Response* response) {
    const bool second =
        absl::StrContains(request.target, "continuation-token=a%2F%3D&");
    EXPECT_TRUE(absl::StrContains(request.target, "prefix=p%2F"))
        << request.target;
    response->body = absl::StrCat(
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"urn:x\">",
        "<Contents><Key>p/", second ? "c &amp; d" : "a", "</Key><Size>",
        second ? 7 : 5, "</Size><ETag>&quot;e&quot;</ETag></Contents>",
        second ? "" : "<NextContinuationToken>a/=</NextContinuationToken>",
        "<IsTruncated>", second ? "false" : "true",
        "</IsTruncated></ListBucketResult>");
    return true;
  });
  const auto objects = Store()->List("bucket", "p/");
  ASSERT_TRUE(objects.ok()) << objects.status();
  ASSERT_EQ(objects->size(), 2u);
  EXPECT_EQ((*objects)[0].key, "p/a");
  EXPECT_EQ((*objects)[1].key, "p/c & d");
  EXPECT_EQ((*objects)[1].size, 7);
  EXPECT_EQ((*objects)[1].etag, "\"e\"");
  EXPECT_EQ(Store()->List("bucket", "p/", 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ObjectStoreTest, BadListingsAreErrors) {
  for (const auto& [text, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "no valid XML"},
           {"<a><Contents>", "no valid XML"},
           {"<a><Contents><Key>k</Key><Size>-1</Size></Contents></a>",
            "a size of \"-1\""},
           {"<a><Contents><Size>1</Size></Contents></a>", "without a key"},
           {"<a><IsTruncated>true</IsTruncated></a>", "no continuation token"},
           {"<a><IsTruncated>true</IsTruncated>"
            "<NextContinuationToken>t</NextContinuationToken></a>",
            "does not go on"}}) {
    server_.SetFault([text = text](const Request&, Response* response) {
      response->body = text;
      return true;
    });
    EXPECT_THAT(std::string(Store()->List("bucket", "").status().message()),
                HasSubstr(what));
  }
}

TEST_F(ObjectStoreTest, PassingFaultsAreTriedAgain) {
  server_.Put("k", Bytes(1000));
  std::map<std::string, int> seen;  // of each range
  server_.SetFault([&seen](const Request& request, Response* response) {
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) return false;
    switch (seen[range->second]++) {
      case 0:
        response->code = 503;
        response->body = "<Error><Code>SlowDown</Code></Error>";
        return true;
      case 1:
        response->hang_up = true;
        return true;
      case 2:  // a body that ends early
        response->code = 206;
        response->body = "short";
        response->content_length = 100;
        return true;
      case 3:  // a whole answer that is too short
        response->code = 206;
        response->body = "short";
        return true;
      default:
        return false;
    }
  });
  const auto store = Store();
  ASSERT_EQ(store->Fetch("bucket", {"k", 1000, kETag}, dir_.Path("f")),
            absl::OkStatus());
  EXPECT_EQ(test::ReadFile(dir_.Path("f")), Bytes(1000));
  EXPECT_EQ(store->num_retries(), 40);
}

TEST_F(ObjectStoreTest, FaultsThatStayAreNamedAndLeaveNothing) {
  server_.Put("k", Bytes(300));
  config_.max_attempts = 3;
  const ObjectInfo object{"k", 300, kETag};
  const auto fetch = [&](int code, const std::string& body) {
    server_.SetFault([code, body](const Request& request, Response* response) {
      response->code = code;
      response->body = body;
      return request.headers.count("range") > 0;
    });
    absl::Status status = Store()->Fetch("bucket", object, dir_.Path("f"));
    EXPECT_FALSE(std::filesystem::exists(dir_.Path("f")));
    return status;
  };
  absl::Status status = fetch(
      403, "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/bucket/k: HTTP 403 SignatureDoesNotMatch: no"));
  status = fetch(500, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("HTTP 500"), HasSubstr("after 3 attempts")));
  status = fetch(404, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  // An answer that ignores the range is longer than asked for.
  EXPECT_EQ(fetch(200, Bytes(300)).code(), absl::StatusCode::kDataLoss);
  server_.SetFault(nullptr);
  server_.SetETag("\"v2\"");
  status = Store()->Fetch("bucket", object, dir_.Path("f"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not the one"));
  server_.Stop();
  status = Store()->Fetch("bucket", object, dir_.Path("f"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("f")));
}

TEST_F(ObjectStoreTest, ChecksumsAreCompared) {
  const auto fetch = [&](const std::string& etag) {
    server_.Put("k", "hello world", etag);
    std::filesystem::remove(dir_.Path("f"));
    return Store()->Fetch("bucket", {"k", 11, etag}, dir_.Path("f"));
  };
  // MD5
  EXPECT_EQ(fetch("\"5eb63bbbe01eeed093cb22bb8f5acdc3\""), absl::OkStatus());
  EXPECT_EQ(fetch("\"5eb63bbbe01eeed093cb22bb8f5acdc4\"").code(),
            absl::StatusCode::kDataLoss);
  // uploaded in parts
  EXPECT_EQ(fetch("\"5eb63bbbe01eeed093cb22bb8f5acdc4-2\""), absl::OkStatus());
  const auto with_sha256 = [&](const std::string& sha256) {
    server_.SetChecksums("k", {{"x-amz-checksum-sha256", sha256}});
    std::filesystem::remove(dir_.Path("f"));
    return Store()->Fetch("bucket",
                          {"k", 11, "\"5eb63bbbe01eeed093cb22bb8f5acdc4-2\""},
                          dir_.Path("f"));
  };
  EXPECT_EQ(with_sha256("uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
            absl::OkStatus());
  const absl::Status status =
      with_sha256("aU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("checksum"));
}

TEST_F(ObjectStoreTest, ChecksumsOfPartsAreCompared) {
  // MD5 of the MD5s of 400, 400 and 200 bytes.
  using Kind = ObjectChecksum::Kind;
  const std::string bytes = Bytes(1000);
  std::string digests;
  for (const size_t at : {0, 400, 800}) {
    digests += internal::DigestOf(Kind::kMd5, bytes.substr(at, 400));
  }
  const std::string etag = absl::StrCat(
      "\"", absl::BytesToHexString(internal::DigestOf(Kind::kMd5, digests)),
      "-3\"");
  const auto fetch = [&](const std::string& stored,
                         const std::vector<int64_t>& part_bytes,
                         bool* compared) {
    server_.Put("k", stored, etag);
    server_.SetPartBytes("k", part_bytes);
    std::filesystem::remove(dir_.Path("f"));
    return Store()->Fetch("bucket", {"k", 1000, etag}, dir_.Path("f"),
                          compared);
  };
  std::string wrong = bytes;
  wrong[700] = static_cast<char>(wrong[700] ^ 1);
  bool compared = false;
  EXPECT_EQ(fetch(bytes, {400, 400, 200}, &compared), absl::OkStatus());
  EXPECT_TRUE(compared);
  const absl::Status status = fetch(wrong, {400, 400, 200}, &compared);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("s3://bucket/k: "), HasSubstr("checksum")));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("f")));
  // Of parts of other sizes nothing is known, and of those a store does not
  // tell.
  for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{
           {400, 300, 300}, {300, 300, 400}, {200, 400, 400}, {1000}, {}}) {
    compared = true;
    EXPECT_EQ(fetch(bytes, parts, &compared), absl::OkStatus());
    EXPECT_FALSE(compared);
  }
  server_.SetFault([](const Request& request, Response* response) {
    response->code = 501;
    return absl::StrContains(request.target, "partNumber");
  });
  EXPECT_EQ(fetch(bytes, {}, &compared), absl::OkStatus());
  EXPECT_FALSE(compared);
}

TEST(ObjectStoreConfigTest, Refusals) {
  const auto error = [](const ObjectStoreConfig& config) {
    return std::string(ObjectStore::Create(config).status().message());
  };
  ObjectStoreConfig config;
  config.endpoint = "ftp://x";
  EXPECT_THAT(error(config), HasSubstr("endpoint is ftp://x"));
  config.endpoint.clear();
  config.access_key = "a";
  EXPECT_THAT(error(config), HasSubstr("go together"));
  config.secret_key = "b";
  config.region.clear();
  EXPECT_THAT(error(config), HasSubstr("region is empty"));
  config.region = "r";
  config.max_parallel = 0;
  EXPECT_THAT(error(config), HasSubstr("parallel 0"));
}

}  // namespace
}  // namespace espalier
