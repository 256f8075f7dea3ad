// Answers parsed HTTP requests, without sockets: rejects invalid ones and calls the handlers of the others. Only the
// sources of net/http/ and its tests include this header, because it includes Boost.Beast.
//
// Order of the checks: Host (400 if there is none or several, 421 if it is not accepted), token (401), method (405),
// target (400), path (404).
#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "net/http/access.h"
#include "net/http/http_server.h"

namespace tarn::net {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
using HttpMessage = boost::beast::http::response<boost::beast::http::string_body>;

// Sets the limits of a parser before it reads a request. A body is rejected.
void Configure(HttpParser* parser);

class Responder {
 public:
  Responder(HttpAccess access, HttpRoutes routes);

  HttpMessage Respond(const HttpParser::value_type& request) const;
  // The answer to bytes that are not a request or exceed the limits. The caller must close the connection after it.
  static HttpMessage Refuse(const boost::system::error_code& error);
  // The answer to a connection beyond the limit.
  static HttpMessage Overloaded(std::size_t connections_max);

 private:
  HttpResponse Answer(const HttpParser::value_type& request, HttpMessage* message) const;

  HttpAccess access_;
  HttpRoutes routes_;
};

}  // namespace tarn::net
