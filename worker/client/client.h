// The worker's side of the protocol as a deterministic state machine: it joins, keeps the view, groups requests by
// shard, numbers pushes, repeats what is not acknowledged, holds to byte credits and ticks in order. It opens no socket
// and reads no clock: times are handed in, and messages to be sent are appended to an outbox. docs/protocol.md gives
// the rules.
//
//   client.Pull(plan, {.use = client.clock()}, &sink, now, &out);   // one message a shard and piece, into `out`
//   client.Hear(from, message, now);                                // calls sink.Rows, and sink.Done with the last
//   client.Settle(now, &out);                                       // sends what the message has made possible
//
// worker/client/runtime.h runs it over a transport: for the training loop, and for tarn::Client (worker/tarn.h).
// Internal to worker/. Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "core/metrics/metric_list.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"
#include "worker/counters.h"

namespace tarn::worker {

inline constexpr int kLeasesUntilLost = 2;

struct ClientOptions {
  std::uint32_t rank = kAnyRank;
  std::uint64_t nonce = 0;
  std::size_t credit_bytes = limits::kCreditBytes;  // in flight per shard: requests and expected answers
  std::size_t piece_bytes = limits::kPieceBytes;
  std::size_t blob_chunk_bytes = limits::kBlobChunkBytes;  // of rows, in a piece of the worker's state
  TimeUs resend_us = 1'000'000;                            // without progress; doubles up to 8 times this
  // Of jobs with train.key_caching: lists of so many keys get a number, up to so many bytes of keys for a shard.
  std::uint32_t held_keys_min = limits::kHeldKeysMin;
  std::size_t held_keys_bytes = limits::kHeldKeysBytesMax;
};

enum class ClientState : std::uint8_t {
  kJoining,  // also while the state is fetched that a resumed worker goes on from (rule K10)
  kRunning,
  kFenced,   // this incarnation is over (rule N6)
  kStopped,  // Shutdown received; see stop_reason()
};

struct PullWhen {
  Clock use;         // at which the rows will be used
  int priority = 0;  // of pulls of one clock that wait for byte credit, the highest goes first
  // False: a pull of the rows that a caller with a cache of its own lacks of a batch (rule H9). The caller counts the
  // whole with CountPull, once it is read.
  bool counted = true;
};

// Where a worker stands in its data after a clock. None: where it stood, since a clock without data moves nothing; a
// tick that took it back would have leases trained again (rule M3). Before the first position: in no lease.
using MaybePosition = std::optional<DataPosition>;

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();

  void Start(TimeUs now, Outbox* out);
  // A message has come. Of several that came together each is heard, and then Settle sends once what they have made
  // possible. Every other call that sends settles, too.
  void Hear(Peer from, Message message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;

  // Requests. Each ends in its completion (completion.h), and fails at once unless this client is kRunning. Completions
  // may be null, sinks may not. The plan may be released on return; `gradients` (fp32, plan.keys.size() x dim) is
  // shared until acknowledged.
  void Pull(const Plan& plan, const PullWhen& when, PullSink* sink, TimeUs now, Outbox* out);
  void CountPull(std::uint64_t staleness);
  // Done once every shard has acknowledged.
  void Push(const Plan& plan, Buffer gradients, Clock pulled_clock, Completion<>* done, TimeUs now, Outbox* out);
  // Push, tick, pull of clock() + 1, which the shards hold back until the tick allows it.
  struct PushPullDone {
    Completion<>* pushed = nullptr;
    PullSink* pulled = nullptr;
    Completion<>* ticked = nullptr;
  };
  void PushPull(const Plan& plan, Buffer gradients, Clock pulled_clock, const MaybePosition& position,
                const PushPullDone& done, TimeUs now, Outbox* out);
  // Rows that will be pulled soon: shards with rows on disk bring them to memory. Not answered, not repeated.
  void Prefetch(const Plan& plan, TimeUs now, Outbox* out);
  // Drops all kept rows, so that the next pulls read what servers have now (rule H5). Replies to earlier pulls are kept
  // when they come: call it when no pull is under way.
  void DropKeptRows();
  // This clock is done; the tick goes out when all earlier pushes are acknowledged. TickTo jumps (rule C5). Done once
  // every shard has it; at once if `clock` is not ahead.
  void Tick(const MaybePosition& position, Completion<>* done, TimeUs now, Outbox* out);
  void TickTo(Clock clock, const MaybePosition& position, Completion<>* done, TimeUs now, Outbox* out);
  // The value is the table as the job runs it, with its id.
  void CreateTable(const TableSpec& spec, Completion<TableSpec>* done, TimeUs now, Outbox* out);
  // Done once somebody has created it.
  void FindTable(const std::string& name, Completion<TableSpec>* done);
  // Of barriers, and of requests for leases, one goes out at a time and the next behind its answer: the scheduler knows
  // only a worker's newest. A barrier is done once every live worker has entered it.
  void Barrier(Completion<>* done, TimeUs now, Outbox* out);
  void RequestLeases(LeaseRequest request, Completion<LeaseReply>* done, TimeUs now, Outbox* out);  // sets `number`
  // Has the scheduler cut a checkpoint (rule K8). Done once it is whole; the value is its directory. In bsp and ssp the
  // workers have to tick on meanwhile.
  void RequestCheckpoint(Completion<std::string>* done, TimeUs now, Outbox* out);
  // Leaves once nothing is pending. Done when the scheduler has answered.
  void Leave(Completion<>* done, TimeUs now, Outbox* out);
  // Fails every request that is under way. The client is of no use afterwards.
  void FailAll(const Error& error);

  ClientState state() const;
  const Shutdown& stop_reason() const;
  // For how long the scheduler has not been heard, though this client was listening; before the welcome since Start.
  TimeUs SchedulerSilence(TimeUs now) const;
  // Rule N7: an error once that is kLeasesUntilLost leases while this client runs. The runtime then ends. `scheduler`
  // is its address, for the message.
  Status CheckScheduler(TimeUs now, const std::string& scheduler) const;
  TimeUs scheduler_heard() const;  // last; before that: the time of Start
  TimeUs busy_poll_us() const;     // as the job says, once welcomed; for the transport, as is the next
  std::uint32_t lanes() const;     // to each shard
  const View& view() const;        // the runtime connects ShardPeer(i) to view().routes.endpoints[i]
  const Welcome& welcome() const;  // job text, start clock, rank; valid once running
  std::uint64_t job() const;       // its fingerprint; 0 before the welcome
  Clock clock() const;             // ticks asked for so far (start clock + ...)
  Clock acked_clock() const;       // ticks that every shard has

  const ClientCounters& counters() const;
  const std::vector<std::uint64_t>& staleness() const;  // histogram of all pulls: bucket i holds those i clocks behind
  // Sent with the next heartbeats, beside the client's own counters.
  void SetMetrics(MetricList metrics);
  bool idle() const;                  // nothing pending: pushes, pulls, ticks, requests
  std::size_t pending_bytes() const;  // of pushes, kept for resending or waiting for credit
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Every worker sends them to the scheduler. Here, since worker/counters.h is part of the library's interface.
inline constexpr MetricField<ClientCounters> kClientMetrics[] = {
    {WorkerMetric("pull_bytes"), &ClientCounters::pull_bytes},
    {WorkerMetric("push_bytes"), &ClientCounters::push_bytes},
    {WorkerMetric("pulls"), &ClientCounters::pulls},
    {WorkerMetric("pushes"), &ClientCounters::pushes},
    {WorkerMetric("repeats"), &ClientCounters::repeats},
    {WorkerMetric("unknown_lists"), &ClientCounters::unknown_lists},
    {WorkerMetric("cache_rows"), &ClientCounters::cache_rows},
    {WorkerMetric("cache_hits"), &ClientCounters::cache_hits},
    {WorkerMetric("combined_pushes"), &ClientCounters::combined_pushes},
    {WorkerMetric("malformed"), &ClientCounters::malformed},
    {WorkerMetric("residual_rows"), &ClientCounters::residual_rows},
    {WorkerMetric("residuals_expired"), &ClientCounters::residuals_expired},
    {WorkerMetric("residuals_crowded"), &ClientCounters::residuals_crowded},
};
static_assert(BindsAll(kClientMetrics));

}  // namespace tarn::worker
