// Who is in the fleet: joins, incarnations, liveness, fencing, verdicts and the view that tells everybody (rules
// N1-N6, M1-M5). It decides nothing about data or checkpoints.
//
// A part of the scheduler's state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/limits.h"
#include "core/message.h"
#include "scheduler/leases/splits.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// Incarnations that have ended and are still answered as what they were (left, or fenced); older ones are fenced.
inline constexpr std::size_t kEndedWorkersKept = 1024;
// Process starts of workers that are known again when they repeat their Join. Beyond, the oldest that are over are
// forgotten: one of those that still joins is a new worker.
inline constexpr std::size_t kNoncesKept = 65536;

struct ShardNode {
  ShardId shard;
  Incarnation incarnation;
  std::uint64_t nonce = 0;
  Peer peer;
  std::string endpoint;
  bool joined = false;
  TimeUs heard = 0, view_sent = 0;
  TimeUs welcomed = 0;  // when the fleet was complete: from then until it confirms a view it loads its rows
  ViewVersion confirmed;
  Clock min_clock;
  CheckpointId writing;  // as of `confirmed`
  LogSequence logged;    // durable in its log
  std::uint64_t log_bytes = 0;
  // A second process of this rank, before the fleet has formed.
  std::uint64_t rival = 0;  // its nonce; 0: none
  TimeUs rival_since = 0;
};

struct WorkerNode {
  // kWaiting: not in the view yet.
  enum class State : std::uint8_t { kWaiting, kLive, kFencing, kEnded };
  WorkerRank rank;
  Incarnation incarnation;
  std::uint64_t nonce = 0;
  Peer peer;
  State state = State::kWaiting;
  bool welcomed = false;
  bool left = false;             // said so (M5)
  std::uint64_t blob_bytes = 0;  // of the state that it goes on from
  bool understood = false;       // S1: it knows that it is out
  TimeUs heard = 0, view_sent = 0;
  ViewVersion live_version;  // the view that made it live
  ViewVersion confirmed;
  std::uint64_t proposal = 0;  // newest obeyed
  std::uint64_t drained = 0;   // newest for which it has drained
  Clock join, clock, acked_clock;
  TimeUs ticked = 0;  // when acked_clock was heard to grow, or it became live
  DataPosition position;
};

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
    std::string after_a_lost_shard;                  // for people: what is lost, and how to go on
    Clock start_clock;
    Incarnation first_incarnation{1};
    std::size_t nonces_kept = kNoncesKept;
    std::size_t worker_entries_max = limits::kWorkerEntriesMax;  // of a view; beyond, joiners wait
    LogOrder log;                                                // of shards; at_least is each shard's own
    bool ends_together = false;  // rule G4: a restart takes all workers back to one clock
  };
  explicit Membership(Options options);

  // Rule G3: the fleet of a run that ended with all of its processes, to be formed anew. Before any other call.
  void Restore(const SchedulerState& state);
  // The workers of before the restart have no verdict yet.
  bool restarting() const { return restarting_; }
  // What a state keeps.
  void Capture(SchedulerState* state) const;
  // Every shard has confirmed a view: its log has begun.
  bool begun() const { return begun_ || (formed_ && Confirmed(ViewVersion(1))); }

  // N1. Answers with Welcome or Shutdown, or not yet. A note for the log, or empty.
  std::string OnJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  // Makes the first view once everybody is there. True if it did just now.
  bool Form(TimeUs now);
  bool formed() const { return formed_; }

  // The node that a message is from: null unless it is in the fleet and this is its incarnation.
  ShardNode* FindShard(const Sender& sender);
  WorkerNode* FindWorker(const Sender& sender);
  // S1: the incarnation has confirmed that it is out.
  void OnFarewell(Incarnation worker);
  // Whether this incarnation left cleanly (then a repeated Leave is answered kOk).
  bool Left(Incarnation worker) const;

  void OnHeartbeat(ShardNode* shard, const Heartbeat& heartbeat);
  void OnHeartbeat(WorkerNode* worker, const Heartbeat& heartbeat);
  // Answers a heartbeat, with the view if the node's is older.
  void Acknowledge(Peer peer, ViewVersion theirs, TimeUs* view_sent, TimeUs now, const Mailer& mail);

  // N4. Silence counts only while the scheduler itself was listening: since `listening_since`.
  std::optional<ShardId> SilentShard(TimeUs now, TimeUs listening_since) const;
  std::vector<Incarnation> SilentWorkers(TimeUs now, TimeUs listening_since) const;
  // Forgets nodes that joined and went away before the view held them.
  void DropSilentJoiners(TimeUs now, TimeUs listening_since);
  void Fence(Incarnation worker);
  void OnLeave(Incarnation worker, const Leave& leave);
  // M3, M5: the incarnations that have ended since the last call.
  std::vector<Verdict> TakeVerdicts();

  // M1.
  void OpenProposal(bool drain);
  bool AllReported() const;  // and no verdict is outstanding
  bool AllDrained() const;   // likewise: every push that was sent is acknowledged, and in its worker's position
  Clock FreeClock() const;   // E; valid when AllReported
  void CloseProposal();
  // M2.
  bool JoinersReady() const;
  std::vector<WorkerNode> AdmitJoiners(Clock join);

  void SetOrder(const CheckpointOrder& order);
  // Adds the table, or replaces the one of its id.
  void PutTable(const TableSpec& spec);
  void SetTables(std::vector<TableSpec> tables) { view_.tables = std::move(tables); }
  // Logs may go back to this checkpoint (rule L4).
  void SetWhole(CheckpointId id);

  // All shards have adopted a view at least that new.
  bool Confirmed(ViewVersion version) const;
  // Some shard may still write into the directory of a checkpoint whose order went with view `version`.
  bool MayWrite(CheckpointId id, ViewVersion version) const;
  // The newest view to those that have not confirmed it: all that were not sent it yet, and again after a heartbeat
  // period. Welcome to workers that may begin.
  void SendViews(TimeUs now, const Mailer& mail);
  // Shutdown to a node, whatever its state.
  std::map<Incarnation, Peer> EveryPeer() const;

  const View& view() const { return view_; }
  const std::map<Incarnation, WorkerNode>& workers() const { return workers_; }
  const std::vector<ShardNode>& shards() const { return shards_; }
  std::vector<const WorkerNode*> Live() const;
  bool AnyFencing() const;
  Positions LivePositions() const;
  Clock MinClock() const;  // least of the shards'
  // Most of the shards', as far as is known since the newest whole checkpoint.
  std::uint64_t LogBytes() const;
  Clock MaxClock() const;  // highest seen anywhere
  std::uint64_t died() const { return died_; }
  Incarnation next_incarnation() const { return next_incarnation_; }
  std::uint32_t shards_joined() const;
  std::uint32_t workers_waiting() const;
  std::size_t nonces_known() const { return nonces_.size(); }

 private:
  std::string OnShardJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  std::string OnWorkerJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  std::optional<WorkerRank> RankFor(const Join& join) const;
  void SendWelcome(Peer peer, std::uint64_t nonce, std::uint32_t rank, Incarnation incarnation, Clock start,
                   const Mailer& mail, const LogOrder& log = {}, std::uint64_t blob_bytes = 0) const;
  void SendWelcome(const WorkerNode& worker, const Mailer& mail) const;
  LogOrder LogOf(const ShardNode& shard) const;
  bool Complete() const;  // all shards and workers have joined
  void EndAsOne(const std::vector<Incarnation>& workers);
  bool MayBegin(const WorkerNode& worker) const;
  void Remember(const WorkerNode& worker);
  bool MayDrop(const WorkerEntry& entry) const;  // M4
  std::size_t Room() const;                      // for entries, once those that may go are gone
  WorkerEntry* Entry(Incarnation worker);
  void MakeLive(WorkerNode* worker, Clock join);
  void End(WorkerNode* worker, Clock end, const DataPosition& position, Clock pushed);
  void Changed();
  void DropEnded();
  void Forget(Incarnation worker);
  Incarnation NewIncarnation();

  Options options_;
  View view_;
  ViewVersion whole_since_;  // the view that named the newest whole checkpoint first
  bool formed_ = false;
  std::vector<ShardNode> shards_;
  std::map<Incarnation, WorkerNode> workers_;    // ended ones too, the newest few
  std::map<std::uint64_t, Incarnation> nonces_;  // of workers, also of those forgotten
  std::map<Incarnation, std::uint64_t> by_age_;  // the same, oldest first
  std::map<Incarnation, ViewVersion> ended_;     // entries kEnded -> the view that said so first
  struct FencedReport {
    FencedTick newest;
    std::vector<TickPoint> earlier;
  };
  std::map<Incarnation, std::map<ShardId, FencedReport>> fenced_;
  bool begun_ = false;           // already before a restart
  bool restarting_ = false;      // workers of before a restart have no verdict yet
  bool admit_together_ = false;  // after a restart: all workers at one clock
  std::vector<Verdict> verdicts_;
  Clock largest_end_;
  Incarnation next_incarnation_;
  std::uint64_t died_ = 0;
};

}  // namespace tarn::scheduler
