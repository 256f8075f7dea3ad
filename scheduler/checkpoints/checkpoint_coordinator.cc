#include "scheduler/checkpoints/checkpoint_coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::scheduler {

CheckpointCoordinator::CheckpointCoordinator(Options options, const Context& context)
    : options_(std::move(options)),
      context_(context),
      checkpoints_(options_.checkpoints),
      removal_(options_.has_log, context.store),
      whole_(options_.whole) {}

void CheckpointCoordinator::Capture(SchedulerState* state) const {
  state->progress.id = checkpoints_.last();
  state->progress.best_checkpoint = checkpoints_.best();
  state->progress.generations = checkpoints_.base_generations();
  state->whole = whole_.id;
  state->whole_directory = whole_.directory;
  state->whole_files = whole_.files;
  if (const Cut* cut = checkpoints_.pending(); cut != nullptr) state->pending_directory = cut->order.directory;
  state->kept = checkpoints_.kept();
  state->outdated = removal_.Outdated();
}

void CheckpointCoordinator::WantIfDue(TimeUs now) {
  const Shards& shards = context_.membership->shards();
  if (!UnderWay() && checkpoints_.Due(now, shards.MinClock(), shards.LogBytes())) Want(CutReason::kPeriodic);
}

// Whether the checkpoint may be the last of the run. Only such checkpoints have the hash of the whole state, which
// reads every row.
bool CheckpointCoordinator::MayBeLast(CutReason reason, bool last_epoch) const {
  switch (reason) {
    case CutReason::kPeriodic:
    case CutReason::kRequested: return false;
    case CutReason::kBest: return last_epoch;
    case CutReason::kHash:
    case CutReason::kFinal:
    case CutReason::kStop: return true;
  }
  return true;
}

// Before the checkpoint of a stop that is cut at once rather than at a clock, workers drain, so that no push is beyond
// the recorded positions (rule K11). Without granted leases they do not drain, because their programs have no positions
// and may never tick.
bool CheckpointCoordinator::DrainsFor(CutReason reason) const {
  return reason == CutReason::kStop && !at_clock_ && context_.leases->granted_any();
}

bool CheckpointCoordinator::Drained() const {
  const Proposal& proposal = context_.membership->view().proposal;
  const auto drained = [&](const WorkerNode* worker) { return worker->drained == proposal.id; };
  return proposal.open && proposal.drain && std::ranges::all_of(context_.membership->workers().Live(), drained);
}

// Whether shards refuse pushes that the checkpoint would lack (rule K12). They accept them if a program may wait for
// one before it saves the state that the checkpoint needs.
bool CheckpointCoordinator::RefusesLaterPushes(const CutMoment& moment) const {
  if (!MayBeLast(*wanted_, moment.last_epoch)) return false;
  return !ProgramsKeepState() || (at_clock_ ? !moment.at_boundary : Drained());
}

bool CheckpointCoordinator::NeedsAgreement(const CutMoment& moment) {
  if (!wanted_ || checkpoints_.pending() != nullptr) return false;
  if (context_.membership->restarting()) return false;  // clocks from before the restart are not known yet
  at_clock_ = CutsAtClock();
  if (!moment.at_boundary && (at_clock_ || DrainsFor(*wanted_))) return true;
  PlaceOrder(context_.leases->ceiling(), moment);
  return false;
}

bool CheckpointCoordinator::PlaceOrder(Clock clock, const CutMoment& moment) {
  if (!wanted_ || checkpoints_.pending() != nullptr) return false;
  Membership& membership = *context_.membership;
  Leases& leases = *context_.leases;
  // The verdict on a worker that is being fenced decides which of its rows count as trained.
  if (!at_clock_ && membership.AnyFencing()) return false;
  if (at_clock_ && NobodyTicks()) clock = LastClock();
  if (at_clock_ && leases.data().by_rank() && leases.data().known()) clock = std::min(clock, leases.ceiling());
  const bool may_be_last = MayBeLast(*wanted_, moment.last_epoch), last = RefusesLaterPushes(moment);
  Cut& cut =
      checkpoints_.Begin({*wanted_, at_clock_, clock, may_be_last, last}, moment.now, membership.shards().MinClock());
  wanted_.reset();
  cut.at_boundary = moment.at_boundary;
  for (const WorkerNode* worker : membership.workers().Live()) cut.had_workers.insert(worker->incarnation);
  cut.order.blobs = !cut.hash_only() && (TablesHaveResiduals() || ProgramsKeepState());
  if (at_clock_) {
    leases.RaiseCeiling(clock);
    leases.Hold();
  } else {
    const Positions positions = membership.workers().LivePositions();
    cut.manifest = context_.manifests->Make(positions, true, moment.now);
    cut.manifest.resume_clock = membership.workers().largest_end();
    cut.samples_noted = leases.Samples(positions);
  }
  if (!cut.hash_only()) requests_.Ordered(cut.order.id);
  membership.current_view()->SetOrder(cut.order);
  if (at_clock_) ordered_version_ = membership.view().version;
  return true;
}

// Includes the tables of the job that are not created yet, and tables created by programs.
bool CheckpointCoordinator::TablesHaveResiduals() const {
  return options_.has_residuals || std::ranges::any_of(context_.membership->view().tables, [](const TableSpec& table) {
           return KeepsResiduals(table.push_codec);
         });
}

bool CheckpointCoordinator::ProgramsKeepState() const {
  return std::ranges::any_of(context_.membership->workers().Live(), &WorkerNode::keeps_state);
}

void CheckpointCoordinator::OnTable() {
  Cut* cut = checkpoints_.pending();
  if (cut == nullptr || cut->writes_manifest || cut->hash_only() || cut->order.blobs || !TablesHaveResiduals()) return;
  cut->order.blobs = true;
  context_.membership->current_view()->SetOrder(cut->order);
}

bool CheckpointCoordinator::NobodyTicks() const {
  return context_.membership->workers().Live().empty() && !context_.membership->AnyFencing();
}

Clock CheckpointCoordinator::LastClock() const {
  return std::max(context_.membership->workers().largest_end(), context_.membership->shards().MinClock());
}

void CheckpointCoordinator::OnVerdict(const Verdict& verdict) {
  Cut* cut = checkpoints_.pending();
  if (cut == nullptr) return;
  if (IsVoidedBy(*cut, verdict))
    return Void(fmt::format("worker {} ended before all of its state was in it", verdict.rank.value));
  // It has trained nothing before the clock, and its leases must not count as trained.
  if (cut->order.at_clock && verdict.join >= cut->order.clock) cut->workers[verdict.worker] = {};
}

void CheckpointCoordinator::Void(const std::string& why) {
  const Cut& cut = *checkpoints_.pending();
  const CutReason reason = cut.reason;
  requests_.Voided(cut.order.id);
  context_.notes->Warn(fmt::format("checkpoint {} ({}) is abandoned: {}", cut.order.id.value, Name(reason), why));
  Abandon();
  if (reason != CutReason::kPeriodic)
    Want(reason);
  else if (requests_.Unordered())
    Want(CutReason::kRequested);
}

void CheckpointCoordinator::OnGrant() {
  state_is_cut_ = false;
  if (Cut* cut = checkpoints_.pending()) cut->at_boundary = false;
}

CheckpointCoordinator::Step CheckpointCoordinator::Advance(const CutMoment& moment, const Mailer& mail) {
  removal_.RemoveAbandoned(context_.membership->shards());
  const Cut* cut = checkpoints_.pending();
  if (cut == nullptr || cut->writes_manifest) return {};
  if (cut->order.at_clock && NobodyTicks() && cut->order.clock > LastClock()) {
    Void(fmt::format("all workers ended before its clock {}", cut->order.clock.value));
    return {.changed = true};
  }
  ShardId shard;
  if (const CheckpointPart* failed = checkpoints_.Failed(&shard)) {
    if (failed->code == ErrorCode::kNotFound && cut->order.base.value != 0) {
      CutInFull(failed->message);
      return {.changed = true};
    }
    const std::string reason = fmt::format("shard {}: {}", shard.value, failed->message);
    return {.changed = true, .end = FailCut(failed->code, reason, moment.now, mail)};
  }
  if (PartsMissing(*cut, context_.membership->shards().size(), context_.membership->workers())) return {};
  return {.changed = true, .end = WriteManifest(moment, mail)};
}

std::optional<CutEnd> CheckpointCoordinator::WriteManifest(const CutMoment& moment, const Mailer& mail) {
  Cut& cut = *checkpoints_.pending();
  const Membership& membership = *context_.membership;
  Manifest& manifest = cut.manifest;
  if (cut.order.at_clock) {
    Positions at;
    for (const WorkerNode* worker : membership.workers().Live()) at[worker->incarnation] = {};
    for (const auto& [id, part] : cut.workers) at[id] = part.position;
    manifest = context_.manifests->Make(at, false, moment.now);
    manifest.resume_clock = cut.order.clock;
  } else {  // the clock of the cut: a program skips the data before it
    for (const auto& [id, part] : cut.shards) manifest.resume_clock = std::max(manifest.resume_clock, part.max_clock);
    const std::uint64_t samples = context_.leases->Samples(membership.workers().LivePositions());
    const std::uint64_t behind = samples - std::min(samples, cut.samples_noted);
    manifest.batches_behind = (behind + options_.batch_rows - 1) / options_.batch_rows;
  }
  const bool is_best = cut.reason == CutReason::kBest;
  manifest.id = cut.order.id;
  manifest.tables = membership.view().tables;
  manifest.next_incarnation = membership.next_incarnation();
  manifest.workers_died = context_.manifests->workers_died();
  manifest.best_checkpoint = is_best ? cut.order.directory : checkpoints_.best();
  manifest.best_lost = !is_best && moment.best_lost;
  manifest.generations = checkpoints_.Generations(manifest.resume_clock);
  manifest.state_hash = checkpoints_.WholeHash();
  manifest.blobs = BlobsOf(cut, membership.workers(), context_.notes);
  if (cut.hash_only()) return Complete(mail);
  cut.writes_manifest = true;
  context_.store->WriteManifest(cut.order.id, cut.order.directory, manifest);
  return std::nullopt;
}

std::optional<CutEnd> CheckpointCoordinator::OnManifestWritten(const StoreWritten& written, const CutMoment& moment,
                                                               const Mailer& mail) {
  const Cut* cut = checkpoints_.pending();
  // The cut may have been abandoned meanwhile; its directory is then removed with the manifest.
  if (cut == nullptr || !cut->writes_manifest || cut->order.id.value != written.number) return std::nullopt;
  if (written.status) return Complete(mail);
  const Error& error = written.status.error();
  if (error.code != ErrorCode::kTooLarge || cut->order.base.value == 0)
    return FailCut(error.code, error.message, moment.now, mail);
  CutInFull(error.message);
  return std::nullopt;
}

CutEnd CheckpointCoordinator::Complete(const Mailer& mail) {
  Cut& cut = *checkpoints_.pending();
  const CutReason reason = cut.reason;
  if (!cut.hash_only()) {
    context_.notes->Info(fmt::format(
        "checkpoint {} ({}{}) is complete: {}", cut.order.id.value, Name(reason),
        cut.order.base.value == 0 ? "" : fmt::format(", changes since {}", cut.order.base.value), cut.order.directory));
    Send(requests_.Ended(cut.order.id, ErrorCode::kOk, cut.order.directory), mail);
    whole_ = {cut.order.id, cut.order.directory, FilesHash(cut.manifest)};
    if (options_.has_log) context_.membership->SetWhole(whole_.id);
  }
  state_is_cut_ = cut.at_boundary;
  removal_.Replace(checkpoints_.Complete(std::move(cut.manifest.generations)));
  EndCut();
  return {reason, {}};
}

void CheckpointCoordinator::EndCut() {
  context_.leases->Release();
  context_.membership->current_view()->SetOrder({});
}

void CheckpointCoordinator::Abandon() {
  const CheckpointId id = checkpoints_.pending()->order.id;
  std::string directory = checkpoints_.Abandon();
  EndCut();
  removal_.Abandon(id, std::move(directory), context_.membership->view().version);
}

// Abandons the cut and requests a full one, because a shard cannot use the base or does not know what changed since, or
// because a manifest with all increments would be too large.
void CheckpointCoordinator::CutInFull(const std::string& reason) {
  const Cut& cut = *checkpoints_.pending();
  const CutReason why = cut.reason;
  context_.notes->Warn(fmt::format("checkpoint {} ({}) cannot be incremental to checkpoint {}; a full one follows: {}",
                                   cut.order.id.value, Name(why), cut.order.base.value, reason));
  requests_.Voided(cut.order.id);
  Abandon();
  checkpoints_.ForgetBase();
  Want(why);
}

CutEnd CheckpointCoordinator::FailCut(ErrorCode code, const std::string& reason, TimeUs now, const Mailer& mail) {
  const Cut& cut = *checkpoints_.pending();
  const CutReason why = cut.reason;
  const std::string text = fmt::format("checkpoint {} ({}) could not be written to {}: {}", cut.order.id.value,
                                       Name(why), cut.order.directory, reason);
  Send(requests_.Ended(cut.order.id, code, text), mail);
  checkpoints_.NotWritten(now);
  Abandon();
  context_.notes->Warn(text);
  return {why, Error{code, text}};
}

void CheckpointCoordinator::OnRequest(Peer from, const CheckpointRequest& request, const Status& may,
                                      const std::string& waits, const Mailer& mail) {
  if (AnswerAgain(from, request.number, mail)) return;
  std::optional<CheckpointRequests::Answer> answer;
  if (!may)
    answer = requests_.Reply(request.number, may.error().code, may.error().message);
  else if (state_is_cut() && !checkpoints_.newest().empty())
    answer = requests_.Reply(request.number, ErrorCode::kOk, checkpoints_.newest());
  if (answer) return Send({*answer}, mail);
  mail.Send(from, CheckpointRequest{request.number, ErrorCode::kOk, waits, {}});
  if (requests_.Unordered()) Want(CutReason::kRequested);
}

bool CheckpointCoordinator::AnswerAgain(Peer from, std::uint64_t number, const Mailer& mail) {
  const auto known = requests_.Ask(from, number);
  if (known) mail.Send(from, *known);
  return known.has_value();
}

void CheckpointCoordinator::Send(const std::vector<CheckpointRequests::Answer>& answers, const Mailer& mail) {
  for (const auto& [to, reply] : answers) mail.Send(to, reply);
}

void CheckpointCoordinator::OnStop(const std::string& reason, const Mailer& mail) {
  if (const Cut* cut = checkpoints_.pending(); cut != nullptr)
    removal_.Abandon(cut->order.id, cut->order.directory, context_.membership->view().version);
  Send(requests_.EndAll(ErrorCode::kCancelled, "the run ended before the checkpoint: " + reason), mail);
}

std::uint64_t CheckpointCoordinator::Progress(TimeUs now) const {
  const Membership& membership = *context_.membership;
  const Cut* cut = checkpoints_.pending();
  if (cut != nullptr && membership.shards().Writes(cut->order.id)) return static_cast<std::uint64_t>(now);
  std::uint64_t progress = cut == nullptr ? 0 : cut->shards.size() + cut->workers.size() + cut->blobs.size();
  if (const auto live = membership.workers().Live(); !live.empty())
    progress += (*std::ranges::min_element(live, {}, &WorkerNode::clock))->clock.value;
  return progress;
}

CutWaits CheckpointCoordinator::Awaited() const {
  const Cut* cut = checkpoints_.pending();
  const Membership& membership = *context_.membership;
  if (cut == nullptr || !PartsMissing(*cut, membership.shards().size(), membership.workers())) return {};
  if (cut->order.at_clock) return {.clock = cut->order.clock, .programs = {}};
  CutWaits waits;
  for (const WorkerNode* worker : membership.workers().Live()) {
    const Incarnation id = worker->incarnation;
    if (worker->keeps_state && cut->order.blobs && cut->had_workers.contains(id) && !cut->blobs.contains(id))
      waits.programs.insert(id);
  }
  return waits;
}

}  // namespace tarn::scheduler
