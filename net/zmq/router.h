// The side that accepts connections: the ROUTER socket, its peers, and the monitor of their connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/message.h"
#include "core/types.h"
#include "net/accepted_peers.h"
#include "net/backlog.h"
#include "net/frame.h"
#include "net/zmq/connections.h"
#include "net/zmq/context.h"
#include "net/zmq/polled_socket.h"
#include "net/zmq/socket.h"

namespace tarn::net {

struct RouterOptions {
  SocketOptions socket;
  std::size_t accepted_peers_max = 0;    // beyond this, those silent for longest are removed
  std::size_t unfinished_bytes_max = 0;  // of a connection, since its last complete message; beyond, it is closed
};

// Owned by one thread. Has no socket until Bind.
class Router {
 public:
  explicit Router(const RouterOptions& options) : options_(options), peers_(options.accepted_peers_max) {}

  // `address`: for ZeroMQ (net/zmq/address.h). May be called for several addresses. Returns the address with the chosen
  // port.
  Expected<std::string> Bind(ZmqContext* context, const std::string& address);

  // Null before Bind.
  PolledSocket* socket() { return socket_ ? &*socket_ : nullptr; }
  bool MayHold() const { return socket_ && socket_->may_hold; }

  // Sends to an accepted peer. kUnreachable: the peer is unknown, or has disconnected and is removed.
  SendResult Send(Peer to, const Frames& frames);
  SendResult Send(Peer to, const FrameView& frame);

  // The sender of a received message, from its first part.
  Peer SenderOf(Parts* message);
  // Records activity of the peer on another channel.
  void Touch(Peer peer) { peers_.Touch(peer); }
  std::size_t peers() const { return peers_.size(); }

  // Reads the queue of connection events, at most ten times a second; `now` INT64_MAX: in any case. Call it often,
  // because the queue has no bound.
  void CountFailures(TimeUs now);
  // Number of connections so far that failed before their first message.
  std::uint64_t failures() const { return failures_; }

  // Closes connections whose unfinished message exceeds the limit. Checks at most ten times a second, and only when the
  // socket was found empty. Returns the number of closed connections.
  std::uint64_t CloseOversizedSenders();

 private:
  template <typename What>
  SendResult SendAny(Peer to, const What& frames);

  RouterOptions options_;
  AcceptedPeers peers_;
  std::optional<PolledSocket> socket_;
  ConnectionWatch connections_;  // destroyed before the socket
  TimeUs next_count_ = 0, next_oversized_check_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace tarn::net
