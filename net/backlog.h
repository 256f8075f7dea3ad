// Encoded messages that a socket did not take yet, in order, for each peer up to a number of bytes.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "net/frame.h"

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

  bool Has(Peer peer) const { return queues_.contains(peer); }
  bool empty() const { return queues_.empty(); }
  std::size_t bytes() const { return bytes_; }

  // False, and nothing kept, if the peer would have more than its bytes. An empty queue takes any one message.
  bool Push(Peer peer, Frames frames) {
    const std::size_t size = BytesOf(frames);
    const auto found = queues_.find(peer);
    if (found != queues_.end() && found->second.bytes + size > bytes_max_) return false;
    Queue& queue = found != queues_.end() ? found->second : queues_[peer];
    queue.messages.push_back(std::move(frames));
    queue.bytes += size;
    bytes_ += size;
    return true;
  }

  // Returns how many messages were waiting.
  std::size_t Drop(Peer peer) {
    const auto found = queues_.find(peer);
    if (found == queues_.end()) return 0;
    std::size_t dropped = 0;
    for (const Frames& frames : found->second.messages) dropped += MessagesIn(frames);
    bytes_ -= found->second.bytes;
    queues_.erase(found);
    return dropped;
  }

  // Offers each peer's messages, oldest first, to send(peer, frames) until it says false for that peer.
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

  // Calls visit(peer) for each peer that has something waiting.
  template <typename Visit>
  void ForEachPeer(Visit visit) const {
    for (const auto& [peer, queue] : queues_) visit(peer);
  }

 private:
  struct Queue {
    std::deque<Frames> messages;
    std::size_t bytes = 0;
  };

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::unordered_map<Peer, Queue> queues_;
};

}  // namespace tarn::net
