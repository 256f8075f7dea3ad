// Answers HTTP requests once they are parsed, without sockets: which requests are refused and why, and which handler
// has the answer. Only the sources of net/http/ and its tests include this header, which includes Boost.Beast.
//
// Order of the checks: Host (400 for none or several, 421 for one that is not accepted), token (401), method (405),
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

// Before it parses a request: sets the limits. A body is refused.
void Configure(HttpParser* parser);

class Responder {
 public:
  Responder(HttpAccess access, HttpRoutes routes);

  HttpMessage Respond(const HttpParser::value_type& request) const;
  // The answer to bytes that are no request, or not within the limits; the connection is to be closed behind it.
  static HttpMessage Refuse(const boost::system::error_code& error);
  // The answer to a connection beyond the limit.
  static HttpMessage Overloaded();

 private:
  HttpResponse Answer(const HttpParser::value_type& request, HttpMessage* message) const;

  HttpAccess access_;
  HttpRoutes routes_;
};

}  // namespace tarn::net
