// Sends frames by ZeroMQ's sockets, in order for each lane. What a socket does not take now is kept, up to a bound.
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

  // Sends or keeps. False: dropped, since too much waits for the peer already; the caller counts it.
  bool SendOrKeep(const LaneId& to, Frames frames);
  // The same for one frame, which is copied.
  bool SendOrKeep(const LaneId& to, const FrameView& frame);
  // Sends only if nothing waits there and the socket takes it. False: cannot now, nothing is kept.
  bool SendNow(const LaneId& to, const Frames& frames) { return !backlog_.Has(to) && TrySend(to, frames); }

  // Sends what waits, as far as the sockets take it.
  void Flush();
  // Forgets what waits for the peer. Returns how many messages that were.
  std::size_t Drop(Peer peer) { return backlog_.Drop(peer); }
  // What waits.
  const Backlog& backlog() const { return backlog_; }

  // sent_*, dropped_unreachable.
  void AddTo(TransportCounters* counters) const;

 private:
  // Whether nothing remains to be done for the message: it is sent, or its peer is gone.
  template <typename What>
  bool TrySend(const LaneId& to, const What& frames);

  Router* router_;
  ZmqLinks* links_;
  Backlog backlog_;
  std::uint64_t sent_messages_ = 0, sent_bytes_ = 0, dropped_unreachable_ = 0;
  LogLimiter unreachable_limiter_;
};

}  // namespace tarn::net
