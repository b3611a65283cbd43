#include "espalier/io/object_store.h"

#include <openssl/evp.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/http_client.h"
#include "espalier/io/internal/object_listing.h"

namespace espalier {

namespace {

constexpr absl::string_view kScheme = "s3://";
// SHA-256 of no bytes: the payload of GET and HEAD.
constexpr char kEmptyPayload[] =
    "x-amz-content-sha256: "
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

using internal::HttpRequest;
using internal::PercentEncode;

// Hashes a file front to back.
absl::StatusOr<std::string> FileDigest(const std::string& path,
                                       const EVP_MD* algorithm) {
  const auto file = internal::ReadableFile::Open(path);
  if (!file.ok()) return file.status();
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (context == nullptr ||
      EVP_DigestInit_ex(context.get(), algorithm, nullptr) != 1) {
    return absl::UnavailableError("no such hash in libcrypto");
  }
  std::vector<uint8_t> buffer(1 << 20);
  for (int64_t at = 0; at < file->size();) {
    const auto count = std::min<int64_t>(file->size() - at,
                                         static_cast<int64_t>(buffer.size()));
    const auto part =
        absl::MakeSpan(buffer).subspan(0, static_cast<size_t>(count));
    absl::Status read = file->ReadAt(at, part);
    if (!read.ok()) return read;
    EVP_DigestUpdate(context.get(), part.data(), part.size());
    at += count;
  }
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), reinterpret_cast<uint8_t*>(digest.data()),
                     &size);
  digest.resize(size);
  return digest;
}

}  // namespace

bool ObjectUrl::Is(absl::string_view text) {
  return absl::StartsWith(text, kScheme);
}

absl::StatusOr<ObjectUrl> ObjectUrl::Parse(absl::string_view text) {
  ObjectUrl url;
  if (Is(text)) {
    const absl::string_view rest = text.substr(kScheme.size());
    const size_t slash = std::min(rest.find('/'), rest.size());
    url.bucket = std::string(rest.substr(0, slash));
    url.key = std::string(rest.substr(std::min(slash + 1, rest.size())));
  }
  const bool valid =
      !url.bucket.empty() &&
      std::all_of(url.bucket.begin(), url.bucket.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
               c == '.' || c == '_';
      });
  if (!valid || url.bucket == "." || url.bucket == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": expected s3://bucket/key"));
  }
  return url;
}

std::string ObjectUrl::ToString() const {
  return absl::StrCat(kScheme, bucket, "/", key);
}

class ObjectStore::Impl {
 public:
  Impl(const ObjectStoreConfig& config, const internal::HttpSettings& settings)
      : config(config), http(settings) {
    endpoint =
        config.endpoint.empty()
            ? absl::StrCat("https://s3.", config.region, ".amazonaws.com")
            : config.endpoint;
    while (absl::EndsWith(endpoint, "/")) endpoint.pop_back();
  }

  HttpRequest Request(const std::string& bucket, const std::string& key) const {
    HttpRequest request;
    request.url = absl::StrCat(endpoint, "/", PercentEncode(bucket, false), "/",
                               PercentEncode(key, true));
    request.headers = {kEmptyPayload};
    if (!config.session_token.empty()) {
      request.headers.push_back(
          absl::StrCat("x-amz-security-token: ", config.session_token));
    }
    return request;
  }

  HttpRequest RangeRequest(const std::string& bucket, const ObjectInfo& object,
                           int64_t offset, int64_t count) const {
    HttpRequest request = Request(bucket, object.key);
    request.headers.push_back(
        absl::StrCat("Range: bytes=", offset, "-", offset + count - 1));
    if (!object.etag.empty()) {
      request.headers.push_back(absl::StrCat("If-Match: ", object.etag));
    }
    request.expected_bytes = count;
    return request;
  }

  absl::StatusOr<HttpRequest> Run(HttpRequest request) {
    std::vector<HttpRequest> requests;
    requests.push_back(std::move(request));
    absl::Status status = http.Run(requests);
    if (!status.ok()) return status;
    return std::move(requests[0]);
  }

  absl::Status CheckDigest(const std::string& bucket, const ObjectInfo& object,
                           const std::string& path);

  const ObjectStoreConfig config;
  std::string endpoint;
  internal::HttpClient http;
};

ObjectStore::ObjectStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ObjectStore::~ObjectStore() = default;
int64_t ObjectStore::num_requests() const { return impl_->http.num_requests(); }
int64_t ObjectStore::num_retries() const { return impl_->http.num_retries(); }

absl::StatusOr<std::unique_ptr<ObjectStore>> ObjectStore::Create(
    const ObjectStoreConfig& config) {
  const auto error = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("object store: ", parts...));
  };
  if (!config.endpoint.empty() &&
      !absl::StartsWith(config.endpoint, "http://") &&
      !absl::StartsWith(config.endpoint, "https://")) {
    return error("endpoint is ", config.endpoint,
                 ", expected http://host or https://host");
  }
  if (config.region.empty()) return error("region is empty");
  if (config.access_key.empty() != config.secret_key.empty()) {
    return error("the access key and the secret key go together");
  }
  if (config.max_attempts < 1 || config.max_parallel < 1 ||
      config.part_bytes < 1 || config.first_backoff_ms < 0) {
    return error("attempts ", config.max_attempts, ", parallel ",
                 config.max_parallel, ", part_bytes ", config.part_bytes,
                 ", first_backoff_ms ", config.first_backoff_ms,
                 ", expected at least 1, 1, 1, 0");
  }
  internal::HttpSettings settings;
  if (!config.access_key.empty()) {
    settings.user_password =
        absl::StrCat(config.access_key, ":", config.secret_key);
    settings.sigv4 = absl::StrCat("aws:amz:", config.region, ":s3");
  }
  settings.connect_timeout_ms = config.connect_timeout_ms;
  settings.stall_timeout_ms = config.stall_timeout_ms;
  settings.max_attempts = config.max_attempts;
  settings.first_backoff_ms = config.first_backoff_ms;
  settings.max_parallel = config.max_parallel;
  return std::unique_ptr<ObjectStore>(
      new ObjectStore(std::make_unique<Impl>(config, settings)));
}

absl::StatusOr<std::vector<ObjectInfo>> ObjectStore::List(
    const std::string& bucket, const std::string& prefix, int64_t max_objects) {
  std::vector<ObjectInfo> objects;
  std::string next;
  do {
    HttpRequest request = impl_->Request(bucket, "");
    // Sorted by name, as the signature wants them.
    absl::StrAppend(
        &request.url, "?",
        next.empty() ? ""
                     : "continuation-token=" + PercentEncode(next, false) + "&",
        "list-type=2&prefix=", PercentEncode(prefix, false));
    const auto page = impl_->Run(std::move(request));
    if (!page.ok()) return page.status();
    const std::string before = std::move(next);
    auto listing =
        internal::ParseObjectListing(page->body, absl::StrCat("s3://", bucket));
    if (!listing.ok()) return listing.status();
    std::move(listing->objects.begin(), listing->objects.end(),
              std::back_inserter(objects));
    next = std::move(listing->next);
    if (!next.empty() && next == before) {
      return absl::DataLossError(absl::StrCat("s3://", bucket, "/", prefix,
                                              ": the listing does not go on"));
    }
    if (static_cast<int64_t>(objects.size()) > max_objects) {
      return absl::ResourceExhaustedError(
          absl::StrCat("s3://", bucket, "/", prefix, ": more than ",
                       max_objects, " objects"));
    }
  } while (!next.empty());
  return objects;
}

absl::StatusOr<ObjectInfo> ObjectStore::Head(const std::string& bucket,
                                             const std::string& key) {
  HttpRequest request = impl_->Request(bucket, key);
  request.head = true;
  const auto answer = impl_->Run(std::move(request));
  if (!answer.ok()) return answer.status();
  const auto header = [&](const char* name) {
    const auto at = answer->response_headers.find(name);
    return at == answer->response_headers.end() ? std::string() : at->second;
  };
  const auto size =
      internal::ParseObjectSize(header("content-length"), answer->url);
  if (!size.ok()) return size.status();
  return ObjectInfo{key, *size, header("etag")};
}

absl::StatusOr<std::string> ObjectStore::Read(const std::string& bucket,
                                              const ObjectInfo& object,
                                              int64_t offset, int64_t count) {
  std::string bytes(static_cast<size_t>(std::max<int64_t>(count, 0)), '\0');
  absl::Status status = ReadInto(
      bucket, object, offset,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()));
  if (!status.ok()) return status;
  return bytes;
}

absl::Status ObjectStore::ReadInto(const std::string& bucket,
                                   const ObjectInfo& object, int64_t offset,
                                   absl::Span<uint8_t> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (offset < 0 || offset > object.size - count) {
    return absl::OutOfRangeError(
        absl::StrCat("s3://", bucket, "/", object.key, ": bytes [", offset,
                     ", ", offset + count, ") of ", object.size));
  }
  std::vector<HttpRequest> parts;
  for (int64_t at = 0; at < count; at += impl_->config.part_bytes) {
    parts.push_back(
        impl_->RangeRequest(bucket, object, offset + at,
                            std::min(impl_->config.part_bytes, count - at)));
  }
  absl::Status status = impl_->http.Run(parts);
  if (!status.ok()) return status;
  uint8_t* to = bytes.data();
  for (const HttpRequest& part : parts) {
    to = std::copy(part.body.begin(), part.body.end(), to);
  }
  return absl::OkStatus();
}

absl::Status ObjectStore::Impl::CheckDigest(const std::string& bucket,
                                            const ObjectInfo& object,
                                            const std::string& path) {
  HttpRequest request = Request(bucket, object.key);
  request.head = true;
  request.headers.push_back("x-amz-checksum-mode: ENABLED");
  const auto answer = Run(std::move(request));
  if (!answer.ok()) return answer.status();
  const auto& headers = answer->response_headers;
  const auto sha256 = headers.find("x-amz-checksum-sha256");
  const auto encryption = headers.find("x-amz-server-side-encryption");
  std::string expected, got;
  // Checksums and ETags of objects uploaded in parts end in "-<parts>" and are
  // hashes of hashes; an ETag under KMS keys is no MD5.
  if (sha256 != headers.end() && !absl::StrContains(sha256->second, '-')) {
    const auto digest = FileDigest(path, EVP_sha256());
    if (!digest.ok()) return digest.status();
    expected = sha256->second;
    got = absl::Base64Escape(*digest);
  } else if (object.etag.size() == 34 &&
             (encryption == headers.end() || encryption->second == "AES256")) {
    const auto digest = FileDigest(path, EVP_md5());
    if (!digest.ok()) return digest.status();
    expected = object.etag.substr(1, 32);
    got = absl::BytesToHexString(*digest);
  }
  if (expected == got) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("s3://", bucket, "/", object.key,
                                          ": the checksum is ", got,
                                          ", expected ", expected));
}

absl::Status ObjectStore::Fetch(const std::string& bucket,
                                const ObjectInfo& object,
                                const std::string& path) {
  auto file = AtomicFile::Create(path, object.size);
  if (!file.ok()) return file.status();
  std::vector<HttpRequest> parts;
  for (int64_t at = 0; at < object.size; at += impl_->config.part_bytes) {
    const int64_t count = std::min(impl_->config.part_bytes, object.size - at);
    parts.push_back(impl_->RangeRequest(bucket, object, at, count));
    parts.back().file = &*file;
    parts.back().file_offset = at;
  }
  absl::Status status = impl_->http.Run(parts);
  if (status.ok()) {
    status = impl_->CheckDigest(bucket, object, file->temporary_path());
  }
  return status.ok() ? file->Commit() : status;
}

}  // namespace espalier
