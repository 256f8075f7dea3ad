// Handles pushes: checks each, advances the watermarks of its new sections, logs them, applies or gathers them, and
// acknowledges the push (rules E2, E3, A1, A2). Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "server/clock/table_policies.h"
#include "server/log/record.h"
#include "server/shard/clocks.h"
#include "server/shard/durable_outbox.h"
#include "server/shard/key_lists.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_observer.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"

namespace tarn::server {

class Pushes {
 public:
  // Parts of the shard that pushes use; all outlive this object.
  struct Context {
    Store* rows;
    Clocks* clocks;
    const TablePolicies* policies;
    KeyLists* lists;
    DurableOutbox* outbox;
    StopNotice* stop;
    ShardCounters* counters;
    ShardObserver* observer;
    // Whether a push of this clock may be applied at once. If not, it waits for a cut (rule K1).
    std::function<bool(Clock)> may_apply;
  };
  Pushes(std::size_t bucket_bytes_max, Context context)
      : bucket_bytes_max_(bucket_bytes_max), context_(std::move(context)) {}

  // Handles a push of a live worker. Returns whether any section was new. The caller sends a returned error as the
  // answer.
  Expected<bool> OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member);

  // Replays a push from the log; gathers a push that was gathered when a segment began. kCorrupt: the push contradicts
  // the state.
  Status Replay(const LoggedPush& logged);
  Status Replay(const LoggedGathered& gathered);

 private:
  Expected<std::span<const Key>> CheckedKeys(const Push& push, const Message& message, const Cohort::Member& member);
  bool MayTake(const Push& push, const TableSpec& table, const Message& message) const;
  bool BucketFits(const Push& push, const Message& message) const;
  Clock OpenClock(TableId table) const;
  bool NeverFits(const Push& push, const PushAck& ack);
  ErrorCode Take(const Section& section, Incarnation worker, bool fits);
  Status Perform(const Push& push, const Message& message, std::span<const Key> keys);
  Status Apply(const Push& push, const Message& message, std::span<const Key> keys);
  void Gather(const Push& push, const Message& message);

  std::size_t bucket_bytes_max_;
  Context context_;
  std::vector<bool> taken_;  // by section of the current push: new, and accepted
  std::vector<Key> keys_;    // scratch
};

}  // namespace tarn::server
