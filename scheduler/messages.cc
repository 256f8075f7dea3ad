// Handlers of messages.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/table/table_shape.h"
#include "scheduler/impl.h"

namespace tarn::scheduler {
namespace {

// Whether a shard sends this message while it loads its rows and has not adopted a view (rule N4).
bool IsOfLoading(const Message& message) {
  const auto* heartbeat = std::get_if<Heartbeat>(&message.body);
  return heartbeat != nullptr && heartbeat->view.value == 0;
}

// Whether a log has ticks of leases after `last`, the last lease in the restored state (rule G5).
bool HasLeaseBeyond(const Heartbeat& heartbeat, LeaseId last) {
  const auto beyond = [last](const auto& tick) { return tick.position.lease > last; };
  return std::ranges::any_of(heartbeat.fenced, beyond) || std::ranges::any_of(heartbeat.fenced_ticks, beyond);
}

// A note for the log about a table that is new, or that continues with other settings.
std::string DescribeTable(const TableSpec& spec, const std::vector<TableSpec>& existing) {
  for (const TableSpec& table : existing)
    if (table.id == spec.id) return fmt::format("table {} continues with {}", spec.name, SettingsChange(table, spec));
  return fmt::format("table {}: {} {} x {}", spec.id.value, spec.name, Name(spec.kind), spec.dim);
}

}  // namespace

void Scheduler::Impl::Dispatch(Peer from, const Message& message, TimeUs now, Outbox* out) {
  if (stop_.begun()) return AfterStop(from, message, now, out);
  const Mailer mail = Mail(out);
  const Sender& sender = message.sender;
  const auto* join = std::get_if<Join>(&message.body);
  if (message.job != setup_.fingerprint && !(join != nullptr && message.job == 0))
    return mail.Refuse(
        from, ErrorCode::kWrongJob,
        fmt::format("this scheduler runs another job: the message has fingerprint {:016x}, expected {:016x}",
                    message.job, setup_.fingerprint));
  if (join != nullptr) {
    auto note = membership_.OnJoin(from, *join, now, mail);
    if (!note.empty()) notes_.Info(std::move(note));
    return;
  }
  if (sender.role == Role::kScheduler) return OnRequest("a tool", from, message, now, out);
  // A shard that loads rows sends heartbeats over a separate connection; messages to it use its normal one.
  const bool of_loading = IsOfLoading(message);
  if (const ShardNode* shard =
          membership_.RecordShardContact(sender, of_loading ? std::nullopt : std::optional(from), now)) {
    if (!of_loading) FromShard(*shard, message, now, out);
  } else if (const WorkerNode* worker = membership_.RecordWorkerContact(sender, from, now)) {
    FromWorker(*worker, message, now, out);
  } else if (std::holds_alternative<Shutdown>(message.body)) {
    membership_.OnFarewell(sender.incarnation);
  } else if (membership_.workers().Left(sender.incarnation)) {
    mail.Refuse(from, ErrorCode::kOk, "left");
  } else {
    mail.Refuse(from, ErrorCode::kFenced, "this incarnation has ended");
  }
}

void Scheduler::Impl::AfterStop(Peer from, const Message& message, TimeUs now, Outbox* out) {
  stop_.RecordContact(now);
  const auto* request = std::get_if<CheckpointRequest>(&message.body);
  if (request != nullptr && cuts_.AnswerAgain(from, request->number, Mail(out))) return;
  if (stop_.OnMessage(from, message, Mail(out))) cuts_.OnStopped();
}

void Scheduler::Impl::FromShard(const ShardNode& shard, const Message& message, TimeUs now, Outbox* out) {
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message.body)) {
    const LeaseId last = desk_.leases().last_lease();
    if (membership_.restarting() && HasLeaseBeyond(*heartbeat, last))
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("the log of shard {} has leases beyond {}, the last in the scheduler's state: the {} in "
                              "the run's folder is outdated; restore the newest one",
                              shard.shard.value, last.value, kStateName),
                  now, out);
    membership_.OnHeartbeat(shard.shard, *heartbeat, now, Mail(out));
    record_.OnHeartbeat(message.sender, *heartbeat);
  } else if (const auto* part = std::get_if<CheckpointPart>(&message.body)) {
    cuts_.OnShardPart(shard.shard, *part);
  } else {
    OnRequest(fmt::format("shard {}", shard.shard.value), shard.peer, message, now, out);
  }
}

void Scheduler::Impl::FromWorker(const WorkerNode& worker, const Message& message, TimeUs now, Outbox* out) {
  const Incarnation id = worker.incarnation;
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message.body)) {
    membership_.OnHeartbeat(id, *heartbeat, now, Mail(out));
    record_.OnHeartbeat(message.sender, *heartbeat);
    desk_.leases().NoteSkipped(id, heartbeat->skipped);
  } else if (const auto* request = std::get_if<LeaseRequest>(&message.body)) {
    OnLeaseRequest(worker, *request, now, out);
  } else if (const auto* create = std::get_if<CreateTable>(&message.body)) {
    OnCreateTable(id, create->spec);
  } else if (const auto* barrier = std::get_if<Barrier>(&message.body)) {
    barriers_.Enter(id, barrier->number);
  } else if (const auto* part = std::get_if<CheckpointPart>(&message.body)) {
    cuts_.OnWorkerPart(id, *part);
  } else if (const auto* leave = std::get_if<Leave>(&message.body)) {
    const Peer peer = worker.peer;
    membership_.OnLeave(id, *leave);
    Mail(out).Refuse(peer, ErrorCode::kOk, "left");
  } else {
    OnRequest(fmt::format("worker {}", worker.rank.value), worker.peer, message, now, out);
  }
}

void Scheduler::Impl::OnCreateTable(Incarnation worker, const TableSpec& wanted) {
  const std::optional<TableSpec> spec = tables_.Ask(worker, wanted, view().tables, view().routes.partition_bits);
  if (!spec) return;
  notes_.Info(DescribeTable(*spec, view().tables));
  membership_.current_view()->PutTable(*spec);
  cuts_.OnTable();
  tables_.Added(*spec, view().version);
}

void Scheduler::Impl::OnLeaseRequest(const WorkerNode& worker, const LeaseRequest& request, TimeUs now, Outbox* out) {
  const LeaseDesk::Heard heard = desk_.OnRequest(worker.rank, worker.incarnation, worker.clock, request);
  if (heard.ends_run) return Fail(heard.ends_run->code, heard.ends_run->message, now, out);
  if (heard.refuses) {
    Mail(out).Refuse(worker.peer, heard.refuses->code, heard.refuses->message);
    notes_.Warn(fmt::format("rejected worker {}: {}", worker.rank.value, heard.refuses->message));
    membership_.Fence(worker.incarnation);
  }
  if (heard.reply) Mail(out).Send(worker.peer, *heard.reply);
}

void Scheduler::Impl::OnRequest(const std::string& who, Peer from, const Message& message, TimeUs now, Outbox* out) {
  if (const auto* request = std::get_if<CheckpointRequest>(&message.body))
    cuts_.OnRequest(from, *request, MayCut(), watch_.WaitText(now, cuts_.Awaited()), Mail(out));
  const auto* shutdown = std::get_if<Shutdown>(&message.body);
  if (shutdown == nullptr) return;
  if (shutdown->code == ErrorCode::kOk) return RequestStop(now, out);
  const bool named = shutdown->reason.starts_with(who + ": ");  // most reasons of shards begin with their name
  Fail(shutdown->code, named ? shutdown->reason : who + ": " + shutdown->reason, now, out);
}

}  // namespace tarn::scheduler
