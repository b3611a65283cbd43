#include "espalier/io/internal/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxBackoffMs = 10'000;
// A refusal's own words, for the message.
constexpr size_t kMaxErrorBody = 64 << 10;

// One request under way.
struct Transfer {
  explicit Transfer(HttpRequest& request) : request(request) {}
  ~Transfer() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(handle);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  HttpRequest& request;
  CURL* handle = nullptr;
  curl_slist* headers = nullptr;
  char error[CURL_ERROR_SIZE] = {};
  int64_t received = 0;
  absl::Status sink;  // why the body was not taken
};

bool Succeeded(int64_t code) { return code == 200 || code == 206; }

size_t TakeBody(char* data, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  HttpRequest& request = transfer.request;
  const size_t bytes = size * count;
  long code = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &code);
  if (!Succeeded(code)) {
    const size_t room =
        kMaxErrorBody - std::min(request.body.size(), kMaxErrorBody);
    request.body.append(data, std::min(bytes, room));
    return bytes;
  }
  const int64_t limit =
      request.expected_bytes >= 0 ? request.expected_bytes : request.max_body;
  if (static_cast<int64_t>(bytes) > limit - transfer.received) {
    transfer.sink = absl::DataLossError(
        absl::StrCat("more than ", limit, " bytes in the answer"));
    return 0;
  }
  if (request.file == nullptr) {
    request.body.append(data, bytes);
  } else {
    transfer.sink = request.file->WriteAt(
        request.file_offset + transfer.received,
        absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data), bytes));
    if (!transfer.sink.ok()) return 0;
  }
  transfer.received += static_cast<int64_t>(bytes);
  return bytes;
}

size_t TakeHeader(char* data, size_t size, size_t count, void* user) {
  HttpRequest& request = static_cast<Transfer*>(user)->request;
  const absl::string_view line(data, size * count);
  const size_t colon = line.find(':');
  if (colon != absl::string_view::npos &&
      request.response_headers.size() < 200) {
    request.response_headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size * count;
}

bool MayPass(CURLcode result) {
  switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
      return true;
    default:
      return false;
  }
}

// 501: the store will not know tomorrow what it does not know today.
bool MayPass(int64_t code) {
  return code == 408 || code == 429 || (code >= 500 && code != 501);
}

// The text of <name> in a store's error document.
std::string ElementText(const std::string& body, const std::string& name) {
  const size_t open = body.find("<" + name + ">");
  if (open == std::string::npos) return "";
  const size_t begin = open + name.size() + 2;
  const size_t end = body.find("</" + name + ">", begin);
  return end == std::string::npos
             ? ""
             : body.substr(begin, std::min<size_t>(end - begin, 300));
}

std::string HeaderOf(const HttpRequest& request, const char* name) {
  const auto found = request.response_headers.find(name);
  return found == request.response_headers.end() ? "" : found->second;
}

// What to do about a refusal, "; ..." or nothing.
std::string Remedy(const HttpRequest& request, const std::string& code,
                   const HttpSettings& settings) {
  if (code == "RequestTimeTooSkewed") {
    return absl::StrCat("; set this machine's clock, the store's says ",
                        HeaderOf(request, "date"));
  }
  if (code == "VirtualHostDomainRequired") {
    return "; use --s3-addressing virtual";
  }
  std::string region = HeaderOf(request, "x-amz-bucket-region");
  if (region.empty()) region = ElementText(request.body, "Region");
  if (!region.empty() && region != settings.region) {
    return absl::StrCat("; the bucket lies in region ", region,
                        ", asked for was ", settings.region,
                        ": use --s3-region ", region);
  }
  if (request.code >= 300 && request.code < 400) {
    std::string where = HeaderOf(request, "location");
    if (where.empty()) where = ElementText(request.body, "Endpoint");
    return absl::StrCat("; redirections are not followed",
                        where.empty() ? "" : ", this one leads to ", where,
                        ": name the store with --s3-endpoint");
  }
  return "";
}

absl::Status HttpError(const HttpRequest& request,
                       const HttpSettings& settings) {
  const std::string code = ElementText(request.body, "Code");
  const std::string message = absl::StrCat(
      request.url, ": HTTP ", request.code, code.empty() ? "" : " ", code,
      code.empty() ? "" : ": ", ElementText(request.body, "Message"),
      Remedy(request, code, settings));
  switch (request.code) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 412:
      return absl::AbortedError(
          absl::StrCat(message, "; the object is not the one that was listed"));
    case 416:
      return absl::OutOfRangeError(message);
    default:
      return MayPass(request.code) ? absl::UnavailableError(message)
                                   : absl::InvalidArgumentError(message);
  }
}

// How a finished transfer ended; `retry` whether it is worth another attempt.
absl::Status Outcome(const Transfer& transfer, CURLcode result,
                     const HttpSettings& settings, bool* retry) {
  const HttpRequest& request = transfer.request;
  *retry = false;
  if (!transfer.sink.ok()) {
    return absl::Status(
        transfer.sink.code(),
        absl::StrCat(request.url, ": ", transfer.sink.message()));
  }
  if (result != CURLE_OK) {
    *retry = MayPass(result);
    const bool certificate = result == CURLE_PEER_FAILED_VERIFICATION ||
                             result == CURLE_SSL_CACERT_BADFILE;
    return absl::UnavailableError(absl::StrCat(
        request.url, ": ",
        transfer.error[0] != 0 ? transfer.error : curl_easy_strerror(result),
        certificate ? "; AWS_CA_BUNDLE names a file with the certificates of "
                      "who signed the store's"
                    : ""));
  }
  if (!Succeeded(request.code)) {
    *retry = MayPass(request.code);
    return HttpError(request, settings);
  }
  if (!request.head && request.expected_bytes >= 0 &&
      transfer.received != request.expected_bytes) {
    *retry = true;
    return absl::UnavailableError(
        absl::StrCat(request.url, ": ", transfer.received, " bytes of ",
                     request.expected_bytes, " came"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string PercentEncode(const std::string& text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
        c == '_' || c == '.' || c == '~' || (c == '/' && keep_slash)) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

class HttpClient::Impl {
 public:
  explicit Impl(const HttpSettings& settings) : settings(settings) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    multi = curl_multi_init();
  }
  ~Impl() {
    curl_multi_cleanup(multi);
    curl_global_cleanup();
  }

  struct Job {
    HttpRequest* request = nullptr;
    int attempt = 0;
    Clock::time_point not_before;
  };

  absl::Status Start(const Job& job);
  // False when the request failed for good.
  bool Finish(CURLMsg* message, std::deque<Job>* jobs);
  absl::Status Run(std::vector<HttpRequest>& requests);

  struct Active {
    Job job;
    std::unique_ptr<Transfer> transfer;
  };

  const HttpSettings settings;
  CURLM* multi = nullptr;
  std::vector<Active> active;
  int64_t num_requests = 0;
  int64_t num_retries = 0;
};

absl::Status HttpClient::Impl::Start(const Job& job) {
  HttpRequest& request = *job.request;
  request.body.clear();
  request.response_headers.clear();
  request.code = 0;
  auto transfer = std::make_unique<Transfer>(request);
  CURL* handle = curl_easy_init();
  if (multi == nullptr || handle == nullptr) {
    return absl::InternalError("libcurl does not start");
  }
  transfer->handle = handle;
  for (const std::string& header : request.headers) {
    transfer->headers = curl_slist_append(transfer->headers, header.c_str());
  }
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_NOBODY, request.head ? 1L : 0L);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, transfer->headers);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, transfer->error);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &TakeBody);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, transfer.get());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &TakeHeader);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, transfer.get());
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(settings.connect_timeout_ms));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1024L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(
                       std::max<int64_t>(settings.stall_timeout_ms / 1000, 1)));
  if (!settings.ca_file.empty()) {
    curl_easy_setopt(handle, CURLOPT_CAINFO, settings.ca_file.c_str());
  }
  if (!settings.user.empty()) {
    const std::string scheme = absl::StrCat("aws:amz:", settings.region, ":s3");
    curl_easy_setopt(handle, CURLOPT_AWS_SIGV4, scheme.c_str());
    curl_easy_setopt(handle, CURLOPT_USERNAME, settings.user.c_str());
    curl_easy_setopt(handle, CURLOPT_PASSWORD, settings.password.c_str());
  }
  if (curl_multi_add_handle(multi, handle) != CURLM_OK) {
    return absl::InternalError("libcurl takes no request");
  }
  ++num_requests;
  num_retries += job.attempt > 0;
  active.push_back({job, std::move(transfer)});
  return absl::OkStatus();
}

bool HttpClient::Impl::Finish(CURLMsg* message, std::deque<Job>* jobs) {
  const CURLcode result = message->data.result;
  const auto at =
      std::find_if(active.begin(), active.end(), [message](const Active& each) {
        return each.transfer->handle == message->easy_handle;
      });
  HttpRequest& request = *at->job.request;
  long code = 0;
  curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &code);
  request.code = code;
  curl_multi_remove_handle(multi, message->easy_handle);
  bool retry = false;
  request.status = Outcome(*at->transfer, result, settings, &retry);
  Job job = at->job;
  active.erase(at);
  if (!retry) return request.status.ok();
  if (++job.attempt == settings.max_attempts) {
    request.status = absl::UnavailableError(
        absl::StrCat(request.status.message(), "; given up after ",
                     settings.max_attempts, " attempts"));
    return false;
  }
  const int64_t pause =
      std::min(settings.first_backoff_ms << std::min(job.attempt - 1, 20),
               kMaxBackoffMs);
  job.not_before = Clock::now() + std::chrono::milliseconds(pause);
  jobs->push_back(job);
  return true;
}

absl::Status HttpClient::Impl::Run(std::vector<HttpRequest>& requests) {
  std::deque<Job> jobs;
  for (HttpRequest& request : requests) jobs.push_back({&request, 0, {}});
  bool failed = false;  // for good: nothing more is started
  while (!active.empty() || (!jobs.empty() && !failed)) {
    const auto now = Clock::now();
    for (size_t i = 0;
         !failed && i < jobs.size() &&
         static_cast<int>(active.size()) < settings.max_parallel;) {
      if (jobs[i].not_before > now) {
        ++i;
        continue;
      }
      const Job job = jobs[i];
      jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
      const absl::Status started = Start(job);
      if (!started.ok()) {
        job.request->status = started;
        failed = true;
      }
    }
    int running = 0;
    curl_multi_perform(multi, &running);
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      if (!Finish(message, &jobs)) failed = true;
    }
    curl_multi_poll(multi, nullptr, 0, active.empty() ? 5 : 50, nullptr);
  }
  for (const HttpRequest& request : requests) {
    if (!request.status.ok()) return request.status;
  }
  return absl::OkStatus();
}

HttpClient::HttpClient(const HttpSettings& settings)
    : impl_(std::make_unique<Impl>(settings)) {}
HttpClient::~HttpClient() = default;
absl::Status HttpClient::Run(std::vector<HttpRequest>& requests) {
  return impl_->Run(requests);
}
int64_t HttpClient::num_requests() const { return impl_->num_requests; }
int64_t HttpClient::num_retries() const { return impl_->num_retries; }

}  // namespace espalier::internal
