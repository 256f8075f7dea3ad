// A socket together with what is known of it: whether it may hold messages. Asking a socket costs system calls, so the
// transport asks only those of which a poll of their files said so, and those that have sent since: a send may take in
// what the poll would have said (ZMQ_FD announces a change once).
#pragma once

#include <string_view>
#include <utility>

#include "net/zmq/context.h"
#include "net/zmq/socket.h"

namespace tarn::net {

// Owned by one thread.
struct Lane {
  // A new socket, with the keys of the context if there are any. Errors as of Socket::Open.
  static Expected<Lane> Open(ZmqContext* context, zmq::socket_type type, const SocketOptions& options) {
    Expected<Socket> socket = Socket::Open(context->raw(), type, options);
    if (!socket) return std::unexpected(socket.error());
    if (const CurveKeys* keys = context->keys())
      TARN_RETURN_IF_ERROR(ApplyCurveKeys(*keys, type == zmq::socket_type::router, &socket->raw()));
    return Lane(std::move(*socket));
  }

  explicit Lane(Socket its_socket) : socket(std::move(its_socket)), file(socket.file()) {}

  template <typename Frames>
  SendResult Send(std::string_view identity, const Frames& frames) {
    may_hold = true;
    return socket.Send(identity, frames);
  }
  bool Receive(Parts* parts) { return may_hold = socket.Receive(parts); }

  Socket socket;
  int file;  // to poll
  bool may_hold = true;
};

}  // namespace tarn::net
