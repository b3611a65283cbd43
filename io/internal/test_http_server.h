#ifndef ESPALIER_IO_INTERNAL_TEST_HTTP_SERVER_H_
#define ESPALIER_IO_INTERNAL_TEST_HTTP_SERVER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace espalier::test {

// An HTTP server on a loopback port, one request after another, for tests of
// what clients do with good and bad answers.
class HttpServer {
 public:
  struct Request {
    std::string method;
    std::string target;
    std::map<std::string, std::string> headers;  // lower-case names
  };
  struct Response {
    int code = 200;
    std::map<std::string, std::string> headers;
    std::string body;
    int64_t content_length = -1;  // -1: the body's
    bool hang_up = false;         // close without an answer
  };
  using Handler = std::function<Response(const Request&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) !=
            0) {
      return;
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpServer() { Stop(); }

  // From then on connections are refused.
  void Stop() {
    if (!thread_.joinable()) return;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }

 private:
  void Serve() {
    while (true) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      Answer(peer);
      close(peer);
    }
  }

  void Answer(int peer) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t count = recv(peer, buffer, sizeof(buffer), 0);
      if (count <= 0) return;
      text.append(buffer, static_cast<size_t>(count));
    }
    Request request;
    bool first = true;
    for (const absl::string_view line : absl::StrSplit(text, "\r\n")) {
      if (std::exchange(first, false)) {
        const std::pair<absl::string_view, absl::string_view> parts =
            absl::StrSplit(line, absl::MaxSplits(' ', 1));
        request.method = std::string(parts.first);
        request.target =
            std::string(parts.second.substr(0, parts.second.rfind(' ')));
        continue;
      }
      const size_t colon = line.find(':');
      if (colon == absl::string_view::npos) continue;
      request.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
          std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
    const Response response = handler_(request);
    if (response.hang_up) return;
    std::string out = absl::StrCat("HTTP/1.1 ", response.code, " X\r\n");
    for (const auto& [name, value] : response.headers) {
      absl::StrAppend(&out, name, ": ", value, "\r\n");
    }
    absl::StrAppend(&out, "Content-Length: ",
                    response.content_length >= 0
                        ? response.content_length
                        : static_cast<int64_t>(response.body.size()),
                    "\r\nConnection: close\r\n\r\n");
    if (request.method != "HEAD") absl::StrAppend(&out, response.body);
    size_t sent = 0;
    while (sent < out.size()) {
      const ssize_t count =
          send(peer, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace espalier::test

#endif  // ESPALIER_IO_INTERNAL_TEST_HTTP_SERVER_H_
