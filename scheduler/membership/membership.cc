#include "scheduler/membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

// Of two shards of one rank the first is there if it repeats its Join, which it does every half second, when so much
// time has passed since the second came: what was on its way from a process that has died is here by then. If it does
// not for so long, it is gone.
constexpr TimeUs kStillThereUs = 1'000'000, kGoneUs = 3'000'000;

void NoteRival(ShardNode* shard, std::uint64_t nonce, TimeUs now) {
  if (std::exchange(shard->rival, nonce) != nonce) shard->rival_since = now;
}

bool StillThere(const ShardNode& shard) { return shard.heard - shard.rival_since > kStillThereUs; }

// The fleet is not complete, or shards load their rows: whoever hears nothing for long gives the scheduler up.
void AskToWait(Peer to, const Mailer& mail) { mail.Send(to, HeartbeatAck{}); }

void Refuse(Peer to, ErrorCode code, std::string reason, const Mailer& mail) {
  mail.Send(to, Shutdown{.code = code, .reason = std::move(reason)});
}

}  // namespace

Membership::Membership(Options options)
    : options_(std::move(options)),
      shards_(options_.shards),
      largest_end_(options_.start_clock),
      next_incarnation_(options_.first_incarnation) {
  for (std::uint32_t i = 0; i < options_.shards; ++i) shards_[i].shard = ShardId(i);
  view_.routes.partition_bits = options_.partition_bits;
}

Incarnation Membership::NewIncarnation() {
  return std::exchange(next_incarnation_, Incarnation(next_incarnation_.value + 1));
}

std::string Membership::OnJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  if (join.protocol_version != limits::kProtocolVersion) {
    Refuse(from, ErrorCode::kWrongJob,
           fmt::format("protocol version {} is not spoken here: this fleet speaks {}", join.protocol_version,
                       limits::kProtocolVersion),
           mail);
    return fmt::format("refused a node of protocol version {}", join.protocol_version);
  }
  switch (join.role) {
    case Role::kShard: return OnShardJoin(from, join, now, mail);
    case Role::kWorker: return OnWorkerJoin(from, join, now, mail);
    case Role::kScheduler: break;
  }
  return {};
}

std::string Membership::OnShardJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  if (join.shards_per_server != 0 && join.shards_per_server != options_.shards_per_server) {
    const std::uint32_t server = join.rank / join.shards_per_server;
    Refuse(from, ErrorCode::kInvalidArgument,
           fmt::format("server {}: it has --shards {}, expected {} as in the job (fleet.shards)", server,
                       join.shards_per_server, options_.shards_per_server),
           mail);
    return fmt::format("refused shard {}: its server {} has --shards {}, the job has {} a server", join.rank, server,
                       join.shards_per_server, options_.shards_per_server);
  }
  if (join.rank >= shards_.size()) {
    Refuse(from, ErrorCode::kInvalidArgument,
           fmt::format("shard {}: the job has {} shards, numbered from 0", join.rank, shards_.size()), mail);
    return fmt::format("refused shard {}: the job has {}", join.rank, shards_.size());
  }
  ShardNode& shard = shards_[join.rank];
  if (shard.joined && shard.nonce == join.nonce) {
    shard.peer = from;
    shard.heard = now;
    if (formed_) SendWelcome(from, shard.nonce, join.rank, shard.incarnation, options_.start_clock, mail, LogOf(shard));
    return {};
  }
  const std::uint32_t server = join.rank / options_.shards_per_server;
  if (formed_) {
    // The rows are with the process that was here before; the job ends when that one's lease runs out.
    Refuse(from, ErrorCode::kFenced,
           fmt::format("server {}: the run has one of this rank, at {}, expected one a rank. If that has died: {}",
                       server, shard.endpoint, options_.after_a_lost_shard),
           mail);
    return fmt::format("refused a second start of shard {}", join.rank);
  }
  if (shard.joined) NoteRival(&shard, join.nonce, now);
  if (shard.joined && StillThere(shard)) {
    Refuse(from, ErrorCode::kAlreadyExists,
           fmt::format("server {}: another one of this rank, at {}, has joined, expected one a rank", server,
                       shard.endpoint),
           mail);
    return fmt::format("refused shard {} at {}: another server of its rank, at {}, has joined", join.rank,
                       join.endpoint, shard.endpoint);
  }
  if (shard.joined && now - shard.rival_since <= kGoneUs) {
    AskToWait(from, mail);
    return {};
  }
  shard.joined = true;
  shard.nonce = join.nonce;
  shard.incarnation = NewIncarnation();
  shard.peer = from;
  shard.endpoint = join.endpoint;
  shard.heard = now;
  shard.rival = 0;
  return fmt::format("shard {} joined: {}", join.rank, join.endpoint);
}

std::optional<WorkerRank> Membership::RankFor(const Join& join) const {
  if (join.rank != kAnyRank) return WorkerRank(join.rank);
  std::set<WorkerRank> taken;
  for (const auto& [id, worker] : workers_)
    if (worker.state == WorkerNode::State::kLive || worker.state == WorkerNode::State::kWaiting)
      taken.insert(worker.rank);
  for (std::uint32_t rank = 0; rank < options_.workers; ++rank)
    if (!taken.contains(WorkerRank(rank))) return WorkerRank(rank);
  return std::nullopt;
}

std::string Membership::OnWorkerJoin(Peer from, const Join& join, TimeUs now, const Mailer& mail) {
  if (auto known = nonces_.find(join.nonce); known != nonces_.end()) {
    auto it = workers_.find(known->second);
    if (it == workers_.end() || it->second.state == WorkerNode::State::kFencing ||
        it->second.state == WorkerNode::State::kEnded) {
      Refuse(from, ErrorCode::kFenced, "this incarnation of the worker is over: join anew", mail);
      return {};
    }
    WorkerNode& worker = it->second;
    worker.peer = from;
    worker.heard = now;
    worker.welcomed ? SendWelcome(worker, mail) : AskToWait(from, mail);
    return {};
  }
  const auto rank = RankFor(join);
  if (!rank) {  // all are there: it may take the place of one that dies
    AskToWait(from, mail);
    return {};
  }
  if (rank->value >= options_.workers) {
    Refuse(from, ErrorCode::kInvalidArgument,
           fmt::format("worker {}: the job has {} workers, numbered from 0", rank->value, options_.workers), mail);
    return fmt::format("refused worker {}: the job has {}", rank->value, options_.workers);
  }
  std::vector<WorkerNode> same_rank;
  for (const auto& [id, worker] : workers_)
    if (worker.rank == *rank) same_rank.push_back(worker);
  for (const WorkerNode& old : same_rank) {
    if (old.state == WorkerNode::State::kLive) Fence(old.incarnation);
    if (old.state == WorkerNode::State::kWaiting) Forget(old.incarnation);
  }
  WorkerNode worker;
  worker.rank = *rank;
  worker.incarnation = NewIncarnation();
  worker.nonce = join.nonce;
  worker.peer = from;
  worker.heard = now;
  Remember(worker);
  workers_[worker.incarnation] = worker;
  AskToWait(from, mail);
  return fmt::format("worker {} joined as incarnation {}", rank->value, worker.incarnation.value);
}

void Membership::Remember(const WorkerNode& worker) {
  auto over = [&](Incarnation incarnation) {
    auto it = workers_.find(incarnation);
    return it == workers_.end() || it->second.state == WorkerNode::State::kEnded;
  };
  nonces_[worker.nonce] = worker.incarnation;
  by_age_[worker.incarnation] = worker.nonce;
  for (auto it = by_age_.begin(); nonces_.size() > options_.nonces_kept && it->first != worker.incarnation;) {
    if (!over(it->first)) {
      ++it;
      continue;
    }
    nonces_.erase(it->second);
    it = by_age_.erase(it);
  }
}

void Membership::Forget(Incarnation worker) { workers_.erase(worker); }

bool Membership::Complete() const {
  return shards_joined() == shards_.size() && workers_waiting() >= options_.workers;  // they wait, one a rank
}

bool Membership::Form(TimeUs now) {
  if (formed_ || !Complete()) return false;
  formed_ = true;
  view_.routes.epoch = Epoch(view_.routes.epoch.value + 1);
  if (view_.routes.owners.empty()) view_.routes.owners = EvenOwners(options_.partition_bits, options_.shards);
  for (ShardNode& shard : shards_) {
    view_.routes.endpoints.push_back(shard.endpoint);
    shard.heard = shard.welcomed = now;
  }
  Changed();
  for (auto& [id, worker] : workers_) {
    worker.heard = now;
    if (admit_together_) continue;
    MakeLive(&worker, options_.start_clock);
    // Who joins later takes the place of one that has gone on from there.
    if (const auto blob = options_.blob_bytes.find(worker.rank); blob != options_.blob_bytes.end())
      worker.blob_bytes = blob->second;
  }
  for (const WorkerEntry& entry : view_.workers)
    if (entry.state == WorkerState::kEnded) ended_[entry.incarnation] = view_.version;
  return true;
}

void Membership::MakeLive(WorkerNode* worker, Clock join) {
  worker->state = WorkerNode::State::kLive;
  worker->join = worker->clock = worker->acked_clock = join;
  worker->ticked = worker->heard;
  worker->live_version = view_.version;
  WorkerEntry entry;
  entry.rank = worker->rank;
  entry.incarnation = worker->incarnation;
  entry.join = join;
  view_.workers.push_back(entry);
  std::sort(view_.workers.begin(), view_.workers.end(), [](const WorkerEntry& a, const WorkerEntry& b) {
    return std::pair(a.rank, a.incarnation) < std::pair(b.rank, b.incarnation);
  });
}

void Membership::Changed() {
  DropEnded();
  view_.version = ViewVersion(view_.version.value + 1);
  for (ShardNode& shard : shards_) shard.view_sent = 0;
  for (auto& [id, worker] : workers_) worker.view_sent = 0;
}

bool Membership::Confirmed(ViewVersion version) const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [&](const ShardNode& shard) { return shard.confirmed >= version; });
}

ShardNode* Membership::FindShard(const Sender& sender) {
  if (!formed_ || sender.role != Role::kShard || sender.rank >= shards_.size()) return nullptr;
  ShardNode& shard = shards_[sender.rank];
  return shard.incarnation == sender.incarnation ? &shard : nullptr;
}

WorkerNode* Membership::FindWorker(const Sender& sender) {
  auto it = workers_.find(sender.incarnation);
  if (sender.role != Role::kWorker || it == workers_.end()) return nullptr;
  WorkerNode& worker = it->second;
  return worker.state == WorkerNode::State::kLive && worker.rank.value == sender.rank ? &worker : nullptr;
}

bool Membership::Left(Incarnation worker) const {
  auto it = workers_.find(worker);
  return it != workers_.end() && it->second.left;
}

void Membership::OnFarewell(Incarnation worker) {
  auto it = workers_.find(worker);
  if (it != workers_.end()) it->second.understood = true;
}

bool Membership::MayWrite(CheckpointId id, ViewVersion version) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const ShardNode& shard) {
    return shard.confirmed < version || (shard.writing.value != 0 && shard.writing <= id);
  });
}

void Membership::OnHeartbeat(ShardNode* shard, const Heartbeat& heartbeat) {
  if (heartbeat.view >= shard->confirmed) shard->writing = heartbeat.writing;
  shard->confirmed = std::max(shard->confirmed, std::min(heartbeat.view, view_.version));
  shard->min_clock = std::max(shard->min_clock, heartbeat.clock);
  shard->logged = std::max(shard->logged, heartbeat.log_synced);
  if (heartbeat.view >= whole_since_) shard->log_bytes = heartbeat.log_bytes;
  for (const FencedTick& tick : heartbeat.fenced) {
    const WorkerEntry* entry = Entry(tick.incarnation);
    if (entry == nullptr || entry->state != WorkerState::kFencing) continue;
    const auto [it, added] = fenced_[tick.incarnation].try_emplace(shard->shard);
    if (!added) continue;
    it->second.newest = tick;
    for (const WorkerTick& earlier : heartbeat.fenced_ticks)
      if (earlier.incarnation == tick.incarnation) it->second.earlier.push_back({earlier.clock, earlier.position});
  }
}

void Membership::OnHeartbeat(WorkerNode* worker, const Heartbeat& heartbeat) {
  worker->confirmed = std::max(worker->confirmed, std::min(heartbeat.view, view_.version));
  worker->proposal = std::max(worker->proposal, std::min(heartbeat.proposal, view_.proposal.id));
  worker->drained = std::max(worker->drained, std::min(heartbeat.drained, view_.proposal.id));
  worker->clock = std::max(worker->clock, heartbeat.clock);
  if (heartbeat.acked_clock < worker->acked_clock) return;  // came late
  if (heartbeat.acked_clock > worker->acked_clock) worker->ticked = worker->heard;
  worker->acked_clock = heartbeat.acked_clock;
  worker->position = heartbeat.position;
}

void Membership::Acknowledge(Peer peer, ViewVersion theirs, TimeUs* view_sent, TimeUs now, const Mailer& mail) {
  mail.Send(peer, HeartbeatAck{.view = view_.version});
  if (theirs >= view_.version || (*view_sent != 0 && now - *view_sent < options_.heartbeat_us / 4)) return;
  mail.Send(peer, ViewUpdate{view_});
  *view_sent = now;
}

void Membership::SendWelcome(Peer peer, std::uint64_t nonce, std::uint32_t rank, Incarnation incarnation, Clock start,
                             const Mailer& mail, const LogOrder& log, std::uint64_t blob_bytes) const {
  mail.Send(peer, Welcome{.nonce = nonce,
                          .rank = rank,
                          .incarnation = incarnation,
                          .start_clock = start,
                          .job_text = options_.job_text,
                          .resume_directory = options_.resume_directory,
                          .view = view_,
                          .log = log,
                          .blob_bytes = blob_bytes});
}

void Membership::SendWelcome(const WorkerNode& worker, const Mailer& mail) const {
  SendWelcome(worker.peer, worker.nonce, worker.rank.value, worker.incarnation, worker.join, mail, {},
              worker.blob_bytes);
}

LogOrder Membership::LogOf(const ShardNode& shard) const {
  LogOrder log = options_.log;
  log.at_least = shard.logged;
  return log;
}

bool Membership::MayBegin(const WorkerNode& worker) const {
  return worker.state == WorkerNode::State::kLive && !worker.welcomed && Confirmed(worker.live_version);
}

void Membership::SendViews(TimeUs now, const Mailer& mail) {
  if (!formed_) return;
  auto due = [&](ViewVersion confirmed, TimeUs sent) {
    return confirmed < view_.version && (sent == 0 || now - sent >= options_.heartbeat_us);
  };
  for (ShardNode& shard : shards_) {
    if (!due(shard.confirmed, shard.view_sent)) continue;
    // Until a shard has confirmed anything, its Welcome may be what was lost.
    if (shard.confirmed == ViewVersion(0))
      SendWelcome(shard.peer, shard.nonce, shard.shard.value, shard.incarnation, options_.start_clock, mail,
                  LogOf(shard));
    else
      mail.Send(shard.peer, ViewUpdate{view_});
    shard.view_sent = std::max<TimeUs>(now, 1);
  }
  for (auto& [id, worker] : workers_) {
    if (worker.state != WorkerNode::State::kLive) continue;
    if (MayBegin(worker)) {
      worker.welcomed = true;
      SendWelcome(worker, mail);
      worker.view_sent = std::max<TimeUs>(now, 1);
    } else if (worker.welcomed && due(worker.confirmed, worker.view_sent)) {
      mail.Send(worker.peer, ViewUpdate{view_});
      worker.view_sent = std::max<TimeUs>(now, 1);
    }
  }
}

std::map<Incarnation, Peer> Membership::EveryPeer() const {
  std::map<Incarnation, Peer> peers;
  for (const ShardNode& shard : shards_)
    if (shard.joined) peers[shard.incarnation] = shard.peer;
  for (const auto& [id, worker] : workers_)
    if (worker.state == WorkerNode::State::kLive || worker.state == WorkerNode::State::kWaiting ||
        (worker.left && !worker.understood))
      peers[id] = worker.peer;
  return peers;
}

void Membership::SetOrder(const CheckpointOrder& order) {
  Changed();
  view_.checkpoint = order;
}

// What shards have said of the length of their logs is of before they shorten them.
void Membership::SetWhole(CheckpointId id) {
  Changed();
  view_.whole = id;
  whole_since_ = view_.version;
  for (ShardNode& shard : shards_) shard.log_bytes = 0;
}

void Membership::PutTable(const TableSpec& spec) {
  Changed();
  for (TableSpec& table : view_.tables) {
    if (table.id != spec.id) continue;
    table = spec;
    return;
  }
  view_.tables.push_back(spec);
}

std::uint32_t Membership::shards_joined() const {
  return static_cast<std::uint32_t>(
      std::count_if(shards_.begin(), shards_.end(), [](const ShardNode& shard) { return shard.joined; }));
}

std::uint32_t Membership::workers_waiting() const {
  return static_cast<std::uint32_t>(std::count_if(workers_.begin(), workers_.end(), [](const auto& worker) {
    return worker.second.state == WorkerNode::State::kWaiting;
  }));
}

bool Membership::MayDrop(const WorkerEntry& entry) const {
  auto it = ended_.find(entry.incarnation);
  return it != ended_.end() && Confirmed(it->second) && MinClock() >= entry.end;
}

std::size_t Membership::Room() const {
  const auto stay = static_cast<std::size_t>(std::count_if(view_.workers.begin(), view_.workers.end(),
                                                           [&](const WorkerEntry& entry) { return !MayDrop(entry); }));
  return options_.worker_entries_max - std::min(options_.worker_entries_max, stay);
}

void Membership::DropEnded() {
  std::erase_if(view_.workers, [&](const WorkerEntry& entry) {
    if (!MayDrop(entry)) return false;
    ended_.erase(entry.incarnation);
    return true;
  });
  std::size_t over = 0;
  for (const auto& [id, worker] : workers_) over += worker.state == WorkerNode::State::kEnded ? 1 : 0;
  for (auto it = workers_.begin(); over > kEndedWorkersKept && it != workers_.end();) {
    if (it->second.state != WorkerNode::State::kEnded) {
      ++it;
      continue;
    }
    it = workers_.erase(it);
    --over;
  }
}

void Membership::Capture(SchedulerState* state) const {
  state->version = view_.version;
  state->epoch = view_.routes.epoch;
  state->owners = view_.routes.owners;
  state->workers = view_.workers;
  state->proposal = view_.proposal.id;
  state->largest_end = largest_end_;
  state->begun = begun();
  for (const ShardNode& shard : shards_) state->logged.push_back(shard.logged);
}

void Membership::Restore(const SchedulerState& state) {
  view_.version = state.version;
  view_.routes.epoch = state.epoch;
  view_.routes.owners = state.owners;
  view_.workers = state.workers;
  view_.proposal.id = state.proposal;
  view_.whole = state.whole;
  largest_end_ = std::max(largest_end_, state.largest_end);
  begun_ = restarting_ = admit_together_ = true;
  for (std::size_t i = 0; i < std::min(shards_.size(), state.logged.size()); ++i) shards_[i].logged = state.logged[i];
  for (WorkerEntry& entry : view_.workers) {
    if (entry.state == WorkerState::kEnded) continue;
    if (entry.state == WorkerState::kLive) ++died_;
    entry.state = WorkerState::kFencing;
    WorkerNode worker;
    worker.rank = entry.rank;
    worker.incarnation = entry.incarnation;
    worker.state = WorkerNode::State::kFencing;
    worker.join = worker.clock = worker.acked_clock = entry.join;
    workers_[entry.incarnation] = worker;
    fenced_[entry.incarnation] = {};
  }
}

}  // namespace tarn::scheduler
