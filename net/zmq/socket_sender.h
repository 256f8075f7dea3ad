// Sends frames through ZeroMQ sockets, in order for each lane. Frames that a socket cannot accept now are stored, up to
// a bound.
#pragma once

#include <cstddef>

#include "core/log.h"
#include "core/message.h"
#include "net/backlog.h"
#include "net/frame.h"
#include "net/lane_id.h"
#include "net/transport.h"
#include "net/zmq/links.h"
#include "net/zmq/router.h"

namespace tarn::net {

// Owned by the thread of the sockets, which outlive it.
class SocketSender {
 public:
  SocketSender(Router* router, ZmqLinks* links, std::size_t backlog_bytes_max)
      : router_(router), links_(links), backlog_(backlog_bytes_max) {}

  // Sends or stores the frames. False: dropped, because too much waits for the peer; the caller counts it.
  bool SendOrKeep(const LaneId& to, Frames frames);
  // The same for one frame, which is copied.
  bool SendOrKeep(const LaneId& to, const FrameView& frame);
  // Sends only if nothing waits for the lane and the socket accepts the frames. False: not sent and not stored. True
  // also if the frames were dropped because the peer has disconnected.
  bool SendNow(const LaneId& to, const Frames& frames) { return !backlog_.Has(to) && TrySend(to, frames); }

  // Sends stored frames as far as the sockets accept them.
  void Flush();
  // Drops the stored messages for the peer. Returns their number.
  std::size_t Drop(Peer peer) { return backlog_.Drop(peer); }
  // The stored messages.
  const Backlog& backlog() const { return backlog_; }

  // Adds sent_* and dropped_unreachable.
  void AddTo(TransportCounters* counters) const;

 private:
  // Whether the message is done: it is sent, or its peer has disconnected.
  template <typename What>
  bool TrySend(const LaneId& to, const What& frames);

  Router* router_;
  ZmqLinks* links_;
  Backlog backlog_;
  std::uint64_t sent_messages_ = 0, sent_bytes_ = 0, dropped_unreachable_ = 0;
  LogLimiter unreachable_limiter_;
};

}  // namespace tarn::net
