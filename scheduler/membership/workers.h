// The workers of the fleet by incarnation: who waits to be admitted, who is live, being fenced or has ended, what their
// heartbeats report and their silence (rules N1, N4, M1).
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

// Incarnations that have ended and are still answered as what they were (left, or fenced); older ones are fenced.
inline constexpr std::size_t kEndedWorkersKept = 1024;
// Process starts that are known again when they repeat their Join.
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
  // A worker from before a restart: it is being fenced.
  void Restore(const WorkerEntry& entry);
  void RestoreLargestEnd(Clock end) { largest_end_ = std::max(largest_end_, end); }

  // The incarnation of a process that joined before.
  std::optional<Incarnation> IncarnationOf(std::uint64_t nonce) const { return starts_.Find(nonce); }
  // A rank that the Join asks for, or the lowest that is free; nothing: none is.
  std::optional<WorkerRank> RankFor(const Join& join) const;
  std::vector<Incarnation> OfRank(WorkerRank rank) const;
  const WorkerNode& Add(WorkerRank rank, Incarnation incarnation, std::uint64_t nonce, Peer from, TimeUs now);
  void Forget(Incarnation worker) { nodes_.erase(worker); }
  // A process that waits or is live repeats its Join.
  const WorkerNode& HearJoin(Incarnation worker, Peer from, TimeUs now);
  // The fleet is complete: silence counts from now.
  void Form(TimeUs now);
  std::vector<Incarnation> Waiting() const;
  // `version`: the view that will list it.
  const WorkerNode& MakeLive(Incarnation worker, Clock join, ViewVersion version);
  void SetBlobBytes(Incarnation worker, std::uint64_t bytes) { nodes_.at(worker).blob_bytes = bytes; }

  // A message has come: null unless this incarnation is live.
  const WorkerNode* Hear(const Sender& sender, Peer from, TimeUs now);
  void OnHeartbeat(Incarnation worker, const Heartbeat& heartbeat, const View& view);
  ViewSent* view_sent(Incarnation worker) { return &nodes_.at(worker).view_sent; }
  // It has sent Leave; it ends next.
  void OnLeave(Incarnation worker) { nodes_.at(worker).left = true; }
  // S1: the incarnation has confirmed that it is out.
  void OnFarewell(Incarnation worker);
  void Fence(Incarnation worker) { nodes_.at(worker).state = WorkerNode::State::kFencing; }
  void End(Incarnation worker, Clock end);

  std::vector<Incarnation> Silent(TimeUs now, TimeUs listening_since) const;
  // Forgets processes that joined and fell silent before the view listed them.
  void DropSilent(TimeUs now, TimeUs listening_since);

  const std::map<Incarnation, WorkerNode>& all() const { return nodes_; }
  const WorkerNode* Find(Incarnation worker) const;
  const WorkerNode& at(Incarnation worker) const { return nodes_.at(worker); }
  bool IsLive(Incarnation worker) const;
  bool Left(Incarnation worker) const;  // it sent Leave
  std::vector<const WorkerNode*> Live() const;
  Positions LivePositions() const;
  // The largest clock at which a worker ended; the largest of those and of all workers' clocks.
  Clock largest_end() const { return largest_end_; }
  Clock MaxClock() const;
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

  Options options_;
  std::map<Incarnation, WorkerNode> nodes_;  // ended ones too, the newest few
  ProcessStarts starts_;
  Clock largest_end_;
};

}  // namespace tarn::scheduler
