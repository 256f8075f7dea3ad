// tarn::Client: a program's way to the parameters of a running fleet.
//
//   #include "worker/tarn.h"
//
//   auto ps = tarn::Client::Connect({.scheduler = "runs/mine"});   // std::expected, as all that may fail
//   auto users = ps->OpenTable("users");                           // dim, optimizer, ... from whoever created it
//   auto rows = ps->Pull(*users, keys);                            // a future: keys.size() x dim floats
//   ps->Push(*users, keys, gradients);                             // acknowledged in the background
//   ps->Tick();                                                    // this clock is done
//
// rows.Wait() returns the floats, one row a key, in the order of the keys. A key may occur more than once: then the
// gradients of its occurrences are summed. ps->Leave() waits until everything is acknowledged. examples/cpp/hello.cc is
// a whole program. All else in this header is an option.
//
// Threads: every function may be called from any thread; requests of one thread are carried out in the order of its
// calls. The sockets are driven by a thread of the client, or by a caller that waits for a future. Futures may be
// copied, outlive the client, and be waited for by any thread; dropping one drops only the answer.
//
// Errors: kInvalidArgument (sizes that do not fit, a dense key that is too large), kFenced (the fleet has declared this
// worker dead: connect anew), kCancelled (the job is over, or the client is gone), kUnavailable (the scheduler has not
// been heard for two leases: everything under way fails, and the client has ended), kIo (likewise: there was no memory
// for a reply), kTimeout (where stated).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/quality.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "worker/counters.h"

namespace tarn {

namespace net {
class Transport;
}
namespace worker {
struct OpenTable;
struct Plan;
class PullRequest;
class Request;
class Session;
}  // namespace worker

struct ConnectOptions {
  std::string scheduler;              // the run's folder, ipc://PATH, or tcp://HOST:PORT with keys
  std::optional<std::uint32_t> rank;  // of this worker; none: the scheduler chooses
  double timeout_seconds = 60;        // for the fleet to be complete, and for OpenTable by name; may be infinite
  double wait_note_seconds = 10;      // how often Connect logs what it waits for
  std::string keys;                   // the fleet's key file (tarn-keys); empty: plain connections
  bool insecure = false;              // TCP without keys
  bool shm = true;                    // share memory with servers of this host
  int io_threads = 1;                 // of ZeroMQ: one for each two of the job's fleet.lanes
  std::size_t credit_bytes = limits::kCreditBytes;         // in flight per shard; 128 MiB at most
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;  // of gradients not acknowledged; beyond, Push blocks
  std::size_t asked_bytes_max = limits::kAskedBytesMax;    // of pulls not answered, keys and rows; beyond, they fail
};

// A table of the fleet. A handle, good for the whole run.
class Table {
 public:
  const TableSpec& spec() const;
  TableId id() const { return spec().id; }
  std::uint32_t dim() const { return spec().dim; }

 private:
  friend class Client;
  explicit Table(std::shared_ptr<const worker::OpenTable> open) : open_(std::move(open)) {}
  std::shared_ptr<const worker::OpenTable> open_;
};

// Keys of one table, prepared once for several requests: without duplicates, and grouped by shard. A handle.
class Plan {
 public:
  // Each key once, in the order in which the rows of a pull come and the gradients of a push are given.
  std::span<const Key> keys() const;
  // For each key that MakePlan was given: its place in keys().
  std::span<const std::uint32_t> index() const;
  const Table& table() const { return table_; }

 private:
  friend class Client;
  Plan(Table table, std::shared_ptr<const worker::Plan> plan) : table_(std::move(table)), plan_(std::move(plan)) {}
  Table table_;
  std::shared_ptr<const worker::Plan> plan_;
};

// Rows that were asked for.
class RowsFuture {
 public:
  explicit RowsFuture(std::shared_ptr<worker::PullRequest> request) : request_(std::move(request)) {}
  bool Ready() const;
  // Blocks. The rows, of PullMany those of its `which`-th table. They live as long as this future or a copy of it,
  // unless the pull was into memory of the caller.
  Expected<std::span<const float>> Wait(std::size_t which = 0) const;
  // Blocks for at most so long, which may be infinite; after kTimeout one may wait again.
  Expected<std::span<const float>> WaitFor(double seconds, std::size_t which = 0) const;
  // After a successful Wait: how many clocks the rows may be behind the clock they were asked for.
  std::uint64_t staleness(std::size_t which = 0) const;

 private:
  std::shared_ptr<worker::PullRequest> request_;
};

// Something that is being done.
class StatusFuture {
 public:
  explicit StatusFuture(std::shared_ptr<worker::Request> request) : request_(std::move(request)) {}
  bool Ready() const;
  Status Wait() const;
  Status WaitFor(double seconds) const;  // as RowsFuture's

 private:
  std::shared_ptr<worker::Request> request_;
};

struct PullOptions {
  // Where the rows go: exactly as many floats as there are. The memory must stay until the future is ready, or until
  // the last copy of the future is dropped: nothing is written to it afterwards. Empty: memory of the future.
  std::span<float> out;
  // Of pulls that wait for their turn (ConnectOptions::credit_bytes) those of an earlier clock go first, then those of
  // a higher priority.
  int priority = 0;
  std::optional<Clock> use_clock;  // at which the rows will be used; none: the client's clock
};

struct PushOptions {
  std::optional<Clock> pulled_clock;  // for which the rows were pulled; none: the client's clock
};

// For pulls and pushes of several tables in one call.
struct TablePull {
  Table table;
  std::span<const Key> keys;
  std::span<float> out;  // as PullOptions::out
};
struct TablePush {
  Table table;
  std::span<const Key> keys;
  std::span<const float> gradients;
};

// Where a program that reads data under leases stands: in lease `lease`, the first `rows` of its rows are trained.
struct LeasePosition {
  LeaseId lease;
  std::uint64_t rows = 0;  // counted from the lease's first row: skip_rows are among them
};
// None: where it stood before.
using MaybePosition = std::optional<LeasePosition>;

// Rows of a data set that the scheduler has given this worker to read (docs/protocol.md, rules D1 to D6).
struct Lease {
  enum class Purpose : std::uint8_t { kTrain, kValidate, kTest };
  LeaseId id;
  Purpose purpose = Purpose::kTrain;
  std::uint32_t epoch = 0;
  std::uint64_t first_row = 0, rows = 0;
  std::uint64_t skip_rows = 0;  // of them are trained already: begin behind
};
struct LeaseReport {
  LeaseId lease;    // that is done; of training: once the tick behind its last batch is acknowledged
  Quality quality;  // of its predictions, before each update
};
struct LeaseOptions {
  std::uint32_t want = 1;                  // how many leases more
  std::array<std::uint64_t, 3> rows = {};  // of the training, validation and test set, as this worker sees them
  std::vector<LeaseReport> done;           // since the last request
};
struct Leases {
  std::vector<Lease> granted;
  std::optional<Clock> tick_to;  // nothing to train now: TickTo this clock, and ask again
  bool finished = false;         // there is no more work: leave
};

class Client {
 public:
  // Joins the fleet as a worker and waits until the fleet is complete. kTimeout, with what is missing, or why the
  // scheduler refuses. While it waits it logs a warning now and then (core/log.h: to stderr, unless the program has
  // opened a log). Needs 20 open files, and 2 x fleet.lanes + 1 for each shard: raises the soft limit of this process
  // (ulimit -Sn) if it is too low for that, and fails with kInvalidArgument if the hard one is.
  static Expected<Client> Connect(ConnectOptions options);
  // The same over a transport of the caller's (tests, other networks).
  static Expected<Client> Connect(ConnectOptions options, std::unique_ptr<net::Transport> transport);

  // Leaves first, if nobody has, but waits at most 2 seconds for it.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // The table of that name, once somebody has created it; kTimeout if nobody does.
  Expected<Table> OpenTable(const std::string& name);
  // Creates it on every shard if it is not there; kAlreadyExists if another table has the name. Its consistency and
  // what [tables.NAME] says are the job's, and the id is the scheduler's, whatever `spec` has there; all else is from
  // `spec`, the optimizer too. Table::spec is the result.
  Expected<Table> OpenTable(const TableSpec& spec);

  // The rows of `keys` as they are to be used at this client's clock. Waits inside the fleet as long as the table's
  // consistency asks. An absent row has its initial values. While replies to earlier pulls are there and not waited
  // for, a pull or a push may stay here for up to 2 ms, to travel with those that follow. kOverloaded if too much was
  // asked for before and is not answered (asked_bytes_max): a pull cannot block for that, since its answer may wait for
  // a tick of this very thread. A single pull always goes.
  RowsFuture Pull(const Table& table, std::span<const Key> keys, const PullOptions& options = {});
  RowsFuture Pull(const Plan& plan, const PullOptions& options = {});
  // Rows of several tables with one future; options.out is not used.
  RowsFuture PullMany(std::span<const TablePull> pulls, const PullOptions& options = {});
  // Asks servers to bring the rows of `keys` from disk to memory (storage.memory), because they will be pulled soon. A
  // hint: not answered, and lost with a connection. kInvalidArgument as of Pull.
  Status Prefetch(const Table& table, std::span<const Key> keys);

  // gradients: keys.size() x dim, one row a key; those of the same key are summed, in order. Blocks only while
  // queued_bytes_max of gradients are not acknowledged. Ready once every shard has acknowledged. kInvalidArgument,
  // naming table and key, if a gradient (of several of one key, their sum) is infinite or NaN: then nothing of the push
  // is sent, and the clock goes on without it.
  StatusFuture Push(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                    const PushOptions& options = {});
  // gradients: fp32, plan.keys().size() x dim. Not copied, but shared until acknowledged: Buffer::Hold lends memory of
  // the caller.
  StatusFuture Push(const Plan& plan, Buffer gradients, const PushOptions& options = {});
  // Of several tables; nothing is sent if one of them is refused.
  StatusFuture PushMany(std::span<const TablePush> pushes, const PushOptions& options = {});
  // Push at this clock, tick, and pull the same rows for the next clock. A push that is refused does not tick.
  struct PushPullFutures {
    StatusFuture pushed;
    RowsFuture pulled;
  };
  PushPullFutures PushPull(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                           const MaybePosition& position = {});

  // This clock is done. Ready once every shard has the tick; there is no need to wait for it. `position`: where a
  // program that trains leases stands now. A tick never takes a position back by itself.
  StatusFuture Tick(const MaybePosition& position = {});
  // The same, ahead to `clock`; one that is not ahead is ready at once.
  StatusFuture TickTo(Clock clock, const MaybePosition& position = {});
  // Waits until every live worker of the fleet has called it as often.
  Status Barrier();
  // Waits until everything is acknowledged and the scheduler has let this worker go. Nothing works afterwards.
  Status Leave();

  Clock clock() const;  // that the next pull and push belong to
  std::uint32_t rank() const;
  const std::string& job_text() const;  // the job, as resolved TOML
  ClientCounters counters() const;
  std::vector<std::uint64_t> staleness() const;  // histogram of all pulls: bucket i holds those i clocks behind

  // For loops that pull and push the same keys, or plan ahead in another thread.
  Expected<Plan> MakePlan(const Table& table, std::span<const Key> keys);
  // Leases of data. Several threads may ask; they are answered one after the other.
  Expected<Leases> RequestLeases(const LeaseOptions& options);
  // Has the fleet write a checkpoint. Ready once it is whole, or with the reason why there is none (durability "none",
  // a full disk, ...). In bsp and ssp the workers have to tick on meanwhile, this one too.
  StatusFuture RequestCheckpoint();

 private:
  explicit Client(std::unique_ptr<worker::Session> session);
  static Expected<Client> ConnectOverZmq(ConnectOptions options);
  static Expected<Client> Join(std::unique_ptr<worker::Session> session);
  std::unique_ptr<worker::Session> session_;
};

}  // namespace tarn
