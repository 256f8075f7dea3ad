// The shard and the scheduler: joining, views, heartbeats, checkpoints, and what a higher minimum clock sets off.
#include <fmt/format.h>

#include <algorithm>

#include "core/job/job.h"
#include "core/limits.h"
#include "server/checkpoint/row_loader.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

TimeUs MicrosecondsOf(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

std::vector<Counter> CountersOf(const ShardCounters& c, const Store& rows, std::size_t bucket_bytes,
                                std::size_t reply_bytes) {
  auto counter = [](const char* name, std::uint64_t value) { return Counter{name, static_cast<double>(value)}; };
  std::vector<Counter> counters = {counter("shard_pulls", c.pulls),
                                   counter("shard_pulls_parked", c.pulls_parked),
                                   counter("shard_pull_rows", c.pull_rows),
                                   counter("shard_pushes", c.pushes),
                                   counter("shard_push_rows", c.push_rows),
                                   counter("shard_pushes_repeated", c.pushes_repeated),
                                   counter("shard_pushes_out_of_order", c.pushes_out_of_order),
                                   counter("shard_refused_epoch", c.refused_epoch),
                                   counter("shard_refused_fenced", c.refused_fenced),
                                   counter("shard_refused_other", c.refused_other),
                                   counter("shard_checkpoints", c.checkpoints),
                                   counter("shard_rows", rows.row_count()),
                                   counter("shard_rows_admitted", rows.counters().admitted),
                                   counter("shard_rows_refused", rows.counters().refused),
                                   counter("shard_rows_expired", rows.counters().expired),
                                   counter("shard_rows_not_finite", rows.counters().not_finite),
                                   counter("shard_row_bytes", rows.memory_bytes()),
                                   counter("shard_bucket_bytes", bucket_bytes),
                                   counter("shard_reply_bytes", reply_bytes)};
  if (const Residency* tier = rows.tier()) {
    const ResidencyCounters& t = tier->counters();
    for (Counter& one : std::vector<Counter>{
             counter("shard_resident_rows", tier->resident_rows()), counter("shard_cold_rows", tier->cold_rows()),
             counter("shard_tier_uses", t.uses), counter("shard_tier_read_waiting", t.read_waiting),
             counter("shard_tier_fetched", t.fetched), counter("shard_tier_evicted", t.evicted),
             counter("shard_tier_bytes", tier->disk_bytes()), counter("shard_waited_for_rows", c.waited_for_rows)})
      counters.push_back(std::move(one));
  }
  return counters;
}

}  // namespace

void Shard::Impl::SendJoin() {
  Send(kSchedulerPeer, Join{.role = Role::kShard,
                            .rank = options_.shard.value,
                            .nonce = options_.nonce,
                            .protocol_version = limits::kProtocolVersion,
                            .endpoint = options_.endpoint,
                            .shards_per_server = options_.shards_per_server});
  next_beat_ = now_ + heartbeat_us_;
}

void Shard::Impl::SendHeartbeat() {
  Heartbeat beat;
  beat.view = view_.version;
  beat.clock = cohort_.minimum();
  beat.fenced = cohort_.Fenced();
  beat.fenced_ticks = cohort_.FencedTicks();
  beat.writing = OldestWritten();
  if (logging_) {
    beat.log_synced = synced_;
    beat.log_bytes = options_.log->bytes();
  }
  beat.counters = CountersOf(counters_, *rows_, buckets_.bytes(), replies_.bytes());
  SayAlive(std::move(beat));
  next_beat_ = now_ + heartbeat_us_;
}

void Shard::Impl::SendPart() {
  if (part_) SendWhenDurable(kSchedulerPeer, *part_);
}

void Shard::Impl::OnControl(Message message) {
  if (auto* shutdown = std::get_if<Shutdown>(&message.body)) {
    stop_reason_ = std::move(*shutdown);
    return OnShutdown();
  }
  if (std::holds_alternative<Welcome>(message.body)) return OnWelcome(message);
  if (!joined_) return;  // the Welcome was lost, and comes again for our next Join
  heard_ = now_;
  if (const auto* update = std::get_if<ViewUpdate>(&message.body)) {
    if (auto status = Adopt(update->view); !status) StopWith(status.error().code, status.error().message);
  }
}

void Shard::Impl::OnShutdown() {
  stopped_ = ended_ = true;
  Send(kSchedulerPeer, Shutdown{});  // rule S1: understood
}

void Shard::Impl::OnWelcome(const Message& message) {
  const Welcome& welcome = std::get<Welcome>(message.body);
  if (welcome.nonce != options_.nonce) return;  // of a process that was here before
  heard_ = now_;
  if (joined_) return;
  if (auto status = Enter(message, welcome); !status) StopWith(status.error().code, status.error().message);
}

Status Shard::Impl::Enter(const Message& message, const Welcome& welcome) {
  if (welcome.rank != options_.shard.value)
    return Fail(ErrorCode::kInternal,
                fmt::format("shard {}: welcomed as shard {}", options_.shard.value, welcome.rank));
  const auto job = ParseJob(welcome.job_text, "the scheduler's job", ".");
  if (!job) return std::unexpected(job.error());
  job_ = message.job;
  incarnation_ = welcome.incarnation;
  heartbeat_us_ = MicrosecondsOf(job->fleet.heartbeat_seconds);
  lease_us_ = MicrosecondsOf(job->fleet.lease_seconds);
  busy_poll_us_ = job->fleet.busy_poll_us;

  const RouteMap& routes = welcome.view.routes;
  if (routes.partition_bits > limits::kPartitionBitsMax || routes.owners.size() != std::size_t{1}
                                                                                       << routes.partition_bits)
    return Fail(ErrorCode::kMalformed,
                fmt::format("first view: {} owners of 2^{} partitions", routes.owners.size(), routes.partition_bits));
  StoreOptions options{.job_seed = job->job.seed,
                       .partition_bits = routes.partition_bits,
                       .owned = {},
                       .removed_keys_max = options_.removed_keys_max};
  for (std::uint32_t p = 0; p < routes.owners.size(); ++p)
    if (routes.owners[p] == options_.shard) options.owned.push_back(PartitionId(p));
  auto tier = MakeTier(*job, options.owned.size());
  if (!tier) return std::unexpected(tier.error());
  rows_ = std::make_unique<Store>(std::move(options), std::move(*tier));
  resume_directory_ = welcome.resume_directory;
  view_.routes = routes;
  if (job->storage.durability == Durability::kLog) return EnterWithLog(welcome);
  TARN_RETURN_IF_ERROR(AddAndLoad(welcome.view.tables, welcome.resume_directory));
  joined_ = true;
  return Adopt(welcome.view);
}

Status Shard::Impl::AddAndLoad(const std::vector<TableSpec>& tables, const std::string& resume_directory,
                               RowLoader::Unknown unknown) {
  for (const TableSpec& spec : tables) TARN_RETURN_IF_ERROR(rows_->AddTable(spec));
  if (resume_directory.empty()) return {};
  RowLoader loader(rows_.get(), unknown);
  resumed_ = true;
  return store_->Load(resume_directory, loader);
}

Status Shard::Impl::Adopt(const View& view) {
  if (view.version <= view_.version) return {};
  TARN_RETURN_IF_ERROR(AdoptRoutes(view));
  LogView(view);
  AdoptMembers(view);
  view_ = view;
  AdoptOrder(view.checkpoint);
  Advance();
  TellTime();  // last: the log has the view, and what it closes, before the time
  SendHeartbeat();
  return {};
}

Status Shard::Impl::AdoptRoutes(const View& view) {
  if (view.routes.partition_bits != view_.routes.partition_bits || view.routes.owners != view_.routes.owners)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("view {}: moves partitions, which rows do not follow yet", view.version.value));
  for (const TableSpec& spec : view.tables) TARN_RETURN_IF_ERROR(rows_->AddTable(spec));
  if (view.routes.epoch != view_.routes.epoch) lists_.Clear();
  return {};
}

void Shard::Impl::AdoptMembers(const View& view) {
  const Cohort::Changes changes = cohort_.Adopt(view.workers);
  auto void_from = [this](Incarnation incarnation, Clock from) {
    for (const auto& [clock, c] : buckets_.Void(incarnation, from))
      observer_->OnPushVoided(incarnation, c.partition, c.sequence, clock);
  };
  for (Incarnation incarnation : changes.refused) {
    parked_.Drop(incarnation);
    lists_.Drop(incarnation);
    blobs_.Drop(incarnation);
  }
  for (const auto& [incarnation, end] : changes.ended) void_from(incarnation, end);
  for (Incarnation incarnation : changes.dropped) {
    parked_.Drop(incarnation);
    lists_.Drop(incarnation);
    blobs_.Drop(incarnation);
    void_from(incarnation, cohort_.minimum());
    DropWatermarks(incarnation, rows_.get());
  }
}

// Closes and answers what the minimum clock allows now, and cuts a checkpoint between two clocks.
void Shard::Impl::Advance() {
  CutIfDue();
  CloseBelow(cohort_.minimum());
  AnswerOpened();
}

void Shard::Impl::CloseBelow(Clock clock) {
  while (buckets_.HasClockBelow(clock)) {
    auto [closing, contributions] = buckets_.TakeLowest();
    rows_->expiry().AdvanceClock(closing);  // rule R4: of boundaries without a push in between the last is enough
    Note(closer_.Close(closing, std::move(contributions), cohort_.Size(closing), rows_.get()));
    observer_->OnClockClosed(closing);
  }
  rows_->expiry().AdvanceClock(clock);
}

}  // namespace tarn::server
