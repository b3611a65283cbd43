#include "espalier/io/object_store.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/folder.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/http_client.h"
#include "espalier/io/internal/object_check.h"
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

std::string HeaderOf(const HttpRequest& request, const char* name) {
  const auto at = request.response_headers.find(name);
  return at == request.response_headers.end() ? "" : at->second;
}

constexpr int64_t kCheckBytes = 1 << 20;  // a file is hashed by so many

// Whether the file was compared.
absl::StatusOr<bool> CheckFile(const std::string& path,
                               const ObjectChecksum& checksum) {
  const auto file = internal::ReadableFile::Open(path);
  if (!file.ok()) return file.status();
  internal::ObjectCheck check(checksum, file->size(), kCheckBytes);
  std::vector<uint8_t> buffer(kCheckBytes);
  for (int64_t at = 0; at < file->size(); at += kCheckBytes) {
    const auto part = absl::MakeSpan(buffer).subspan(
        0, static_cast<size_t>(std::min(file->size() - at, kCheckBytes)));
    absl::Status status = file->ReadAt(at, part);
    if (status.ok()) status = check.Take(at / kCheckBytes, part);
    if (!status.ok()) return status;
  }
  return check.compared();
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
    const std::string name = PercentEncode(bucket, false);
    const size_t host = endpoint.find("://") + 3;
    request.url = config.virtual_host
                      ? absl::StrCat(endpoint.substr(0, host), name, ".",
                                     endpoint.substr(host))
                      : absl::StrCat(endpoint, "/", name);
    absl::StrAppend(&request.url, "/", PercentEncode(key, true));
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

  // Of an object that was uploaded in `num_parts` parts; 0 where they are not
  // of one size or the store does not tell.
  absl::StatusOr<int64_t> PartBytes(const std::string& bucket,
                                    const ObjectInfo& object,
                                    int64_t num_parts);

  const ObjectStoreConfig config;
  std::string endpoint;
  internal::HttpClient http;
};

ObjectStore::ObjectStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ObjectStore::~ObjectStore() = default;
int64_t ObjectStore::num_requests() const { return impl_->http.num_requests(); }
int64_t ObjectStore::num_retries() const { return impl_->http.num_retries(); }

std::string ObjectStore::IdentityOf(const std::string& bucket,
                                    const ObjectInfo& object) const {
  std::string version = object.etag;
  if (version.empty()) {
    std::random_device random;
    version = absl::StrCat(random(), " ", random(), " ", random());
  }
  return absl::StrCat(impl_->endpoint, "\n", bucket, "\n", object.key, "\n",
                      object.size, "\n", version);
}

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
  // Not shown: it may hold a password.
  if (config.endpoint.find_first_of("@?# \t\r\n") != std::string::npos) {
    return error(
        "the endpoint holds an @, ?, # or space, expected https://host[:port]");
  }
  if (config.region.empty()) return error("region is empty");
  for (const std::string* secret :
       {&config.access_key, &config.secret_key, &config.session_token}) {
    if (std::any_of(secret->begin(), secret->end(),
                    [](unsigned char c) { return !absl::ascii_isgraph(c); })) {
      return error(
          "an access key, secret key or session token holds a space, a line "
          "end or the like");
    }
  }
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
  settings.user = config.access_key;
  settings.password = config.secret_key;
  settings.region = config.region;
  settings.ca_file = config.ca_file;
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
        "encoding-type=url&list-type=2&prefix=", PercentEncode(prefix, false));
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
  if (!answer.ok() && !absl::IsNotFound(answer.status()) &&
      !IsTransportError(answer.status())) {
    // The answer to a HEAD has no words; that to a GET says why.
    HttpRequest get = impl_->Request(bucket, key);
    get.headers.push_back("Range: bytes=0-0");
    const auto told = impl_->Run(std::move(get));
    if (!told.ok()) return told.status();
  }
  if (!answer.ok()) return answer.status();
  const auto size = internal::ParseObjectSize(
      HeaderOf(*answer, "content-length"), answer->url);
  if (!size.ok()) return size.status();
  return ObjectInfo{key, *size, HeaderOf(*answer, "etag")};
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

absl::StatusOr<ObjectChecksum> ObjectStore::Checksum(const std::string& bucket,
                                                     const ObjectInfo& object) {
  HttpRequest request = impl_->Request(bucket, object.key);
  request.head = true;
  request.headers.push_back("x-amz-checksum-mode: ENABLED");
  if (!object.etag.empty()) {
    request.headers.push_back(absl::StrCat("If-Match: ", object.etag));
  }
  const auto answer = impl_->Run(std::move(request));
  if (!answer.ok()) return answer.status();
  internal::ToldChecksum told =
      internal::ChecksumFromHeaders(bucket, answer->response_headers);
  if (told.num_parts == 0) return told.checksum;
  const auto part_bytes = impl_->PartBytes(bucket, object, told.num_parts);
  if (!part_bytes.ok()) return part_bytes.status();
  if (*part_bytes == 0) return ObjectChecksum();
  told.checksum.part_bytes = *part_bytes;
  return told.checksum;
}

absl::StatusOr<int64_t> ObjectStore::Impl::PartBytes(const std::string& bucket,
                                                     const ObjectInfo& object,
                                                     int64_t num_parts) {
  std::vector<HttpRequest> requests;
  for (const int64_t part :
       std::set<int64_t>{1, std::min<int64_t>(2, num_parts), num_parts}) {
    HttpRequest& request = requests.emplace_back(Request(bucket, object.key));
    request.head = true;
    absl::StrAppend(&request.url, "?partNumber=", part);
  }
  // No If-Match: some stores would compare the part's own ETag. A store that
  // knows no parts says so in its own way.
  const absl::Status status = http.Run(requests);
  if (IsTransportError(status)) return status;
  if (!status.ok()) return 0;
  std::vector<int64_t> sizes;
  for (const HttpRequest& request : requests) {
    const auto size = internal::ParseObjectSize(
        HeaderOf(request, "content-length"), request.url);
    if (!size.ok()) return size.status();
    sizes.push_back(*size);
  }
  // All of the size of the first, but for the last: so do all tools upload that
  // do not join other objects.
  const int64_t first = sizes.front();
  const bool even = first > 0 && (num_parts - 1 <= (object.size - 1) / first) &&
                    sizes.back() == object.size - first * (num_parts - 1) &&
                    sizes.back() <= first &&
                    (num_parts <= 2 || sizes[1] == first);
  return even ? first : 0;
}

int64_t ObjectStore::parallel_bytes() const {
  return impl_->config.part_bytes * impl_->config.max_parallel;
}

absl::Status ObjectStore::Compare(const std::string& bucket,
                                  const ObjectInfo& object,
                                  const std::string& path, bool* compared) {
  const auto checksum = Checksum(bucket, object);
  if (!checksum.ok()) return checksum.status();
  const auto checked = CheckFile(path, *checksum);
  if (!checked.ok()) {
    return absl::Status(checked.status().code(),
                        absl::StrCat("s3://", bucket, "/", object.key, ": ",
                                     checked.status().message()));
  }
  if (compared != nullptr) *compared = *checked;
  return absl::OkStatus();
}

absl::Status ObjectStore::Fetch(const std::string& bucket,
                                const ObjectInfo& object,
                                const std::string& path, bool* compared) {
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
  if (!status.ok()) return status;
  status = Compare(bucket, object, file->temporary_path(), compared);
  if (!status.ok()) return status;
  return file->Commit();
}

}  // namespace espalier
