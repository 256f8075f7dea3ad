#include "net/advertise.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "core/limits.h"
#include "core/names.h"
#include "core/utf8.h"

namespace tarn::net {
namespace {

constexpr std::string_view kTcp = "tcp://";
// An address reserved for documentation (RFC 5737): its route is the default route.
constexpr const char* kDocumentationAddress = "192.0.2.1";
constexpr std::uint16_t kAnyPort = 9;

// The host of "tcp://HOST:PORT"; empty for other endpoints.
std::string HostOf(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size()) return {};
  return endpoint.substr(kTcp.size(), colon - kTcp.size());
}

std::string TextOf(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

bool IsLoopbackAddress(const in_addr& address) { return ntohl(address.s_addr) >> 24 == 127; }

// The IPv4 address of a resolved address. ::1 becomes 127.0.0.1, because ZeroMQ's sockets are bound to IPv4 addresses.
// nullopt: another IPv6 address.
std::optional<in_addr> Ipv4Of(const addrinfo& info) {
  if (info.ai_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, info.ai_addr, sizeof address);
    return address.sin_addr;
  }
  if (info.ai_family != AF_INET6) return std::nullopt;
  sockaddr_in6 address{};
  std::memcpy(&address, info.ai_addr, sizeof address);
  if (!IN6_IS_ADDR_LOOPBACK(&address.sin6_addr)) return std::nullopt;
  return in_addr{htonl(INADDR_LOOPBACK)};
}

// Resolves a name, or an address of either family, IPv6 in brackets. nullopt: it exists, but has no IPv4 address.
Expected<std::optional<in_addr>> Resolve(const std::string& host) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  addrinfo hints{};
  hints.ai_family = bracketed ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("host '{}': {}", host, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::optional<in_addr> address;
  for (const addrinfo* it = list.get(); it != nullptr; it = it->ai_next) {
    if (!address || it->ai_family == AF_INET) address = Ipv4Of(*it);
    if (address && it->ai_family == AF_INET) break;
  }
  return address;
}

// The local address of connections to `to`. Connecting a datagram socket sends nothing.
std::optional<in_addr> SourceTowards(const in_addr& to) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = to;
  address.sin_port = htons(kAnyPort);
  socklen_t size = sizeof address;
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  if (!known) return std::nullopt;
  return address.sin_addr;
}

// The IPv4 address of the first interface that is up and not loopback.
std::optional<in_addr> FirstInterface() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(found, &freeifaddrs);
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET || (it->ifa_flags & IFF_UP) == 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, it->ifa_addr, sizeof address);
    if (!IsLoopbackAddress(address.sin_addr)) return address.sin_addr;
  }
  return std::nullopt;
}

// The address of the interface of the default route, else of the first interface.
std::optional<in_addr> DefaultAddress() {
  in_addr remote{};
  inet_pton(AF_INET, kDocumentationAddress, &remote);
  if (const auto source = SourceTowards(remote); source && !IsLoopbackAddress(*source)) return source;
  return FirstInterface();
}

Expected<std::string> ReachableHost(const std::string& bound, const std::string& peer) {
  std::optional<in_addr> towards_peer;
  if (const std::string peer_host = HostOf(peer); !peer_host.empty()) {
    const auto address = Resolve(peer_host);
    if (!address) return std::unexpected(address.error());
    if (*address) towards_peer = SourceTowards(**address);
    if (towards_peer && !IsLoopbackAddress(*towards_peer)) return TextOf(*towards_peer);
  }
  if (const auto address = DefaultAddress()) return TextOf(*address);
  if (towards_peer) return TextOf(*towards_peer);
  return Fail(ErrorCode::kUnavailable,
              fmt::format("{}: bound to all interfaces, but only loopback is up; use --advertise HOST to set the "
                          "address for other nodes",
                          bound));
}

// Checks that a message can have the endpoint (Join.endpoint in schemas/wire.fbs).
Expected<std::string> CheckEndpoint(std::string endpoint) {
  if (endpoint.size() <= limits::kEndpointBytesMax && IsUtf8(endpoint)) return endpoint;
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} bytes, expected at most {} of UTF-8", Quoted(endpoint),
                                                       endpoint.size(), limits::kEndpointBytesMax));
}

}  // namespace

bool IsWildcard(const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  return host == "0.0.0.0" || host == "*" || host == "[::]";
}

Expected<std::string> AdvertisedEndpoint(const std::string& bound, const std::string& host, const std::string& peer) {
  if (host.empty() && !IsWildcard(bound)) return CheckEndpoint(bound);
  if (!bound.starts_with(kTcp))
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: only tcp endpoints have a host to advertise", bound));
  const auto reachable = host.empty() ? ReachableHost(bound, peer) : Expected<std::string>(host);
  if (!reachable) return reachable;
  return CheckEndpoint(fmt::format("{}{}{}", kTcp, *reachable, bound.substr(bound.rfind(':'))));
}

}  // namespace tarn::net
