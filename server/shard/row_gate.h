// Messages that wait for rows on disk: the tier reads those rows beside the shard's work, and a message is handled once
// its rows are in memory (rules T2 to T4). The store reads by itself what is missing then: a row that was evicted
// between its fetch and its use, or the rows of a clock that closes. Only for stores with a tier. Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
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
  struct Context {
    Store* rows;
    const Clocks* clocks;
    const TablePolicies* policies;
    Senders* senders;
    ShardCounters* counters;
  };
  RowGate(std::size_t messages_max, std::size_t bytes_max, const Context& context)
      : context_(context), gate_(messages_max, bytes_max) {}

  // Whether the gate took the message: it waits for rows on disk, or behind another message of its peer that does, or
  // it was refused. A pull that has to wait for its clock and a push that is only gathered are not taken: their rows
  // are fetched meanwhile.
  bool Waits(Peer from, Message& message);

  // Begins the fetches for which there was no room before, and returns the messages that wait no longer, in order.
  std::vector<ColdGate::Waiting> TakeReady();

  void SetBound(std::size_t bytes_max) { gate_.SetBound(bytes_max); }
  std::size_t size() const { return gate_.size(); }
  std::size_t bytes() const { return gate_.bytes(); }

 private:
  struct Needed {
    const TableSpec* table;
    ValueCodec codec;
    const KeyList* keys;
    bool now;  // the message cannot be handled before they are in memory
  };
  std::optional<Needed> RowsNeeded(const Message& message) const;
  bool IsOpen(const TableSpec& spec, Incarnation worker, Clock use) const;
  FetchTicket Fetch(const Needed& needed, const Message& message);
  FetchTicket BeginFetch(const Message& message);

  Context context_;
  ColdGate gate_;
  std::vector<Key> keys_;  // scratch
};

}  // namespace tarn::server
