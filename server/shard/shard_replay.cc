// A shard comes back from its log: the rows of a checkpoint, the state that its segment begins with, and then every
// input again, through the code that handled it first (rules L5, L6). What that would send is sent to nobody.
#include <fmt/format.h>

#include <utility>

#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

std::unexpected<Error> Corrupt(std::string what) { return Fail(ErrorCode::kCorrupt, std::move(what)); }

// What is left to whoever cannot bring back what is refused.
std::string WayOut(ErrorCode code, const std::string& checkpoint) {
  if (code == ErrorCode::kUnavailable || code == ErrorCode::kIo) return {};
  if (checkpoint.empty()) return "; there is no checkpoint from which to go on without this log";
  return fmt::format(
      "; without this log a run can go on from {}, or an earlier one, in a new folder: --resume CHECKPOINT",
      checkpoint);
}

}  // namespace

class Shard::Impl::Replayer final : public LogSink {
 public:
  Replayer(Impl* shard, const std::string& resume_directory) : shard_(shard), resume_directory_(resume_directory) {}

  Status OnRecord(LogSequence, bool begins, LogRecord record) override {
    auto body = DecodeRecord(record);
    if (!body) return std::unexpected(body.error());
    if (const auto* head = std::get_if<LoggedHead>(&*body)) {
      if (!begins) return Corrupt("the head of a segment, within one");
      return OnHead(*head);
    }
    if (begins) return Corrupt("no head where a segment begins");
    if (const auto* gathered = std::get_if<LoggedGathered>(&*body)) return OnGathered(*gathered);
    if (left_ != 0) return Corrupt(fmt::format("{} gathered pushes of the head are missing", left_));
    TARN_RETURN_IF_ERROR(shard_->rows_->Tend(shard_->WaitingBytes()));
    if (const auto* push = std::get_if<LoggedPush>(&*body)) return shard_->Replay(*push);
    if (const auto* tick = std::get_if<LoggedTick>(&*body)) return shard_->Replay(*tick);
    if (const auto* time = std::get_if<LoggedTime>(&*body)) {
      shard_->rows_->expiry().AdvanceSeconds(time->seconds);
      return {};
    }
    return shard_->Replay(std::get<LoggedView>(*body));
  }
  bool restored() const { return restored_; }

 private:
  Status OnHead(const LoggedHead& head) {
    left_ = head.gathered;
    if (restored_) {
      if (head.hash == shard_->SoftHash()) return {};
      return Corrupt(fmt::format("the state is {:016x} here, expected {:016x}: the log was replayed to another state",
                                 shard_->SoftHash(), head.hash));
    }
    TARN_RETURN_IF_ERROR(shard_->Restore(head, resume_directory_));
    if (left_ == 0) Restored();
    return {};
  }

  // Of a later segment: they are here already.
  Status OnGathered(const LoggedGathered& gathered) {
    if (left_ == 0) return Corrupt("a gathered push beyond those of the head");
    --left_;
    if (restored_) return {};
    TARN_RETURN_IF_ERROR(shard_->Replay(gathered));
    if (left_ == 0) Restored();
    return {};
  }

  // What a cut held up for a moment closes now.
  void Restored() {
    restored_ = true;
    if (shard_->rows_->expiry().clock()) shard_->CloseBelow(shard_->cohort_.minimum());
  }

  Impl* shard_;
  const std::string& resume_directory_;
  bool restored_ = false;
  std::uint64_t left_ = 0;  // gathered records of the head at hand
};

Status Shard::Impl::EnterWithLog(const Welcome& welcome) {
  ShardLog* log = options_.log;
  const std::string who = fmt::format("shard {}", options_.shard.value);
  if (log == nullptr || welcome.log.run == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the job's durability is \"log\", but the {} has none: a server needs --run-dir", who,
                            log == nullptr ? "shard" : "scheduler"));
  const LogIdentity identity{welcome.log.run, job_, options_.shard};
  if (welcome.log.recover) {
    Replayer replayer(this, welcome.resume_directory);
    auto status = log->Recover(identity, welcome.log.from, welcome.log.at_least, replayer);
    if (status && !replayer.restored()) status = Corrupt("the log has no head that is durable");
    if (status) status = CheckIsNewer(welcome.view);
    if (!status)
      return Fail(status.error().code, fmt::format("{}: log: {}{}", who, status.error().message,
                                                   WayOut(status.error().code, welcome.resume_directory)));
    dropped_before_ = welcome.log.from;
    rows_->ForgetCounters();  // of what was done before, and told
  } else {
    if (auto status = log->Open(identity); !status)
      return Fail(status.error().code, fmt::format("{}: log: {}", who, status.error().message));
    TARN_RETURN_IF_ERROR(AddAndLoad(welcome.view.tables, welcome.resume_directory));
    view_.tables = welcome.view.tables;  // the head must name what a checkpoint brings
  }
  joined_ = logging_ = true;
  BeginSegment(welcome.log.recover ? ShardLog::kContinues : welcome.log.from);
  return Adopt(welcome.view);
}

// Rule G5. The scheduler's state is on disk before a view is sent, and a restart goes on behind it.
Status Shard::Impl::CheckIsNewer(const View& view) const {
  if (view.version > view_.version || view.version == ViewVersion(0)) return {};  // 0: a Welcome without a view
  return Corrupt(fmt::format(
      "it knows view {}, but the scheduler's state leads to view {}: the scheduler.state in the run's folder "
      "is an older one, expected the last that the run wrote",
      view_.version.value, view.version.value));
}

Status Shard::Impl::Restore(const LoggedHead& head, const std::string& resume_directory) {
  if (head.partition_bits != rows_->partition_bits())
    return Corrupt(
        fmt::format("a log of 2^{} partitions, expected 2^{}", head.partition_bits, rows_->partition_bits()));
  // The manifest names the tables that there were when the last part was written: later records bring them.
  TARN_RETURN_IF_ERROR(AddAndLoad(head.view.tables, resume_directory, RowLoader::Unknown::kEmpty));
  if (head.rows_clock) rows_->expiry().AdvanceClock(*head.rows_clock);
  if (head.rows_seconds) rows_->expiry().AdvanceSeconds(*head.rows_seconds);
  view_.version = head.view.version;
  view_.workers = head.view.workers;
  newest_order_ = head.view.newest_order;
  if (head.members.size() != head.view.workers.size())
    return Corrupt(fmt::format("{} members, expected {}", head.members.size(), head.view.workers.size()));
  std::map<Incarnation, Cohort::Member> members;
  for (const WorkerEntry& entry : head.view.workers) members[entry.incarnation].entry = entry;
  for (const LoggedMember& m : head.members) {
    const auto it = members.find(m.incarnation);
    if (it == members.end()) return Corrupt(fmt::format("incarnation {} is not in the view", m.incarnation.value));
    it->second = {it->second.entry, m.tick, m.position, m.pushed, m.earlier};
  }
  cohort_.Restore(std::move(members), head.minimum);
  TARN_RETURN_IF_ERROR(RestoreWatermarks(head.watermarks, rows_.get()));
  for (const auto& [incarnation, watermarks] : head.watermarks)
    for (std::uint32_t p = 0; p < watermarks.size(); ++p)
      observer_->OnWatermark(incarnation, PartitionId(p), watermarks[p]);
  return {};
}

Status Shard::Impl::Replay(const LoggedPush& logged) {
  Message message;
  message.sender = {Role::kWorker, logged.rank.value, logged.incarnation};
  message.keys = logged.keys;
  message.values = logged.values;
  const auto member = cohort_.Check(message.sender);
  if (!member) return Corrupt("a push: " + member.error().message);
  const auto keys = CheckedKeys(logged.push, message, **member);
  if (!keys) return Corrupt("a push: " + keys.error().message);
  taken_.clear();
  for (const Section& section : logged.push.keys.sections) {
    Watermarks& watermarks = rows_->Find(section.partition)->watermarks();
    if (watermarks.Judge(logged.incarnation, section.sequence) != Watermarks::Order::kNext)
      return Corrupt(fmt::format("push {} of incarnation {} to partition {}, expected {}", section.sequence.value,
                                 logged.incarnation.value, section.partition.value,
                                 watermarks.Of(logged.incarnation).value + 1));
    watermarks.Advance(logged.incarnation);
    taken_.push_back(true);
  }
  Perform(logged.push, message, *keys);
  return {};
}

Status Shard::Impl::Replay(const LoggedTick& logged) {
  if (!cohort_.members().contains(logged.incarnation))
    return Corrupt(fmt::format("a tick of incarnation {}, which is not in the view", logged.incarnation.value));
  cohort_.Tick(logged.incarnation, logged.tick);
  CloseBelow(cohort_.minimum());
  return {};
}

Status Shard::Impl::Replay(const LoggedView& logged) {
  View view = view_;
  view.version = logged.version;
  view.workers = logged.workers;
  view.tables = logged.tables;
  TARN_RETURN_IF_ERROR(AdoptRoutes(view));
  AdoptMembers(view);
  view_ = std::move(view);
  newest_order_ = logged.newest_order;
  CloseBelow(cohort_.minimum());
  return {};
}

Status Shard::Impl::Replay(const LoggedGathered& gathered) {
  const LoggedPush& logged = gathered.push;
  Message message;
  message.sender = {Role::kWorker, logged.rank.value, logged.incarnation};
  message.keys = logged.keys;
  message.values = logged.values;
  const auto member = cohort_.members().find(logged.incarnation);
  if (member == cohort_.members().end())
    return Corrupt(
        fmt::format("a gathered push of incarnation {}, which is not in the view", logged.incarnation.value));
  if (const auto keys = CheckedKeys(logged.push, message, member->second); !keys)
    return Corrupt("a gathered push: " + keys.error().message);
  taken_.assign(logged.push.keys.sections.size(), true);
  Gather(logged.push, message);
  return {};
}

}  // namespace tarn::server
