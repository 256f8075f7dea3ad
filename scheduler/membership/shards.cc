#include "scheduler/membership/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::scheduler {
namespace {

// Two processes may join as the same shard before the fleet is complete. Both repeat their Join every half second. The
// first stays if it repeats its Join later than kFirstIsAliveUs after the second joined: messages of a dead process
// have arrived by then. If it does not within kReplaceFirstUs, the second replaces it.
constexpr TimeUs kFirstIsAliveUs = 1'000'000, kReplaceFirstUs = 3'000'000;

void NoteRival(ShardNode* shard, std::uint64_t nonce, TimeUs now) {
  if (std::exchange(shard->rival, nonce) != nonce) shard->rival_since = now;
}

bool FirstIsAlive(const ShardNode& shard) { return shard.heard - shard.rival_since > kFirstIsAliveUs; }

}  // namespace

Shards::Shards(Options options) : options_(std::move(options)), nodes_(options_.count) {
  for (std::uint32_t i = 0; i < options_.count; ++i) nodes_[i].shard = ShardId(i);
}

void Shards::Restore(const std::vector<LogSequence>& logged) {
  for (std::size_t i = 0; i < std::min(nodes_.size(), logged.size()); ++i) nodes_[i].logged = logged[i];
}

std::string Shards::RefuseMisfit(Peer from, const Join& join, const Mailer& mail) const {
  if (join.shards_per_server != 0 && join.shards_per_server != options_.per_server) {
    const std::uint32_t server = join.rank / join.shards_per_server;
    mail.Refuse(from, ErrorCode::kInvalidArgument,
                fmt::format("server {}: --shards {}: expected {} as in the job (fleet.shards)", server,
                            join.shards_per_server, options_.per_server));
    return fmt::format("rejected shard {}: server {} has --shards {}, expected {} as in the job", join.rank, server,
                       join.shards_per_server, options_.per_server);
  }
  if (join.rank >= nodes_.size()) {
    mail.Refuse(
        from, ErrorCode::kInvalidArgument,
        fmt::format("shard {}: expected a number below {}, the number of shards of the job", join.rank, nodes_.size()));
    return fmt::format("rejected shard {}: the job has {} shards", join.rank, nodes_.size());
  }
  return {};
}

std::string Shards::RefuseRival(Peer from, const Join& join, const ShardNode& shard, const Mailer& mail) const {
  const std::uint32_t server = join.rank / options_.per_server;
  if (formed_) {
    // The first process owns the rows. If it is dead, the job ends when it has been silent for lease_us.
    mail.Refuse(from, ErrorCode::kFenced,
                fmt::format("server {}: the run already has a server of this rank, at {}. If that one has died: {}",
                            server, shard.endpoint, options_.after_a_lost_shard));
    return fmt::format("rejected a second start of shard {}", join.rank);
  }
  mail.Refuse(from, ErrorCode::kAlreadyExists,
              fmt::format("server {}: another server of this rank has joined, at {}; use one rank per server", server,
                          shard.endpoint));
  return fmt::format("rejected shard {} at {}: another server of its rank has joined, at {}", join.rank, join.endpoint,
                     shard.endpoint);
}

Shards::Joined Shards::OnJoin(Peer from, const Join& join, TimeUs now, Incarnations* incarnations, const Mailer& mail) {
  if (std::string note = RefuseMisfit(from, join, mail); !note.empty()) return {std::move(note)};
  ShardNode& shard = nodes_[join.rank];
  if (shard.joined && shard.nonce == join.nonce) {
    shard.peer = from;
    shard.heard = now;
    return {{}, formed_ ? &shard : nullptr};
  }
  if (formed_) return {RefuseRival(from, join, shard, mail)};
  if (shard.joined) NoteRival(&shard, join.nonce, now);
  if (shard.joined && FirstIsAlive(shard)) return {RefuseRival(from, join, shard, mail)};
  if (shard.joined && now - shard.rival_since <= kReplaceFirstUs) {
    mail.AskToWait(from);
    return {};
  }
  shard.joined = true;
  shard.nonce = join.nonce;
  shard.incarnation = incarnations->Take();
  shard.peer = from;
  shard.endpoint = join.endpoint;
  shard.heard = now;
  shard.rival = 0;
  return {.note = fmt::format("shard {} joined: {}", join.rank, join.endpoint), .is_new = true};
}

std::vector<std::string> Shards::Form(TimeUs now) {
  formed_ = true;
  std::vector<std::string> endpoints;
  for (ShardNode& shard : nodes_) {
    endpoints.push_back(shard.endpoint);
    shard.heard = shard.welcomed = now;
  }
  return endpoints;
}

const ShardNode* Shards::RecordContact(const Sender& sender, std::optional<Peer> from, TimeUs now) {
  if (!formed_ || sender.role != Role::kShard || sender.rank >= nodes_.size()) return nullptr;
  ShardNode& shard = nodes_[sender.rank];
  if (shard.incarnation != sender.incarnation) return nullptr;
  shard.heard = now;
  if (from) shard.peer = *from;
  return &shard;
}

void Shards::OnHeartbeat(ShardId id, const Heartbeat& heartbeat, ViewVersion newest, ViewVersion whole_since) {
  ShardNode& shard = nodes_[id.value];
  if (heartbeat.view >= shard.confirmed) shard.writing = heartbeat.writing;
  shard.confirmed = std::max(shard.confirmed, std::min(heartbeat.view, newest));
  shard.min_clock = std::max(shard.min_clock, heartbeat.clock);
  shard.logged = std::max(shard.logged, heartbeat.log_synced);
  if (heartbeat.view >= whole_since) shard.log_bytes = heartbeat.log_bytes;
}

void Shards::ForgetLogBytes() {
  for (ShardNode& shard : nodes_) shard.log_bytes = 0;
}

std::optional<ShardId> Shards::Silent(TimeUs now, TimeUs listening_since) const {
  if (!formed_) return std::nullopt;
  for (const ShardNode& shard : nodes_)
    if (now - std::max(shard.heard, listening_since) > options_.lease_us) return shard.shard;
  return std::nullopt;
}

void Shards::DropSilent(TimeUs now, TimeUs listening_since) {
  if (formed_) return;
  const TimeUs longest = std::max(options_.lease_us, kJoinerSilenceMaxUs);
  for (ShardNode& shard : nodes_)
    if (shard.joined && now - std::max(shard.heard, listening_since) > longest) shard.joined = false;
}

std::uint32_t Shards::joined() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(nodes_, [](const auto& shard) { return shard.joined; }));
}

ViewVersion Shards::LeastConfirmed() const {
  ViewVersion least = nodes_.front().confirmed;
  for (const ShardNode& shard : nodes_) least = std::min(least, shard.confirmed);
  return least;
}

bool Shards::MayWrite(CheckpointId id, ViewVersion version) const { return !Confirmed(version) || Writes(id); }

bool Shards::Writes(CheckpointId id) const {
  return std::ranges::any_of(nodes_,
                             [&](const ShardNode& shard) { return shard.writing.value != 0 && shard.writing <= id; });
}

Clock Shards::MinClock() const {
  Clock least = nodes_.front().min_clock;
  for (const ShardNode& shard : nodes_) least = std::min(least, shard.min_clock);
  return least;
}

Clock Shards::MaxClock() const {
  Clock highest;
  for (const ShardNode& shard : nodes_) highest = std::max(highest, shard.min_clock);
  return highest;
}

std::uint64_t Shards::LogBytes() const {
  std::uint64_t most = 0;
  for (const ShardNode& shard : nodes_) most = std::max(most, shard.log_bytes);
  return most;
}

std::vector<LogSequence> Shards::Logged() const {
  std::vector<LogSequence> logged;
  logged.reserve(nodes_.size());
  for (const ShardNode& shard : nodes_) logged.push_back(shard.logged);
  return logged;
}

void Shards::AddPeers(std::map<Incarnation, Peer>* peers) const {
  for (const ShardNode& shard : nodes_)
    if (shard.joined) (*peers)[shard.incarnation] = shard.peer;
}

}  // namespace tarn::scheduler
