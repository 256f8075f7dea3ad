#include "net/http/responder.h"

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "core/limits.h"

namespace tarn::net {
namespace http = boost::beast::http;
namespace {

constexpr unsigned kHttp11 = 11;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

HttpResponse Text(http::status status, std::string text) {
  return {static_cast<unsigned>(status), "text/plain; charset=utf-8", std::move(text) + "\n"};
}

// The answer to HEAD has no body, but the Content-Length of the answer to GET.
void Fill(HttpResponse response, bool with_body, HttpMessage* message) {
  message->result(response.status);
  message->set(http::field::content_type, response.content_type);
  message->set(http::field::cache_control, "no-store");
  message->set("X-Content-Type-Options", "nosniff");
  message->content_length(response.body.size());
  if (with_body) message->body() = std::move(response.body);
}

// An answer after which the connection is closed.
HttpMessage FinalAnswer(http::status status, std::string text) {
  HttpMessage message;
  message.version(kHttp11);
  Fill(Text(status, std::move(text)), true, &message);
  message.keep_alive(false);
  return message;
}

}  // namespace

void Configure(HttpParser* parser) {
  parser->header_limit(limits::kHttpHeaderBytesMax);
  parser->body_limit(0);
}

Responder::Responder(HttpAccess access, HttpRoutes routes) : access_(std::move(access)), routes_(std::move(routes)) {}

HttpMessage Responder::Respond(const HttpParser::value_type& request) const {
  HttpMessage message;
  message.version(request.version());
  HttpResponse response;
  try {
    response = Answer(request, &message);
  } catch (const std::exception&) {  // out of memory; the run continues without this answer
    response = Text(http::status::internal_server_error, "cannot answer now");
  }
  Fill(std::move(response), request.method() != http::verb::head, &message);
  message.keep_alive(request.keep_alive());
  return message;
}

HttpResponse Responder::Answer(const HttpParser::value_type& request, HttpMessage* message) const {
  if (request.count(http::field::host) != 1) return Text(http::status::bad_request, "expected one Host header");
  if (!access_.AcceptsHost(View(request[http::field::host])))
    return Text(http::status::misdirected_request,
                "unknown Host: expected an IP address, localhost or a configured name (--http, --advertise)");
  if (request.count(http::field::authorization) > 1 ||
      !access_.AcceptsAuthorization(View(request[http::field::authorization]))) {
    message->set(http::field::www_authenticate, "Bearer");
    return Text(http::status::unauthorized, "expected Authorization: Bearer TOKEN");
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    message->set(http::field::allow, "GET, HEAD");
    return Text(http::status::method_not_allowed, "expected GET or HEAD");
  }
  std::string_view path = View(request.target());
  if (!path.starts_with('/')) return Text(http::status::bad_request, "expected a target that begins with /");
  path = path.substr(0, path.find('?'));
  const auto route = routes_.find(path);
  if (route != routes_.end()) return route->second();
  std::string known;
  for (const auto& [name, handler] : routes_) known += (known.empty() ? "" : ", ") + name;
  return Text(http::status::not_found, "not found; this server has " + known);
}

HttpMessage Responder::Refuse(const boost::system::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return FinalAnswer(http::status::request_header_fields_too_large,
                       "expected at most " + std::to_string(limits::kHttpHeaderBytesMax) + " bytes of headers");
  if (error == http::error::body_limit || error == http::error::unexpected_body)
    return FinalAnswer(http::status::payload_too_large, "expected no body");
  return FinalAnswer(http::status::bad_request, "malformed request: " + error.message());
}

HttpMessage Responder::Overloaded(std::size_t connections_max) {
  return FinalAnswer(http::status::service_unavailable,
                     "expected at most " + std::to_string(connections_max) + " connections");
}

}  // namespace tarn::net
