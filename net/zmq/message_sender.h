// Encodes and sends messages: through shared memory to peers that share memory, through sockets to all others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/log.h"
#include "core/message.h"
#include "net/backlog.h"
#include "net/bundles.h"
#include "net/frame.h"
#include "net/lane_id.h"
#include "net/shm_peers.h"
#include "net/transport.h"
#include "net/zmq/links.h"
#include "net/zmq/socket_sender.h"

namespace tarn::net {

// Owned by the thread of the objects that it uses; they outlive it.
class MessageSender {
 public:
  // `waiting_bytes_max`: bound of a peer's waiting messages, for log lines only.
  MessageSender(ZmqLinks* links, ShmPeers* shm, SocketSender* sockets, std::size_t waiting_bytes_max)
      : links_(links), shm_(shm), sockets_(sockets), waiting_bytes_max_(waiting_bytes_max) {}

  // Small messages are sent by the next Flush at the latest. A message that cannot be encoded, or for which there is no
  // room, is dropped and counted.
  void Add(Peer to, const Message& message);
  void Flush();

  // Adds the messages sent through shared memory, and dropped_backlog, dropped_unencodable.
  void AddTo(TransportCounters* counters) const;

 private:
  // Callback of Bundles: sends the Frames of a large message (not copied), or a FrameView of small ones (copied).
  struct SendTo {
    MessageSender* sender;
    template <typename FrameOrFrames>
    void operator()(const LaneId& to, FrameOrFrames what) const;
  };

  LaneId LaneFor(Peer to, const Message& message);
  // False: the message was dropped.
  template <typename FrameOrFrames>
  bool Send(const LaneId& to, FrameOrFrames what);

  ZmqLinks* links_;
  ShmPeers* shm_;
  SocketSender* sockets_;
  std::size_t waiting_bytes_max_;
  Encoder encoder_;
  Bundles bundles_;
  std::uint64_t sent_messages_ = 0, sent_bytes_ = 0, dropped_backlog_ = 0, dropped_unencodable_ = 0;
  LogLimiter unencodable_limiter_, backlog_limiter_;
};

}  // namespace tarn::net
