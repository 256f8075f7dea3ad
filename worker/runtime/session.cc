#include "worker/runtime/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/limits.h"
#include "core/listening.h"
#include "core/log.h"

namespace tarn::worker {
namespace {

constexpr double kLeaveSeconds = 2;       // longest wait of the destructor
constexpr double kSilenceSecondsMax = 5;  // a live scheduler answers every second

double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }
TimeUs Microseconds(double seconds) { return static_cast<TimeUs>(std::clamp(seconds, 0.0, 1e9) * 1e6); }

// Maximum memory of an unanswered pull: its keys, and its rows after the first of them have arrived, which in memory of
// the request are those of all keys of the caller, equal ones included.
std::size_t BytesOf(std::span<const PullRequest::Table> tables) {
  std::size_t bytes = 0;
  for (const PullRequest::Table& table : tables) {
    const std::size_t keys = table.plan->keys.size();
    const bool in_callers_order = table.plan.shared == nullptr && table.out == nullptr;
    const std::size_t rows = in_callers_order ? std::max(keys, table.plan->index.size()) : keys;
    bytes += keys * sizeof(Key) + rows * table.plan->dim * sizeof(float);
  }
  return bytes;
}

std::size_t BytesOf(std::span<const PushRequest::Table> tables) {
  std::size_t bytes = 0;
  for (const PushRequest::Table& table : tables) bytes += table.gradients.size();
  return bytes;
}

}  // namespace

Session::Session(SessionOptions options, std::unique_ptr<net::Transport> transport,
                 std::shared_ptr<void> transport_needs)
    : options_(std::move(options)),
      asked_(options_.asked_bytes_max),
      queued_(options_.queued_bytes_max),
      transport_needs_(std::move(transport_needs)),
      transport_(std::move(transport)),
      runtime_(OfProgram(options_.client), transport_.get()) {}

// Lets clock() count the clocks that the client skips.
ClientOptions Session::OfProgram(ClientOptions client) {
  client.is_program = true;
  client.on_skip = [this](std::uint64_t clocks) { clock_.OnSkip(clocks); };
  return client;
}

Session::~Session() {
  if (joined_) Leave(kLeaveSeconds);
}

Status Session::Join() {
  TARN_RETURN_IF_ERROR(runtime_.Start(options_.scheduler));
  const TimeUs begun = runtime_.client().scheduler().last_message();
  for (double noted = 0;;) {
    if (!runtime_.Act()) return std::unexpected(runtime_.error());
    if (runtime_.client().state() == ClientState::kRunning) break;
    const double waited = Seconds(Runtime::Now() - begun), limit = options_.timeout_seconds;
    if (waited >= limit) return Fail(ErrorCode::kTimeout, JoinNote(begun, limit));
    if (waited >= noted + options_.wait_note_seconds) {
      noted += options_.wait_note_seconds;
      LogWarning("{}{}", JoinNote(begun, waited),
                 std::isfinite(limit) ? fmt::format("; gives up in {:.0f} s", limit - waited) : "");
    }
    runtime_.Exchange(Microseconds(std::min(limit, noted + options_.wait_note_seconds) - waited));
  }
  const Client& client = runtime_.client();
  welcome_ = client.welcome();
  job_ = client.job_file();
  planners_.emplace(client.view().routes.partition_bits);
  state_.emplace(&runtime_, WorkerRank(welcome_.rank), options_.client.blob_chunk_bytes);
  clock_.Begin(client.clock());
  const char* run_dir = std::getenv("TARN_RUN_DIR");
  reports_.emplace(welcome_.rank, run_dir != nullptr ? run_dir : "");
  runtime_.StartThread();
  joined_ = true;
  return {};
}

// What Join waits for.
std::string Session::JoinNote(TimeUs begun, double waited) const {
  const TimeUs heard = runtime_.client().scheduler().last_message();
  const double silent = Seconds(Runtime::Now() - heard);
  if (heard == begun || silent > kSilenceSecondsMax)
    return fmt::format("the scheduler at {} has been silent for {:.0f} s (is it running, is that its address, {}?)",
                       options_.scheduler, silent, kSameKeys);
  return fmt::format(
      "the scheduler at {} has had no place for this worker for {:.0f} s: its fleet is not complete (its "
      "log names the missing processes), or has all of its workers",
      options_.scheduler, waited);
}

Status Session::Leave(std::optional<double> seconds) {
  std::call_once(leave_once_, [&] {
    if (!seconds) state_->SaveAfterTick(clock());  // the destructor calls nothing of the program
    auto request = MakeStatusRequest(
        [](Client* client, Completion<>* done, TimeUs now, Outbox* out) { client->Leave(done, now, out); });
    runtime_.Submit(request);
    leave_status_ = seconds ? request->WaitFor(*seconds) : request->Wait();
    if (const Status status = reports_->Flush(); !status) LogWarning("{}", status.error().message);
  });
  return leave_status_;
}

std::shared_ptr<const OpenTable> Session::Opened(TableSpec spec) {
  {
    const std::lock_guard lock(names_mutex_);
    names_.insert_or_assign(spec.id, spec.name);
  }
  const Positioner positioner(spec, TableSalt(job_.job.seed, spec.name));
  return std::make_shared<const OpenTable>(OpenTable{std::move(spec), positioner});
}

// "table 'users' and table 'items'".
std::string Session::NamesOf(std::span<const PullRequest::Table> tables) {
  const std::lock_guard lock(names_mutex_);
  std::vector<std::string> names;
  names.reserve(tables.size());
  for (const PullRequest::Table& table : tables) names.push_back(fmt::format("table '{}'", names_[table.plan->table]));
  return fmt::format("{}", fmt::join(names, " and "));
}

// A pull that fits must be charged with its bytes.
Status Session::TakeRoom(std::span<const PullRequest::Table> tables) {
  const std::size_t bytes = BytesOf(tables);
  if (asked_.TryTake(bytes)) return {};
  return Fail(
      ErrorCode::kOverloaded,
      fmt::format("a pull of {} is for {} bytes, and pulls of {} bytes are not answered yet: expected at most {} "
                  "together (ConnectOptions::asked_bytes_max); wait for earlier ones first",
                  NamesOf(tables), bytes, asked_.taken(), asked_.bytes_max()));
}

std::shared_ptr<PullRequest> Session::Pull(std::vector<PullRequest::Table> tables, std::optional<Clock> use,
                                           int priority) {
  state_->SaveAfterTick(clock());
  const std::size_t bytes = BytesOf(tables);
  const Status room = TakeRoom(tables);
  auto request = std::make_shared<PullRequest>(std::move(tables), use, priority);
  if (!room) {
    request->Abort(room.error());
    return request;
  }
  request->Charge(&asked_, bytes);
  runtime_.Submit(request, true);
  return request;
}

std::shared_ptr<Request> Session::Push(std::vector<PushRequest::Table> tables, std::optional<Clock> pulled) {
  state_->SaveAfterTick(clock());
  const std::size_t bytes = BytesOf(tables);
  queued_.Take(bytes);
  auto request = std::make_shared<PushRequest>(std::move(tables), pulled);
  request->Charge(&queued_, bytes);
  runtime_.Submit(request, true);
  return request;
}

std::shared_ptr<Request> Session::Change(Plan plan, PushAction action, Buffer values) {
  state_->SaveAfterTick(clock());
  const std::size_t bytes = plan.keys.size() * sizeof(Key) + values.size();
  queued_.Take(bytes);
  auto request = MakeStatusRequest([plan = std::move(plan), action, values = std::move(values)](
                                       Client* client, Completion<>* done, TimeUs now, Outbox* out) {
    client->Push(plan, action, values, done, now, out);
  });
  request->Charge(&queued_, bytes);
  runtime_.Submit(request, true);
  return request;
}

Session::PushPullRequests Session::PushPull(PushRequest::Table push, PullRequest::Table pull,
                                            const MaybePosition& position) {
  state_->SaveAfterTick(clock());
  std::vector<PushRequest::Table> pushes;
  pushes.push_back(std::move(push));
  std::vector<PullRequest::Table> pulls;
  pulls.push_back(std::move(pull));
  const std::size_t push_bytes = BytesOf(pushes), pull_bytes = BytesOf(pulls);
  const Status room = TakeRoom(pulls);
  auto pulled = std::make_shared<PullRequest>(std::move(pulls), std::nullopt, 0);
  if (room)
    pulled->Charge(&asked_, pull_bytes);
  else
    pulled->Abort(room.error());
  queued_.Take(push_bytes);
  auto pushed = std::make_shared<PushRequest>(std::move(pushes), std::nullopt);
  pushed->Charge(&queued_, push_bytes);
  std::vector<std::shared_ptr<Request>> requests{pushed, MakeTick({}, position)};
  if (room) requests.push_back(pulled);
  runtime_.Submit(requests);
  state_->OnTick();
  return {std::move(pushed), std::move(pulled)};
}

// Advances clock_ for a tick that the caller submits at once.
std::shared_ptr<Request> Session::MakeTick(std::optional<Clock> to, const MaybePosition& position) {
  to ? clock_.OnTickTo(*to) : clock_.OnTick();
  return MakeStatusRequest([this, to, position](Client* client, Completion<>* done, TimeUs now, Outbox* out) {
    if (to) clock_.OnStart(*to, client->clock());
    client->TickTo(to.value_or(client->clock() + 1), position, done, now, out);
  });
}

std::shared_ptr<Request> Session::TickTo(std::optional<Clock> to, const MaybePosition& position) {
  state_->SaveAfterTick(clock());
  if (to && *to > clock() + limits::kClocksAheadMax) {
    auto refused = MakeStatusRequest([](Client*, Completion<>*, TimeUs, Outbox*) {});
    refused->Abort(
        {ErrorCode::kInvalidArgument, fmt::format("tick to clock {} from {}: expected at most {} clocks at once",
                                                  to->value, clock().value, limits::kClocksAheadMax)});
    return refused;
  }
  auto request = MakeTick(to, position);
  runtime_.Submit(request);
  state_->OnTick();
  return request;
}

void Session::Prefetch(Plan plan) {
  runtime_.Submit(
      MakeStatusRequest([plan = std::move(plan)](Client* client, Completion<>* done, TimeUs now, Outbox* out) {
        client->Prefetch(plan, now, out);
        done->Done();
      }),
      true);
}

Status Session::Barrier() {
  state_->SaveAfterTick(clock());
  auto request = MakeStatusRequest(
      [](Client* client, Completion<>* done, TimeUs now, Outbox* out) { client->Barrier(done, now, out); });
  runtime_.Submit(request);
  return request->Wait();
}

Expected<std::shared_ptr<const OpenTable>> Session::CreateTable(const TableSpec& spec) {
  TARN_RETURN_IF_ERROR(Validate(AsRun(job_, spec)));
  auto request = MakeValueRequest<TableSpec>([spec](Client* client, Completion<TableSpec>* done, TimeUs now,
                                                    Outbox* out) { client->CreateTable(spec, done, now, out); });
  runtime_.Submit(request);
  TARN_RETURN_IF_ERROR(request->Wait());
  return Opened(std::move(request->value));
}

Expected<std::shared_ptr<const OpenTable>> Session::FindTable(const std::string& name) {
  auto request = MakeValueRequest<TableSpec>(
      [name](Client* client, Completion<TableSpec>* done, TimeUs, Outbox*) { client->FindTable(name, done); });
  runtime_.Submit(request);
  if (Status status = request->WaitFor(options_.timeout_seconds); !status) {
    if (status.error().code != ErrorCode::kTimeout) return std::unexpected(status.error());
    return Fail(ErrorCode::kTimeout,
                fmt::format("table '{}': nobody has created it within {:g} s", name, options_.timeout_seconds));
  }
  return Opened(std::move(request->value));
}

Expected<LeaseReply> Session::RequestLeases(LeaseRequest request) {
  auto asked = MakeValueRequest<LeaseReply>(
      [request = std::move(request)](Client* client, Completion<LeaseReply>* done, TimeUs now, Outbox* out) {
        client->RequestLeases(request, done, now, out);
      });
  runtime_.Submit(asked);
  state_->SaveWhileWaiting(clock());
  TARN_RETURN_IF_ERROR(asked->Wait());
  return std::move(asked->value);
}

Status Session::Report(std::span<const Figure> figures) {
  return reports_->Add(clock(), figures, Seconds(Runtime::Now()));
}

std::shared_ptr<Request> Session::RequestCheckpoint() {
  auto request = MakeValueRequest<std::string>([](Client* client, Completion<std::string>* done, TimeUs now,
                                                  Outbox* out) { client->RequestCheckpoint(done, now, out); });
  runtime_.Submit(request);
  return request;
}

// Reads the client in a turn, or directly once it has ended, because it then no longer changes.
template <typename Value, typename Read>
Value Session::ReadClient(const Read& read) {
  auto request = MakeValueRequest<Value>(
      [read](const Client* client, Completion<Value>* done, TimeUs, Outbox*) { done->Done(read(*client)); });
  runtime_.Submit(request);
  return request->Wait() ? std::move(request->value) : read(runtime_.client());
}

ClientCounters Session::counters() {
  return ReadClient<ClientCounters>([](const Client& client) { return client.counters(); });
}

std::vector<std::uint64_t> Session::staleness() {
  return ReadClient<std::vector<std::uint64_t>>([](const Client& client) { return client.staleness(); });
}

}  // namespace tarn::worker
