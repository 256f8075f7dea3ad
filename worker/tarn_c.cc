#include "worker/tarn_c.h"

#include <initializer_list>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/job/table_text.h"
#include "worker/tarn.h"

struct tarn_client {
  tarn::Client client;
};
struct tarn_table {
  tarn::Table table;
};
struct tarn_future {
  std::variant<tarn::RowsFuture, tarn::StatusFuture> future;
};

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

// What `call` returns, with every exception as a code.
template <typename Call>
int Guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    LastError() = "no memory";  // short enough to need none
    return TARN_NO_MEMORY;
  } catch (const std::exception& e) {
    return Failed({ErrorCode::kInternal, e.what()});
  }
}

// One pointer that a function needs, with its name in the header.
struct Needed {
  const char* name;
  const void* pointer;
};

// As Guarded, once none of the pointers is null.
template <typename Call>
int GuardedWith(const char* function, std::initializer_list<Needed> all, const Call& call) noexcept {
  return Guarded([&] {
    for (const Needed& each : all)
      if (each.pointer == nullptr)
        return Failed({ErrorCode::kInvalidArgument, std::string(function) + ": " + each.name + " is a null pointer"});
    return call();
  });
}

// An array of n elements; of none it may be null.
Needed Array(const char* name, const void* pointer, size_t n) { return {name, n == 0 ? "" : pointer}; }

template <typename Handle, typename Value>
int Give(tarn::Expected<Value> value, Handle** out) {
  if (!value) return Failed(value.error());
  *out = new Handle{*std::move(value)};
  return TARN_OK;
}

template <typename Future>
int GiveFuture(Future future, tarn_future** out) {
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

}  // namespace

uint32_t tarn_c_version() { return TARN_C_VERSION; }
const char* tarn_last_error() { return LastError().c_str(); }

int tarn_connect(const char* scheduler, const tarn_options* options, tarn_client** client) {
  return GuardedWith("tarn_connect", {{"scheduler", scheduler}, {"client", client}}, [&] {
    if (options != nullptr && options->size != sizeof(tarn_options))
      return Failed({ErrorCode::kInvalidArgument, "tarn_options.size is " + std::to_string(options->size) +
                                                      ", expected " + std::to_string(sizeof(tarn_options))});
    return Give(tarn::Client::Connect(Options(scheduler, options != nullptr ? *options : tarn_options{})), client);
  });
}

int tarn_leave(tarn_client* client) {
  return GuardedWith("tarn_leave", {{"client", client}}, [&] { return Outcome(client->client.Leave()); });
}
void tarn_close(tarn_client* client) { delete client; }

uint32_t tarn_rank(const tarn_client* client) { return client == nullptr ? 0 : client->client.rank(); }
uint64_t tarn_clock(const tarn_client* client) { return client == nullptr ? 0 : client->client.clock().value; }
const char* tarn_job_text(const tarn_client* client) {
  return client == nullptr ? "" : client->client.job_text().c_str();
}

int tarn_open_table(tarn_client* client, const char* name, tarn_table** table) {
  return GuardedWith("tarn_open_table", {{"client", client}, {"name", name}, {"table", table}},
                     [&] { return Give(client->client.OpenTable(std::string(name)), table); });
}
int tarn_create_table(tarn_client* client, const char* name, const char* description, tarn_table** table) {
  return GuardedWith("tarn_create_table",
                     {{"client", client}, {"name", name}, {"description", description}, {"table", table}}, [&] {
                       const auto spec = tarn::ParseTable(name, description);
                       return spec ? Give(client->client.OpenTable(*spec), table) : Failed(spec.error());
                     });
}
uint32_t tarn_table_dim(const tarn_table* table) { return table == nullptr ? 0 : table->table.dim(); }
uint64_t tarn_table_rows(const tarn_table* table) { return table == nullptr ? 0 : table->table.spec().rows; }
void tarn_table_free(tarn_table* table) { delete table; }

int tarn_pull(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, int priority,
              tarn_future** future) {
  return GuardedWith("tarn_pull", {{"client", client}, {"table", table}, Array("keys", keys, n), {"future", future}},
                     [&] { return GiveFuture(client->client.Pull(table->table, {keys, n}, priority), future); });
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
                       tarn::StatusFuture pushed = client->client.Push(table->table, {keys, n}, values);
                       // What is wrong with the arguments must not be missed by a caller who wants no future.
                       if (pushed.Ready())
                         if (const auto done = pushed.Wait(); !done && done.error().code == ErrorCode::kInvalidArgument)
                           return Failed(done.error());
                       return GiveFuture(std::move(pushed), future);
                     });
}
int tarn_tick(tarn_client* client, tarn_future** future) {
  return GuardedWith("tarn_tick", {{"client", client}}, [&] { return GiveFuture(client->client.Tick(), future); });
}
int tarn_barrier(tarn_client* client) {
  return GuardedWith("tarn_barrier", {{"client", client}}, [&] { return Outcome(client->client.Barrier()); });
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
  return GuardedWith("tarn_rows", {{"future", future}, {"rows", rows}}, [&] {
    const auto* pull = std::get_if<tarn::RowsFuture>(&future->future);
    if (pull == nullptr) return Failed({ErrorCode::kInvalidArgument, "tarn_rows: the future of a pull alone has rows"});
    const auto values = pull->WaitFor(seconds);
    if (!values) return Failed(values.error());
    *rows = values->data();
    if (staleness != nullptr) *staleness = pull->staleness();
    return int(TARN_OK);
  });
}
void tarn_future_free(tarn_future* future) { delete future; }
