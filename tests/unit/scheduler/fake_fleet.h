// Scripted shards and workers with a real scheduler, in one thread and without a network. Nodes follow docs/protocol.md
// when they act automatically; a test may also send any message in their name.
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
  bool silent = false;                              // sends and receives nothing
  bool deaf = false;                                // adopts no new view
  bool writes_parts = true;                         // answers checkpoint orders
  std::string part_error;                           // error of its parts
  std::uint64_t full_bytes = 100, delta_bytes = 1;  // size of a part's file
  CheckpointId lost_base;                           // a missing base
  CheckpointId writing;                             // reported in heartbeats
  std::map<Incarnation, Clock> ticks;
  std::map<Incarnation, DataPosition> positions;
  std::map<Incarnation, TickPoint> earlier;  // the previous tick, if a test needs it
  Clock min_clock;
  std::set<CheckpointId> cut;  // orders already cut
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
  bool drains = true;       // reports that it has drained
  Clock limit{UINT64_MAX};  // while the proposal is open
  DataPosition position;
  std::vector<LeaseGrant> leases;  // not finished, in order
  std::uint64_t trained = 0;       // rows of leases.front(), skip_rows among them
  std::vector<LeaseDone> done;     // not reported yet
  std::uint64_t number = 0;        // of the last request
  bool waits = false;              // for its reply
  std::optional<Clock> jump;       // to be obeyed once the leases are done
  bool finished = false;
  bool stays = false;                  // does not leave when it is finished
  std::optional<CheckpointPart> part;  // sent until the view has no order
  int shutdowns_lost = 0;              // number of next Shutdowns that are lost
  std::optional<Shutdown> shutdown;
  std::vector<CreateTable> tables;
  std::vector<std::uint64_t> barriers;
};

class FakeFleet {
 public:
  // `restore`: the state stored by another fleet.
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
  // Sends the request of a tool; returns the answers since the last call.
  std::vector<CheckpointRequest> AskForCheckpoint(std::uint64_t number);
  void RequestStop() {
    scheduler.RequestStop(now, &out_);
    Deliver();
  }
  // Advances time: heartbeats of nodes that are not silent, timers of the scheduler.
  void Pass(double seconds);

  // Executes one action of a correct worker: requests leases, trains a batch, jumps or leaves. False if none is
  // possible.
  bool Work(FakeWorker& worker);
  // Executes one action of every worker; if none is possible, advances time.
  void Step();
  // Repeats Step until the scheduler has stopped. False: it did not within `steps`.
  bool RunToEnd(int steps = 100000);
  // Kills the process of the worker.
  void Kill(FakeWorker& worker) { worker.silent = true; }
  // Kills the worker when the pushes of its next batch are acknowledged and its tick has reached this many shards.
  void KillInTick(FakeWorker& worker, std::size_t shards_reached);
  Clock HighestTick(const FakeWorker& worker) const;

  FakeWorker& Newest(std::uint32_t rank);

  Job job;
  MemoryStore store;
  Scheduler scheduler;
  TimeUs now = 1'000'000;
  std::vector<std::unique_ptr<FakeShard>> shards;
  std::vector<std::unique_ptr<FakeWorker>> workers;                // every process that ever started
  std::uint64_t rows[3] = {0, 0, 0};                               // sizes of the data sets for workers
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> trained;  // (epoch, row) -> number of counting trainings
  std::vector<std::string> notes;
  std::function<void(const Outgoing&)> on_send;               // before it is delivered
  std::function<std::string(Role, std::uint32_t rank)> http;  // of processes that join from now on; null: none
  double valid_loss = 1;                                      // log-loss that workers report of validation splits
  double other_loss = 0.5;                                    // and of all others

 private:
  struct Batch {
    Clock clock;
    std::uint32_t epoch;
    std::uint64_t first_row, rows;
  };

  void Deliver();
  void HandleCompletedWrites();
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
