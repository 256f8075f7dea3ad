// Determines the address under which other nodes reach a socket: that of its endpoint or, if it is bound to all
// interfaces, that of one interface. Free functions, any thread; they send nothing.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::net {

// Whether the endpoint is bound to all interfaces: tcp://0.0.0.0:PORT, tcp://*:PORT or tcp://[::]:PORT.
bool IsWildcard(const std::string& endpoint);

// The endpoint `bound` as other nodes must use it, with the same port. If `host` (a name or an address) is not empty,
// it replaces the host. Else a wildcard is replaced by the IPv4 address of the first of these interfaces that exists
// and is not loopback: the one that leads to the endpoint `peer` (may be empty), that of the default route, and the
// first one that is up. If there is none, the result is a loopback address if the peer is on this machine, else
// kUnavailable. kInvalidArgument if the peer's host is unknown, if `host` is given for an endpoint that is not tcp, or
// if the result is no endpoint for messages: not UTF-8, or longer than kEndpointBytesMax.
Expected<std::string> AdvertisedEndpoint(const std::string& bound, const std::string& host, const std::string& peer);

}  // namespace tarn::net
