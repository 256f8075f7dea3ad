#include "net/http/endpoint.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <charconv>

namespace tarn::net {
namespace {

constexpr std::size_t kHostBytesMax = 253;  // of a name (RFC 1035)

bool IsHost(std::string_view host) {
  if (host.empty() || host.size() > kHostBytesMax) return false;
  for (const char c : host)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
          c == '_'))
      return false;
  return true;
}

}  // namespace

bool IsIpAddress(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

Expected<HttpEndpoint> ParseHttpEndpoint(std::string_view text) {
  const auto refuse = [&] {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--http {}: expected HOST:PORT or [IPV6]:PORT, with a port of 0 to 65535 or *; or none", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  HttpEndpoint endpoint{std::string(host), 0};
  if (bracketed ? !IsIpAddress(endpoint.host) || host.find(':') == std::string_view::npos : !IsHost(host))
    return refuse();
  if (port == "*") return endpoint;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) return refuse();
  return endpoint;
}

std::string ToString(const HttpEndpoint& endpoint) {
  const bool bracketed = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", bracketed ? "[" : "", endpoint.host, bracketed ? "]" : "", endpoint.port);
}

}  // namespace tarn::net
