// What the errors of a store say, and what they never say.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_object_server.h"
#include "espalier/io/object_store.h"

namespace espalier {
namespace {

using test::ObjectServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Response = ObjectServer::Response;
using Request = ObjectServer::Request;

class ObjectStoreFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.endpoint = server_.url();
    config_.first_backoff_ms = 1;
    config_.max_attempts = 2;
    config_.access_key = "AKIAKEY";
    config_.secret_key = "hunter2";
    config_.session_token = "tokenA";
  }
  std::string Refusal() {
    const auto store = ObjectStore::Create(config_);
    if (!store.ok()) return std::string(store.status().message());
    return std::string((*store)->Head("bucket", "k").status().message());
  }
  // A store that answers all so; a HEAD has no body.
  std::string RefusalOf(int code, const std::string& error,
                        const std::map<std::string, std::string>& headers) {
    server_.SetFault([=](const Request&, Response* response) {
      response->code = code;
      response->headers = headers;
      response->body = absl::StrCat("<Error>", error, "</Error>");
      return true;
    });
    std::string message = Refusal();
    for (const char* secret : {"AKIAKEY", "hunter2", "tokenA"}) {
      EXPECT_THAT(message, Not(HasSubstr(secret)));
    }
    return message;
  }

  ObjectServer server_;
  ObjectStoreConfig config_;
};

TEST_F(ObjectStoreFaultsTest, RefusalsNameTheRemedy) {
  EXPECT_THAT(
      RefusalOf(403,
                "<Code>RequestTimeTooSkewed</Code><Message>differs</Message>",
                {{"Date", "Tue, 01 Dec 2026 10:00:00 GMT"}}),
      AllOf(HasSubstr("HTTP 403 RequestTimeTooSkewed: differs"),
            HasSubstr("clock, the store's says Tue, 01 Dec 2026 10:00:00")));
  EXPECT_THAT(RefusalOf(301, "<Code>PermanentRedirect</Code>",
                        {{"x-amz-bucket-region", "eu-west-3"}}),
              HasSubstr("use --s3-region eu-west-3"));
  EXPECT_THAT(RefusalOf(400,
                        "<Code>AuthorizationHeaderMalformed</Code>"
                        "<Region>eu-west-4</Region>",
                        {}),
              HasSubstr("lies in region eu-west-4, asked for was us-east-1"));
  EXPECT_THAT(RefusalOf(403, "<Code>AccessDenied</Code>",
                        {{"x-amz-bucket-region", "us-east-1"}}),
              AllOf(HasSubstr("AccessDenied"), Not(HasSubstr("region"))));
  EXPECT_THAT(RefusalOf(400, "<Code>VirtualHostDomainRequired</Code>", {}),
              HasSubstr("use --s3-addressing virtual"));
}

TEST_F(ObjectStoreFaultsTest, RedirectionsAreNotFollowed) {
  ObjectServer other;
  EXPECT_THAT(
      RefusalOf(307, "", {{"Location", absl::StrCat(other.url(), "/x")}}),
      HasSubstr(absl::StrCat("this one leads to ", other.url(), "/x")));
  EXPECT_TRUE(other.requests().empty());
}

TEST_F(ObjectStoreFaultsTest, SecretsAreSentAndNotShown) {
  server_.Put("k", "text");
  EXPECT_EQ(Refusal(), "");
  const auto headers = server_.requests().at(0).headers;
  EXPECT_EQ(headers.at("x-amz-security-token"), "tokenA");
  EXPECT_THAT(
      headers.at("authorization"),
      AllOf(HasSubstr("Credential=AKIAKEY/"), HasSubstr("x-amz-security-token"),
            Not(HasSubstr("hunter2"))));
  config_.secret_key = "hunter2\r";
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("line end"), Not(HasSubstr("hunter2"))));
  config_.secret_key = "hunter2";
  config_.endpoint = "https://me:swordfish@host";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("the endpoint holds an @"),
                               Not(HasSubstr("swordfish"))));
}

TEST_F(ObjectStoreFaultsTest, BucketsInTheNameOfTheHost) {
  config_.endpoint =
      absl::StrReplaceAll(server_.url(), {{"127.0.0.1", "localhost"}});
  config_.virtual_host = true;
  server_.SetFault([](const Request& request, Response* response) {
    response->code = 400;
    if (absl::StartsWith(request.headers.at("host"), "bucket.localhost:") &&
        request.target == "/a%20k") {
      response->code = 200;
      response->body = "text";
    }
    return true;
  });
  const auto object = (*ObjectStore::Create(config_))->Head("bucket", "a k");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->size, 4);
}

TEST_F(ObjectStoreFaultsTest, ASilentServerIsGivenUp) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);  // takes connections, and no more
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size),
            0);
  config_.endpoint = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
  config_.stall_timeout_ms = 1000;
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("too slow"),
                               HasSubstr("given up after 2 attempts")));
  close(listener);
}

TEST_F(ObjectStoreFaultsTest, CertificatesThatAreNotThere) {
  config_.endpoint = absl::StrReplaceAll(server_.url(), {{"http:", "https:"}});
  config_.ca_file = "/no/such/file.pem";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("/no/such/file.pem"),
                               HasSubstr("AWS_CA_BUNDLE")));
}

TEST_F(ObjectStoreFaultsTest, OffsetsBeyondFiveTerabytes) {
  constexpr int64_t kSize = 9'000'000'000'000'000'001;
  server_.SetFault([](const Request& request, Response* response) {
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) {
      response->content_length = kSize;
    } else {
      EXPECT_EQ(range->second, "bytes=8999999999999999999-9000000000000000000");
      response->code = 206;
      response->body = "ab";
    }
    return true;
  });
  const auto store = *ObjectStore::Create(config_);
  const auto object = store->Head("bucket", "k");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->size, kSize);
  EXPECT_EQ(store->Read("bucket", *object, kSize - 2, 2).value(), "ab");
  EXPECT_EQ(store->Read("bucket", *object, kSize - 1, 2).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace espalier
