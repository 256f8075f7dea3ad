// The workers of the fleet by incarnation: their state (waiting, live, being fenced, ended), the reports of their
// heartbeats, and their silence (rules N1, N4, M1).
//
//   Workers workers({.ranks = 4, .lease_us = lease_us});
//   const WorkerNode& worker = workers.Add(*workers.RankFor(join), incarnation, join.nonce, from, now);
//   workers.MakeLive(worker.incarnation, Clock(0), view.version);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/message.h"
#include "scheduler/leases/splits.h"
#include "scheduler/membership/nodes.h"
#include "scheduler/membership/process_starts.h"

namespace tarn::scheduler {

// Number of ended incarnations that are remembered as left or fenced; older ones count as fenced.
inline constexpr std::size_t kEndedWorkersKept = 1024;
// Number of process starts that are recognized when they repeat their Join.
inline constexpr std::size_t kNoncesKept = 65536;

class Workers {
 public:
  struct Options {
    std::uint32_t ranks = 1;
    TimeUs lease_us = 0;
    std::size_t nonces_kept = kNoncesKept;
    Clock start_clock;
  };
  explicit Workers(const Options& options);
  // Adds a worker from before a restart, which is being fenced.
  void Restore(const WorkerEntry& entry);
  void RestoreLargestEnd(Clock end) { largest_end_ = std::max(largest_end_, end); }

  // The incarnation of a process that joined before.
  std::optional<Incarnation> IncarnationOf(std::uint64_t nonce) const { return starts_.Find(nonce); }
  // The rank that the Join requests, or the lowest free one; nullopt: all are in use.
  std::optional<WorkerRank> RankFor(const Join& join) const;
  std::vector<Incarnation> OfRank(WorkerRank rank) const;
  const WorkerNode& Add(WorkerRank rank, Incarnation incarnation, std::uint64_t nonce, Peer from, TimeUs now);
  void Forget(Incarnation worker) { nodes_.erase(worker); }
  // A waiting or live process has repeated its Join.
  const WorkerNode& RecordJoin(Incarnation worker, Peer from, TimeUs now);
  // The fleet is complete: silence is measured from now.
  void Form(TimeUs now);
  std::vector<Incarnation> Waiting() const;
  // `version`: the view that will list it.
  const WorkerNode& MakeLive(Incarnation worker, Clock join, ViewVersion version);
  void SetContinues(Incarnation worker) { nodes_.at(worker).continues = true; }

  // Records that a worker has sent a message, and returns the worker; null unless this incarnation is live.
  const WorkerNode* RecordContact(const Sender& sender, Peer from, TimeUs now);
  void OnHeartbeat(Incarnation worker, const Heartbeat& heartbeat, const View& view);
  ViewSent* view_sent(Incarnation worker) { return &nodes_.at(worker).view_sent; }
  // The worker has sent Leave; the caller calls End next.
  void OnLeave(Incarnation worker) { nodes_.at(worker).left = true; }
  // The incarnation has confirmed its Shutdown (rule S1).
  void OnFarewell(Incarnation worker);
  void Fence(Incarnation worker) { nodes_.at(worker).state = WorkerNode::State::kFencing; }
  void End(Incarnation worker, Clock end);

  std::vector<Incarnation> Silent(TimeUs now, TimeUs listening_since) const;
  // Removes processes that joined and became silent before the view listed them.
  void DropSilent(TimeUs now, TimeUs listening_since);

  const std::map<Incarnation, WorkerNode>& all() const { return nodes_; }
  const WorkerNode* Find(Incarnation worker) const;
  const WorkerNode& at(Incarnation worker) const { return nodes_.at(worker); }
  bool IsLive(Incarnation worker) const;
  bool Left(Incarnation worker) const;  // it sent Leave
  std::vector<const WorkerNode*> Live() const;
  Positions LivePositions() const;
  // largest_end: the largest clock at which a worker ended. MaxClock: the largest of that and all workers' clocks.
  Clock largest_end() const { return largest_end_; }
  Clock MaxClock() const;
  // Whether the program of any worker has kept state (rule K9).
  bool programs_keep_state() const { return programs_keep_state_; }
  std::uint32_t waiting() const;
  std::size_t starts_known() const { return starts_.size(); }
  // Adds the peers that get a Shutdown when the run ends.
  void AddPeers(std::map<Incarnation, Peer>* peers) const;
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (auto& [id, worker] : nodes_) visit(&worker);
  }

 private:
  void DropEnded();
  bool IsSilent(const WorkerNode& worker, TimeUs now, TimeUs listening_since) const;

  Options options_;
  std::map<Incarnation, WorkerNode> nodes_;  // including the newest ended ones
  ProcessStarts starts_;
  Clock largest_end_;
  bool programs_keep_state_ = false;
};

}  // namespace tarn::scheduler
