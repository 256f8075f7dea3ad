// A socket, and whether it may have messages. Checking a socket costs system calls, so the transport checks only
// sockets whose file was reported by poll, and those that have sent since: a send may consume the event of the file
// (ZMQ_FD is edge-triggered).
#pragma once

#include <string_view>
#include <utility>

#include "net/zmq/context.h"
#include "net/zmq/socket.h"

namespace tarn::net {

// Owned by one thread.
struct PolledSocket {
  // Opens a socket, with the keys of the context if it has keys. Errors as for Socket::Open.
  static Expected<PolledSocket> Open(ZmqContext* context, zmq::socket_type type, const SocketOptions& options) {
    Expected<Socket> socket = Socket::Open(context->raw(), type, options);
    if (!socket) return std::unexpected(socket.error());
    if (const CurveKeys* keys = context->keys())
      TARN_RETURN_IF_ERROR(ApplyCurveKeys(*keys, type == zmq::socket_type::router, &socket->raw()));
    return PolledSocket(std::move(*socket));
  }

  explicit PolledSocket(Socket its_socket) : socket(std::move(its_socket)), file(socket.file()) {}

  template <typename Frames>
  SendResult Send(std::string_view identity, const Frames& frames) {
    may_hold = true;
    return socket.Send(identity, frames);
  }
  bool Receive(Parts* parts) { return may_hold = socket.Receive(parts); }

  Socket socket;
  int file;  // the file to poll
  bool may_hold = true;
};

}  // namespace tarn::net
