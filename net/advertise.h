// Determines the address under which other nodes reach a socket: that of its endpoint or, if it is bound to all
// interfaces, that of one interface. Free functions, any thread; they send nothing.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::net {

// Whether the endpoint is bound to all interfaces: tcp://0.0.0.0:PORT, tcp://*:PORT or tcp://[::]:PORT.
bool IsWildcard(const std::string& endpoint);

// The endpoint `bound` as other nodes must use it, with the same port. If `host` (a name or an address) is not empty,
// it replaces the host. Else a wildcard is replaced by the address of the interface that leads to the endpoint `peer`.
// If that is loopback, or there is no peer, or the peer has no IPv4 address, the address of the interface of the
// default route is used. kUnavailable if there is none, unless the peer is on this machine; kInvalidArgument if the
// peer's host is unknown, or if `host` is given for an endpoint that is not tcp.
Expected<std::string> AdvertisedEndpoint(const std::string& bound, const std::string& host, const std::string& peer);

}  // namespace tarn::net
