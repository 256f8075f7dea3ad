// tarn::Client: a program's way to the parameters of a running fleet. Small enough to be learnt in a minute:
//
//   #include "worker/tarn.h"
//
//   auto ps = tarn::Client::Connect({.scheduler = "runs/mine"});
//   if (!ps) return Complain(ps.error());
//   auto users = ps->OpenTable("users");                        // or a tarn::TableSpec, which creates it
//   const std::vector<tarn::Key> keys = {7, 42, 7};             // duplicates are fine
//   auto rows = ps->Pull(*users, keys);                         // a future
//   auto values = rows.Wait();                                  // keys.size() x dim floats, in the order of keys
//   std::vector<float> gradients(keys.size() * users->dim(), 0.1f);
//   ps->Push(*users, keys, gradients);                          // acknowledged in the background
//   ps->Tick();                                                 // this clock is done
//   ps->Leave();                                                // everything acknowledged; the worker goes
//
// A program of its own is examples/cpp/hello.cc.
//
// Threads: all functions may be called from any thread; requests of one thread are carried out in the order of its
// calls. An I/O thread of the client's own does the rest, or a caller that waits for a future. Futures may be copied,
// outlive the client, and be waited for by any thread; dropping one drops only the answer.
//
// Errors: kInvalidArgument (sizes that do not fit, a dense key that is too large), kFenced (the fleet has declared
// this worker dead: connect anew), kCancelled (the job is over, or the client is gone), kUnavailable (the scheduler has
// been silent for two leases: everything that waits ends, and the client with it), kIo (likewise: no memory for what
// has come), kTimeout (where said).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/message.h"
#include "core/position.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "worker/client/client.h"
#include "worker/client/plan.h"

namespace tarn {

namespace net {
class Transport;
}
namespace worker {
struct ClientResult;
}

// A table of the fleet. A plain value, good for the whole run.
class Table {
 public:
  Table(TableSpec spec, std::uint64_t salt) : spec_(std::move(spec)), positioner_(spec_, salt) {}
  const TableSpec& spec() const { return spec_; }
  TableId id() const { return spec_.id; }
  std::uint32_t dim() const { return spec_.dim; }
  const Positioner& positioner() const { return positioner_; }

 private:
  TableSpec spec_;
  Positioner positioner_;
};

// Rows that are on their way.
class RowsFuture {
 public:
  explicit RowsFuture(std::shared_ptr<worker::ClientResult> result) : result_(std::move(result)) {}
  bool Ready() const;
  // Blocks. The floats live as long as this future or a copy of it; one row a key, in the order of the keys (with a
  // plan: in the order of plan.keys).
  Expected<std::span<const float>> Wait() const;
  // Blocks for at most so long, which may be infinite; after kTimeout one may wait again.
  Expected<std::span<const float>> WaitFor(double seconds) const;
  // After a successful Wait: how many clocks the rows may be behind the clock they were asked for.
  std::uint64_t staleness() const;

 private:
  std::shared_ptr<worker::ClientResult> result_;
};

// Something that is being done.
class StatusFuture {
 public:
  explicit StatusFuture(std::shared_ptr<worker::ClientResult> result) : result_(std::move(result)) {}
  bool Ready() const;
  Status Wait() const;
  Status WaitFor(double seconds) const;  // likewise

 private:
  std::shared_ptr<worker::ClientResult> result_;
};

struct ConnectOptions {
  std::string scheduler;                                   // the run's folder, ipc://PATH, or tcp://HOST:PORT with keys
  std::uint32_t rank = kAnyRank;                           // the scheduler chooses
  double timeout_seconds = 60;                             // for the welcome and OpenTable by name; may be infinite
  double wait_note_seconds = 10;                           // how often Connect says in the log for what it waits
  std::string keys;                                        // the fleet's key file (tarn-keys); empty: plain connections
  bool insecure = false;                                   // TCP without keys
  bool shm = true;                                         // share memory with servers of this host
  int io_threads = 1;                                      // of ZeroMQ: one for each two of the job's fleet.lanes
  std::size_t credit_bytes = limits::kCreditBytes;         // in flight per shard; 128 MiB at most
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;  // of pushes that wait; beyond, Push blocks
  std::size_t asked_bytes_max = limits::kAskedBytesMax;    // of pulls that wait, keys and rows; beyond, they fail
};

class Client {
 public:
  // Joins the fleet as a worker and waits until the fleet is complete. kTimeout, which says whether the scheduler was
  // heard, or why it refuses. While it waits, it logs a warning now and then (core/log.h: to stderr, unless the program
  // has begun a log). Needs 20 open files, and 2 x fleet.lanes + 1 for each shard: raises the soft limit of this
  // process (ulimit -Sn) if it is too low for that, and fails with kInvalidArgument if the hard one is.
  static Expected<Client> Connect(ConnectOptions options);
  // The same over a transport of the caller's (tests, other networks).
  static Expected<Client> Connect(ConnectOptions options, std::unique_ptr<net::Transport> transport);

  // Leaves first, if nobody has, but waits only a moment for it.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // The table of that name, once somebody has created it; kTimeout if nobody does.
  Expected<Table> OpenTable(const std::string& name);
  // Creates it on every shard if it is not there; kAlreadyExists if another table has the name. Its consistency and
  // what [tables.NAME] says are the job's, and the id is the scheduler's, whatever `spec` has there; all else is from
  // `spec`, the optimizer too. Table::spec is what came of it.
  Expected<Table> OpenTable(const TableSpec& spec);

  // The rows of `keys` as they are to be used at this client's clock. Waits inside the fleet as long as the table's
  // consistency asks. An absent row has its initial values. While answers to earlier pulls are there and not waited
  // for, a pull or a push may stay here for up to 2 ms, to travel with those that follow. Of pulls that wait for their
  // turn (ConnectOptions::credit_bytes) those of an earlier clock go first, then those of a higher priority.
  // kOverloaded if too much was asked for before and is not answered (asked_bytes_max): a pull cannot block for that,
  // since its answer may wait for a tick of this very thread. A single pull always goes.
  RowsFuture Pull(const Table& table, std::span<const Key> keys, int priority = 0);
  // Tells servers that the rows of `keys` will be pulled soon: those that they keep on disk (storage.memory) come to
  // memory meanwhile. Not answered, and lost with a connection: a hint. kInvalidArgument as of Pull.
  Status Prefetch(const Table& table, std::span<const Key> keys);
  // gradients: keys.size() x dim, one row a key; those of the same key are summed, in order. Blocks only while
  // ConnectOptions::queued_bytes_max of pushes wait for their acknowledgements. Ready once every shard has
  // acknowledged. kInvalidArgument, naming table and key, if a gradient (of several of one key, their sum) is infinite
  // or NaN: then nothing of the push is sent, and the clock goes on without it. So is a PushPull, which then does not
  // tick.
  StatusFuture Push(const Table& table, std::span<const Key> keys, std::span<const float> gradients);
  // Push at this clock, tick, and pull the same rows for the next.
  struct PushPullFutures {
    StatusFuture pushed;
    RowsFuture pulled;
  };
  PushPullFutures PushPull(const Table& table, std::span<const Key> keys, std::span<const float> gradients,
                           const worker::MaybePosition& position = {});

  // This clock is done. Ready once every shard knows; there is no need to wait for it. `position`: where a program that
  // trains leases stands now; without it, where it stood before. A tick never takes a position back by itself.
  StatusFuture Tick(const worker::MaybePosition& position = {});
  // The same, ahead to `clock`; one that is not ahead is ready at once.
  StatusFuture TickTo(Clock clock, const worker::MaybePosition& position = {});
  // Waits until every live worker of the fleet has called it as often.
  Status Barrier();
  // Waits until everything is acknowledged and the scheduler has let this worker go. Nothing works afterwards.
  Status Leave();

  Clock clock() const;  // that the next pull and push belong to
  std::uint32_t rank() const;
  const std::string& job_text() const;  // the job, as resolved TOML
  worker::Client::Counters counters() const;
  std::vector<std::uint64_t> staleness() const;  // histogram of all pulls: bucket i holds those i clocks behind

  // For loops that pull and push the same keys and plan ahead. A plan may be shared by several requests.
  using PlanPtr = std::shared_ptr<const worker::Plan>;
  Expected<PlanPtr> MakePlan(const Table& table, std::span<const Key> keys);
  // plan->keys.size() x dim floats, in the order of plan->keys, for use at `use_clock`.
  RowsFuture Pull(PlanPtr plan, Clock use_clock, int priority = 0);
  // gradients: fp32, plan->keys.size() x dim, shared until acknowledged.
  StatusFuture Push(PlanPtr plan, Buffer gradients, Clock pulled_clock);
  // Leases of data (docs/protocol.md, rules D1 to D6); `request.number` is set here. Several threads may ask; they are
  // answered one after the other.
  Expected<LeaseReply> RequestLeases(LeaseRequest request);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  static Expected<Client> ConnectOverZmq(ConnectOptions options);
  static Expected<Client> Join(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn
