// Shows that no bytes of a client make the HTTP server read out of bounds, and that every answer to them is well-formed
// and has a documented status: 200 only for GET and HEAD with an accepted Host, and with the token if there is one.
//
// An input is a byte whose lowest bit is 1 if there is a token, then the bytes that a connection receives.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/write.hpp>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "net/http/responder.h"

namespace tarn::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr char kToken[] = "0123456789abcdef", kBody[] = "some text\n";

void CheckWellFormed(const HttpMessage& message, bool has_body) {
  std::ostringstream out;
  out << message;
  const std::string bytes = out.str();
  http::response_parser<http::string_body> parser;
  parser.skip(!has_body);
  parser.eager(true);
  error_code error;
  std::size_t used = 0;
  while (!parser.is_done() && !error) used += parser.put(asio::buffer(std::string_view(bytes).substr(used)), error);
  TARN_CHECK(!error && used == bytes.size(), "an answer is one well-formed message");
  TARN_CHECK(parser.get().result_int() == message.result_int(), "with its status");
}

void CheckAnswer(const HttpParser::value_type& request, const HttpAccess& access, const HttpMessage& message) {
  const bool reads = request.method() == http::verb::get || request.method() == http::verb::head;
  CheckWellFormed(message, request.method() != http::verb::head);
  switch (message.result_int()) {
    case 200:
      TARN_CHECK(reads && request.count(http::field::host) == 1, "only reading, and from a named host");
      TARN_CHECK(access.AcceptsHost(std::string(request[http::field::host])), "which is ours");
      TARN_CHECK(access.AcceptsAuthorization(std::string(request[http::field::authorization])), "with the token");
      TARN_CHECK(message.body() == (request.method() == http::verb::get ? kBody : ""), "the handler's answer");
      break;
    case 405: TARN_CHECK(!reads, "a method that is not allowed"); break;
    case 400:
    case 401:
    case 404:
    case 421: break;
    default: TARN_CHECK(false, "no other answer");
  }
}

void Try(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const HttpAccess access({"node7"}, (data[0] & 1) != 0 ? kToken : "");
  const Responder responder(access, {{"/text", [] { return HttpResponse{.body = kBody}; }}});
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (!rest.empty()) {
    HttpParser parser;
    Configure(&parser);
    parser.eager(true);
    error_code error;
    while (!parser.is_done() && !error && !rest.empty()) rest.remove_prefix(parser.put(asio::buffer(rest), error));
    if (error == http::error::need_more) return;  // a connection would wait for more bytes
    if (error) return CheckWellFormed(Responder::Refuse(error), true);
    if (!parser.is_done()) return;
    CheckAnswer(parser.get(), access, responder.Respond(parser.get()));
  }
}

}  // namespace
}  // namespace tarn::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tarn::net::Try(data, size);
  return 0;
}
