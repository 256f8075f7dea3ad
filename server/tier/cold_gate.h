// Holds messages whose rows are being read from disk, and later messages of the same peers, so that the order of each
// peer's messages is kept. Messages of other peers do not wait. The number of waiting messages and their bytes are
// bounded. The time to find the ready messages does not depend on the number of the others. Not thread-safe.
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
    FetchTicket ticket = 0;  // 0: it waits only for earlier messages of its peer
  };
  // Ticket of a message whose rows are not being read yet, because there was no room.
  static constexpr FetchTicket kNotBegun = ~FetchTicket{0};

  explicit ColdGate(std::size_t messages_max = limits::kWaitingMessagesMax,
                    std::size_t bytes_max = limits::kWaitingBytesMax)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // Sets the maximum number of bytes. Messages that already wait are kept.
  void SetBound(std::size_t bytes_max) { bytes_max_ = bytes_max; }
  // Whether messages of this peer wait.
  bool Holds(Peer peer) const { return peers_.contains(peer); }
  // Whether `message` repeats a waiting message of this peer (rule T2). If so, the caller drops it. A waiting push
  // takes its request id, because every attempt of a push has another one and the newest must be answered.
  bool TakesRepetition(Peer peer, const Message& message);
  // Moves the message into the gate. Returns false and changes nothing if there is no room. An empty gate accepts any
  // message.
  bool Add(Peer from, Message* message, FetchTicket ticket);
  // Calls begin(message), which starts the fetch of the message's rows and returns its ticket, for the messages whose
  // fetch has not begun, in order, until it returns kNotBegun.
  template <typename Begin>
  void BeginFetches(Begin begin) {
    for (; !not_begun_.empty(); not_begun_.pop_front()) {
      Waiting& entry = waiting_.at(not_begun_.front());
      entry.ticket = begin(entry.message);
      if (entry.ticket == kNotBegun) return;
      NoteFirst(not_begun_.front(), entry);
    }
  }
  // Removes and returns the messages that no longer wait, in order of arrival. `ended(ticket)`: whether that fetch has
  // ended; fetches end in order.
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
  using Number = std::uint64_t;  // of a message, in order of arrival
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
  void NoteFirst(Number number, const Waiting& entry);
  std::vector<Waiting> Take(std::vector<Number> ready);
  // The first message of a peer is ready: also takes the ready ones directly after it.
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
  static bool IsReady(const Waiting& entry, Ended ended) {
    return entry.ticket != kNotBegun && ended(entry.ticket);
  }

  std::size_t messages_max_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  Number next_ = 0;
  std::unordered_map<Number, Waiting> waiting_;
  std::unordered_map<Peer, OfPeer> peers_;
  std::deque<Number> not_begun_;
  // The first message of each peer, if its fetch has begun, in order of ticket, and so of the end of the fetch.
  using First = std::pair<FetchTicket, Number>;
  std::priority_queue<First, std::vector<First>, std::greater<>> firsts_;
};

}  // namespace tarn::server
