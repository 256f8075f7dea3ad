// Messages whose rows are on their way from disk, and those behind them from the same peers: each peer's stay in their
// order, and nobody else waits. Bounded. Looking for what is ready takes no time for what is not. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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

  // What waits already stays.
  void SetBound(std::size_t bytes_max) { bytes_max_ = bytes_max; }
  // Whether messages of this peer wait.
  bool Holds(Peer peer) const { return peers_.contains(peer); }
  // Whether `message` is a repetition (rule E5) of one of this peer that waits. That one is then the answer to the
  // newest attempt: every attempt of a push has a request id of its own.
  bool TakesRepetition(Peer peer, const Message& message);
  // Moves the message in; false, and nothing has happened, if there is no room. An empty gate takes any one message.
  bool Add(Peer from, Message* message, FetchTicket ticket);
  // Asks begin(message) for the tickets of messages that have none yet, in order, until it answers kNotBegun.
  template <typename Begin>
  void BeginFetches(Begin begin) {
    for (; !not_begun_.empty(); not_begun_.pop_front()) {
      Waiting& one = waiting_.at(not_begun_.front());
      one.ticket = begin(one.message);
      if (one.ticket == kNotBegun) return;
      NoteFirst(not_begun_.front(), one);
    }
  }
  // Takes out the messages that wait for nothing any more, in the order in which they came. `ended(ticket)` says which
  // fetches have ended, the older first.
  template <typename Ended>
  std::vector<Waiting> TakeReady(Ended ended) {
    std::vector<Number> ready;
    while (!firsts_.empty() && ended(firsts_.top().first)) {
      const Number first = firsts_.top().second;
      firsts_.pop();
      TakeReadyOf(first, ended, &ready);
    }
    return Take(std::move(ready));
  }

  std::size_t size() const { return waiting_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  using Number = std::uint64_t;  // of a message, in the order in which they came
  // The push id of a push's first section.
  using FirstPush = std::tuple<Incarnation, PartitionId, Sequence>;
  struct OfPeer {
    std::deque<Number> messages;
    std::unordered_set<RequestId> pulls;
    std::map<FirstPush, Number> pushes;
  };
  static std::size_t BytesOf(const Message& message);
  static FirstPush FirstOf(const Message& message, const Push& push);
  void Forget(const Message& message, Number number, OfPeer* of_peer);
  void NoteFirst(Number number, const Waiting& one);
  std::vector<Waiting> Take(std::vector<Number> ready);
  // A peer's first message is ready: which of those behind it are, too.
  template <typename Ended>
  void TakeReadyOf(Number first, Ended ended, std::vector<Number>* ready) {
    std::deque<Number>& messages = peers_.at(waiting_.at(first).from).messages;
    do {
      ready->push_back(messages.front());
      messages.pop_front();
    } while (!messages.empty() && IsReady(waiting_.at(messages.front()), ended));
    if (!messages.empty()) NoteFirst(messages.front(), waiting_.at(messages.front()));
  }
  template <typename Ended>
  static bool IsReady(const Waiting& one, Ended ended) {
    return one.ticket != kNotBegun && ended(one.ticket);
  }

  std::size_t messages_max_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  Number next_ = 0;
  std::unordered_map<Number, Waiting> waiting_;
  std::unordered_map<Peer, OfPeer> peers_;
  std::deque<Number> not_begun_;
  // Of each peer the first message, if its fetch has begun, those first whose fetch ends first.
  using First = std::pair<FetchTicket, Number>;
  std::priority_queue<First, std::vector<First>, std::greater<>> firsts_;
};

}  // namespace tarn::server
