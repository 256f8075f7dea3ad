// Handles pulls: checks each pull and answers it when its table's policy allows it and the pushes of its worker have
// arrived (rules C3, C7). Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
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
  // Parts of the shard that pulls use; all outlive this object.
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

  // Handles a pull of a live worker. The caller sends a returned error as the answer.
  Status OnPull(Peer from, const Sender& sender, Pull pull);

  // AnswerOpened: answers the pulls whose clock is now open. AnswerAfterPush: answers those that waited only for pushes
  // of this worker.
  void AnswerOpened();
  void AnswerAfterPush(Incarnation worker);
  // Drops the pulls of a worker that is no longer served.
  void Drop(Incarnation worker) { parked_.Drop(worker); }

  // Changes the bound of parked pulls.
  void SetParkedBound(std::size_t bytes_max) { parked_.SetBound(bytes_max); }
  std::size_t parked() const { return parked_.size(); }
  std::size_t parked_bytes() const { return parked_.bytes(); }
  // Bytes of replies that the transport has not sent yet.
  std::size_t reply_bytes() const { return replies_.bytes(); }

 private:
  Status Check(const Pull& pull);
  Expected<std::span<const Key>> KeysOf(const PullPart& table);
  std::size_t RowBytesOf(const PullPart& table) const;
  // The policy of the pull's first table. The others have the same consistency.
  const ConsistencyPolicy& PolicyOf(const Pull& pull) const { return (*context_.policies)[pull.tables.front().table]; }
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
