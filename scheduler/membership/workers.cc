#include "scheduler/membership/workers.h"

#include <algorithm>
#include <set>

namespace tarn::scheduler {
namespace {

using State = WorkerNode::State;

}  // namespace

Workers::Workers(const Options& options)
    : options_(options), starts_(options.nonces_kept), largest_end_(options.start_clock) {}

void Workers::Restore(const WorkerEntry& entry) {
  WorkerNode& worker = nodes_[entry.incarnation];
  worker.rank = entry.rank;
  worker.incarnation = entry.incarnation;
  worker.state = State::kFencing;
  worker.join = worker.clock = worker.acked_clock = entry.join;
}

std::optional<WorkerRank> Workers::RankFor(const Join& join) const {
  if (join.rank != kAnyRank) return WorkerRank(join.rank);
  std::set<WorkerRank> taken;
  for (const auto& [id, worker] : nodes_)
    if (worker.live() || worker.state == State::kWaiting) taken.insert(worker.rank);
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank)
    if (!taken.contains(WorkerRank(rank))) return WorkerRank(rank);
  return std::nullopt;
}

std::vector<Incarnation> Workers::OfRank(WorkerRank rank) const {
  std::vector<Incarnation> found;
  for (const auto& [id, worker] : nodes_)
    if (worker.rank == rank) found.push_back(id);
  return found;
}

const WorkerNode& Workers::Add(WorkerRank rank, Incarnation incarnation, std::uint64_t nonce, Peer from, TimeUs now) {
  starts_.Add(nonce, incarnation, [this](Incarnation id) {
    const WorkerNode* worker = Find(id);
    return worker == nullptr || worker->state == State::kEnded;
  });
  WorkerNode& worker = nodes_[incarnation];
  worker.rank = rank;
  worker.incarnation = incarnation;
  worker.nonce = nonce;
  worker.peer = from;
  worker.heard = now;
  return worker;
}

const WorkerNode& Workers::RecordJoin(Incarnation id, Peer from, TimeUs now) {
  WorkerNode& worker = nodes_.at(id);
  worker.peer = from;
  worker.heard = now;
  return worker;
}

void Workers::Form(TimeUs now) {
  for (auto& [id, worker] : nodes_) worker.heard = now;
}

std::vector<Incarnation> Workers::Waiting() const {
  std::vector<Incarnation> found;
  for (const auto& [id, worker] : nodes_)
    if (worker.state == State::kWaiting) found.push_back(id);
  return found;
}

const WorkerNode& Workers::MakeLive(Incarnation id, Clock join, ViewVersion version) {
  WorkerNode& worker = nodes_.at(id);
  worker.state = State::kLive;
  worker.join = worker.clock = worker.acked_clock = join;
  worker.ticked = worker.heard;
  worker.live_version = version;
  return worker;
}

const WorkerNode* Workers::RecordContact(const Sender& sender, Peer from, TimeUs now) {
  const auto it = nodes_.find(sender.incarnation);
  if (sender.role != Role::kWorker || it == nodes_.end()) return nullptr;
  WorkerNode& worker = it->second;
  if (!worker.live() || worker.rank.value != sender.rank) return nullptr;
  worker.peer = from;
  worker.heard = now;
  return &worker;
}

void Workers::OnHeartbeat(Incarnation id, const Heartbeat& heartbeat, const View& view) {
  WorkerNode& worker = nodes_.at(id);
  worker.confirmed = std::max(worker.confirmed, std::min(heartbeat.view, view.version));
  worker.proposal = std::max(worker.proposal, std::min(heartbeat.proposal, view.proposal.id));
  worker.drained = std::max(worker.drained, std::min(heartbeat.drained, view.proposal.id));
  worker.clock = std::max(worker.clock, heartbeat.clock);
  worker.keeps_state |= heartbeat.keeps_state;
  programs_keep_state_ |= heartbeat.keeps_state;
  if (heartbeat.acked_clock < worker.acked_clock) return;  // overtaken by a newer heartbeat
  if (heartbeat.acked_clock > worker.acked_clock) worker.ticked = worker.heard;
  worker.acked_clock = heartbeat.acked_clock;
  worker.position = heartbeat.position;
}

void Workers::OnFarewell(Incarnation id) {
  if (const auto it = nodes_.find(id); it != nodes_.end()) it->second.shutdown_confirmed = true;
}

void Workers::End(Incarnation worker, Clock end) {
  DropEnded();
  nodes_.at(worker).state = State::kEnded;
  largest_end_ = std::max(largest_end_, end);
}

void Workers::DropEnded() {
  auto ended = std::ranges::count_if(nodes_, [](const auto& node) { return node.second.state == State::kEnded; });
  for (auto it = nodes_.begin(); ended > static_cast<std::ptrdiff_t>(kEndedWorkersKept) && it != nodes_.end();) {
    if (it->second.state != State::kEnded) {
      ++it;
      continue;
    }
    it = nodes_.erase(it);
    --ended;
  }
}

std::vector<Incarnation> Workers::Silent(TimeUs now, TimeUs listening_since) const {
  std::vector<Incarnation> silent;
  for (const WorkerNode* worker : Live())
    if (IsSilent(*worker, now, listening_since)) silent.push_back(worker->incarnation);
  return silent;
}

bool Workers::IsSilent(const WorkerNode& worker, TimeUs now, TimeUs listening_since) const {
  const TimeUs longest = worker.welcomed ? options_.lease_us : std::max(options_.lease_us, kJoinerSilenceMaxUs);
  return now - std::max(worker.heard, listening_since) > longest;
}

void Workers::DropSilent(TimeUs now, TimeUs listening_since) {
  std::erase_if(nodes_, [&](const auto& node) {
    const WorkerNode& worker = node.second;
    return worker.state == State::kWaiting && IsSilent(worker, now, listening_since);
  });
}

const WorkerNode* Workers::Find(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

bool Workers::IsLive(Incarnation id) const {
  const WorkerNode* worker = Find(id);
  return worker != nullptr && worker->live();
}

bool Workers::Left(Incarnation id) const {
  const WorkerNode* worker = Find(id);
  return worker != nullptr && worker->left;
}

std::vector<const WorkerNode*> Workers::Live() const {
  std::vector<const WorkerNode*> live;
  for (const auto& [id, worker] : nodes_)
    if (worker.live()) live.push_back(&worker);
  return live;
}

Positions Workers::LivePositions() const {
  Positions positions;
  for (const WorkerNode* worker : Live()) positions[worker->incarnation] = worker->position;
  return positions;
}

Clock Workers::MaxClock() const {
  Clock highest = largest_end_;
  for (const auto& [id, worker] : nodes_) highest = std::max(highest, worker.clock);
  return highest;
}

std::uint32_t Workers::waiting() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(nodes_, [](const auto& node) { return node.second.state == State::kWaiting; }));
}

void Workers::AddPeers(std::map<Incarnation, Peer>* peers) const {
  for (const auto& [id, worker] : nodes_)
    if (worker.live() || worker.state == State::kWaiting || (worker.left && !worker.shutdown_confirmed))
      (*peers)[id] = worker.peer;
}

}  // namespace tarn::scheduler
