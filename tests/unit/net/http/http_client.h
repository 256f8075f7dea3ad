// For tests of HTTP servers: a client that can send any bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace tarn::net {

struct HttpAnswer {
  int status = 0;                              // 0: no answer arrived
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class HttpClient {
 public:
  HttpClient() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{.tv_sec = 60, .tv_usec = 0};  // a server that never answers fails the test
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  explicit HttpClient(std::uint16_t port) : HttpClient() { Connect(port); }

  void Connect(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0;
  }
  bool connected() const { return connected_; }

  // Sends the bytes. Returns false once the server has closed the connection.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // with_body: false for the answer to HEAD.
  HttpAnswer Receive(bool with_body = true) {
    HttpAnswer answer;
    std::size_t end;
    while ((end = bytes_.find("\r\n\r\n")) == std::string::npos)
      if (!Read()) return answer;
    std::string_view head = std::string_view(bytes_).substr(0, end);
    answer.status = std::atoi(std::string(head.substr(head.find(' ') + 1, 3)).c_str());
    for (std::size_t line = head.find("\r\n"); line != std::string_view::npos; line = head.find("\r\n", line + 2)) {
      std::string_view field = head.substr(line + 2);
      field = field.substr(0, field.find("\r\n"));
      std::string name(field.substr(0, field.find(':')));
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = field.substr(field.find(':') + 2);
    }
    bytes_.erase(0, end + 4);
    if (!with_body) return answer;
    const std::size_t size = std::strtoull(answer.headers["content-length"].c_str(), nullptr, 10);
    while (bytes_.size() < size)
      if (!Read()) break;
    answer.body = bytes_.substr(0, size);
    bytes_.erase(0, answer.body.size());
    return answer;
  }

  HttpAnswer Get(const std::string& path, const std::string& more = "") {
    Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
    return Receive();
  }

  // Reads until the server closes the connection; false if it does not within a minute.
  bool AwaitEnd() {
    char some[4096];
    ssize_t n;
    while ((n = ::recv(socket_.get(), some, sizeof(some), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  bool Read() {
    char some[4096];
    const ssize_t n = ::recv(socket_.get(), some, sizeof(some), 0);
    if (n <= 0) return false;
    bytes_.append(some, static_cast<std::size_t>(n));
    return true;
  }

  Descriptor socket_;
  bool connected_ = false;
  std::string bytes_;  // received and not returned yet
};

}  // namespace tarn::net
