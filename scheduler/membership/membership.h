// Who is in the fleet: joins, incarnations, liveness, fencing, verdicts and the view that every node gets (rules N1-N6,
// M1-M5). It puts Shards, Workers, Fencing and CurrentView together and decides nothing about data or checkpoints.
//
// A part of the scheduler's state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "scheduler/membership/current_view.h"
#include "scheduler/membership/fencing.h"
#include "scheduler/membership/incarnations.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/shards.h"
#include "scheduler/membership/view_sender.h"
#include "scheduler/membership/workers.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// How a worker's incarnation ended.
struct Verdict {
  Incarnation worker;
  WorkerRank rank;
  Clock join, end;
  DataPosition position;
  std::uint64_t repeated = 0;  // batches of which a push was applied, and which will be trained again
  bool taken_back = false;     // to an earlier clock than it had ticked to (rule G4)
};

class Membership {
 public:
  struct Options {
    std::uint32_t shards = 1, shards_per_server = 1, workers = 1, partition_bits = 6;
    TimeUs lease_us = 0, heartbeat_us = 0;
    std::string job_text, resume_directory;
    std::map<WorkerRank, std::uint64_t> blob_bytes;  // of the workers' state in that checkpoint (rule K10)
    std::string after_a_lost_shard;                  // for people: what is lost, and how to continue
    Clock start_clock;
    Incarnation first_incarnation{1};
    std::size_t nonces_kept = kNoncesKept;
    std::size_t worker_entries_max = limits::kWorkerEntriesMax;  // of a view; beyond, joiners wait
    LogOrder log;                                                // of shards; at_least is each shard's own
    bool ends_together = false;  // rule G4: a restart takes all workers back to one clock
  };
  explicit Membership(Options options);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Rule G3: the fleet of a run whose processes all ended, to be formed anew. Before any other call.
  void Restore(const SchedulerState& state);
  // The workers from before the restart have no verdict yet.
  bool restarting() const { return fencing_.restarting(); }
  void Capture(SchedulerState* state) const;
  // Every shard has confirmed a view: its log has begun.
  bool begun() const { return begun_ || (formed() && shards_.Confirmed(ViewVersion(1))); }

  // N1. Answers with Welcome or Shutdown, or not yet. Returns a note for the log, or an empty one.
  std::string OnJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  // Makes the first view once all shards and workers have joined. True if it did just now.
  bool Form(TimeUs now);
  bool formed() const { return shards_.formed(); }

  // The shard that a message is from: null unless it is in the fleet and this is its incarnation. `from`: where it is
  // answered; none: at the peer known so far.
  const ShardNode* HearShard(const Sender& sender, std::optional<Peer> from, TimeUs now) {
    return shards_.Hear(sender, from, now);
  }
  // The live worker that a message is from, or null.
  const WorkerNode* HearWorker(const Sender& sender, Peer from, TimeUs now) { return workers_.Hear(sender, from, now); }
  // S1: the incarnation has confirmed that it is out.
  void OnFarewell(Incarnation worker) { workers_.OnFarewell(worker); }
  // Heartbeats are answered, with the view if the node's is older.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail);
  void OnHeartbeat(Incarnation worker, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail);

  // Forgets nodes that joined and fell silent before the view listed them.
  void DropSilentJoiners(TimeUs now, TimeUs listening_since);
  void Fence(Incarnation worker);
  void OnLeave(Incarnation worker, const Leave& leave);
  // M3, M5: the incarnations that have ended since the last call.
  std::vector<Verdict> TakeVerdicts();
  bool AnyFencing() const { return fencing_.any(); }

  // M1.
  void OpenProposal(bool drain) { view_.OpenProposal(drain); }
  void CloseProposal() { view_.CloseProposal(); }
  // M2.
  bool JoinersReady() const;
  std::vector<Incarnation> AdmitJoiners(Clock join);

  void SetOrder(const CheckpointOrder& order) { view_.SetOrder(order); }
  void PutTable(const TableSpec& spec) { view_.PutTable(spec); }
  void SetTables(std::vector<TableSpec> tables) { view_.SetTables(std::move(tables)); }
  // Logs may be cut back to this checkpoint (rule L4).
  void SetWhole(CheckpointId id);

  // Sends the newest view to those that have not confirmed it, and Welcome to workers that may begin.
  void SendViews(TimeUs now, const Mailer& mail);
  // Of every process that gets a Shutdown when the run ends.
  std::map<Incarnation, Peer> EveryPeer() const;

  const View& view() const { return view_.get(); }
  const Shards& shards() const { return shards_; }
  const Workers& workers() const { return workers_; }
  Clock MaxClock() const { return std::max(workers_.MaxClock(), shards_.MaxClock()); }  // highest seen anywhere
  std::uint64_t died() const { return died_; }
  Incarnation next_incarnation() const { return incarnations_.next(); }

 private:
  std::string OnShardJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  std::string OnWorkerJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  void MakeLive(Incarnation worker, Clock join);
  void End(const Fencing::End& end);

  Options options_;
  Shards shards_;
  Workers workers_;
  CurrentView view_;
  ViewSender sender_;
  Fencing fencing_;
  Incarnations incarnations_;
  std::vector<Verdict> verdicts_;
  bool begun_ = false;           // already before a restart
  bool admit_together_ = false;  // after a restart: all workers at one clock
  std::uint64_t died_ = 0;
};

}  // namespace tarn::scheduler
