// The members of the fleet: joins, incarnations, liveness, fencing, verdicts and the view (rules N1-N6, N8, M1-M5).
// Composes Shards, Workers, Fencing, CurrentView and Addresses. Data and checkpoints are handled elsewhere.
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
#include "scheduler/membership/addresses.h"
#include "scheduler/membership/current_view.h"
#include "scheduler/membership/fencing.h"
#include "scheduler/membership/incarnations.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/shards.h"
#include "scheduler/membership/view_sender.h"
#include "scheduler/membership/workers.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// The end of a worker's incarnation.
struct Verdict {
  Incarnation worker;
  WorkerRank rank;
  Clock join, end;
  DataPosition position;
  std::uint64_t repeated = 0;  // batches with an applied push that will be trained again
  bool taken_back = false;     // may have ended at an earlier clock than its last tick (rule G4)
  bool keeps_state = false;    // its program keeps state in checkpoints (rule K9)
};

class Membership {
 public:
  struct Options {
    std::uint32_t shards = 1, shards_per_server = 1, workers = 1, partition_bits = 6;
    TimeUs lease_us = 0, heartbeat_us = 0;
    std::string job_text, resume_directory;
    std::vector<BlobSize> blobs;     // of the workers, in that checkpoint (rule K10)
    std::string after_a_lost_shard;  // text for users: what is lost, and how to continue
    Clock start_clock;
    Incarnation first_incarnation{1};
    std::size_t nonces_kept = kNoncesKept;
    std::size_t worker_entries_max = limits::kWorkerEntriesMax;  // per view; beyond this, joining workers wait
    LogOrder log;                                                // for shards; at_least is set per shard
    std::string http;            // address of the scheduler's own HTTP server (rule N8); empty: none
    bool ends_together = false;  // a restart sets all workers back to one clock (rule G4)
  };
  // store: writes the list of addresses; null: there is no list.
  explicit Membership(Options options, SchedulerStore* store = nullptr);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Restores a run whose processes all ended; the fleet is formed again (rule G3). Must be called before nodes join.
  void Restore(const SchedulerState& state);
  // Whether workers from before a restart have no verdict yet.
  bool restarting() const { return fencing_.restarting(); }
  void Capture(SchedulerState* state) const;
  // Whether a worker has joined whose program may push at any time, not only rows of its leases.
  bool has_had_programs() const { return has_had_programs_; }
  // Whether workers wait, after a restart, until all have joined.
  bool awaits_all() const { return joinable_ && admit_together_; }
  // Whether every shard has confirmed a view, so that all logs have begun.
  bool begun() const { return begun_ || (formed() && shards_.Confirmed(ViewVersion(1))); }

  // Handles a Join (rule N1): answers with Welcome, a Shutdown or a request to wait, or SendViews sends Welcome later.
  // Returns a note for the log, or an empty string.
  std::string OnJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  // Makes the first view when all shards and workers have joined and their addresses are written (rule N8). True if
  // this call made it.
  bool Form(TimeUs now);
  // The store has ended a write of the list of addresses.
  void OnAddressesWritten(const StoreWritten& written);
  bool formed() const { return shards_.formed(); }

  // Records that a shard has sent a message, and returns the shard; null unless it is in the fleet with this
  // incarnation. `from`: the peer for answers; nullopt: unchanged.
  const ShardNode* RecordShardContact(const Sender& sender, std::optional<Peer> from, TimeUs now) {
    return shards_.RecordContact(sender, from, now);
  }
  // The same for a worker; null unless this incarnation is live.
  const WorkerNode* RecordWorkerContact(const Sender& sender, Peer from, TimeUs now) {
    return workers_.RecordContact(sender, from, now);
  }
  // The incarnation has confirmed its Shutdown (rule S1).
  void OnFarewell(Incarnation worker) { workers_.OnFarewell(worker); }
  // Handles and answers heartbeats, with the view if the node's is older.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail);
  void OnHeartbeat(Incarnation worker, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail);

  // Removes nodes that joined and became silent before the view listed them.
  void DropSilentJoiners(TimeUs now, TimeUs listening_since);
  // Begins to fence a worker (rule M3), if it is live.
  void Fence(Incarnation worker);
  // A live worker leaves cleanly: it ends at once, at the clock and position of its Leave (rule M5).
  void OnLeave(Incarnation worker, const Leave& leave);
  // The incarnations that have ended since the last call (rules M3, M5).
  std::vector<Verdict> TakeVerdicts();
  bool AnyFencing() const { return fencing_.any(); }

  // For proposals (rule M1), orders and tables.
  CurrentView* current_view() { return &view_; }
  // JoinersReady: whether waiting workers can be admitted now. AdmitJoiners: makes them live with this join clock, as
  // many as the view has room for, and returns them (rule M2).
  bool JoinersReady(TimeUs now);
  std::vector<Incarnation> AdmitJoiners(Clock join);

  // Sets the checkpoint to which logs may be truncated (rule L4).
  void SetWhole(CheckpointId id);

  // Sends the newest view to nodes that have not confirmed it, and Welcome to workers that may begin.
  void SendViews(TimeUs now, const Mailer& mail);
  // The peers that get a Shutdown when the run ends.
  std::map<Incarnation, Peer> EveryPeer() const;

  const View& view() const { return view_.get(); }
  const Shards& shards() const { return shards_; }
  const Workers& workers() const { return workers_; }
  Clock MaxClock() const { return std::max(workers_.MaxClock(), shards_.MaxClock()); }  // the highest reported clock
  std::uint64_t died() const { return died_; }
  Incarnation next_incarnation() const { return incarnations_.next(); }

 private:
  std::string OnShardJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  std::string OnWorkerJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail);
  void OnAddress(Role role, std::uint32_t rank, const Join& join);
  void MakeLive(Incarnation worker, Clock join);
  void End(const Fencing::End& end);

  Options options_;
  Shards shards_;
  Workers workers_;
  CurrentView view_;
  ViewSender sender_;
  Fencing fencing_;
  Incarnations incarnations_;
  Addresses addresses_;
  std::vector<Verdict> verdicts_;
  bool begun_ = false;  // was true before a restart
  bool has_had_programs_ = false;
  bool admit_together_ = false;     // after a restart: admit all workers at one clock
  std::optional<TimeUs> joinable_;  // then: since when those that wait could be admitted
  std::uint64_t died_ = 0;
};

}  // namespace tarn::scheduler
