// The worker's side of the protocol as a deterministic state machine: it joins, keeps the view, groups requests by
// shard, numbers pushes, resends unacknowledged messages, respects byte credits and ticks in order. It opens no socket
// and reads no clock: the caller passes the time, and messages to send are appended to an outbox. docs/protocol.md
// specifies the rules.
//
//   client.Pull(plan, {.use = client.clock()}, &sink, now, &out);   // a message for each shard, or more, into `out`
//   client.Handle(from, std::move(message), now);                   // calls sink.Rows, and sink.Done after the last
//   client.Settle(now, &out);                                       // sends the messages that are now possible
//
// worker/runtime/runtime.h runs it over a transport: for the training loop, and for tarn::Client (worker/tarn.h).
// Internal to worker/. Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/limits.h"
#include "core/message.h"
#include "core/metrics/metric_list.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"
#include "worker/client/scheduler_contact.h"
#include "worker/counters.h"

namespace tarn::worker {

struct ClientOptions {
  std::uint32_t rank = kAnyRank;
  std::uint64_t nonce = 0;
  bool is_program = false;                          // the caller may push at any time, not only rows of its leases
  std::string http;                                 // address of this process's HTTP server (rule N8); empty: none
  std::size_t credit_bytes = limits::kCreditBytes;  // in flight per shard: requests and expected answers
  std::size_t piece_bytes = limits::kPieceBytes;    // approximate limit on keys and values in a message
  std::size_t blob_chunk_bytes = limits::kBlobChunkBytes;  // approximate limit on a piece of the blob (K9)
  TimeUs resend_us = 1'000'000;  // pause before an unanswered message is repeated; doubles up to 8 times this
  // Called when the client skips `clocks` clocks because the worker is late (rule C8): at the end of a pull, before its
  // sink's Done, or in a tick. May be empty.
  std::function<void(std::uint64_t clocks)> on_skip;
  // With train.key_caching: minimum number of keys in a numbered list, and maximum bytes of numbered keys per shard.
  std::uint32_t held_keys_min = limits::kHeldKeysMin;
  std::size_t held_keys_bytes = limits::kHeldKeysBytesMax;
  bool shm = false;  // shares memory with shards at ipc: endpoints, for which lists then get no numbers (rule W3)
};

enum class ClientState : std::uint8_t {
  kJoining,  // also while a resumed worker fetches its state (rule K10)
  kRunning,
  kFenced,   // this incarnation is over (rule N6)
  kStopped,  // by a Shutdown, or by an error that ends the client; see stop_reason()
};

// What a worker waits for from one shard.
struct ShardWaits {
  std::optional<TimeUs> last_message;  // nullopt: no message has arrived from the shard's current endpoint
  std::size_t pulls = 0, pushes = 0;   // unanswered messages, without standing pulls (rule H10)
  bool tick = false;                   // the last tick that was sent is not acknowledged
  bool state = false;                  // a piece of the worker's blob is not answered (rules K9, K10)
};

struct PullWhen {
  Clock use;         // at which the rows will be used
  int priority = 0;  // among pulls of one clock that wait for byte credit, the highest is sent first
  // False: the pull is for a part of a batch's rows; the rest is in the caller's own cache (rule H9) or in other pulls.
  // The client then neither counts the pull nor uses its cache; the caller counts the whole batch with CountPull.
  bool counted = true;
  bool pushed = true;  // false: no push of these rows follows, as in evaluation
  // The plan of the whole batch, if this pull is one of several parts of it; null: the pull is the whole batch. Only
  // for tables whose rule needs no pulled rows.
  const Plan* part_of = nullptr;
};

struct TableToPull {
  const Plan* plan;
  PullWhen when;
  PullSink* sink;
};
struct TableToPush {
  const Plan* plan;
  Buffer gradients;  // fp32, plan->keys.size() x dim
  Completion<>* done;
};

// A worker's position in its data after a clock. nullopt: that of the previous tick, for a clock without data; a tick
// that moved the position back would cause leases to be trained again (rule M3). Before the first position the worker
// is in no lease.
using MaybePosition = std::optional<DataPosition>;

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();

  // Begins to join the fleet. Call it once.
  void Start(TimeUs now, Outbox* out);
  // Handles a received message. After the last of several messages call Settle once, which sends the messages that they
  // allow. Every other call that sends includes Settle. The contents of `message` are unspecified afterwards.
  void Handle(Peer from, Message&& message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  // Sends what is due, such as repeated messages and heartbeats. Call it when `now` has reached NextTimer(), which is
  // the maximum value if nothing will be due.
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;

  // Requests. Each ends in its completion (completion.h), and fails at once unless this client is kRunning. Completions
  // may be null, except those of FindTable, AwaitSave and ReadBlobOf; sinks may not. The plan may be released on
  // return; `gradients` (fp32, plan.keys.size() x dim) is shared until acknowledged. Small tables of one call share a
  // message to each shard (rule W6). A push of such a table is done when its message is acknowledged.
  void Pull(std::span<const TableToPull> tables, TimeUs now, Outbox* out);
  void Pull(const Plan& plan, const PullWhen& when, PullSink* sink, TimeUs now, Outbox* out) {
    const TableToPull one{&plan, when, sink};
    Pull(std::span(&one, 1), now, out);
  }
  // Counts the pull of a whole batch with this staleness, in place of its parts (PullWhen::counted).
  void CountPull(std::uint64_t staleness);
  // For a caller with its own cache. Call it before the pull of a plan's missing rows if the cache had others, which
  // came with a minimum clock of at least `oldest`: the push of the plan then also names their versions (rule E8). If
  // rows that the cache had were still in flight, call it again when they have arrived.
  void NoteCached(const Plan& plan, Clock use, Clock oldest);
  // Done when every shard has acknowledged it. pulled_clock: PullWhen::use of the pull of these rows. kInvalidArgument:
  // the table's rule needs the rows as they were pulled, and one of them was not pulled for that clock.
  void Push(std::span<const TableToPush> tables, Clock pulled_clock, TimeUs now, Outbox* out);
  void Push(const Plan& plan, Buffer gradients, Clock pulled_clock, Completion<>* done, TimeUs now, Outbox* out) {
    const TableToPush one{&plan, std::move(gradients), done};
    Push(std::span(&one, 1), pulled_clock, now, out);
  }
  // With another action (rule A8). kAssign: sets the rows to `values` (fp32, plan.keys.size() x dim). kDelete: removes
  // the rows of a sparse table; `values` is empty.
  void Push(const Plan& plan, PushAction action, Buffer values, Completion<>* done, TimeUs now, Outbox* out);
  // Names rows that will be pulled soon, so that shards read them from disk. Shards do not answer, and the client does
  // not repeat the message.
  void Prefetch(const Plan& plan, TimeUs now, Outbox* out);
  // Drops all cached rows, so that the next pulls read the servers' current rows (rule H5). Call it when no pull is in
  // progress, because replies to earlier pulls are still cached.
  void DropCachedRows();
  // Finishes all clocks before `clock`: this one if `clock` is clock() + 1; a later `clock` is a jump (rule C5). The
  // tick is sent when all earlier pushes are acknowledged. Done when every shard has acknowledged the tick; at once if
  // `clock` is not ahead.
  void TickTo(Clock clock, const MaybePosition& position, Completion<>* done, TimeUs now, Outbox* out);
  // The value is the table as the job runs it, with its id.
  void CreateTable(const TableSpec& spec, Completion<TableSpec>* done, TimeUs now, Outbox* out);
  // Done when the table exists.
  void FindTable(const std::string& name, Completion<TableSpec>* done);
  // Only one barrier, and one request for leases, is sent at a time; the next follows its answer, because the scheduler
  // keeps only the newest of each worker. A barrier is done when every live worker has entered it.
  void Barrier(Completion<>* done, TimeUs now, Outbox* out);
  // RequestLeases sets `number`, and sends reports that do not fit in one message in several.
  void RequestLeases(LeaseRequest request, Completion<LeaseReply>* done, TimeUs now, Outbox* out);
  // Requests a checkpoint from the scheduler (rule K8). Done when it is complete; the value is its directory. In bsp
  // and ssp the workers must continue to tick meanwhile.
  void RequestCheckpoint(Completion<std::string>* done, TimeUs now, Outbox* out);
  // From now on checkpoints contain state of the program (rule K9). Call AwaitSave after each tick, before the next
  // clock's work begins, and while a request for leases is open. AwaitSave is done when the client knows whether a
  // checkpoint needs the program's current state: the value is that checkpoint's id; 0: none. If it is not 0, call Save
  // with EncodeProgramState of the state at the current clock (core/codec/worker_blob.h), or with no chunk if there is
  // no state; an error instead of chunks ends this client. A second AwaitSave before the first is done also ends it.
  void KeepState(TimeUs now, Outbox* out);
  void AwaitSave(Completion<CheckpointId>* done, TimeUs now, Outbox* out);
  void Save(CheckpointId checkpoint, Expected<std::vector<Buffer>> chunks, TimeUs now, Outbox* out);
  // The blob of a rank in the checkpoint from which the run continues (rule K10), for ReadProgramState; empty: none.
  // One at a time.
  void ReadBlobOf(WorkerRank rank, Completion<Buffer>* done, TimeUs now, Outbox* out);
  // Leaves when no request is pending; pulls for clocks after clock() fail with kCancelled. Done when the scheduler has
  // answered.
  void Leave(Completion<>* done, TimeUs now, Outbox* out);
  // Fails every pending request. The client cannot be used afterwards.
  void FailAll(const Error& error);

  ClientState state() const;
  const Shutdown& stop_reason() const;
  // Whether it is kStopped by an error and no Shutdown has arrived: its user reports the error to the scheduler (rule
  // S2).
  bool ended_by_error() const;
  // Of a client that has ended, the error of its requests. Never kTimeout, after which a caller may wait again.
  Error WhyEnded() const;
  // The runtime ends when scheduler().Check returns an error.
  const SchedulerContact& scheduler() const;
  ShardWaits WaitsFor(ShardId shard) const;
  const View& view() const;        // the runtime connects ShardPeer(i) to view().routes.endpoints[i]
  const Welcome& welcome() const;  // job text, start clock, rank; valid while running
  const Job& job_file() const;     // as the scheduler sent it; default values before the welcome
  std::uint64_t job() const;       // fingerprint of the job; 0 before the welcome
  // Start clock + requested ticks + skipped clocks (rule C8): where a job has backup workers, the end of a pull may
  // advance it.
  Clock clock() const;
  Clock acked_clock() const;  // the newest tick that every shard has acknowledged

  const ClientCounters& counters() const;
  const std::vector<std::uint64_t>& staleness() const;  // histogram of all pulls: bucket i = staleness i
  // Sets metrics that are sent with heartbeats in addition to the client's own counters.
  void SetMetrics(MetricList metrics);
  bool idle() const;                  // nothing pending: pushes, pulls, ticks, requests
  std::size_t pending_bytes() const;  // of pushes, kept for resending or waiting for credit
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The metrics that every worker sends to the scheduler. Not in worker/counters.h, which is part of the public
// interface.
inline constexpr MetricField<ClientCounters> kClientMetrics[] = {
    {WorkerMetric("pull_bytes"), &ClientCounters::pull_bytes},
    {WorkerMetric("push_bytes"), &ClientCounters::push_bytes},
    {WorkerMetric("pulls"), &ClientCounters::pulls},
    {WorkerMetric("pushes"), &ClientCounters::pushes},
    {WorkerMetric("repeats"), &ClientCounters::repeats},
    {WorkerMetric("unknown_lists"), &ClientCounters::unknown_lists},
    {WorkerMetric("cache_rows"), &ClientCounters::cache_rows},
    {WorkerMetric("cache_hits"), &ClientCounters::cache_hits},
    {WorkerMetric("refreshed_rows"), &ClientCounters::refreshed_rows},
    {WorkerMetric("combined_pushes"), &ClientCounters::combined_pushes},
    {WorkerMetric("malformed"), &ClientCounters::malformed},
    {WorkerMetric("residual_rows"), &ClientCounters::residual_rows},
    {WorkerMetric("residuals_expired"), &ClientCounters::residuals_expired},
    {WorkerMetric("residuals_crowded"), &ClientCounters::residuals_crowded},
    {WorkerMetric("skipped_clocks"), &ClientCounters::skipped_clocks},
};
static_assert(BindsAll(kClientMetrics));

}  // namespace tarn::worker
