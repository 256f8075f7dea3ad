#include "worker/tarn_c.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/job/job.h"
#include "core/job/table_text.h"
#include "worker/tarn.h"

struct tarn_client {
  tarn::Client client;
  std::mutex mutex;
  tarn::Buffer saved;  // the bytes that tarn_saved_state has returned; guarded by `mutex`
};
struct tarn_table {
  tarn::Table table;
};
struct tarn_plan {
  tarn::Plan plan;
};
struct tarn_future {
  std::variant<tarn::RowsFuture, tarn::StatusFuture> future;
};

// Pointers are compared with null, whatever they point to.
// NOLINTBEGIN(bugprone-multi-level-implicit-pointer-conversion)

namespace {

using tarn::ErrorCode;

static_assert(TARN_INVALID_ARGUMENT == int(ErrorCode::kInvalidArgument) &&
              TARN_ALREADY_EXISTS == int(ErrorCode::kAlreadyExists) && TARN_FENCED == int(ErrorCode::kFenced) &&
              TARN_UNAVAILABLE == int(ErrorCode::kUnavailable) && TARN_TIMEOUT == int(ErrorCode::kTimeout) &&
              TARN_CANCELLED == int(ErrorCode::kCancelled));

std::string& LastError() {
  thread_local std::string text;
  return text;
}

int Failed(const tarn::Error& error) {
  LastError() = tarn::ToString(error);
  return int(error.code);
}

int Outcome(const tarn::Status& status) { return status ? TARN_OK : Failed(status.error()); }

// Returns the result of `call`; converts exceptions to codes.
template <typename Call>
int Guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    LastError() = "no memory";  // short enough to need no allocation
    return TARN_NO_MEMORY;
  } catch (const std::exception& e) {
    return Failed({ErrorCode::kInternal, e.what()});
  }
}

// A required pointer argument and its name in the header.
struct Required {
  const char* name;
  const void* pointer;
};

tarn::Status CheckRequired(const char* function, std::initializer_list<Required> all) {
  for (const Required& each : all)
    if (each.pointer == nullptr)
      return tarn::Fail(ErrorCode::kInvalidArgument, std::string(function) + ": " + each.name + " is a null pointer");
  return {};
}

// The same for pointers in element `index` of the argument `array`.
tarn::Status CheckElement(const char* function, const char* array, std::ptrdiff_t index,
                          std::initializer_list<Required> all) {
  for (const Required& each : all)
    if (each.pointer == nullptr)
      return tarn::Fail(
          ErrorCode::kInvalidArgument,
          std::string(function) + ": " + array + "[" + std::to_string(index) + "]." + each.name + " is a null pointer");
  return {};
}

// Like Guarded, after a check that none of the pointers is null.
template <typename Call>
int GuardedWith(const char* function, std::initializer_list<Required> all, const Call& call) noexcept {
  return Guarded([&] {
    const auto given = CheckRequired(function, all);
    return given ? call() : Failed(given.error());
  });
}

// An array of n elements; may be null if n is 0.
Required Array(const char* name, const void* pointer, size_t n) { return {name, n == 0 ? "" : pointer}; }

tarn::Status CheckLimit(const tarn::Table& table, std::span<const uint64_t> keys, uint64_t limit) {
  if (limit == 0 || keys.empty()) return {};
  const uint64_t most = *std::ranges::max_element(keys);
  if (most < limit) return {};
  return tarn::Fail(ErrorCode::kInvalidArgument, "table '" + table.spec().name + "': key " + std::to_string(most) +
                                                     ", expected below " + std::to_string(limit));
}

// Stores the value as a new handle in *out, or returns its error.
template <typename Handle, typename Value>
int StoreHandle(tarn::Expected<Value> value, Handle** out) {
  if (!value) return Failed(value.error());
  *out = new Handle{*std::move(value)};
  return TARN_OK;
}

// Checks that `size` of the options matches this header.
template <typename Options>
tarn::Status CheckOptions(const char* name, const Options* options) {
  if (options == nullptr || options->size == sizeof(Options)) return {};
  return tarn::Fail(ErrorCode::kInvalidArgument, std::string(name) + ".size is " + std::to_string(options->size) +
                                                     ", expected " + std::to_string(sizeof(Options)));
}

template <typename Future>
int StoreFuture(Future future, tarn_future** out) {
  if (out != nullptr) *out = new tarn_future{std::move(future)};
  return TARN_OK;
}

tarn::ConnectOptions Options(const char* scheduler, const tarn_options& given) {
  tarn::ConnectOptions options;
  options.scheduler = scheduler;
  if (given.keys != nullptr) options.keys = given.keys;
  if (given.timeout_seconds != 0) options.timeout_seconds = given.timeout_seconds;
  if (given.rank_plus_1 != 0) options.rank = given.rank_plus_1 - 1;
  options.insecure = given.insecure != 0;
  options.shm = given.no_shm == 0;
  return options;
}

std::span<float> Memory(float* out, std::size_t floats) {
  return out == nullptr ? std::span<float>() : std::span(out, floats);
}

// `out` of the options, if any, has rows x dim floats.
tarn::PullOptions Options(const tarn_pull_options* given, std::size_t rows, std::size_t dim) {
  tarn::PullOptions options;
  if (given == nullptr) return options;
  options.out = Memory(given->out, rows * dim);
  options.priority = given->priority;
  if (given->use_clock_plus_1 != 0) options.use_clock = tarn::Clock(given->use_clock_plus_1 - 1);
  return options;
}

// Stores the future of a push or a tick. Returns an error of the arguments directly, because a caller without a future
// would not see it.
int StoreChecked(tarn::StatusFuture outcome, tarn_future** future) {
  if (outcome.Ready())
    if (const auto done = outcome.Wait(); !done && done.error().code == ErrorCode::kInvalidArgument)
      return Failed(done.error());
  return StoreFuture(std::move(outcome), future);
}

// The number of floats in the rows of a plan.
std::size_t Floats(const tarn::Plan& plan) { return plan.keys().size() * plan.table().dim(); }

tarn::PushOptions PushedFor(uint64_t pulled_clock_plus_1) {
  tarn::PushOptions options;
  if (pulled_clock_plus_1 != 0) options.pulled_clock = tarn::Clock(pulled_clock_plus_1 - 1);
  return options;
}

// The gradients of a plan: copied, or shared until they are released.
tarn::Buffer Gradients(const float* gradients, std::size_t floats, const std::shared_ptr<void>& held) {
  const std::size_t bytes = floats * sizeof(float);
  if (held == nullptr || bytes == 0) return tarn::Buffer::Copy(gradients, bytes);
  // Pushed buffers are never written to.
  auto* const first = const_cast<float*>(gradients);
  return tarn::Buffer::Hold(reinterpret_cast<std::byte*>(first), bytes, held);
}

int Rows(const char* function, const tarn_future* future, size_t which, double seconds, const float** rows,
         uint64_t* staleness) {
  return GuardedWith(function, {{"future", future}, {"rows", rows}}, [&] {
    const auto* pull = std::get_if<tarn::RowsFuture>(&future->future);
    if (pull == nullptr)
      return Failed({ErrorCode::kInvalidArgument, std::string(function) + ": only the future of a pull has rows"});
    const auto values = pull->WaitFor(seconds, which);
    if (!values) return Failed(values.error());
    *rows = values->data();
    if (staleness != nullptr) *staleness = pull->staleness(which);
    return int(TARN_OK);
  });
}

tarn::Quality QualityOf(const tarn_lease_report& report) {
  tarn::Quality quality;
  if (report.logits != nullptr) {
    tarn::QualityTally tally;
    for (std::uint64_t i = 0; i < report.rows; ++i) tally.AddBinary(report.logits[i], report.positives[i] != 0);
    quality = tally.Take();
  } else {
    quality.rows = report.rows;
    quality.correct = report.correct;
  }
  quality.loss_sum = report.loss_sum;
  return quality;
}

tarn_lease LeaseOf(const tarn::Lease& lease) {
  using Purpose = tarn::Lease::Purpose;
  static_assert(TARN_TRAIN == int(Purpose::kTrain) && TARN_VALIDATE == int(Purpose::kValidate) &&
                TARN_TEST == int(Purpose::kTest));
  return {lease.id.value, int(lease.purpose), lease.epoch,     lease.first_row,
          lease.rows,     lease.skip_rows,    lease.batch_rows};
}

}  // namespace

uint32_t tarn_c_version() { return TARN_C_VERSION; }
const char* tarn_last_error() { return LastError().c_str(); }

int tarn_connect(const char* scheduler, const tarn_options* options, tarn_client** client) {
  return GuardedWith("tarn_connect", {{"scheduler", scheduler}, {"client", client}}, [&] {
    if (const auto fits = CheckOptions("tarn_options", options); !fits) return Failed(fits.error());
    return StoreHandle(tarn::Client::Connect(Options(scheduler, options != nullptr ? *options : tarn_options{})),
                       client);
  });
}

int tarn_leave(tarn_client* client) {
  return GuardedWith("tarn_leave", {{"client", client}}, [&] { return Outcome(client->client.Leave()); });
}
void tarn_cancel(tarn_client* client) {
  if (client != nullptr) client->client.Cancel();
}
void tarn_close(tarn_client* client) { delete client; }

uint32_t tarn_rank(const tarn_client* client) { return client == nullptr ? 0 : client->client.rank(); }
uint64_t tarn_clock(const tarn_client* client) { return client == nullptr ? 0 : client->client.clock().value; }
const char* tarn_job_text(const tarn_client* client) {
  return client == nullptr ? "" : client->client.job_text().c_str();
}

int tarn_open_table(tarn_client* client, const char* name, tarn_table** table) {
  return GuardedWith("tarn_open_table", {{"client", client}, {"name", name}, {"table", table}},
                     [&] { return StoreHandle(client->client.OpenTable(std::string(name)), table); });
}
int tarn_create_table(tarn_client* client, const char* name, const char* description, tarn_table** table) {
  return GuardedWith("tarn_create_table",
                     {{"client", client}, {"name", name}, {"description", description}, {"table", table}}, [&] {
                       const auto job = tarn::ParseJob(client->client.job_text(), "the scheduler's job", "/");
                       if (!job) return Failed(job.error());
                       const auto spec = tarn::ParseTable(name, description, *job);
                       return spec ? StoreHandle(client->client.OpenTable(*spec), table) : Failed(spec.error());
                     });
}
uint32_t tarn_table_dim(const tarn_table* table) { return table == nullptr ? 0 : table->table.dim(); }
uint64_t tarn_table_rows(const tarn_table* table) { return table == nullptr ? 0 : table->table.spec().rows; }
void tarn_table_free(tarn_table* table) { delete table; }

int tarn_pull(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
              const tarn_pull_options* options, tarn_future** future) {
  return GuardedWith("tarn_pull", {{"client", client}, {"table", table}, Array("keys", keys, n), {"future", future}},
                     [&] {
                       if (const auto fits = CheckOptions("tarn_pull_options", options); !fits)
                         return Failed(fits.error());
                       const auto how = Options(options, n, table->table.dim());
                       return StoreFuture(client->client.Pull(table->table, {keys, n}, how), future);
                     });
}

int tarn_pull_many(tarn_client* client, const tarn_table_pull* pulls, size_t count, const tarn_pull_options* options,
                   tarn_future** future) {
  return GuardedWith("tarn_pull_many", {{"client", client}, Array("pulls", pulls, count), {"future", future}}, [&] {
    if (const auto fits = CheckOptions("tarn_pull_options", options); !fits) return Failed(fits.error());
    std::vector<tarn::TablePull> tables;
    for (const tarn_table_pull& pull : std::span(pulls, count)) {
      if (const auto given = CheckElement("tarn_pull_many", "pulls", &pull - pulls,
                                          {{"table", pull.table}, Array("keys", pull.keys, pull.n)});
          !given)
        return Failed(given.error());
      const tarn::Table& table = pull.table->table;
      tables.push_back({table, {pull.keys, pull.n}, Memory(pull.out, pull.n * table.dim())});
    }
    return StoreFuture(client->client.PullMany(tables, Options(options, 0, 0)), future);
  });
}

int tarn_prefetch(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n) {
  return GuardedWith("tarn_prefetch", {{"client", client}, {"table", table}, Array("keys", keys, n)},
                     [&] { return Outcome(client->client.Prefetch(table->table, {keys, n})); });
}

int tarn_push(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, const float* gradients,
              tarn_future** future) {
  return GuardedWith("tarn_push",
                     {{"client", client}, {"table", table}, Array("keys", keys, n), Array("gradients", gradients, n)},
                     [&] {
                       const std::span values(gradients, n * table->table.dim());
                       return StoreChecked(client->client.Push(table->table, {keys, n}, values), future);
                     });
}

int tarn_assign(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, const float* values,
                tarn_future** future) {
  return GuardedWith("tarn_assign",
                     {{"client", client}, {"table", table}, Array("keys", keys, n), Array("values", values, n)}, [&] {
                       const std::span rows(values, n * table->table.dim());
                       return StoreChecked(client->client.Assign(table->table, {keys, n}, rows), future);
                     });
}

int tarn_delete(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, tarn_future** future) {
  return GuardedWith("tarn_delete", {{"client", client}, {"table", table}, Array("keys", keys, n)},
                     [&] { return StoreChecked(client->client.Delete(table->table, {keys, n}), future); });
}

int tarn_push_many(tarn_client* client, const tarn_table_push* pushes, size_t count, tarn_future** future) {
  return GuardedWith("tarn_push_many", {{"client", client}, Array("pushes", pushes, count)}, [&] {
    std::vector<tarn::TablePush> tables;
    for (const tarn_table_push& push : std::span(pushes, count)) {
      if (const auto given = CheckElement(
              "tarn_push_many", "pushes", &push - pushes,
              {{"table", push.table}, Array("keys", push.keys, push.n), Array("gradients", push.gradients, push.n)});
          !given)
        return Failed(given.error());
      const tarn::Table& table = push.table->table;
      tables.push_back({table, {push.keys, push.n}, {push.gradients, push.n * table.dim()}});
    }
    return StoreChecked(client->client.PushMany(tables), future);
  });
}

int tarn_plan_make(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, tarn_plan** plan) {
  return GuardedWith("tarn_plan_make", {{"client", client}, {"table", table}, Array("keys", keys, n), {"plan", plan}},
                     [&] { return StoreHandle(client->client.MakePlan(table->table, {keys, n}), plan); });
}

int tarn_plan_make_many(tarn_client* client, const tarn_plan_request* requests, size_t count, tarn_plan** plans,
                        size_t* sizes, int64_t* index) {
  constexpr const char* kName = "tarn_plan_make_many";
  const Required requested = Array("requests", requests, count), made_at = Array("plans", plans, count);
  return GuardedWith(kName, {{"client", client}, requested, made_at, Array("sizes", sizes, count)}, [&] {
    std::vector<std::unique_ptr<tarn_plan>> made;
    for (const tarn_plan_request& request : std::span(requests, count)) {
      if (const auto given = CheckElement(kName, "requests", &request - requests,
                                          {{"table", request.table}, Array("keys", request.keys, request.n)});
          !given)
        return Failed(given.error());
      const std::span keys(request.keys, request.n);
      if (const auto below = CheckLimit(request.table->table, keys, request.limit); !below)
        return Failed(below.error());
      auto plan = client->client.MakePlan(request.table->table, keys);
      if (!plan) return Failed(plan.error());
      made.push_back(std::make_unique<tarn_plan>(*std::move(plan)));
    }
    for (size_t i = 0; i < count; ++i) {
      const tarn::Plan& plan = made[i]->plan;
      sizes[i] = plan.keys().size();
      if (index != nullptr) index = std::ranges::copy(plan.index(), index).out;
      plans[i] = made[i].release();
    }
    return int{TARN_OK};
  });
}

size_t tarn_plan_size(const tarn_plan* plan) { return plan == nullptr ? 0 : plan->plan.keys().size(); }
const uint64_t* tarn_plan_keys(const tarn_plan* plan) { return plan == nullptr ? nullptr : plan->plan.keys().data(); }
const uint32_t* tarn_plan_index(const tarn_plan* plan) { return plan == nullptr ? nullptr : plan->plan.index().data(); }
void tarn_plan_free(tarn_plan* plan) { delete plan; }

int tarn_pull_plan(tarn_client* client, const tarn_plan* plan, const tarn_pull_options* options, tarn_future** future) {
  return GuardedWith("tarn_pull_plan", {{"client", client}, {"plan", plan}, {"future", future}}, [&] {
    if (const auto fits = CheckOptions("tarn_pull_options", options); !fits) return Failed(fits.error());
    const auto how = Options(options, plan->plan.keys().size(), plan->plan.table().dim());
    return StoreFuture(client->client.Pull(plan->plan, how), future);
  });
}

int tarn_push_plan(tarn_client* client, const tarn_plan* plan, const float* gradients, void (*release)(void* context),
                   void* context, uint64_t pulled_clock_plus_1, tarn_future** future) {
  return Guarded([&] {
    std::shared_ptr<void> held;  // released on every path
    if (release != nullptr) held = std::shared_ptr<void>(context, [release](void* of) { release(of); });
    if (const auto given =
            CheckRequired("tarn_push_plan",
                          {{"client", client}, {"plan", plan}, Array("gradients", gradients, tarn_plan_size(plan))});
        !given)
      return Failed(given.error());
    tarn::Buffer values = Gradients(gradients, Floats(plan->plan), held);
    return StoreChecked(client->client.Push(plan->plan, std::move(values), PushedFor(pulled_clock_plus_1)), future);
  });
}

int tarn_pull_plans(tarn_client* client, const tarn_plan_pull* pulls, size_t count, const tarn_pull_options* options,
                    tarn_future** future) {
  return GuardedWith("tarn_pull_plans", {{"client", client}, Array("pulls", pulls, count), {"future", future}}, [&] {
    if (const auto fits = CheckOptions("tarn_pull_options", options); !fits) return Failed(fits.error());
    std::vector<tarn::PlanPull> plans;
    for (const tarn_plan_pull& pull : std::span(pulls, count)) {
      if (const auto given = CheckElement("tarn_pull_plans", "pulls", &pull - pulls, {{"plan", pull.plan}}); !given)
        return Failed(given.error());
      plans.push_back({pull.plan->plan, Memory(pull.out, Floats(pull.plan->plan))});
    }
    return StoreFuture(client->client.PullPlans(plans, Options(options, 0, 0)), future);
  });
}

int tarn_push_plans(tarn_client* client, const tarn_plan_push* pushes, size_t count, uint64_t pulled_clock_plus_1,
                    tarn_future** future) {
  return GuardedWith("tarn_push_plans", {{"client", client}, Array("pushes", pushes, count)}, [&] {
    std::vector<tarn::PlanPush> plans;
    for (const tarn_plan_push& push : std::span(pushes, count)) {
      const Required gradients = Array("gradients", push.gradients, tarn_plan_size(push.plan));
      if (const auto given =
              CheckElement("tarn_push_plans", "pushes", &push - pushes, {{"plan", push.plan}, gradients});
          !given)
        return Failed(given.error());
      plans.push_back({push.plan->plan, Gradients(push.gradients, Floats(push.plan->plan), nullptr)});
    }
    return StoreChecked(client->client.PushPlans(plans, PushedFor(pulled_clock_plus_1)), future);
  });
}

int tarn_tick(tarn_client* client, tarn_future** future) {
  return GuardedWith("tarn_tick", {{"client", client}}, [&] { return StoreFuture(client->client.Tick(), future); });
}
int tarn_tick_at(tarn_client* client, uint64_t lease, uint64_t rows, tarn_future** future) {
  return GuardedWith("tarn_tick_at", {{"client", client}}, [&] {
    return StoreFuture(client->client.Tick(tarn::LeasePosition{tarn::LeaseId(lease), rows}), future);
  });
}
int tarn_tick_to(tarn_client* client, uint64_t clock, tarn_future** future) {
  return GuardedWith("tarn_tick_to", {{"client", client}},
                     [&] { return StoreChecked(client->client.TickTo(tarn::Clock(clock)), future); });
}
int tarn_ended(tarn_client* client) {
  return GuardedWith("tarn_ended", {{"client", client}}, [&] { return Outcome(client->client.Ended()); });
}
int tarn_barrier(tarn_client* client) {
  return GuardedWith("tarn_barrier", {{"client", client}}, [&] { return Outcome(client->client.Barrier()); });
}

int tarn_request_checkpoint(tarn_client* client, tarn_future** future) {
  return GuardedWith("tarn_request_checkpoint", {{"client", client}, {"future", future}},
                     [&] { return StoreFuture(client->client.RequestCheckpoint(), future); });
}

int tarn_keep_state(tarn_client* client, int (*save)(void*, const void**, size_t*), void* context) {
  return GuardedWith("tarn_keep_state", {{"client", client}, {"save", reinterpret_cast<const void*>(save)}}, [&] {
    client->client.KeepState([save, context]() -> tarn::Expected<tarn::Buffer> {
      const void* bytes = nullptr;
      size_t n = 0;
      if (const int code = save(context, &bytes, &n); code != 0)
        return tarn::Fail(ErrorCode::kInternal,
                          "the function given to tarn_keep_state returned " + std::to_string(code) + ", expected 0");
      auto* lent = const_cast<std::byte*>(static_cast<const std::byte*>(bytes));
      return tarn::Buffer::Hold(lent, n, nullptr);  // the client encodes it before the calling function returns
    });
    return int(TARN_OK);
  });
}

int tarn_save_state(tarn_client* client) {
  return GuardedWith("tarn_save_state", {{"client", client}}, [&] {
    client->client.SaveState();
    return int(TARN_OK);
  });
}

int tarn_saved_state(tarn_client* client, uint32_t rank, const void** bytes, size_t* n) {
  return GuardedWith("tarn_saved_state", {{"client", client}, {"bytes", bytes}, {"n", n}}, [&] {
    auto state = client->client.SavedState(rank);
    if (!state) return Failed(state.error());
    const std::lock_guard lock(client->mutex);
    client->saved = *std::move(state);
    *bytes = client->saved.data();
    *n = client->saved.size();
    return int(TARN_OK);
  });
}

int tarn_report(tarn_client* client, const char* const* names, const double* values, size_t n) {
  return GuardedWith("tarn_report", {{"client", client}, Array("names", names, n), Array("values", values, n)}, [&] {
    std::vector<std::pair<std::string, double>> figures;
    figures.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      const std::string name = "names[" + std::to_string(i) + "]";
      if (const auto given = CheckRequired("tarn_report", {{name.c_str(), names[i]}}); !given)
        return Failed(given.error());
      figures.emplace_back(names[i], values[i]);
    }
    return Outcome(client->client.Report(figures));
  });
}

int tarn_request_leases(tarn_client* client, const uint64_t data_rows[3], const tarn_lease_report* done,
                        size_t done_count, tarn_lease* leases, size_t want, tarn_lease_answer* answer) {
  return GuardedWith(
      "tarn_request_leases",
      {{"client", client},
       {"data_rows", data_rows},
       Array("done", done, done_count),
       Array("leases", leases, want),
       {"answer", answer}},
      [&] {
        tarn::LeaseOptions options;
        options.want = static_cast<uint32_t>(std::min<size_t>(want, UINT32_MAX));
        std::copy_n(data_rows, 3, options.rows.begin());
        for (const tarn_lease_report& report : std::span(done, done_count)) {
          if (report.logits != nullptr && report.rows != 0)
            if (const auto given =
                    CheckElement("tarn_request_leases", "done", &report - done, {{"positives", report.positives}});
                !given)
              return Failed(given.error());
          options.done.push_back({tarn::LeaseId(report.lease), QualityOf(report)});
        }
        const auto reply = client->client.RequestLeases(options);
        if (!reply) return Failed(reply.error());
        const size_t granted = std::min(want, reply->granted.size());
        std::transform(reply->granted.begin(), reply->granted.begin() + std::ptrdiff_t(granted), leases, LeaseOf);
        *answer = {granted, reply->finished ? 1 : 0, reply->tick_to ? reply->tick_to->value : 0};
        return int(TARN_OK);
      });
}

int tarn_ready(const tarn_future* future) {
  if (future == nullptr) return 0;
  return std::visit([](const auto& each) { return each.Ready(); }, future->future) ? 1 : 0;
}
int tarn_wait(const tarn_future* future, double seconds) {
  return GuardedWith("tarn_wait", {{"future", future}}, [&] {
    return std::visit(
        [&](const auto& each) {
          const auto done = each.WaitFor(seconds);
          return done ? int(TARN_OK) : Failed(done.error());
        },
        future->future);
  });
}
int tarn_rows(const tarn_future* future, double seconds, const float** rows, uint64_t* staleness) {
  return Rows("tarn_rows", future, 0, seconds, rows, staleness);
}
int tarn_rows_of(const tarn_future* future, size_t which, double seconds, const float** rows, uint64_t* staleness) {
  return Rows("tarn_rows_of", future, which, seconds, rows, staleness);
}
void tarn_future_free(tarn_future* future) { delete future; }

// NOLINTEND(bugprone-multi-level-implicit-pointer-conversion)
