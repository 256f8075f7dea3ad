#include "sim/fleet/fleet_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/position.h"
#include "server/store/store.h"
#include "sim/fleet/checkpoint_checks.h"

namespace tarn::sim {
namespace {

// Whether the message is an answer to a worker's request for data or to its tick.
bool IsAnswer(const Message& message) {
  return std::holds_alternative<PushAck>(message.body) || std::holds_alternative<PullReply>(message.body) ||
         std::holds_alternative<TickAck>(message.body);
}

bool IsFenced(const server::Shard& shard, Incarnation worker) {
  return std::ranges::any_of(shard.view().workers, [&](const WorkerEntry& entry) {
    return entry.incarnation == worker && entry.state != WorkerState::kLive;
  });
}

}  // namespace

void FleetChecks::OnSchedulerReceived(const Message& message) {
  if (message.sender.role == Role::kShard) received_[1 + message.sender.rank] = context_.now();
}

void FleetChecks::OnAllEnded() {
  sent_.clear();
  received_.clear();
}

void FleetChecks::AfterShardReceived(const Process& shard, const Message& message, const Outbox& out, Peer from) const {
  if (message.sender.role != Role::kWorker) return;
  CheckOrigin(shard, message);
  const auto is_answer = [from](const Outgoing& o) { return o.to == from && IsAnswer(o.message); };
  if (!answers_.sent && std::ranges::none_of(out, is_answer)) return;
  CheckRefused(shard, message);
  CheckPaused(shard);
}

void FleetChecks::OnShardSent(ProcessId id, const Process& shard, const Outgoing& outgoing) {
  if (outgoing.to == kSchedulerPeer) return OnSentToScheduler(shard.node);
  answers_.sent |= outgoing.to == answers_.to && IsAnswer(outgoing.message);
  if (!std::holds_alternative<PullReply>(outgoing.message.body)) return;
  if (const auto worker = context_.network.ClientOf(id, outgoing.to)) CheckPulls(shard, *worker);
}

// Checks that a push reports the versions and rows that its worker pulled (rules E8, A6).
void FleetChecks::CheckOrigin(const Process& p, const Message& message) const {
  const auto* push = std::get_if<Push>(&message.body);
  if (push == nullptr || !p.shard->joined() || p.shard->stopped()) return;
  const View& view = p.shard->view();
  // Rows that are changed are pushed without a pull.
  const bool pulled_all = !context_.scenario.top_k && !context_.scenario.changes;
  for (const PushPart& part : push->tables) {
    const auto table = std::ranges::find(view.tables, part.table, &TableSpec::id);
    const bool owns = std::ranges::all_of(
        part.keys.sections, [&](const Section& section) { return p.shard->rows().Find(section.partition) != nullptr; });
    if (table == view.tables.end() || !owns) continue;
    const PushOrigins::Receiver at{*table, table->name == "counts", pulled_all, [&](PartitionId partition) {
                                     return p.shard->rows().Find(partition)->VersionOf(table->id);
                                   }};
    if (at.is_oracle_table) NoteRows(p, part);
    context_.oracle.Check(context_.oracle.origins().Check(message.sender.incarnation, push->clock, part, at));
  }
}

// Notes the values and versions of the rows of a push, if values only increase: rows with a life may be dropped. A
// worker that changes rows pulls them separately, and of several pulls for one clock the newest counts (E8). Reading
// rows that may be on disk would disturb the shard.
void FleetChecks::NoteRows(const Process& p, const PushPart& push) const {
  const Scenario& scenario = context_.scenario;
  if (push.keys.codec != KeyCodec::kRaw || scenario.life.on || scenario.changes || scenario.tier_bytes != 0 ||
      scenario.counts_row_codec != ValueCodec::kFp32 || scenario.counts_pull_codec != ValueCodec::kFp32)
    return;
  auto key = push.keys.frame.as<Key>().begin();
  for (const Section& section : push.keys.sections) {
    const Version version = p.shard->rows().Find(section.partition)->VersionOf(push.table);
    for (const auto end = key + section.count; key != end; ++key) {
      if (const auto values = p.shard->rows().Values(push.table, *key))
        context_.oracle.origins().OnRow(section.partition, *key, version, (*values)[0]);
    }
  }
}

// Rule M3: a fenced worker is not served. A step that handles a worker's message adopts no view.
void FleetChecks::CheckRefused(const Process& shard, const Message& message) const {
  if (IsFenced(*shard.shard, message.sender.incarnation))
    context_.oracle.Fail(fmt::format("shard {} answered {} of a fenced worker", shard.rank, BodyName(message.body)));
}

// Likewise for a pull that has waited for its clock.
void FleetChecks::CheckPulls(const Process& shard, ProcessId worker) const {
  const Process* process = context_.processes.Find(worker);
  if (process == nullptr || !process->worker) return;
  if (IsFenced(*shard.shard, process->worker->client().welcome().incarnation))
    context_.oracle.Fail(fmt::format("shard {} sent rows to a fenced worker", shard.rank));
}

// Rule N5: a shard that has received nothing from its scheduler for a lease answers no worker.
void FleetChecks::CheckPaused(const Process& p) const {
  if (!p.shard->joined()) return;
  if (context_.clocks.NowOf(p) - p.shard->scheduler_heard() > p.shard->lease_us())
    context_.oracle.Fail(
        fmt::format("shard {} answered although it had received nothing from the scheduler for a lease", p.rank));
}

void FleetChecks::AfterShardStep(Process* p) const {
  if (p->shard->minimum_clock() < p->last_clock)
    context_.oracle.Fail(fmt::format("shard {}: the minimum clock went back from {} to {}", p->rank,
                                     p->last_clock.value, p->shard->minimum_clock().value));
  p->last_clock = p->shard->minimum_clock();
}

void FleetChecks::AfterWorkerStep(Process* p) const {
  const worker::Client& client = p->worker->client();
  if (client.clock() < p->last_clock)
    context_.oracle.Fail(fmt::format("worker {}: the clock went back from {} to {}", p->rank, p->last_clock.value,
                                     client.clock().value));
  p->last_clock = client.clock();
  if (client.state() == worker::ClientState::kRunning)
    context_.oracle.cohorts().OnClock(client.welcome().incarnation, client.clock());
}

bool FleetChecks::SilencedShard() const {
  // The lease as measured by the fastest clock.
  const Scenario& scenario = context_.scenario;
  const auto lease = TimeUs(scenario.job.fleet.lease_seconds * 1e6 * (1 - 2 * scenario.faults.clock_drift));
  return std::ranges::any_of(sent_, [&](const auto& sent) {
    const auto received = received_.find(sent.first);
    return context_.now() - sent.second < lease / 4 &&
           (received == received_.end() || context_.now() - received->second > lease);
  });
}

Status FleetChecks::CheckFinal(Key key) const {
  const View& view = context_.processes.scheduler()->view();
  const auto spec = std::ranges::find(view.tables, "counts", &TableSpec::name);
  if (spec == view.tables.end()) {
    context_.oracle.CheckFinalValue(key, 0, {});
    return {};
  }
  const Position position = Positioner(*spec, TableSalt(context_.scenario.job.job.seed, spec->name))(key);
  const ShardId owner = OwnerOf(view.routes, PartitionOf(position, view.routes.partition_bits));
  const server::Shard& shard = *context_.processes.Find(context_.processes.shards()[owner.value])->shard;
  const auto values = shard.rows().Values(spec->id, key);
  if (!values) return std::unexpected(values.error());
  context_.oracle.CheckFinalValue(key, (*values)[0], shard.minimum_clock());
  return {};
}

Status FleetChecks::CheckEnd(bool died_early) const {
  if (context_.processes.AllShardsThere()) {
    for (Key key : context_.oracle.Keys()) TARN_RETURN_IF_ERROR(CheckFinal(key));
  } else if (died_early) {  // else the dead server's part of the last checkpoint had arrived
    context_.oracle.Fail("the job is done, but a server had died before the last checkpoint was ordered");
    return {};
  }
  context_.oracle.CheckData();
  const std::optional<ResumePoint> newest = NewestCheckpoint();
  if (context_.scenario.CutsAtClock() && context_.scenario.job.storage.checkpoint_final) CheckLastCut(newest);
  return {};
}

void FleetChecks::CheckLastCut(const std::optional<ResumePoint>& newest) const {
  if (context_.scenario.job.storage.durability == Durability::kNone) return;
  context_.oracle.CheckLastCut(newest ? std::optional(newest->manifest.resume_clock) : std::nullopt);
}

std::optional<ResumePoint> FleetChecks::NewestCheckpoint() const {
  std::optional<ResumePoint> newest;
  for (const auto& [directory, manifest] : context_.disk.manifests)
    if (directory.starts_with(context_.checkpoints) && (!newest || manifest.id > newest->manifest.id))
      newest = ResumePoint{manifest, directory};
  return newest;
}

// Rules K11 and K12. A stop before the fleet is complete writes no checkpoint (S0), and workers that were cut off for a
// lease are not waited for; the scheduler has noted both.
void FleetChecks::CheckStop(RunResult* result) const {
  result->stopped = true;
  const std::vector<scheduler::Note> notes = context_.processes.scheduler()->TakeNotes();
  const auto noted = [&notes](std::string_view text) {
    return std::ranges::any_of(notes, [text](const scheduler::Note& note) { return note.text.contains(text); });
  };
  if (!noted("the fleet is complete")) return;
  const bool undrained = noted("does not wait for it");
  const std::optional<ResumePoint> newest = NewestCheckpoint();
  if (undrained) return;
  const Scenario& scenario = context_.scenario;
  const bool stopped = context_.processes.scheduler()->stop_reason().reason == "stopped";
  if (scenario.CutsAtClock() && stopped) CheckLastCut(newest);
  if (scenario.MayCutAtClock()) return;
  const bool keeps = scenario.job.storage.durability != Durability::kNone;
  if (!newest && stopped && keeps && context_.oracle.acked_push_ids() != 0)
    context_.oracle.Fail("the job was stopped without a checkpoint, and loses acknowledged pushes");
  if (!newest) return;
  result->drained = true;
  CheckDrainedStates(context_, *newest);
  context_.oracle.CheckStopped(newest->manifest, ValuesIn(context_.disk, *newest));
}

}  // namespace tarn::sim
