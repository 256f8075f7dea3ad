// A small HTTP/1.1 server over Boost.Beast on a Boost.Asio context: GET and HEAD of a few paths, nothing else. All of
// it runs on the context's thread, so a slow client costs a connection and no thread.
//
//   auto server = HttpServer::Start(&process->io(), {}, {{"/healthz", [] { return HttpResponse{.body = "ok\n"}; }}});
//   LogInfo("http://{}", (*server)->endpoint());
//
// Limits (core/limits.h): kHttpHeaderBytesMax of a request's headers, no body, kHttpConnectionsMax connections, and
// kHttpRequestUs from the moment that a connection waits for a request until all of the request is there, and again for
// its answer. Beyond the time a connection is closed; the other limits are answered with 431, 413 and 503.
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

// By path. Handlers are called on the context's thread and must not block.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>, std::less<>>;

struct HttpServerOptions {
  HttpEndpoint listen{"127.0.0.1", 0};
  std::vector<std::string> names;  // hosts of requests that are accepted besides addresses, localhost and listen.host
  std::string token;               // requests must bring it; empty: none
  bool insecure = false;           // other machines may read it without a token
  std::size_t connections_max = limits::kHttpConnectionsMax;
  TimeUs request_us = limits::kHttpRequestUs;
};

class HttpServer {
 public:
  // Listens and serves. kInvalidArgument if other machines can reach the address and there is neither a token nor
  // `insecure`, or if the host is unknown; kUnavailable if the port is taken; kIo. The context outlives the server.
  static Expected<std::unique_ptr<HttpServer>> Start(boost::asio::io_context* io, HttpServerOptions options,
                                                     HttpRoutes routes);
  // Closes all connections. Afterwards no handler runs.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the port that the system chose.
  const HttpEndpoint& endpoint() const { return endpoint_; }

 private:
  class Impl;
  HttpServer(std::shared_ptr<Impl> impl, HttpEndpoint endpoint);

  std::shared_ptr<Impl> impl_;  // its connections hold it, too
  HttpEndpoint endpoint_;
};

}  // namespace tarn::net
