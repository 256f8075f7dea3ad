// Handles pushes: checks each, advances the watermarks of its new sections, logs them, applies or gathers them, and
// acknowledges the push (rules E2, E3, A1, A2). Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
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
    // Whether a push of this clock may be applied at once. If not, it is refused until the cut is made (rule K1).
    std::function<bool(Clock)> may_apply;
    // Whether a push of this clock is still accepted at all (rule K12).
    std::function<bool(Clock)> may_accept;
  };
  Pushes(std::size_t bucket_bytes_max, Context context)
      : bucket_bytes_max_(bucket_bytes_max), context_(std::move(context)) {}

  // Handles a push of a live worker. Returns whether any section was new and accepted; false if the shard stops. The
  // caller sends a returned error as the answer.
  Expected<bool> OnPush(Peer from, const Sender& sender, const Push& push, const Cohort::Member& member);

  // Replays a push from the log; gathers a push that was gathered when a segment began. kCorrupt: the push contradicts
  // the state.
  Status Replay(const LoggedPush& logged);
  Status Replay(const LoggedGathered& gathered);

 private:
  // A part of a push: the rows of one table.
  struct Part {
    const Sender& sender;
    Clock clock;
    const PushPart& push;
    Incarnation worker() const { return sender.incarnation; }
  };
  using Taken = std::vector<bool>;  // by section of a part: new, and accepted
  // The live workers that pushed rows of a table at a clock, the next to close, and were refused for lack of room.
  struct Refused {
    Clock clock;
    std::vector<Incarnation> workers;
  };

  Status Check(const Part& part, const Cohort::Member& member);
  std::span<const Key> KeysOf(const PushPart& push);
  bool MayTake(const Part& part, std::size_t message_bytes) const;
  bool BucketFits(const Part& part, std::size_t message_bytes) const;
  Clock OpenClock(TableId table) const;
  void NoteAccepted(const Part& part);
  std::size_t NoteRefused(const Part& part);
  bool NeverFits(const Part& part, std::span<const SectionAck> acks);
  void TakeSections(const Part& part, bool fits, Taken* taken, std::vector<SectionAck>* acks);
  ErrorCode Take(const Section& section, Incarnation worker, bool fits, Watermarks* watermarks);
  Status Perform(const Part& part, const Taken& taken);
  Status Apply(const Part& part, const Taken& taken);
  std::size_t BytesToGather(const Part& part, const Taken& taken) const;
  void Gather(const Part& part, const Taken& taken);

  std::size_t bucket_bytes_max_;
  Context context_;
  std::vector<Taken> taken_;  // of the current push, by part; may have further items
  // Bytes of the current message that belong to no gathered section. They are counted with the first gathered section,
  // because it keeps the memory of the whole message.
  std::size_t uncounted_ = 0;
  std::map<TableId, Refused> refused_;  // empty unless memory has been short
  std::vector<Key> keys_;               // scratch
};

}  // namespace tarn::server
