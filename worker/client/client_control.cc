#include "worker/client/client_control.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/hash.h"
#include "core/job/job.h"
#include "worker/client/client_sender.h"

namespace tarn::worker {
namespace {

TimeUs Microseconds(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

// Whether requests can be routed by the view, and by all views of one job alike.
bool Usable(const View& view, const View& before) {
  const RouteMap& routes = view.routes;
  if (routes.partition_bits > limits::kPartitionBitsMax) return false;
  if (routes.owners.size() != std::size_t{1} << routes.partition_bits) return false;
  for (ShardId owner : routes.owners)
    if (owner.value >= routes.endpoints.size()) return false;
  return before.version.value == 0 || before.routes.owners.size() == routes.owners.size();
}

}  // namespace

void ClientControl::Repeat(Body body) { repeating_.push_back({std::move(body)}); }

// Ends the repeats of the first request of that kind which the answer matches.
template <typename Kind, typename Matches>
bool ClientControl::Answered(const Matches& matches) {
  const auto it = std::find_if(repeating_.begin(), repeating_.end(), [&](const Repeating& r) {
    const Kind* request = std::get_if<Kind>(&r.body);
    return request != nullptr && matches(*request);
  });
  if (it == repeating_.end()) return false;
  repeating_.erase(it);
  return true;
}

void ClientControl::Join() {
  Repeat(tarn::Join{Role::kWorker, desk_->options.rank, desk_->options.nonce, limits::kProtocolVersion, ""});
}

bool ClientControl::OnWelcome(const Welcome& welcome, std::uint64_t job) {
  if (welcome.nonce != desk_->options.nonce || welcome.incarnation.value == 0) return false;
  if (!Usable(welcome.view, desk_->view)) return false;
  auto parsed = ParseJob(welcome.job_text, "the scheduler's job", "/");
  if (!parsed) {
    desk_->Stop(parsed.error().code, parsed.error().message);
    return false;
  }
  Answered<tarn::Join>([](const tarn::Join&) { return true; });
  desk_->job = job != 0 ? job : Fingerprint(*parsed);
  desk_->heartbeat_us = std::max<TimeUs>(1'000, Microseconds(parsed->fleet.heartbeat_seconds));
  desk_->lease_us = Microseconds(parsed->fleet.lease_seconds);
  desk_->busy_poll_us = parsed->fleet.busy_poll_us;
  if (!parsed->train.key_caching) desk_->lists.SwitchOff();
  desk_->job_file = std::move(*parsed);
  desk_->view = welcome.view;
  desk_->welcome = welcome;
  desk_->welcome.view = View();  // lives on in desk_->view
  desk_->state = ClientState::kRunning;
  AdoptTables();
  next_heartbeat_ = desk_->now;
  return true;
}

bool ClientControl::OnView(const View& view) {
  if (view.version <= desk_->view.version) return false;
  if (!Usable(view, desk_->view)) {
    ++desk_->counters.malformed;
    return false;
  }
  desk_->view = view;
  AdoptTables();
  next_heartbeat_ = desk_->now;
  for (const WorkerEntry& entry : view.workers) {
    if (entry.incarnation != desk_->welcome.incarnation || entry.state == WorkerState::kLive || leaving_) continue;
    desk_->Stop(ErrorCode::kFenced, "the scheduler has declared this worker dead");
  }
  return true;
}

void ClientControl::AdoptTables() {
  for (const TableSpec& spec : desk_->view.tables) desk_->tables.insert_or_assign(spec.id, spec);
}

void ClientControl::CreateTable(const TableSpec& spec) {
  const bool asked = std::any_of(repeating_.begin(), repeating_.end(), [&](const Repeating& r) {
    const auto* request = std::get_if<tarn::CreateTable>(&r.body);
    return request != nullptr && request->spec == spec;
  });
  if (!asked) Repeat(tarn::CreateTable{spec, ErrorCode::kOk, ""});
}

// An answer has the table as the job runs it.
void ClientControl::OnCreateTable(const tarn::CreateTable& answer) {
  TableSpec wanted;
  const auto as_run = [this](TableSpec spec) {
    spec.id = TableId(0);
    return AsRun(desk_->job_file, std::move(spec));
  };
  const TableSpec answered = as_run(answer.spec);
  const auto matches = [&](const tarn::CreateTable& r) {
    if (as_run(r.spec) != answered) return false;
    wanted = r.spec;
    return true;
  };
  if (!Answered<tarn::CreateTable>(matches)) return;
  if (answer.code == ErrorCode::kOk) desk_->tables.insert_or_assign(answer.spec.id, answer.spec);
  desk_->events.push_back(TableReady{answer.spec, answer.code, answer.message, std::move(wanted)});
}

void ClientControl::Barrier() { Repeat(tarn::Barrier{++barriers_}); }

void ClientControl::OnBarrier(const tarn::Barrier& answer) {
  if (Answered<tarn::Barrier>([&](const tarn::Barrier& r) { return r.number == answer.number; }))
    desk_->events.push_back(BarrierDone{answer.number});
}

void ClientControl::RequestLeases(LeaseRequest request) {
  request.number = ++lease_requests_;
  Repeat(std::move(request));
}

// A barrier or a request for leases behind an unanswered one: the scheduler takes a newer number for the end of the
// older. Likewise another table of the same name.
bool ClientControl::MustWait(const Repeating& r) const {
  const auto* table = std::get_if<tarn::CreateTable>(&r.body);
  const bool one_by_one = std::holds_alternative<LeaseRequest>(r.body) || std::holds_alternative<tarn::Barrier>(r.body);
  if (table == nullptr && !one_by_one) return false;
  const auto same = [&](const Repeating& other) {
    if (other.body.index() != r.body.index()) return false;
    return table == nullptr || std::get<tarn::CreateTable>(other.body).spec.name == table->spec.name;
  };
  return &r != &*std::find_if(repeating_.begin(), repeating_.end(), same);
}

void ClientControl::OnLeaseReply(LeaseReply reply) {
  if (!Answered<LeaseRequest>([&](const LeaseRequest& r) { return r.number == reply.number; })) return;
  if (reply.grants.empty()) awaited_clock_ = reply.jump_to;
  desk_->events.push_back(LeasesGranted{std::move(reply)});
}

void ClientControl::Leave(const DataPosition& position) {
  if (leaving_) return;
  leaving_ = true;
  next_heartbeat_ = desk_->now;  // the last metrics; what comes behind Leave is not counted
  Repeat(tarn::Leave{ticks_->acked(), position});
}

bool ClientControl::idle() const {
  return std::all_of(repeating_.begin(), repeating_.end(), [](const Repeating& r) {
    return std::holds_alternative<tarn::Leave>(r.body) || std::holds_alternative<CheckpointPart>(r.body);
  });
}

void ClientControl::FollowPart() {
  const auto& part = ticks_->part();
  const CheckpointId wanted = part ? part->id : CheckpointId(0);
  if (wanted == part_sent_) return;
  part_sent_ = wanted;
  Answered<CheckpointPart>([](const CheckpointPart&) { return true; });
  if (part) Repeat(*part);
}

void ClientControl::SendHeartbeat() {
  Heartbeat beat;
  beat.view = desk_->view.version;
  beat.proposal = ticks_->proposal();
  beat.clock = ticks_->reported();
  beat.acked_clock = ticks_->acked();
  beat.position = ticks_->acked_position();
  beat.drained = ticks_->drained();
  beat.counters = metrics_;
  beat.staleness = desk_->staleness;
  desk_->SendToScheduler(std::move(beat));
  next_heartbeat_ = desk_->now + desk_->heartbeat_us;
}

void ClientControl::Dispatch() {
  FollowPart();
  // The scheduler waits for this clock: it should not have to wait for the next heartbeat as well.
  if (awaited_clock_.value != 0 && ticks_->acked() >= awaited_clock_) {
    awaited_clock_ = Clock(0);
    next_heartbeat_ = desk_->now;
  }
  if (std::exchange(desk_->wants_heartbeat, false)) next_heartbeat_ = desk_->now;
  if (desk_->running() && next_heartbeat_ <= desk_->now) SendHeartbeat();
  for (Repeating& r : repeating_) {
    if (r.due > desk_->now || MustWait(r)) continue;
    // A joining worker may wait for the rest of the fleet; it should not be slow once that is there.
    const bool joining = std::holds_alternative<tarn::Join>(r.body);
    r.due = desk_->now + RepeatPause(desk_->options.resend_us, joining ? 0 : r.repeats);
    if (r.repeats++ != 0) ++desk_->counters.repeats;
    desk_->SendToScheduler(r.body);
  }
}

TimeUs ClientControl::NextTimer() const {
  TimeUs next = desk_->running() ? next_heartbeat_ : kNever;
  for (const Repeating& r : repeating_)
    if (!MustWait(r)) next = std::min(next, r.due);
  return next;
}

std::uint64_t ClientControl::Hash() const {
  std::uint64_t hash = HashCombine(barriers_, lease_requests_);
  for (const Repeating& r : repeating_) hash = HashCombine(HashCombine(hash, r.body.index()), r.due);
  return HashCombine(hash, next_heartbeat_ == kNever ? 0 : next_heartbeat_);
}

}  // namespace tarn::worker
