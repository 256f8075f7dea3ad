// tarn::Client: connects a program to the parameters of a running fleet.
//
//   #include "worker/tarn.h"
//
//   auto ps = tarn::Client::Connect({.scheduler = "runs/mine"});   // std::expected: a client, or an error
//   auto users = ps->OpenTable("users");                           // dim, optimizer, ... were set by its creator
//   auto rows = ps->Pull(*users, keys);                            // a future: keys.size() x dim floats
//   ps->Push(*users, keys, gradients);                             // acknowledged in the background
//   ps->Tick();                                                    // this clock is done
//
// rows.Wait() returns the floats, one row per key, in the order of the keys. Keys may repeat; the gradients of a
// repeated key are summed. ps->Leave() waits until everything is acknowledged. examples/cpp/hello.cc is a complete
// program. Everything else in this header is optional.
//
// Threads: every function may be called from any thread; requests of one thread are executed in the order of its calls.
// The sockets are driven by a thread of the client, or by a caller that waits for a future. No other call may be in
// progress while the client is destroyed or moved. Futures may be copied, outlive the client, and be waited for by any
// thread; destroying one does not cancel its request.
//
// Errors: kInvalidArgument (sizes that do not match, a dense key that is too large), kTooLarge (2^31 or more keys in a
// request), kFenced (the fleet has declared this worker dead: connect again), kCancelled (the job or the client has
// ended), kUnavailable (no message from the scheduler for 2 x lease_seconds: all pending requests fail, and the client
// has ended), kIo (the client ran out of memory; it has ended, too), kTimeout and kOverloaded (where stated). A request
// that a server rejects fails with the server's error; if it was a push or a tick, the client has ended. While a server
// does not answer, such as one whose address this host cannot reach, requests wait, and every 10 s the client logs a
// warning with the server, its address and what it waits for (core/log.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  std::string scheduler;              // the run directory, ipc://PATH, or tcp://HOST:PORT with keys
  std::optional<std::uint32_t> rank;  // of this worker; none: the scheduler chooses
  double timeout_seconds = 60;        // longest wait for the address of a run, for a complete fleet, and of OpenTable
                                      // by name, each; may be infinite
  double wait_note_seconds = 10;      // while Connect waits, it logs the reason at this interval
  std::string keys;                   // the fleet's key file (tarn-keys); empty: plain connections
  bool insecure = false;              // TCP without keys
  bool shm = true;                    // share memory with servers of this host
  int io_threads = 1;                 // of ZeroMQ; the job's fleet.lanes / 2, rounded up, suffices
  std::size_t credit_bytes = limits::kCreditBytes;         // in flight per shard; 128 MiB at most
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;  // of unacknowledged gradients; beyond it, Push blocks
  std::size_t asked_bytes_max = limits::kAskedBytesMax;    // keys and rows of unanswered pulls; beyond it, pulls fail
};

// A handle to a table of the fleet; valid for the whole run.
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

// Keys of one table, prepared once for several requests: without duplicates, and grouped by partition. A handle: its
// spans are valid as long as a copy of it exists.
class Plan {
 public:
  // The unique keys, in the order of a pull's rows and of a push's gradients.
  std::span<const Key> keys() const;
  // For each key passed to MakePlan: its index in keys().
  std::span<const std::uint32_t> index() const;
  const Table& table() const { return table_; }

 private:
  friend class Client;
  Plan(Table table, std::shared_ptr<const worker::Plan> plan) : table_(std::move(table)), plan_(std::move(plan)) {}
  Table table_;
  std::shared_ptr<const worker::Plan> plan_;
};

// The result of a pull.
class RowsFuture {
 public:
  explicit RowsFuture(std::shared_ptr<worker::PullRequest> request) : request_(std::move(request)) {}
  // True: the pull has ended, with its rows or an error, and Wait does not block.
  bool Ready() const;
  // Blocks until the pull has ended. Returns its error, or the rows, one per key in the order of the keys (of a plan:
  // Plan::keys); after PullMany or PullPlans those of its `which`-th table. They are valid as long as this future or a
  // copy of it exists, unless they are in memory of the caller. kInvalidArgument: the pull has no such table.
  Expected<std::span<const float>> Wait(std::size_t which = 0) const;
  // Blocks for at most `seconds`, which may be infinite; after kTimeout the caller may wait again.
  Expected<std::span<const float>> WaitFor(double seconds, std::size_t which = 0) const;
  // After a successful Wait: by how many clocks the rows may be stale, relative to the clock of the pull.
  std::uint64_t staleness(std::size_t which = 0) const;

 private:
  std::shared_ptr<worker::PullRequest> request_;
};

// The status of an operation in progress.
class StatusFuture {
 public:
  explicit StatusFuture(std::shared_ptr<worker::Request> request) : request_(std::move(request)) {}
  bool Ready() const;
  Status Wait() const;
  Status WaitFor(double seconds) const;  // see RowsFuture::WaitFor

 private:
  std::shared_ptr<worker::Request> request_;
};

struct PullOptions {
  // Memory for the rows: exactly keys.size() x dim floats (with a plan: plan.keys().size() x dim). It must remain valid
  // until the future is ready, or until the last copy of the future is dropped. Empty: the future allocates the memory.
  std::span<float> out;
  // Among pulls that wait for credit (ConnectOptions::credit_bytes) those of an earlier clock are sent first, then
  // those of a higher priority.
  int priority = 0;
  std::optional<Clock> use_clock;  // at which the rows will be used; none: the client's clock
};

struct PushOptions {
  std::optional<Clock> pulled_clock;  // PullOptions::use_clock of the pull of these rows; none: the client's clock
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

// The same with plans.
struct PlanPull {
  Plan plan;
  std::span<float> out;  // as PullOptions::out
};
struct PlanPush {
  Plan plan;
  Buffer gradients;  // see Push(plan, gradients)
};

// The position of a program that reads data under leases: the first `rows` rows of lease `lease` are trained.
struct LeasePosition {
  LeaseId lease;
  std::uint64_t rows = 0;  // counted from the lease's first row, so Lease::skip_rows are included
};
// nullopt: the position is unchanged.
using MaybePosition = std::optional<LeasePosition>;

// Rows of a data set that the scheduler has given this worker to read (docs/protocol.md, rules D1 to D6).
struct Lease {
  enum class Purpose : std::uint8_t { kTrain, kValidate, kTest };
  LeaseId id;
  Purpose purpose = Purpose::kTrain;
  std::uint32_t epoch = 0;
  std::uint64_t first_row = 0, rows = 0;
  std::uint64_t skip_rows = 0;   // the first of these rows, which are trained already: start after them
  std::uint64_t batch_rows = 1;  // of a batch, at most; the clocks of an epoch are counted in batches of this size
};
struct LeaseReport {
  LeaseId lease;    // a finished lease; of kTrain: one whose last tick is acknowledged
  Quality quality;  // of its predictions; in training, each is made before the update by its row
};
struct LeaseOptions {
  std::uint32_t want = 1;                  // the most leases to grant in the answer
  std::array<std::uint64_t, 3> rows = {};  // of the training, validation and test set, as this worker sees them
  std::vector<LeaseReport> done;           // leases finished since the last request
};
struct Leases {
  std::vector<Lease> granted;
  std::optional<Clock> tick_to;  // nothing to train now: TickTo this clock, and request again
  bool finished = false;         // there is no more work: leave
};

class Client {
 public:
  // Joins the fleet as a worker and waits until the fleet is complete. kTimeout: no scheduler answers at this address,
  // the fleet is not complete, or it already has all of its workers. If the scheduler rejects the worker, Connect fails
  // at once with the scheduler's reason, such as kWrongJob. While it waits it logs warnings (core/log.h: to stderr,
  // unless the program has opened a log). Needs 21 open files, and 2 x fleet.lanes + 2 for each shard: raises the soft
  // limit of this process (ulimit -Sn) if it is too low for that, and fails with kInvalidArgument if the hard limit is
  // too low.
  static Expected<Client> Connect(ConnectOptions options);
  // The same over the caller's transport (tests, other networks). `options.scheduler` is then an address of this
  // transport; `keys`, `insecure` and `io_threads` are not used.
  static Expected<Client> Connect(const ConnectOptions& options, std::unique_ptr<net::Transport> transport);

  // Calls Leave unless it was called before, but waits for it at most 2 seconds, and saves no state of the program.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Waits until a worker has created the table of that name; kTimeout if none does.
  Expected<Table> OpenTable(const std::string& name);
  // Creates the table on every shard unless it exists; kAlreadyExists if a different table has the name. The job
  // determines its consistency and the keys of [tables.NAME], the scheduler its id; these fields of `spec` are ignored.
  // Everything else, including the optimizer, comes from `spec`. Waits until every shard has the table; Table::spec is
  // the table as it was created. kInvalidArgument: `spec` is invalid.
  Expected<Table> OpenTable(const TableSpec& spec);

  // Pulls the rows of `keys` for use at this client's clock. The fleet answers when the table's consistency allows it.
  // An absent row has its initial values. While there are replies to earlier pulls that the program has not read, a
  // pull or a push may be delayed by up to 2 ms, to be sent with those that follow. kOverloaded if the unanswered pulls
  // exceed asked_bytes_max: a pull does not block for that, because its answer may depend on a tick of the same thread.
  // If no other pull is unanswered, a pull is always accepted.
  RowsFuture Pull(const Table& table, std::span<const Key> keys, const PullOptions& options = {});
  RowsFuture Pull(const Plan& plan, const PullOptions& options = {});
  // Rows of several tables with one future; options.out is not used.
  RowsFuture PullMany(std::span<const TablePull> pulls, const PullOptions& options = {});
  RowsFuture PullPlans(std::span<const PlanPull> pulls, const PullOptions& options = {});
  // Asks servers to bring the rows of `keys` from disk to memory (storage.memory), because they will be pulled soon. A
  // hint: not answered, lost with a connection, and not sent to a server that had no rows of the table on disk when it
  // last answered a pull. Returns the error of an invalid key or of too many keys.
  Status Prefetch(const Table& table, std::span<const Key> keys);

  // gradients: keys.size() x dim, one row per key; those of the same key are summed, in order. Blocks only while
  // queued_bytes_max of gradients are not acknowledged. Ready when every shard has acknowledged. kInvalidArgument,
  // naming table and key, if a gradient (for a repeated key, the sum) is infinite or NaN: nothing of the push is sent,
  // and the clock continues without it. Also kInvalidArgument if the optimizer needs the rows as they were pulled
  // (delay-compensated rules), and one of them was not pulled for pulled_clock or too many pulls ago. If the future of
  // an invalid push is dropped unread, a warning is logged.
  StatusFuture Push(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                    const PushOptions& options = {});
  // gradients: fp32, plan.keys().size() x dim. Not copied, but shared. Buffer::Hold lends memory of the caller until
  // its owner is released, which may be after the acknowledgement.
  StatusFuture Push(const Plan& plan, Buffer gradients, const PushOptions& options = {});
  // Pushes to several tables. Nothing is sent if the sizes, keys or gradients of one of them are invalid.
  StatusFuture PushMany(std::span<const TablePush> pushes, const PushOptions& options = {});
  StatusFuture PushPlans(std::span<const PlanPush> pushes, const PushOptions& options = {});
  // Sets rows to values, such as those of a model that was trained elsewhere. values: keys.size() x dim; of a repeated
  // key the last row counts. The optimizer's slots of an existing row remain; a new row has initial ones, and is
  // created even if the table's admission would refuse it. In an aggregated table the values are set when the clock
  // closes, after the sum of its gradients; if several workers set a row in one clock, the one of the highest rank
  // counts. Else like Push: in order with this client's pushes, repeated until acknowledged, never performed twice.
  StatusFuture Assign(const Table& table, std::span<const Key> keys, std::span<const float> values);
  // Deletes the rows of a sparse table, with their slots: from then on the keys have their initial values, as if they
  // had never been pushed. Keys without a row are ignored. Else like Assign. kInvalidArgument: the table is dense.
  StatusFuture Delete(const Table& table, std::span<const Key> keys);
  // Pushes at this clock, ticks, and pulls the same rows for the next clock. If the arguments are invalid, both futures
  // fail and it does not tick. If the pull exceeds asked_bytes_max, only the pull fails.
  struct PushPullFutures {
    StatusFuture pushed;
    RowsFuture pulled;
  };
  PushPullFutures PushPull(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                           const MaybePosition& position = {});

  // Finishes this clock. Ready when every shard has the tick; callers need not wait for it. `position`: the current
  // position of a program that trains leases. A tick without a position leaves it unchanged.
  StatusFuture Tick(const MaybePosition& position = {});
  // The same, but jumps to `clock`; ready at once if `clock` is not ahead. kInvalidArgument: more than 2^30 clocks
  // ahead.
  StatusFuture TickTo(Clock clock, const MaybePosition& position = {});
  // Waits until every live worker of the fleet has called it the same number of times.
  Status Barrier();
  // Waits until everything is acknowledged and the scheduler has confirmed. Pulls for clocks that this worker has not
  // reached fail with kCancelled. The client cannot be used afterwards; further calls of Leave return the same result.
  Status Leave();
  // Ends the client without leaving: calls in progress, in other threads, and all later ones fail with kCancelled. The
  // fleet counts it as dead after `lease_seconds`. The client must still be destroyed. Idempotent.
  void Cancel();
  // The error with which every request now fails, because the client has ended; no error before. Does not block.
  Status Ended() const;

  // The clock that the next pull and push belong to. Where the job has backup workers (consistency.backup_workers), the
  // end of a pull may advance it: the worker was late, and its push belongs to the later clock.
  Clock clock() const;
  std::uint32_t rank() const;
  const std::string& job_text() const;  // the job, as resolved TOML
  ClientCounters counters() const;
  std::vector<std::uint64_t> staleness() const;  // histogram of all pulls: bucket i counts those with staleness i

  // Removes duplicates from `keys` and groups them by partition; sends no message. For loops that pull and push the
  // same keys, or plan ahead in another thread.
  Expected<Plan> MakePlan(const Table& table, std::span<const Key> keys);
  // Requests leases of data and waits for the answer. Several threads may call it; they are answered one after the
  // other. Tick once for each batch of leased rows and not otherwise: the scheduler counts the clocks of an epoch by
  // them. The last checkpoint is written before the answer `finished`: it lacks what is pushed later.
  Expected<Leases> RequestLeases(const LeaseOptions& options);
  // Adds state of the program to checkpoints: what it cannot compute from the tables, such as layers of its own or
  // random generators. `save` returns the state after the program's last tick; an empty buffer means that there is
  // none. The checkpoint has the tables and the data positions at the clock of that tick; in asp without aggregated
  // tables the state may be newer.
  //
  // The client calls `save` when a checkpoint needs it: at the start of the first Pull, Push, Tick, Barrier, Leave or
  // SaveState after a tick, or within RequestLeases. These calls then also wait until the clock of a pending checkpoint
  // is known.
  // `save` must not call the client. If it returns an error, the client ends. A job with backup workers cannot keep
  // state: the client ends with kUnsupported.
  //
  // Call KeepState once, before the first tick, and from then on make all these calls in one thread. KeepState returns
  // when the client has recorded that there is state; later calls report errors. After the program has changed its
  // state, it may only push until its next tick.
  void KeepState(std::function<Expected<Buffer>()> save);
  // Saves the state if a checkpoint needs it. Call it where a program changes its state after a tick without having
  // called anything that saves it, because it has pulled the rows of this clock in an earlier one.
  void SaveState();
  // The state of the worker of that rank in the checkpoint from which the run continues. Empty: there is none, or this
  // worker has joined later. Waits until the servers have sent it.
  Expected<Buffer> SavedState(std::uint32_t rank);
  // Reports figures of the program by name: Report({{"loss", 0.43}, {"hr", 0.51}}). This worker writes at most one line
  // a second to metrics.jsonl, and one when it leaves, with the mean of what it has reported since its last line. The
  // terminal, summary.json and the report show the mean over all workers. Without tools/launch, which sets
  // TARN_RUN_DIR, nothing is written; a mean that is not finite is written as null. kInvalidArgument: a name is empty,
  // or is that of another field of the line (time, role, rank, clock). Other errors: the file cannot be written.
  Status Report(const std::vector<std::pair<std::string, double>>& figures);
  // Requests a checkpoint. Ready when it is complete, or with the reason why it failed (durability "none", a full disk,
  // ...). In bsp and ssp all workers, including this one, must continue to tick meanwhile.
  StatusFuture RequestCheckpoint();

 private:
  explicit Client(std::unique_ptr<worker::Session> session);
  static Expected<Client> ConnectOverZmq(ConnectOptions options);
  static Expected<Client> Join(std::unique_ptr<worker::Session> session);
  std::unique_ptr<worker::Session> session_;
};

}  // namespace tarn
