// Under which address other nodes reach a socket of ours: the one that it is bound to, unless that is every interface
// of the machine, which is no address to connect to. Free functions, any thread; they send nothing.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::net {

// Whether the endpoint is bound to all interfaces: tcp://0.0.0.0:PORT, tcp://*:PORT or tcp://[::]:PORT.
bool IsWildcard(const std::string& endpoint);

// `bound` as others are to be told it, with the same port. `host` (a name or an address) says where they reach us, if
// it is not empty. Else an endpoint that is no wildcard stays as it is, and a wildcard gets the address of the
// interface that leads to `peer`, an endpoint; where that is loopback, or there is no peer, or the peer has no IPv4
// address, that of the interface that leads out of the machine. kUnavailable if there is none, unless the peer is on
// this machine; kInvalidArgument if the peer's host is unknown.
Expected<std::string> AdvertisedEndpoint(const std::string& bound, const std::string& host, const std::string& peer);

}  // namespace tarn::net
