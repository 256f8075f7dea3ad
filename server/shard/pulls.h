// Handles pulls: checks each and answers it, at once or as soon as its table's policy allows it and its worker's own
// pushes have arrived (rules C3, C7). Not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "server/clock/table_policies.h"
#include "server/shard/clocks.h"
#include "server/shard/key_lists.h"
#include "server/shard/parked_pulls.h"
#include "server/shard/reply_budget.h"
#include "server/shard/senders.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_step.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"

namespace tarn::server {

class Pulls {
 public:
  // What pulls need of the shard; all outlive them.
  struct Context {
    const Store* rows;
    const Clocks* clocks;
    const TablePolicies* policies;
    KeyLists* lists;
    Senders* senders;
    ShardStep* step;
    StopNotice* stop;
    ShardCounters* counters;
    ShardObserver* observer;
  };
  Pulls(const ShardOptions& options, const Context& context);

  // Handles a pull of a live worker; the keys are in the message. The caller answers with an error that is returned.
  Status OnPull(Peer from, Pull pull, const Message& message);

  // Answers the pulls that waited for a clock that is open now; and those that waited only for pushes of this worker.
  void AnswerOpened();
  void AnswerAfterPush(Incarnation worker);
  // Drops the pulls of a worker that is not served any more.
  void Drop(Incarnation worker) { parked_.Drop(worker); }

  // The bound of pulls that wait, from now on.
  void SetParkedBound(std::size_t bytes_max) { parked_.SetBound(bytes_max); }
  std::size_t parked() const { return parked_.size(); }
  std::size_t parked_bytes() const { return parked_.bytes(); }
  // Bytes of replies that the network has not taken yet.
  std::size_t reply_bytes() const { return replies_.bytes(); }

 private:
  Status AnswerOrPark(ParkedPull parked);
  bool HasOwnPushes(const ParkedPull& parked) const;
  Status Answer(const ParkedPull& parked);
  void AnswerWaiting(std::vector<ParkedPull> parked);

  Context context_;
  ParkedPulls parked_;
  ReplyBudget replies_;
  std::vector<Key> keys_;  // scratch
};

}  // namespace tarn::server
