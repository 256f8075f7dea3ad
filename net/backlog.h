// Encoded messages that a socket has not accepted yet, in order for each lane. Bounded in bytes per peer.
#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "net/frame.h"
#include "net/lane_id.h"

namespace tarn::net {

using Frames = std::vector<Buffer>;

inline std::size_t BytesOf(const Frames& frames) {
  std::size_t bytes = 0;
  for (const Buffer& frame : frames) bytes += frame.size();
  return bytes;
}
inline std::size_t BytesOf(const FrameView& frame) { return frame.size; }

inline std::size_t MessagesIn(const Frames& frames) { return MessagesIn({frames[0].data(), frames[0].size()}); }

// Not thread-safe.
class Backlog {
 public:
  explicit Backlog(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  bool Has(const LaneId& lane) const { return queues_.contains(lane); }
  bool empty() const { return queues_.empty(); }
  std::size_t bytes() const { return bytes_; }

  // Returns false if the peer would exceed its bytes over all its lanes. A peer without waiting messages accepts one
  // message of any size.
  bool Push(const LaneId& lane, Frames frames) {
    const std::size_t size = BytesOf(frames);
    const std::size_t waiting = queues_.empty() ? 0 : BytesFor(lane.peer);
    if (waiting != 0 && waiting + size > bytes_max_) return false;
    Queue& queue = queues_[lane];
    queue.messages.push_back(std::move(frames));
    queue.bytes += size;
    bytes_ += size;
    return true;
  }

  // Drops the messages of a peer; returns their number.
  std::size_t Drop(Peer peer) {
    std::size_t dropped = 0;
    for (auto it = FirstOf(peer); it != queues_.end() && it->first.peer == peer; it = queues_.erase(it)) {
      for (const Frames& frames : it->second.messages) dropped += MessagesIn(frames);
      bytes_ -= it->second.bytes;
    }
    return dropped;
  }

  // Passes each lane's messages, oldest first, to send(lane, frames), until it returns false for that lane.
  template <typename Send>
  void Flush(Send send) {
    for (auto it = queues_.begin(); it != queues_.end();) {
      Queue& queue = it->second;
      while (!queue.messages.empty() && send(it->first, queue.messages.front())) {
        const std::size_t size = BytesOf(queue.messages.front());
        queue.messages.pop_front();
        queue.bytes -= size;
        bytes_ -= size;
      }
      it = queue.messages.empty() ? queues_.erase(it) : std::next(it);
    }
  }

  // Calls visit(lane) for each lane with waiting messages.
  template <typename Visit>
  void ForEachLane(Visit visit) const {
    for (const auto& [lane, queue] : queues_) visit(lane);
  }

 private:
  struct Queue {
    std::deque<Frames> messages;
    std::size_t bytes = 0;
  };
  using Queues = std::map<LaneId, Queue>;

  Queues::const_iterator FirstOf(Peer peer) const { return queues_.lower_bound(LaneId(peer)); }
  std::size_t BytesFor(Peer peer) const {
    std::size_t bytes = 0;
    for (auto it = FirstOf(peer); it != queues_.end() && it->first.peer == peer; ++it) bytes += it->second.bytes;
    return bytes;
  }

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  Queues queues_;  // no queue is empty
};

}  // namespace tarn::net
