#ifndef ESPALIER_IO_INTERNAL_HTTP_CLIENT_H_
#define ESPALIER_IO_INTERNAL_HTTP_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/atomic_file.h"

namespace espalier::internal {

struct HttpSettings {
  std::string user;      // access key to sign with; empty: no signature
  std::string password;  // secret key
  std::string region;
  std::string ca_file;  // certificates that are trusted; empty: the system's
  int64_t connect_timeout_ms = 10'000;
  int64_t stall_timeout_ms = 30'000;
  int max_attempts = 6;
  int64_t first_backoff_ms = 200;
  int max_parallel = 8;
};

// One GET or HEAD. The body goes to a file at an offset, or to `body`.
struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "name: value"
  bool head = false;
  // Bytes of the body: exactly this many where it is >= 0; at most max_body.
  int64_t expected_bytes = -1;
  int64_t max_body = int64_t{16} << 20;
  AtomicFile* file = nullptr;
  int64_t file_offset = 0;

  // Filled in by Run.
  absl::Status status;
  int64_t code = 0;
  std::string body;
  std::map<std::string, std::string> response_headers;  // lower-case names
};

// libcurl's multi interface behind retries.
class HttpClient {
 public:
  explicit HttpClient(const HttpSettings& settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Performs all, at most max_parallel at once; repeats those that failed for a
  // passing reason. Redirections are not followed: the signature is for one
  // host. Each request's status says how it ended: OK for 200 and
  // 206. Returns the first that is not OK.
  absl::Status Run(std::vector<HttpRequest>& requests);

  int64_t num_requests() const;
  int64_t num_retries() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// RFC 3986, as signatures need it: all but letters, digits and "-_.~" as %XX;
// "/" stays where `keep_slash`.
std::string PercentEncode(const std::string& text, bool keep_slash);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_HTTP_CLIENT_H_
