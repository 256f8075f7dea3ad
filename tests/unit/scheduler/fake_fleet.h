// Shards and workers as a test scripts them, around a real scheduler, in one thread and without a network. Nodes keep
// to docs/protocol.md where they act by themselves; a test may also send any message in their name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {

struct FakeShard {
  ShardId shard;
  Peer peer;
  std::uint64_t nonce = 0;
  Incarnation incarnation;
  View view;
  bool silent = false;                              // sends nothing, takes nothing
  bool deaf = false;                                // takes no new view
  bool writes_parts = true;                         // answers checkpoint orders
  std::string part_error;                           // of the parts it answers with
  std::uint64_t full_bytes = 100, delta_bytes = 1;  // of the file of a part
  CheckpointId lost_base;                           // a base that is not there
  CheckpointId writing;                             // what its heartbeats say
  std::map<Incarnation, Clock> ticks;
  std::map<Incarnation, DataPosition> positions;
  std::map<Incarnation, TickPoint> earlier;  // the tick before, where a test needs it
  Clock min_clock;
  std::set<CheckpointId> cut;  // orders that it has cut
  std::optional<Shutdown> shutdown;
  std::string resume_directory;
  LogOrder log;
};

struct FakeWorker {
  WorkerRank rank;
  Peer peer;
  std::uint64_t nonce = 0;
  Incarnation incarnation;  // 0: not welcomed
  View view;
  bool silent = false;
  Clock clock, start;
  std::uint64_t obeyed = 0;  // newest proposal
  std::uint64_t drained = 0;
  bool drains = true;       // says that it has drained
  Clock limit{UINT64_MAX};  // while the proposal is open
  DataPosition position;
  std::vector<LeaseGrant> leases;  // not finished, in order
  std::uint64_t trained = 0;       // rows of leases.front(), skip_rows among them
  std::vector<LeaseDone> done;     // to be reported
  std::uint64_t number = 0;        // of the last request
  bool waits = false;              // for its reply
  std::optional<Clock> jump;       // to be obeyed once the leases are done
  bool finished = false;
  std::optional<CheckpointPart> part;  // sent until the view has no order
  int shutdowns_lost = 0;              // on their way to it, of the next ones
  std::optional<Shutdown> shutdown;
  std::vector<CreateTable> tables;
  std::vector<std::uint64_t> barriers;
};

class FakeFleet {
 public:
  // restore: what a store of another fleet had kept.
  FakeFleet(const Job& job, const Manifest* resume = nullptr, const SchedulerState* restore = nullptr);

  FakeShard& AddShard(std::uint32_t shard);
  FakeWorker& AddWorker(std::uint32_t rank);
  void AddAll();  // shards and workers of the job

  // Messages in a node's name; the answers are delivered at once.
  void Send(const FakeShard& shard, Body body);
  void Send(const FakeWorker& worker, Body body);
  void SendFrom(Peer peer, Message message);
  void Heartbeat(FakeShard& shard);
  void Heartbeat(FakeWorker& worker);
  void RequestCheckpoint() {
    scheduler.RequestCheckpoint(now, &out_);
    Deliver();
  }
  // A tool sends this; what it was answered since the last call.
  std::vector<CheckpointRequest> AskForCheckpoint(std::uint64_t number);
  void RequestStop() {
    scheduler.RequestStop(now, &out_);
    Deliver();
  }
  // Time passes: heartbeats of all that are not silent, timers of the scheduler.
  void Pass(double seconds);

  // One thing that an honest worker does: ask, train a batch, jump, leave. False if it can do nothing now.
  bool Work(FakeWorker& worker);
  // One such thing of every worker; if none can do any, time passes.
  void Step();
  // The same until the scheduler has stopped. False: it did not in `steps`.
  bool RunToEnd(int steps = 100000);
  // The process of the worker dies; it sends nothing more.
  void Kill(FakeWorker& worker) { worker.silent = true; }
  // It dies when the pushes of its next batch are acknowledged and its tick has reached so many shards.
  void KillInTick(FakeWorker& worker, std::size_t shards_reached);
  Clock HighestTick(const FakeWorker& worker) const;

  FakeWorker& Newest(std::uint32_t rank);

  Job job;
  MemoryStore store;
  Scheduler scheduler;
  TimeUs now = 1'000'000;
  std::vector<std::unique_ptr<FakeShard>> shards;
  std::vector<std::unique_ptr<FakeWorker>> workers;                // every process that ever started
  std::uint64_t rows[3] = {0, 0, 0};                               // what workers see
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> trained;  // (epoch, row) -> times, that count in the end
  std::vector<std::string> notes;
  std::function<void(const Outgoing&)> on_send;  // before it is delivered
  double valid_loss = 1;                         // log-loss that workers report of validation splits
  double other_loss = 0.5;                       // and of all others

 private:
  struct Batch {
    Clock clock;
    std::uint32_t epoch;
    std::uint64_t first_row, rows;
  };

  void Deliver();
  void HearStore();
  void Receive(FakeShard& shard, const Message& message);
  void Receive(FakeWorker& worker, const Message& message);
  void Adopt(FakeShard& shard, const View& view);
  void Adopt(FakeWorker& worker, const View& view);
  void Tick(FakeWorker& worker, Clock clock);
  void UpdateShards();
  bool PullsAnswered(const FakeWorker& worker) const;  // rule C3
  bool Ask(FakeWorker& worker);
  void TrainBatch(FakeWorker& worker);

  Outbox out_;
  std::vector<CheckpointRequest> told_tool_;
  std::map<Incarnation, std::vector<Batch>> batches_;
  std::uint64_t next_peer_ = kFirstAcceptedPeer, next_nonce_ = 1000;
};

// A job for such fleets: immediate lease times, small sets.
Job SmallJob(std::uint32_t shards, std::uint32_t workers);
// The same with checkpoints.
Job Durable(std::uint32_t shards, std::uint32_t workers);
// The same with logs, and without checkpoints of its own.
Job LogJob(std::uint32_t shards, std::uint32_t workers);

}  // namespace tarn::scheduler
