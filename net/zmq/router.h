// Those who connect to us: the ROUTER socket, the peers behind it, and the watch over their connections.
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
#include "net/zmq/lane.h"
#include "net/zmq/socket.h"

namespace tarn::net {

struct RouterOptions {
  SocketOptions socket;
  std::size_t accepted_peers_max = 0;    // beyond, those unheard for longest are forgotten
  std::size_t unfinished_bytes_max = 0;  // of a connection since its last whole message; one beyond is ended
};

// Owned by one thread. Has no socket until Bind.
class Router {
 public:
  explicit Router(const RouterOptions& options) : options_(options), peers_(options.accepted_peers_max) {}

  // `address` is ZeroMQ's (net/zmq/address.h); may be called for several. Returns it with the port that was chosen.
  Expected<std::string> Bind(ZmqContext* context, const std::string& address);

  // Null before Bind.
  Lane* lane() { return lane_ ? &*lane_ : nullptr; }
  bool MayHold() const { return lane_ && lane_->may_hold; }

  // To an accepted peer. kUnreachable: it is not known, or gone, and now forgotten.
  SendResult Send(Peer to, const Frames& frames);
  SendResult Send(Peer to, const FrameView& frame);

  // Who sent the message that the lane has received; its first part names them.
  Peer SenderOf(Parts* message);
  // Heard just now, in another way than over the socket.
  void Touch(Peer peer) { peers_.Touch(peer); }
  std::size_t peers() const { return peers_.size(); }

  // To be called often: ZeroMQ's own thread waits when too many failures are waiting. Looks ten times a second.
  void CountFailures(TimeUs now);
  // Connections that failed before they carried a message, so far.
  std::uint64_t failures() const { return failures_; }

  // Ends connections that send a message without end. Looks ten times a second, when the lane has been found empty.
  // Returns how many it has ended.
  std::uint64_t EndEndless();

 private:
  template <typename What>
  SendResult SendAny(Peer to, const What& frames);

  RouterOptions options_;
  AcceptedPeers peers_;
  std::optional<Lane> lane_;
  ConnectionWatch connections_;  // behind the socket that it watches
  TimeUs next_count_ = 0, next_endless_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace tarn::net
