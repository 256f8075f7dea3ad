// A small HTTP/1.1 server over Boost.Beast on a Boost.Asio context: GET and HEAD of a few paths only. It runs on the
// context's thread, so a slow client occupies a connection but no thread.
//
//   auto server = HttpServer::Start(&process->io(), {}, {{"/healthz", [] { return HttpResponse{.body = "ok\n"}; }}});
//   LogInfo("http://{}", ToString((*server)->endpoint()));
//
// Limits (core/limits.h): the headers of a request have at most kHttpHeaderBytesMax (else 431), a request has no body
// (else 413), and there are at most kHttpConnectionsMax connections (else 503). A connection is closed if receiving a
// request, or sending its answer, takes longer than kHttpRequestUs.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/limits.h"
#include "core/types.h"
#include "net/http/endpoint.h"

namespace boost::asio {
class io_context;
}  // namespace boost::asio

namespace tarn::net {

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Handlers by path. They are called on the context's thread and must not block.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>, std::less<>>;

struct HttpServerOptions {
  HttpEndpoint listen{"127.0.0.1", 0};
  std::vector<std::string> names;  // accepted Host names besides IP addresses, localhost and listen.host
  std::string token;               // required of requests; empty: none
  bool insecure = false;           // an address that other machines can reach needs no token
  std::size_t connections_max = limits::kHttpConnectionsMax;
  TimeUs request_us = limits::kHttpRequestUs;
};

class HttpServer {
 public:
  // Listens and serves. kInvalidArgument if other machines can reach the address and there is neither a token nor
  // `insecure`, or if the host is unknown; kUnavailable if the port is taken; kIo. The context outlives the server.
  static Expected<std::unique_ptr<HttpServer>> Start(boost::asio::io_context* io, HttpServerOptions options,
                                                     HttpRoutes routes);
  // Closes all connections. No handler runs afterwards. Waits for the context's thread, so that thread must be running
  // and must not call this.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address on which it listens, with the chosen port.
  const HttpEndpoint& endpoint() const { return endpoint_; }

 private:
  class Impl;
  HttpServer(std::shared_ptr<Impl> impl, HttpEndpoint endpoint);

  std::shared_ptr<Impl> impl_;  // shared with its connections
  HttpEndpoint endpoint_;
};

}  // namespace tarn::net
