#include "worker/tarn.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "core/job/job.h"
#include "core/process_limits.h"
#include "kernels/elementwise.h"
#include "net/zmq/transport.h"
#include "worker/client/client_loop.h"

namespace tarn {
namespace {

using worker::ClientLoop;
using worker::ClientResult;
using worker::Plan;
using worker::Planner;

constexpr double kFarewellSeconds = 2;

std::uint64_t RandomNonce() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random() | 1;
}

std::shared_ptr<ClientResult> NewResult() { return std::make_shared<ClientResult>(); }

std::shared_ptr<ClientResult> Failed(const Error& error) {
  auto result = NewResult();
  result->Finish(error);
  return result;
}

// What a shard and the way to it take at most: beyond, what is within the credit would be dropped and sent again.
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

// What this process has open already is its program's.
Status CheckFiles(const FleetSection& fleet, std::uint64_t open_before) {
  const std::uint64_t shards = std::uint64_t{fleet.servers} * fleet.shards;
  const std::string what = "its " + std::to_string(open_before) + " open files and the connections to " +
                           std::to_string(shards) + " shards by " + std::to_string(fleet.lanes) + " lanes";
  return RequireFiles(open_before + net::WorkerFiles(shards, fleet.lanes), what, RaiseFiles::kAsNeeded);
}

Status CheckSizes(const Table& table, std::size_t keys, std::size_t gradients) {
  if (gradients == keys * table.dim()) return {};
  return Fail(ErrorCode::kInvalidArgument, "table '" + table.spec().name + "': " + std::to_string(gradients) +
                                               " gradients for " + std::to_string(keys) + " keys, expected " +
                                               std::to_string(keys * table.dim()));
}

// Rule A5: `rows` has one row a key of the plan.
Status CheckFinite(const std::string& table, const Plan& plan, std::span<const float> rows) {
  if (kernels::AllFinite(rows.size(), rows.data())) return {};
  const std::size_t at =
      static_cast<std::size_t>(std::ranges::find_if_not(rows, [](float x) { return std::isfinite(x); }) - rows.begin());
  return Fail(ErrorCode::kInvalidArgument, "table '" + table + "': the gradient of key " +
                                               std::to_string(plan.keys[at / plan.dim]) + " is " +
                                               std::to_string(rows[at]) + " at value " + std::to_string(at % plan.dim) +
                                               ", expected a finite number; nothing of this push was sent");
}

}  // namespace

bool RowsFuture::Ready() const { return result_->Ready(); }
std::uint64_t RowsFuture::staleness() const { return result_->staleness; }
Expected<std::span<const float>> RowsFuture::Wait() const {
  TARN_RETURN_IF_ERROR(result_->Wait());
  return result_->Rows();
}
Expected<std::span<const float>> RowsFuture::WaitFor(double seconds) const {
  TARN_RETURN_IF_ERROR(result_->WaitFor(seconds));
  return result_->Rows();
}

bool StatusFuture::Ready() const { return result_->Ready(); }
Status StatusFuture::Wait() const { return result_->Wait(); }
Status StatusFuture::WaitFor(double seconds) const { return result_->WaitFor(seconds); }

class Client::Impl {
 public:
  Impl(ConnectOptions connect_options, std::unique_ptr<net::ZmqContext> zmq, std::unique_ptr<net::Transport> transport)
      : options(std::move(connect_options)),
        context(std::move(zmq)),
        loop({.rank = options.rank, .nonce = RandomNonce(), .credit_bytes = options.credit_bytes},
             {.queued_bytes_max = options.queued_bytes_max, .asked_bytes_max = options.asked_bytes_max},
             std::move(transport)) {}

  ~Impl() {
    if (joined) Leave(kFarewellSeconds);
  }

  Status Join() {
    TARN_RETURN_IF_ERROR(loop.Join(options.scheduler, options.timeout_seconds, options.wait_note_seconds));
    joined = true;
    auto job = ParseJob(loop.welcome().job_text, "the scheduler's job", "/");
    if (!job) return std::unexpected(job.error());
    seed = job->job.seed;
    fleet = job->fleet;
    return {};
  }

  // Once; whoever comes later gets the same outcome.
  Status Leave(std::optional<double> seconds) {
    std::call_once(farewell, [&] {
      auto result = NewResult();
      loop.Leave(result);
      left = seconds ? result->WaitFor(*seconds) : result->Wait();
    });
    return left;
  }

  Table MakeTable(TableSpec spec) {
    const std::uint64_t salt = TableSalt(seed, spec.name);
    const std::lock_guard lock(mutex_);
    names_[spec.id] = spec.name;
    return Table(std::move(spec), salt);
  }

  std::string NameOf(TableId table) {
    const std::lock_guard lock(mutex_);
    return names_[table];
  }
  Expected<PlanPtr> MakePlan(const Table& table, std::span<const Key> keys);
  std::unique_ptr<Planner> BorrowPlanner();

  ConnectOptions options;
  std::unique_ptr<net::ZmqContext> context;  // of the loop's transport, if that is ours
  ClientLoop loop;
  bool joined = false;
  std::uint64_t seed = 0;
  FleetSection fleet;
  std::once_flag farewell;
  Status left;

 private:
  std::mutex mutex_;
  std::map<TableId, std::string> names_;            // of the tables that were opened
  std::vector<std::unique_ptr<Planner>> planners_;  // idle ones; as many as threads that plan at once
};

std::unique_ptr<Planner> Client::Impl::BorrowPlanner() {
  const std::lock_guard lock(mutex_);
  if (planners_.empty()) return std::make_unique<Planner>(loop.partition_bits());
  auto planner = std::move(planners_.back());
  planners_.pop_back();
  return planner;
}

Expected<Client::PlanPtr> Client::Impl::MakePlan(const Table& table, std::span<const Key> keys) {
  if (keys.size() > limits::kPlanKeysMax)
    return Fail(ErrorCode::kTooLarge, "a request for " + std::to_string(keys.size()) + " keys, at most " +
                                          std::to_string(limits::kPlanKeysMax));
  if (table.spec().kind == TableKind::kDense) {
    const auto worst = std::max_element(keys.begin(), keys.end());
    if (worst != keys.end() && *worst >= table.spec().rows)
      return Fail(ErrorCode::kInvalidArgument, "table '" + table.spec().name + "' has the rows 0.." +
                                                   std::to_string(table.spec().rows - 1) + ", but a key is " +
                                                   std::to_string(*worst));
  }
  auto planner = BorrowPlanner();
  auto plan = std::make_shared<Plan>();
  planner->Make(table.id(), table.dim(), table.positioner(), keys, plan.get());
  const std::lock_guard lock(mutex_);
  planners_.push_back(std::move(planner));
  return plan;
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Client::~Client() = default;

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

// ZeroMQ aborts the process where it has no file for itself, and waits for ever where it has none for a connection.
Expected<Client> Client::ConnectOverZmq(ConnectOptions options) {
  TARN_RETURN_IF_ERROR(CheckOptions(options));
  const std::uint64_t open_before = OpenFiles();
  TARN_RETURN_IF_ERROR(CheckFiles(FleetOfRun(options.scheduler).value_or(FleetSection{}), open_before));
  auto context = std::make_unique<net::ZmqContext>(net::ZmqContextOptions{.io_threads = options.io_threads});
  TARN_RETURN_IF_ERROR(context->SecureFromFile(options.keys));
  net::ZmqTransportOptions transport_options;
  auto scheduler = net::SchedulerEndpoint(options.scheduler, options.timeout_seconds);
  if (!scheduler) return std::unexpected(scheduler.error());
  options.scheduler = *std::move(scheduler);
  transport_options.insecure = options.insecure;
  transport_options.shm = options.shm;
  transport_options.lend_payloads = true;
  auto transport = std::make_unique<net::ZmqTransport>(context.get(), transport_options);
  auto client = Join(std::make_unique<Impl>(std::move(options), std::move(context), std::move(transport)));
  if (!client) return client;
  TARN_RETURN_IF_ERROR(CheckFiles(client->impl_->fleet, open_before));  // of an endpoint nobody knew it before
  return client;
}

Expected<Client> Client::Connect(ConnectOptions options, std::unique_ptr<net::Transport> transport) {
  TARN_RETURN_IF_ERROR(CheckOptions(options));
  return Join(std::make_unique<Impl>(std::move(options), nullptr, std::move(transport)));
}

Expected<Client> Client::Join(std::unique_ptr<Impl> impl) {
  TARN_RETURN_IF_ERROR(impl->Join());
  return Client(std::move(impl));
}

Expected<Table> Client::OpenTable(const std::string& name) {
  auto result = NewResult();
  impl_->loop.FindTable(name, result);
  if (Status status = result->WaitFor(impl_->options.timeout_seconds); !status) {
    if (status.error().code != ErrorCode::kTimeout) return std::unexpected(status.error());
    return Fail(ErrorCode::kTimeout, "table '" + name + "': nobody has created it");
  }
  return impl_->MakeTable(result->table);
}

Expected<Table> Client::OpenTable(const TableSpec& spec) {
  TARN_RETURN_IF_ERROR(Validate(spec));
  auto result = NewResult();
  impl_->loop.CreateTable(spec, result);
  TARN_RETURN_IF_ERROR(result->Wait());
  // The scheduler has refused another shape; rules and codecs are the job's, whatever was asked for.
  return impl_->MakeTable(result->table);
}

RowsFuture Client::Pull(const Table& table, std::span<const Key> keys, int priority) {
  auto plan = MakePlan(table, keys);
  if (!plan) return RowsFuture(Failed(plan.error()));
  auto result = NewResult();
  result->expand_by = *plan;
  impl_->loop.Pull(*plan, {}, priority, result);
  return RowsFuture(std::move(result));
}

Status Client::Prefetch(const Table& table, std::span<const Key> keys) {
  auto plan = MakePlan(table, keys);
  if (!plan) return std::unexpected(plan.error());
  impl_->loop.Prefetch(*std::move(plan));
  return {};
}

StatusFuture Client::Push(const Table& table, std::span<const Key> keys, std::span<const float> gradients) {
  if (Status sizes = CheckSizes(table, keys.size(), gradients.size()); !sizes)
    return StatusFuture(Failed(sizes.error()));
  auto plan = MakePlan(table, keys);
  if (!plan) return StatusFuture(Failed(plan.error()));
  Buffer sums = Buffer::Allocate((*plan)->keys.size() * table.dim() * sizeof(float));
  SumDuplicates(**plan, table.dim(), gradients.data(), sums.as_mutable<float>().data());
  if (Status finite = CheckFinite(table.spec().name, **plan, sums.as<float>()); !finite)
    return StatusFuture(Failed(finite.error()));
  auto result = NewResult();
  impl_->loop.Push(*plan, std::move(sums), {}, result);
  return StatusFuture(std::move(result));
}

Client::PushPullFutures Client::PushPull(const Table& table, std::span<const Key> keys,
                                         std::span<const float> gradients, const worker::MaybePosition& position) {
  const auto fail = [](const Error& error) {
    return PushPullFutures{StatusFuture(Failed(error)), RowsFuture(Failed(error))};
  };
  if (Status sizes = CheckSizes(table, keys.size(), gradients.size()); !sizes) return fail(sizes.error());
  auto plan = MakePlan(table, keys);
  if (!plan) return fail(plan.error());
  Buffer sums = Buffer::Allocate((*plan)->keys.size() * table.dim() * sizeof(float));
  SumDuplicates(**plan, table.dim(), gradients.data(), sums.as_mutable<float>().data());
  if (Status finite = CheckFinite(table.spec().name, **plan, sums.as<float>()); !finite) return fail(finite.error());
  auto pushed = NewResult();
  auto pulled = NewResult();
  pulled->expand_by = *plan;
  impl_->loop.PushPull(*plan, std::move(sums), position, pushed, pulled);
  return {StatusFuture(std::move(pushed)), RowsFuture(std::move(pulled))};
}

StatusFuture Client::Tick(const worker::MaybePosition& position) {
  auto result = NewResult();
  impl_->loop.TickTo({}, position, result);
  return StatusFuture(std::move(result));
}

StatusFuture Client::TickTo(Clock clock, const worker::MaybePosition& position) {
  auto result = NewResult();
  impl_->loop.TickTo(clock, position, result);
  return StatusFuture(std::move(result));
}

Status Client::Barrier() {
  auto result = NewResult();
  impl_->loop.Barrier(result);
  return result->Wait();
}

Status Client::Leave() { return impl_->Leave(std::nullopt); }

Clock Client::clock() const { return impl_->loop.clock(); }
std::uint32_t Client::rank() const { return impl_->loop.welcome().rank; }
const std::string& Client::job_text() const { return impl_->loop.welcome().job_text; }
worker::Client::Counters Client::counters() const { return impl_->loop.counters(); }
std::vector<std::uint64_t> Client::staleness() const { return impl_->loop.staleness(); }

Expected<Client::PlanPtr> Client::MakePlan(const Table& table, std::span<const Key> keys) {
  return impl_->MakePlan(table, keys);
}

RowsFuture Client::Pull(PlanPtr plan, Clock use_clock, int priority) {
  auto result = NewResult();
  impl_->loop.Pull(std::move(plan), use_clock, priority, result);
  return RowsFuture(std::move(result));
}

StatusFuture Client::Push(PlanPtr plan, Buffer gradients, Clock pulled_clock) {
  const std::size_t expected = plan->keys.size() * plan->dim * sizeof(float);
  if (gradients.size() != expected)
    return StatusFuture(Failed(
        {ErrorCode::kInvalidArgument,
         std::to_string(gradients.size()) + " bytes of gradients for a plan, expected " + std::to_string(expected)}));
  if (Status finite = CheckFinite(impl_->NameOf(plan->table), *plan, gradients.as<float>()); !finite)
    return StatusFuture(Failed(finite.error()));
  auto result = NewResult();
  impl_->loop.Push(std::move(plan), std::move(gradients), pulled_clock, result);
  return StatusFuture(std::move(result));
}

Expected<LeaseReply> Client::RequestLeases(LeaseRequest request) {
  auto result = NewResult();
  impl_->loop.RequestLeases(std::move(request), result);
  TARN_RETURN_IF_ERROR(result->Wait());
  return result->leases;
}

}  // namespace tarn
