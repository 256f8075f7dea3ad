#include "worker/tarn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "core/job/job.h"
#include "core/process_limits.h"
#include "kernels/elementwise.h"
#include "net/zmq/transport.h"
#include "worker/runtime/session.h"

namespace tarn {

namespace {

using worker::CallerOrder;
using worker::PullRequest;
using worker::PushRequest;

std::uint64_t RandomNonce() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random() | 1;
}

// The capacity of a shard and its connection: with more credit, messages would be dropped and sent again.
constexpr std::size_t kCreditBytesMax = 2 * std::min(limits::kBacklogBytesMax, limits::kReplyPeerBytesMax);

Status CheckOptions(const ConnectOptions& options) {
  if (options.io_threads < 1)
    return Fail(ErrorCode::kInvalidArgument,
                "io_threads: expected at least 1, found " + std::to_string(options.io_threads));
  if (!(options.timeout_seconds >= 0))
    return Fail(ErrorCode::kInvalidArgument,
                "timeout_seconds: expected at least 0, found " + std::to_string(options.timeout_seconds));
  if (!(options.wait_note_seconds > 0))
    return Fail(ErrorCode::kInvalidArgument,
                "wait_note_seconds: expected more than 0, found " + std::to_string(options.wait_note_seconds));
  if (options.credit_bytes <= kCreditBytesMax) return {};
  return Fail(ErrorCode::kInvalidArgument, "credit_bytes = " + std::to_string(options.credit_bytes) +
                                               ": expected at most " + std::to_string(kCreditBytesMax));
}

// Raises the limit of open files if needed. `open_before`: descriptors that the program had open before Connect.
Status CheckFiles(const FleetSection& fleet, std::uint64_t open_before) {
  const std::uint64_t shards = std::uint64_t{fleet.servers} * fleet.shards;
  const std::string what =
      fmt::format("its {} open files and the connections to {} shards by {} lanes", open_before, shards, fleet.lanes);
  return RequireFiles(open_before + net::WorkerFiles(shards, fleet.lanes), what, RaiseFiles::kAsNeeded);
}

std::string NameOf(const Table& table) { return "table '" + table.spec().name + "'"; }

Status CheckSizes(const Table& table, std::string_view what, std::size_t keys, std::size_t floats) {
  if (floats == keys * table.dim()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: {} {} for {} keys, expected {}", NameOf(table), floats, what, keys, keys * table.dim()));
}

// Checks that all values are finite (rule A5). `rows`: one per key of the plan.
Status CheckFinite(const Table& table, const worker::Plan& plan, std::span<const float> rows,
                   PushAction action = PushAction::kStep) {
  if (kernels::AllFinite(rows.size(), rows.data())) return {};
  const auto at =
      static_cast<std::size_t>(std::ranges::find_if_not(rows, [](float x) { return std::isfinite(x); }) - rows.begin());
  const bool assigns = action == PushAction::kAssign;
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: the {} of key {} is {} at value {}, expected a finite number; nothing of this {} was sent",
                  NameOf(table), assigns ? "value" : "gradient", plan.keys[at / plan.dim], rows[at], at % plan.dim,
                  assigns ? "assignment" : "push"));
}

// Checks the gradients of a push of a plan.
Status CheckGradients(const Table& table, const worker::Plan& plan, const Buffer& gradients) {
  const std::size_t expected = plan.keys.size() * plan.dim * sizeof(float);
  if (gradients.size() != expected)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} bytes of gradients for a plan of {} keys, expected {}",
                                                         NameOf(table), gradients.size(), plan.keys.size(), expected));
  return CheckFinite(table, plan, gradients.as<float>());
}

// A future that has failed already.
StatusFuture Failed(const Error& error) {
  auto request = std::make_shared<PushRequest>(std::vector<PushRequest::Table>(), std::nullopt);
  request->Abort(error);
  return StatusFuture(std::move(request));
}
RowsFuture FailedRows(const Error& error) {
  auto request = std::make_shared<PullRequest>(std::vector<PullRequest::Table>(), std::nullopt, 0);
  request->Abort(error);
  return RowsFuture(std::move(request));
}

// Once the last copy of the future is dropped, nothing is written to memory of the caller.
RowsFuture Future(std::shared_ptr<PullRequest> request) {
  if (!request->writes_to_caller()) return RowsFuture(std::move(request));
  PullRequest* const pull = request.get();
  return RowsFuture(
      std::shared_ptr<PullRequest>(pull, [request = std::move(request)](PullRequest*) { request->Detach(); }));
}

// `out` must be empty or have one row per key.
Status CheckMemory(const Table& table, std::size_t keys, std::span<const float> out) {
  return out.empty() ? Status() : CheckSizes(table, "floats of `out`", keys, out.size());
}

float* MemoryOf(std::span<float> out) { return out.empty() ? nullptr : out.data(); }

// Removes duplicates and groups by partition.
Status MakePull(worker::Session* session, const TablePull& pull, const worker::OpenTable& table,
                PullRequest::Table* made) {
  TARN_RETURN_IF_ERROR(CheckMemory(pull.table, pull.keys.size(), pull.out));
  made->out = MemoryOf(pull.out);
  return session->MakePlan(table, pull.keys, &made->plan.own, &made->order);
}

// The same, and sums the gradients of each key. `order` may be null.
Status MakePush(worker::Session* session, const TablePush& push, const worker::OpenTable& table, CallerOrder* order,
                PushRequest::Table* made) {
  TARN_RETURN_IF_ERROR(CheckSizes(push.table, "gradients", push.keys.size(), push.gradients.size()));
  worker::Plan& plan = made->plan.own;
  TARN_RETURN_IF_ERROR(session->MakePlan(table, push.keys, &plan, order));
  made->gradients = Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float));
  const auto sums = made->gradients.as_mutable<float>();
  SumDuplicates(plan, plan.dim, push.gradients.data(), sums.data());
  return CheckFinite(push.table, plan, sums);
}

// A pull of no tables has one result, which is empty.
Expected<std::span<const float>> RowsOf(const PullRequest& request, std::size_t which) {
  if (which < request.tables()) return request.rows(which);
  if (which == 0) return std::span<const float>();
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the rows of table {} of a pull were requested, expected a number below {}, the number of its tables",
                  which, request.tables()));
}

worker::MaybePosition PositionOf(const MaybePosition& position) {
  if (!position) return std::nullopt;
  return DataPosition{position->lease, position->rows};
}

Lease LeaseOf(const LeaseGrant& grant) {
  static_assert(int(Lease::Purpose::kTrain) == int(LeasePurpose::kTrain) &&
                int(Lease::Purpose::kValidate) == int(LeasePurpose::kValidate) &&
                int(Lease::Purpose::kTest) == int(LeasePurpose::kTest));
  return {.id = grant.lease,
          .purpose = static_cast<Lease::Purpose>(grant.purpose),
          .epoch = grant.epoch,
          .first_row = grant.first_row,
          .rows = grant.rows,
          .skip_rows = grant.skip_rows,
          .batch_rows = std::max<std::uint64_t>(1, grant.batch_rows)};
}

worker::SessionOptions SessionOptionsOf(const ConnectOptions& options) {
  return {.client = {.rank = options.rank.value_or(kAnyRank),
                     .nonce = RandomNonce(),
                     .credit_bytes = options.credit_bytes,
                     .shm = options.shm},
          .scheduler = options.scheduler,
          .timeout_seconds = options.timeout_seconds,
          .wait_note_seconds = options.wait_note_seconds,
          .queued_bytes_max = options.queued_bytes_max,
          .asked_bytes_max = options.asked_bytes_max};
}

}  // namespace

const TableSpec& Table::spec() const { return open_->spec; }

std::span<const Key> Plan::keys() const { return plan_->keys; }
std::span<const std::uint32_t> Plan::index() const { return plan_->index; }

bool RowsFuture::Ready() const { return request_->Ready(); }
std::uint64_t RowsFuture::staleness(std::size_t which) const { return request_->staleness(which); }
Expected<std::span<const float>> RowsFuture::Wait(std::size_t which) const {
  TARN_RETURN_IF_ERROR(request_->Wait());
  return RowsOf(*request_, which);
}
Expected<std::span<const float>> RowsFuture::WaitFor(double seconds, std::size_t which) const {
  TARN_RETURN_IF_ERROR(request_->WaitFor(seconds));
  return RowsOf(*request_, which);
}

bool StatusFuture::Ready() const { return request_->Ready(); }
Status StatusFuture::Wait() const { return request_->Wait(); }
Status StatusFuture::WaitFor(double seconds) const { return request_->WaitFor(seconds); }

Client::Client(std::unique_ptr<worker::Session> session) : session_(std::move(session)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Expected<Client> Client::Connect(ConnectOptions options) {
  std::optional<Client> client;
  TARN_RETURN_IF_ERROR(CatchLimits([&]() -> Status {
    auto connected = ConnectOverZmq(std::move(options));
    if (!connected) return std::unexpected(connected.error());
    client.emplace(*std::move(connected));
    return {};
  }));
  return *std::move(client);
}

// Checks the limit of open files first: without a free descriptor, ZeroMQ aborts the process or never completes a
// connection.
Expected<Client> Client::ConnectOverZmq(ConnectOptions options) {
  TARN_RETURN_IF_ERROR(CheckOptions(options));
  const std::uint64_t open_before = OpenFiles();
  TARN_RETURN_IF_ERROR(CheckFiles(FleetOfRun(options.scheduler).value_or(FleetSection{}), open_before));
  auto zmq = std::make_shared<net::ZmqContext>(net::ZmqContextOptions{.io_threads = options.io_threads});
  TARN_RETURN_IF_ERROR(zmq->SecureFromFile(options.keys));
  auto scheduler = net::SchedulerEndpoint(options.scheduler, options.timeout_seconds);
  if (!scheduler) return std::unexpected(scheduler.error());
  options.scheduler = *std::move(scheduler);
  net::ZmqTransportOptions transport_options;
  transport_options.insecure = options.insecure;
  transport_options.shm = options.shm;
  transport_options.lend_payloads = true;
  auto transport = std::make_unique<net::ZmqTransport>(zmq.get(), transport_options);
  auto client =
      Join(std::make_unique<worker::Session>(SessionOptionsOf(options), std::move(transport), std::move(zmq)));
  if (!client) return client;
  // The fleet's size is known only now if `scheduler` is an address.
  TARN_RETURN_IF_ERROR(CheckFiles(client->session_->fleet(), open_before));
  return client;
}

Expected<Client> Client::Connect(const ConnectOptions& options, std::unique_ptr<net::Transport> transport) {
  TARN_RETURN_IF_ERROR(CheckOptions(options));
  return Join(std::make_unique<worker::Session>(SessionOptionsOf(options), std::move(transport)));
}

Expected<Client> Client::Join(std::unique_ptr<worker::Session> session) {
  TARN_RETURN_IF_ERROR(session->Join());
  return Client(std::move(session));
}

Expected<Table> Client::OpenTable(const std::string& name) {
  auto table = session_->FindTable(name);
  if (!table) return std::unexpected(table.error());
  return Table(*std::move(table));
}

Expected<Table> Client::OpenTable(const TableSpec& spec) {
  auto table = session_->CreateTable(spec);
  if (!table) return std::unexpected(table.error());
  return Table(*std::move(table));
}

RowsFuture Client::Pull(const Table& table, std::span<const Key> keys, const PullOptions& options) {
  std::vector<PullRequest::Table> tables(1);
  if (Status s = MakePull(session_.get(), {table, keys, options.out}, *table.open_, &tables[0]); !s)
    return FailedRows(s.error());
  return Future(session_->Pull(std::move(tables), options.use_clock, options.priority));
}

RowsFuture Client::Pull(const Plan& plan, const PullOptions& options) {
  const PlanPull pull{plan, options.out};
  return PullPlans({&pull, 1}, options);
}

RowsFuture Client::PullMany(std::span<const TablePull> pulls, const PullOptions& options) {
  std::vector<PullRequest::Table> tables(pulls.size());
  for (std::size_t i = 0; i < pulls.size(); ++i)
    if (Status s = MakePull(session_.get(), pulls[i], *pulls[i].table.open_, &tables[i]); !s)
      return FailedRows(s.error());
  return Future(session_->Pull(std::move(tables), options.use_clock, options.priority));
}

RowsFuture Client::PullPlans(std::span<const PlanPull> pulls, const PullOptions& options) {
  std::vector<PullRequest::Table> tables(pulls.size());
  for (std::size_t i = 0; i < pulls.size(); ++i) {
    const Plan& plan = pulls[i].plan;
    if (Status s = CheckMemory(plan.table(), plan.keys().size(), pulls[i].out); !s) return FailedRows(s.error());
    tables[i].plan.shared = plan.plan_;
    tables[i].out = MemoryOf(pulls[i].out);
  }
  return Future(session_->Pull(std::move(tables), options.use_clock, options.priority));
}

Status Client::Prefetch(const Table& table, std::span<const Key> keys) {
  worker::Plan plan;
  TARN_RETURN_IF_ERROR(session_->MakePlan(*table.open_, keys, &plan, nullptr));
  session_->Prefetch(std::move(plan));
  return {};
}

StatusFuture Client::Push(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                          const PushOptions& options) {
  std::vector<PushRequest::Table> tables(1);
  if (Status s = MakePush(session_.get(), {table, keys, gradients}, *table.open_, nullptr, &tables[0]); !s)
    return Failed(s.error());
  return StatusFuture(session_->Push(std::move(tables), options.pulled_clock));
}

StatusFuture Client::Push(const Plan& plan, Buffer gradients, const PushOptions& options) {
  const PlanPush push{plan, std::move(gradients)};
  return PushPlans({&push, 1}, options);
}

StatusFuture Client::PushMany(std::span<const TablePush> pushes, const PushOptions& options) {
  std::vector<PushRequest::Table> tables(pushes.size());
  for (std::size_t i = 0; i < pushes.size(); ++i)
    if (Status s = MakePush(session_.get(), pushes[i], *pushes[i].table.open_, nullptr, &tables[i]); !s)
      return Failed(s.error());
  return StatusFuture(session_->Push(std::move(tables), options.pulled_clock));
}

StatusFuture Client::PushPlans(std::span<const PlanPush> pushes, const PushOptions& options) {
  std::vector<PushRequest::Table> tables(pushes.size());
  for (std::size_t i = 0; i < pushes.size(); ++i) {
    const auto& [plan, gradients] = pushes[i];
    if (Status s = CheckGradients(plan.table(), *plan.plan_, gradients); !s) return Failed(s.error());
    tables[i].plan.shared = plan.plan_;
    tables[i].gradients = gradients;
  }
  return StatusFuture(session_->Push(std::move(tables), options.pulled_clock));
}

StatusFuture Client::Assign(const Table& table, std::span<const Key> keys, std::span<const float> values) {
  if (Status s = CheckSizes(table, "values", keys.size(), values.size()); !s) return Failed(s.error());
  worker::Plan plan;
  if (Status s = session_->MakePlan(*table.open_, keys, &plan, nullptr); !s) return Failed(s.error());
  Buffer rows = Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float));
  const auto to = rows.as_mutable<float>();
  for (std::size_t i = 0; i < keys.size(); ++i)
    std::ranges::copy(values.subspan(i * plan.dim, plan.dim),
                      to.subspan(std::size_t{plan.index[i]} * plan.dim).begin());
  if (Status s = CheckFinite(table, plan, to, PushAction::kAssign); !s) return Failed(s.error());
  return StatusFuture(session_->Change(std::move(plan), PushAction::kAssign, std::move(rows)));
}

StatusFuture Client::Delete(const Table& table, std::span<const Key> keys) {
  if (table.spec().kind == TableKind::kDense)
    return Failed({ErrorCode::kInvalidArgument,
                   NameOf(table) + ": the rows of a dense table cannot be deleted; Assign sets their values"});
  worker::Plan plan;
  if (Status s = session_->MakePlan(*table.open_, keys, &plan, nullptr); !s) return Failed(s.error());
  return StatusFuture(session_->Change(std::move(plan), PushAction::kDelete, Buffer()));
}

Client::PushPullFutures Client::PushPull(const Table& table, std::span<const Key> keys,
                                         std::span<const float> gradients, const MaybePosition& position) {
  PushRequest::Table push;
  PullRequest::Table pull;
  if (Status s = MakePush(session_.get(), {table, keys, gradients}, *table.open_, &pull.order, &push); !s)
    return {Failed(s.error()), FailedRows(s.error())};
  pull.plan.own = push.plan.own;
  auto both = session_->PushPull(std::move(push), std::move(pull), PositionOf(position));
  return {StatusFuture(std::move(both.pushed)), RowsFuture(std::move(both.pulled))};
}

StatusFuture Client::Tick(const MaybePosition& position) {
  return StatusFuture(session_->TickTo({}, PositionOf(position)));
}
StatusFuture Client::TickTo(Clock clock, const MaybePosition& position) {
  return StatusFuture(session_->TickTo(clock, PositionOf(position)));
}

Status Client::Barrier() { return session_->Barrier(); }
Status Client::Leave() { return session_->Leave(std::nullopt); }
void Client::Cancel() { session_->Cancel(); }
Status Client::Ended() const { return session_->Ended(); }

Clock Client::clock() const { return session_->clock(); }
std::uint32_t Client::rank() const { return session_->welcome().rank; }
const std::string& Client::job_text() const { return session_->welcome().job_text; }
ClientCounters Client::counters() const { return session_->counters(); }
std::vector<std::uint64_t> Client::staleness() const { return session_->staleness(); }

Expected<Plan> Client::MakePlan(const Table& table, std::span<const Key> keys) {
  auto plan = std::make_shared<worker::Plan>();
  TARN_RETURN_IF_ERROR(session_->MakePlan(*table.open_, keys, plan.get(), nullptr));
  return Plan(table, std::move(plan));
}

void Client::KeepState(std::function<Expected<Buffer>()> save) { session_->KeepState(std::move(save)); }

void Client::SaveState() { session_->SaveState(); }
Expected<Buffer> Client::SavedState(std::uint32_t rank) { return session_->SavedState(WorkerRank(rank)); }

Status Client::Report(const std::vector<std::pair<std::string, double>>& figures) { return session_->Report(figures); }

StatusFuture Client::RequestCheckpoint() { return StatusFuture(session_->RequestCheckpoint()); }

Expected<Leases> Client::RequestLeases(const LeaseOptions& options) {
  LeaseRequest request;
  request.want = options.want;
  for (const LeaseReport& report : options.done) request.done.push_back({report.lease, report.quality});
  request.rows = {options.rows[0], options.rows[1], options.rows[2]};
  const auto reply = session_->RequestLeases(std::move(request));
  if (!reply) return std::unexpected(reply.error());
  Leases leases;
  leases.finished = reply->finished;
  for (const LeaseGrant& grant : reply->grants) leases.granted.push_back(LeaseOf(grant));
  if (leases.granted.empty() && !leases.finished) leases.tick_to = reply->jump_to;
  return leases;
}

}  // namespace tarn
