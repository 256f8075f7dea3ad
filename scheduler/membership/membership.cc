#include "scheduler/membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::scheduler {
namespace {

// Joining together keeps the bits of the run (rule G4), so a worker that is started again soon is waited for.
constexpr int kTogetherLeasesMax = 20;

}  // namespace

Membership::Membership(Options options, SchedulerStore* store)
    : options_(std::move(options)),
      shards_({.count = options_.shards,
               .per_server = options_.shards_per_server,
               .lease_us = options_.lease_us,
               .after_a_lost_shard = options_.after_a_lost_shard}),
      workers_({.ranks = options_.workers,
                .lease_us = options_.lease_us,
                .nonces_kept = options_.nonces_kept,
                .start_clock = options_.start_clock}),
      view_(options_.partition_bits, options_.worker_entries_max, &shards_),
      sender_({.heartbeat_us = options_.heartbeat_us,
               .job_text = options_.job_text,
               .resume_directory = options_.resume_directory,
               .blobs = options_.blobs,
               .start_clock = options_.start_clock,
               .log = options_.log},
              &view_),
      fencing_(options_.shards, options_.ends_together),
      incarnations_(options_.first_incarnation),
      addresses_(store) {
  addresses_.Put(Role::kScheduler, 0, options_.http);
}

void Membership::Restore(const SchedulerState& state) {
  view_.Restore(state);
  shards_.Restore(state.logged);
  workers_.RestoreLargestEnd(state.largest_end);
  begun_ = admit_together_ = true;
  fencing_.BeginRestart();
  for (const WorkerEntry& entry : state.workers) {
    if (entry.state == WorkerState::kEnded) continue;
    if (entry.state == WorkerState::kLive) ++died_;
    workers_.Restore(entry);
    fencing_.Begin(entry.incarnation, entry.join);
  }
}

void Membership::Capture(SchedulerState* state) const {
  view_.Capture(state);
  state->largest_end = workers_.largest_end();
  state->begun = begun();
  state->logged = shards_.Logged();
}

std::string Membership::OnJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  if (join.protocol_version != limits::kProtocolVersion) {
    mail.Refuse(from, ErrorCode::kWrongJob,
                fmt::format("protocol version {}: this fleet uses version {}; start all nodes from the same build",
                            join.protocol_version, limits::kProtocolVersion));
    return fmt::format("rejected a node of protocol version {}", join.protocol_version);
  }
  if (!join.http.empty())
    if (const Status status = CheckHttpAddress(join.http); !status) {
      mail.Refuse(from, status.error().code, status.error().message);
      return fmt::format("rejected a node: {}", status.error().message);
    }
  switch (join.role) {
    case Role::kShard: return OnShardJoin(from, join, now, mail);
    case Role::kWorker: return OnWorkerJoin(from, join, now, mail);
    case Role::kScheduler: break;
  }
  return {};
}

std::string Membership::OnShardJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  Shards::Joined joined = shards_.OnJoin(from, join, now, &incarnations_, mail);
  if (joined.welcome != nullptr) sender_.Welcome(*joined.welcome, mail);
  if (joined.is_new) OnAddress(Role::kShard, join.rank / options_.shards_per_server, join);
  return std::move(joined.note);
}

std::string Membership::OnWorkerJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  using State = WorkerNode::State;
  if (const auto known = workers_.IncarnationOf(join.nonce)) {
    const WorkerNode* worker = workers_.Find(*known);
    if (worker == nullptr || worker->state == State::kFencing || worker->state == State::kEnded) {
      mail.Refuse(from, ErrorCode::kFenced, "this incarnation of the worker has ended: join again");
      return {};
    }
    workers_.RecordJoin(*known, from, now);
    worker->welcomed ? sender_.Welcome(*worker, mail) : mail.AskToWait(from);
    return {};
  }
  const auto rank = workers_.RankFor(join);
  if (!rank) {  // all ranks are in use: the process waits until a worker ends
    mail.AskToWait(from);
    return {};
  }
  if (rank->value >= options_.workers) {
    mail.Refuse(from, ErrorCode::kInvalidArgument,
                fmt::format("worker {}: expected a rank below {}, the number of workers of the job", rank->value,
                            options_.workers));
    return fmt::format("rejected worker {}: the job has {} workers", rank->value, options_.workers);
  }
  for (const Incarnation old : workers_.OfRank(*rank)) {
    const State state = workers_.at(old).state;
    if (state == State::kLive) Fence(old);
    if (state == State::kWaiting) workers_.Forget(old);
  }
  const WorkerNode& worker = workers_.Add(*rank, incarnations_.Take(), join.nonce, from, now);
  has_had_programs_ |= join.is_program;
  OnAddress(Role::kWorker, rank->value, join);
  mail.AskToWait(from);
  return fmt::format("worker {} joined as incarnation {}", rank->value, worker.incarnation.value);
}

// Before the fleet is complete, Form writes the list.
void Membership::OnAddress(Role role, std::uint32_t rank, const Join& join) {
  addresses_.Put(role, rank, join.http);
  if (formed()) addresses_.Write();
}

void Membership::OnAddressesWritten(const StoreWritten& written) {
  addresses_.OnWritten(written);
  if (formed()) addresses_.Write();  // changes during the write
}

bool Membership::Form(TimeUs now) {
  // Waiting workers have different ranks.
  if (formed() || !shards_.Complete() || workers_.waiting() < options_.workers || !addresses_.Write()) return false;
  view_.Form(shards_.Form(now));
  workers_.Form(now);
  if (admit_together_) return true;
  for (const Incarnation id : workers_.Waiting()) {
    MakeLive(id, options_.start_clock);
    // Only these workers continue from the blobs of the checkpoint; a worker that joins later replaces one of them.
    workers_.SetContinues(id);
  }
  return true;
}

void Membership::MakeLive(Incarnation worker, Clock join) {
  view_.AddWorker(workers_.MakeLive(worker, join, view().version));
}

void Membership::OnHeartbeat(ShardId id, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail) {
  shards_.OnHeartbeat(id, heartbeat, view().version, view_.whole_since());
  fencing_.OnHeartbeat(id, heartbeat);
  sender_.Acknowledge(shards_.at(id).peer, heartbeat.view, shards_.view_sent(id), now, mail);
}

void Membership::OnHeartbeat(Incarnation id, const Heartbeat& heartbeat, TimeUs now, const Mailer& mail) {
  workers_.OnHeartbeat(id, heartbeat, view());
  sender_.Acknowledge(workers_.at(id).peer, heartbeat.view, workers_.view_sent(id), now, mail);
}

void Membership::DropSilentJoiners(TimeUs now, TimeUs listening_since) {
  shards_.DropSilent(now, listening_since);
  workers_.DropSilent(now, listening_since);
}

void Membership::Fence(Incarnation id) {
  if (!workers_.at(id).live()) return;
  view_.Fence(id);
  workers_.Fence(id);
  fencing_.Begin(id, workers_.at(id).join);
  ++died_;
}

// All shards have acknowledged all pushes of the worker, so its own report equals their state.
void Membership::OnLeave(Incarnation id, const Leave& leave) {
  const WorkerNode& worker = workers_.at(id);
  workers_.OnLeave(id);
  End({id, std::max({leave.clock, worker.acked_clock, worker.join}), leave.position, Clock(0)});
}

void Membership::End(const Fencing::End& end) {
  view_.End(end.worker, end.clock);
  workers_.End(end.worker, end.clock);
  const WorkerNode& worker = workers_.at(end.worker);
  verdicts_.push_back({.worker = end.worker,
                       .rank = worker.rank,
                       .join = worker.join,
                       .end = end.clock,
                       .position = end.position,
                       .repeated = end.pushed > end.clock ? end.pushed.value - end.clock.value : 0,
                       .taken_back = end.taken_back,
                       .keeps_state = worker.keeps_state});
}

std::vector<Verdict> Membership::TakeVerdicts() {
  for (const Fencing::End& end : fencing_.TakeEnds(formed())) End(end);
  return std::exchange(verdicts_, {});
}

// After a restart the workers that wait are admitted without the others, if those do not join within some leases.
bool Membership::JoinersReady(TimeUs now) {
  if (!formed() || AnyFencing() || restarting()) return false;
  const std::uint32_t waiting = workers_.waiting();
  if (admit_together_ && !joinable_) joinable_ = now;
  if (admit_together_ && waiting < options_.workers && now - *joinable_ < kTogetherLeasesMax * options_.lease_us)
    return false;
  return waiting > 0 && view_.Room() > 0;
}

std::vector<Incarnation> Membership::AdmitJoiners(Clock join) {
  std::vector<Incarnation> admitted;
  admit_together_ = false;
  view_.Change();
  for (const Incarnation worker : workers_.Waiting()) {
    if (view_.Room() == 0) break;
    MakeLive(worker, join);
    admitted.push_back(worker);
  }
  return admitted;
}

void Membership::SetWhole(CheckpointId id) {
  view_.SetWhole(id);
  shards_.ForgetLogBytes();
}

void Membership::SendViews(TimeUs now, const Mailer& mail) {
  if (!formed()) return;
  for (const ShardNode& shard : shards_.all()) sender_.SendIfDue(shard, shards_.view_sent(shard.shard), now, mail);
  const ViewVersion confirmed = shards_.LeastConfirmed();
  workers_.ForEach([&](WorkerNode* worker) { sender_.SendIfDue(worker, confirmed, now, mail); });
}

std::map<Incarnation, Peer> Membership::EveryPeer() const {
  std::map<Incarnation, Peer> peers;
  shards_.AddPeers(&peers);
  workers_.AddPeers(&peers);
  return peers;
}

}  // namespace tarn::scheduler
