#include "server/shard/log_replay.h"

#include <fmt/format.h>

#include <map>

#include "server/shard/soft_state.h"
#include "server/shard/watermark_table.h"

namespace tarn::server {

namespace {

std::unexpected<Error> Corrupt(std::string what) { return Fail(ErrorCode::kCorrupt, std::move(what)); }

}  // namespace

std::uint64_t LogReplay::Hash() const {
  return SoftState{context_.view->view(), context_.cuts->newest_order(), *context_.clocks, *context_.rows}.Hash();
}

Status LogReplay::OnRecord(LogSequence, bool begins, LogRecord record) {
  auto body = DecodeRecord(record);
  if (!body) return std::unexpected(body.error());
  if (const auto* head = std::get_if<LoggedHead>(&*body)) {
    if (!begins) return Corrupt("the head of a segment, within one");
    return OnHead(*head);
  }
  if (begins) return Corrupt("no head where a segment begins");
  if (const auto* gathered = std::get_if<LoggedGathered>(&*body)) return OnGathered(*gathered);
  if (left_ != 0) return Corrupt(fmt::format("{} gathered pushes of the head are missing", left_));
  return OnInput(*body);
}

Status LogReplay::OnHead(const LoggedHead& head) {
  left_ = head.gathered;
  if (restored_) {
    if (head.hash == Hash()) return OnCut(head);
    return Corrupt(fmt::format("the replayed state has the hash {:016x}, expected {:016x}, that of the segment's head",
                               Hash(), head.hash));
  }
  TARN_RETURN_IF_ERROR(Restore(head));
  return left_ == 0 ? OnRestored() : Status();
}

// A segment begins with a cut, after which the shard closed the clocks that had waited for it.
Status LogReplay::OnCut(const LoggedHead& head) {
  context_.clocks->NoteCut(head.view.newest_order);
  return CloseReady();
}

// The gathered pushes of a later segment are already restored.
Status LogReplay::OnGathered(const LoggedGathered& gathered) {
  if (left_ == 0) return Corrupt("a gathered push beyond those of the head");
  --left_;
  if (restored_) return {};
  TARN_RETURN_IF_ERROR(context_.pushes->Replay(gathered));
  return left_ == 0 ? OnRestored() : Status();
}

// Repeats what the step of the cut did after it had written the head: closes the clocks that the cut had delayed, and
// advances the clock of the rows, which a head written during the adoption of the first view may lack. Before the first
// view nothing was closed.
Status LogReplay::OnRestored() {
  restored_ = true;
  return context_.view->view().version.value != 0 ? CloseReady() : Status();
}

Status LogReplay::OnInput(const LoggedBody& input) {
  if (const Status maintained = context_.rows->Maintain(context_.other_bytes()); !context_.stop->Check(maintained))
    return maintained;
  if (const auto* push = std::get_if<LoggedPush>(&input)) return context_.pushes->Replay(*push);
  if (const auto* tick = std::get_if<LoggedTick>(&input)) return OnTick(*tick);
  if (const auto* view = std::get_if<LoggedView>(&input)) return OnView(*view);
  context_.rows->expiry().AdvanceSeconds(std::get<LoggedTime>(input).seconds);
  return {};
}

Status LogReplay::OnTick(const LoggedTick& logged) {
  if (!context_.clocks->cohort().members().contains(logged.incarnation))
    return Corrupt(fmt::format("a tick of incarnation {}, which is not in the view", logged.incarnation.value));
  context_.clocks->Tick(logged.incarnation, logged.tick);
  return CloseReady();
}

Status LogReplay::OnView(const LoggedView& logged) {
  View view = context_.view->view();
  view.version = logged.version;
  view.workers = logged.workers;
  view.tables = logged.tables;
  view.checkpoint = {};
  if (logged.cut_clock.value != 0) {
    view.checkpoint.id = logged.newest_order;
    view.checkpoint.at_clock = true;
    view.checkpoint.clock = logged.cut_clock;
  }
  TARN_RETURN_IF_ERROR(context_.view->Adopt(view));
  context_.cuts->RestoreNewestOrder(logged.newest_order);
  return CloseReady();
}

Status LogReplay::CloseReady() {
  const Status closed = context_.clocks->CloseReady();
  context_.stop->Check(closed);
  return closed;
}

Status LogReplay::Restore(const LoggedHead& head) {
  if (head.partition_bits != context_.rows->partition_bits())
    return Corrupt(
        fmt::format("a log of 2^{} partitions, expected 2^{}", head.partition_bits, context_.rows->partition_bits()));
  // Adds only the tables of the head. The manifest may list tables that were added after this shard's cut; the records
  // of the log add those.
  TARN_RETURN_IF_ERROR(context_.view->AddTables(head.view.tables));
  if (!checkpoint_.empty()) TARN_RETURN_IF_ERROR(context_.cuts->Load(checkpoint_, RowLoader::Unknown::kEmpty));
  if (head.rows_clock) context_.rows->expiry().AdvanceClock(*head.rows_clock);
  if (head.rows_seconds) context_.rows->expiry().AdvanceSeconds(*head.rows_seconds);
  context_.view->Restore(head.view.version, head.view.workers);
  context_.cuts->RestoreNewestOrder(head.view.newest_order);
  context_.clocks->NoteCut(head.view.newest_order);
  TARN_RETURN_IF_ERROR(RestoreMembers(head));
  TARN_RETURN_IF_ERROR(RestoreWatermarks(head.watermarks, context_.rows));
  for (const auto& [worker, watermarks] : head.watermarks)
    for (std::uint32_t p = 0; p < watermarks.size(); ++p)
      context_.observer->OnWatermark(worker, PartitionId(p), watermarks[p]);
  context_.observer->OnRestored(head.minimum, context_.rows->owned());
  return {};
}

Status LogReplay::RestoreMembers(const LoggedHead& head) {
  if (head.members.size() != head.view.workers.size())
    return Corrupt(fmt::format("{} members, expected {}", head.members.size(), head.view.workers.size()));
  std::map<Incarnation, Cohort::Member> members;
  for (const WorkerEntry& entry : head.view.workers) members[entry.incarnation].entry = entry;
  for (const LoggedMember& m : head.members) {
    const auto it = members.find(m.incarnation);
    if (it == members.end()) return Corrupt(fmt::format("incarnation {} is not in the view", m.incarnation.value));
    it->second = {it->second.entry, m.tick, m.position, m.pushed, m.earlier};
  }
  context_.clocks->Restore(std::move(members), head.minimum);
  return {};
}

}  // namespace tarn::server
