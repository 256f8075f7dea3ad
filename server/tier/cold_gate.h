// Messages whose rows are on their way from disk, and those behind them from the same peers: each peer's stay in their
// order, and nobody else waits. Bounded. Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "server/tier/residency.h"

namespace tarn::server {

class ColdGate {
 public:
  struct Waiting {
    Peer from;
    Message message;
    FetchTicket ticket = 0;  // 0: it waits only for those before it
  };
  // Its rows are not being read yet: there was no room.
  static constexpr FetchTicket kNotBegun = ~FetchTicket{0};

  explicit ColdGate(std::size_t messages_max = limits::kWaitingMessagesMax,
                    std::size_t bytes_max = limits::kWaitingBytesMax)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // Whether messages of this peer wait.
  bool Holds(Peer peer) const { return peers_.contains(peer); }
  // Whether a request of this peer waits already, of which `message` is a repetition (rule E5).
  bool HoldsRequest(Peer peer, const Message& message) const;
  // Moves the message in; false, and nothing has happened, if there is no room. An empty gate takes any one message.
  bool Add(Peer from, Message* message, FetchTicket ticket);
  // Asks begin(message) for the tickets of messages that have none yet, in order, until it answers kNotBegun.
  template <typename Begin>
  void BeginFetches(Begin begin) {
    for (Waiting& one : waiting_) {
      if (one.ticket != kNotBegun) continue;
      one.ticket = begin(one.message);
      if (one.ticket == kNotBegun) return;
    }
  }
  // Takes out the messages that wait for nothing any more, in the order in which they came.
  std::vector<Waiting> TakeReady(const Residency& tier);

  std::size_t size() const { return waiting_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct OfPeer {
    std::size_t messages = 0;
    std::unordered_set<RequestId> requests;
  };
  static std::size_t BytesOf(const Message& message);
  static RequestId RequestOf(const Message& message);

  std::size_t messages_max_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::deque<Waiting> waiting_;
  std::unordered_map<Peer, OfPeer> peers_;
};

}  // namespace tarn::server
