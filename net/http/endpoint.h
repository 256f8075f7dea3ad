// The address on which an HTTP server listens. Free functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn::net {

struct HttpEndpoint {
  std::string host;        // a name or an address, IPv6 without brackets
  std::uint16_t port = 0;  // 0: the system chooses
};

// Parses "HOST:PORT", or "[ADDRESS]:PORT" for an IPv6 address; port * or 0: the system chooses. kInvalidArgument.
Expected<HttpEndpoint> ParseHttpEndpoint(std::string_view text);

// "HOST:PORT"; an IPv6 address is in brackets.
std::string ToString(const HttpEndpoint& endpoint);

// Whether `host` is an IPv4 or IPv6 address, without brackets.
bool IsIpAddress(const std::string& host);

}  // namespace tarn::net
