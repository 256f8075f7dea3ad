// Delays messages whose rows are on disk: the tier reads the rows while the shard continues, and the message is handled
// when they are in memory (rules T2 to T4). Rows that are still missing then, because they were evicted again or belong
// to a clock that closes, are read by the store synchronously. Only for stores with a tier. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_set>
#include <vector>

#include "core/message.h"
#include "server/clock/table_policies.h"
#include "server/shard/clocks.h"
#include "server/shard/senders.h"
#include "server/shard/shard_counters.h"
#include "server/store/store.h"
#include "server/tier/cold_gate.h"

namespace tarn::server {

class RowGate {
 public:
  // Parts of the shard that the gate uses; all outlive this object.
  struct Context {
    Store* rows;
    const Clocks* clocks;
    const TablePolicies* policies;
    Senders* senders;
    ShardCounters* counters;
  };
  RowGate(std::size_t messages_max, std::size_t bytes_max, const Context& context)
      : context_(context), gate_(messages_max, bytes_max), queued_bytes_max_(bytes_max) {}

  // Returns whether the gate took the message: the message waits for rows on disk or for an earlier message of its
  // peer, or was rejected. A pull that must wait for its clock, or a push that is only gathered, is not taken; its rows
  // are fetched meanwhile, as soon as there is room.
  bool Waits(Peer from, Message& message);

  // Starts the fetches for which there was no room, and returns the messages that no longer wait, in order.
  std::vector<ColdGate::Waiting> TakeReady();

  // Whether TakeReady has nothing to do.
  bool idle() const { return gate_.size() == 0 && queued_.empty(); }

  // Sets the maximum bytes of the waiting messages and, separately, of the queued fetches.
  void SetBound(std::size_t bytes_max) {
    gate_.SetBound(bytes_max);
    queued_bytes_max_ = bytes_max;
  }
  std::size_t size() const { return gate_.size(); }
  std::size_t bytes() const { return gate_.bytes() + queued_bytes_; }

 private:
  struct Needed {
    const TableSpec* table;
    ValueCodec codec;
    const KeyList* keys;
    bool now;  // the message can be handled only when the rows are in memory
  };
  // Keys of a message that does not wait for their rows, which are fetched when there is room.
  struct QueuedFetch {
    TableId table;
    ValueCodec codec;
    KeyList keys;
    std::uint64_t hash;  // of the table and the keys: a repeated message adds nothing
  };
  static std::size_t BytesQueued(const KeyList& keys);
  std::vector<QueuedFetch> ToQueue(std::span<const Needed> needed) const;
  void Queue(std::vector<QueuedFetch> fetches);
  void BeginQueued();
  std::vector<Needed> RowsNeeded(const Message& message) const;
  bool IsOpen(const TableSpec& spec, Incarnation worker, Clock use) const;
  FetchTicket Fetch(std::span<const Needed> needed);
  FetchTicket Fetch(const Needed& needed);
  FetchTicket BeginFetch(const Message& message);

  Context context_;
  ColdGate gate_;
  std::deque<QueuedFetch> queued_;  // in order of arrival
  std::unordered_set<std::uint64_t> queued_hashes_;
  std::size_t queued_bytes_ = 0, queued_bytes_max_;
  std::vector<Key> keys_;  // scratch
};

}  // namespace tarn::server
