#ifndef ESPALIER_IO_INTERNAL_TEST_OBJECT_SERVER_H_
#define ESPALIER_IO_INTERNAL_TEST_OBJECT_SERVER_H_

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/test_http_server.h"
#include "espalier/io/internal/test_util.h"

namespace espalier::test {

// The bytes of a request's target behind its %XX.
inline std::string PercentDecode(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// A store of one bucket, "bucket", that answers as S3 does: listings, HEAD,
// ranges, If-Match. Faults are put in front. Thread-safe.
class ObjectServer {
 public:
  using Response = HttpServer::Response;
  using Request = HttpServer::Request;
  // Fills in the response and returns true to answer instead of the store.
  using Fault = std::function<bool(const Request&, Response*)>;
  // Changes what the store answers.
  using Edit = std::function<void(const Request&, Response*)>;

  ObjectServer()
      : server_([this](const Request& request) { return Answer(request); }) {}

  std::string url() const { return server_.url(); }
  // From then on connections are refused.
  void Stop() { server_.Stop(); }

  // An empty ETag stands for the one of SetETag.
  void Put(const std::string& key, std::string body, std::string etag = "") {
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_[key] = {std::move(body), std::move(etag), {}, {}};
  }
  // Headers that are told where x-amz-checksum-mode asks for them.
  void SetChecksums(const std::string& key,
                    std::map<std::string, std::string> headers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_[key].checksums = std::move(headers);
  }
  // HEAD with ?partNumber tells of parts of so many bytes from then on.
  void SetPartBytes(const std::string& key, std::vector<int64_t> part_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_[key].part_bytes = std::move(part_bytes);
  }
  // All files below `dir`, by their names.
  void PutFolder(const std::string& dir) {
    for (const auto& item :
         std::filesystem::recursive_directory_iterator(dir)) {
      if (!item.is_regular_file()) continue;
      Put(item.path().lexically_relative(dir).string(),
          ReadFile(item.path().string()));
    }
  }
  void SetETag(const std::string& etag) {
    const std::lock_guard<std::mutex> lock(mutex_);
    etag_ = etag;
  }
  void SetFault(Fault fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fault_ = std::move(fault);
  }
  void SetEdit(Edit edit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    edit_ = std::move(edit);
  }

  std::vector<Request> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  // Bytes that were sent for ranged reads.
  int64_t ranged_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ranged_bytes_;
  }

 private:
  struct Object {
    std::string body;
    std::string etag;
    std::map<std::string, std::string> checksums;
    std::vector<int64_t> part_bytes;
  };

  Response Answer(const Request& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(request);
    Response response;
    if (fault_ && fault_(request, &response)) return response;
    response = absl::StrContains(request.target, "list-type=2") ? List(request)
                                                                : Get(request);
    if (edit_) edit_(request, &response);
    if (request.method != "HEAD" && request.headers.count("range") > 0) {
      ranged_bytes_ += static_cast<int64_t>(response.body.size());
    }
    return response;
  }

  std::string ETagOf(const Object& object) const {
    return object.etag.empty() ? etag_ : object.etag;
  }

  Response List(const Request& request) const {
    const std::string prefix = PercentDecode(
        request.target.substr(request.target.find("prefix=") + 7));
    Response response;
    response.body = "<ListBucketResult><IsTruncated>false</IsTruncated>";
    for (const auto& [key, object] : objects_) {
      if (!absl::StartsWith(key, prefix)) continue;
      absl::StrAppend(&response.body, "<Contents><Key>", key, "</Key><Size>",
                      object.body.size(), "</Size><ETag>", ETagOf(object),
                      "</ETag></Contents>");
    }
    response.body += "</ListBucketResult>";
    return response;
  }

  Response Get(const Request& request) const {
    Response response;
    const std::string path = request.target.substr(
        0, std::min(request.target.find('?'), request.target.size()));
    const auto found =
        objects_.find(PercentDecode(path.substr(sizeof("/bucket/") - 1)));
    if (found == objects_.end()) {
      response.code = 404;
      response.body =
          "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
      return response;
    }
    const Object& object = found->second;
    const auto match = request.headers.find("if-match");
    if (match != request.headers.end() && match->second != ETagOf(object)) {
      response.code = 412;
      return response;
    }
    if (request.headers.count("x-amz-checksum-mode") > 0) {
      response.headers = object.checksums;
    }
    response.headers["ETag"] = ETagOf(object);
    response.body = object.body;
    size_t part = 0;
    if (std::sscanf(request.target.c_str() + path.size(), "?partNumber=%zu",
                    &part) == 1 &&
        part <= object.part_bytes.size()) {
      response.code = 206;
      response.content_length = object.part_bytes[part - 1];
      return response;
    }
    int64_t first = 0, last = 0;
    const auto range = request.headers.find("range");
    if (range != request.headers.end() &&
        std::sscanf(range->second.c_str(), "bytes=%ld-%ld", &first, &last) ==
            2) {
      response.code = 206;
      response.body = response.body.substr(
          static_cast<size_t>(first), static_cast<size_t>(last - first + 1));
    }
    return response;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::string etag_ = "\"v1\"";
  Fault fault_;
  Edit edit_;
  std::vector<Request> requests_;
  int64_t ranged_bytes_ = 0;
  HttpServer server_;  // last: its thread uses the rest
};

}  // namespace espalier::test

#endif  // ESPALIER_IO_INTERNAL_TEST_OBJECT_SERVER_H_
