// The worker's side of the protocol as a deterministic state machine: joins, keeps the view, groups by shard, numbers
// pushes, repeats what is not acknowledged, holds to byte credits, ticks in order. It opens no socket and reads no
// clock. tarn::Client (worker/tarn.h) is the threaded library around it. docs/protocol.md gives the rules.
//
// Not thread-safe: one thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "worker/client/plan.h"

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

// The clock at which rows will be used; among pulls of one clock that wait for their turn, a higher priority goes
// first.
struct PullWhen {
  PullWhen(Clock use_clock, int its_priority = 0) : use(use_clock), priority(its_priority) {}  // NOLINT: a clock is one
  Clock use;
  int priority = 0;
};

// What came of a request. Each is delivered once, through TakeEvents.
struct PullDone {
  RequestId request;
  Buffer values;                // fp32, plan.keys.size() x dim, in the plan's order
  std::uint64_t staleness = 0;  // largest over the shards asked
};
struct PushDone {  // every shard has acknowledged
  RequestId request;
};
struct TickDone {  // every shard holds the tick
  Clock clock;
};
struct TableReady {
  TableSpec spec;  // with its id; or code != kOk and why
  ErrorCode code = ErrorCode::kOk;
  std::string message;
  TableSpec wanted;  // as CreateTable was called with
};
struct BarrierDone {
  std::uint64_t number = 0;
};
struct LeasesGranted {
  LeaseReply reply;
};
struct RequestFailed {  // cannot succeed: table unknown, wrong shape, ...
  RequestId request;
  Error error;
};
using ClientEvent = std::variant<PullDone, PushDone, TickDone, TableReady, BarrierDone, LeasesGranted, RequestFailed>;

// Where a worker stands in its data after a clock. None: where it stood, since a clock without data moves nothing; a
// tick that took it back would have leases trained again (rule M3). Before the first position: in no lease.
using MaybePosition = std::optional<DataPosition>;

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();

  void Start(TimeUs now, Outbox* out);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  // The same for messages that came together: Hear takes each in, Settle sends what has become possible, once for all
  // of them. Every other call that sends settles, too.
  void Hear(Peer from, Message message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;
  std::vector<ClientEvent> TakeEvents();

  ClientState state() const;
  const Shutdown& stop_reason() const;
  // For how long the scheduler has not been heard, though this client was listening; before the welcome since Start.
  TimeUs SchedulerSilence(TimeUs now) const;
  // Rule N7: an error once that is kLeasesUntilLost leases while this client runs. The loop around it then ends.
  // `scheduler` is its address, for the message.
  Status CheckScheduler(TimeUs now, const std::string& scheduler) const;
  TimeUs busy_poll_us() const;     // the job's wish, once welcomed; of the loop, not of the state machine
  std::uint32_t lanes() const;     // to each shard; likewise
  TimeUs scheduler_heard() const;  // last; before that: the time of Start
  const View& view() const;        // endpoints: the loop connects ShardPeer(i) to view().routes.endpoints[i]
  const Welcome& welcome() const;  // job text, start clock, rank; valid once running
  std::uint64_t job() const;       // its fingerprint; 0 before the welcome
  Clock clock() const;             // ticks asked for so far (start clock + ...)

  // Requests; valid while kRunning (otherwise they are dropped). The plan and buffers may be released on return,
  // `gradients` is kept (shared) until acknowledged. gradients: fp32, plan.keys.size() x dim.
  RequestId Pull(const Plan& plan, PullWhen when, TimeUs now, Outbox* out);
  // A pull of the rows (one at least) that a caller with a cache of its own lacks of a batch (rule H9). The caller
  // counts the whole, once it is read, with the staleness of all of its rows.
  RequestId PullPart(const Plan& plan, PullWhen when, TimeUs now, Outbox* out);
  void CountPull(std::uint64_t staleness);
  RequestId Push(const Plan& plan, Buffer gradients, Clock pulled_clock, TimeUs now, Outbox* out);
  // Rows that will be pulled soon: shards with rows on disk bring them to memory. Not answered, not repeated.
  void Prefetch(const Plan& plan, TimeUs now, Outbox* out);
  // Forgets all kept rows, so that the next pulls read what servers have now (rule H5). What is still on its way from
  // pulls before is kept: call it when none is under way.
  void DropKeptRows();
  // Push, tick, pull of clock()+1 (rule: the pull is held by the shards until the tick allows it).
  struct PushPullIds {
    RequestId push, pull;
  };
  PushPullIds PushPull(const Plan& plan, Buffer gradients, Clock pulled_clock, const MaybePosition& position,
                       TimeUs now, Outbox* out);
  // This clock is done; the tick goes out when all earlier pushes are acknowledged. TickTo jumps (rule C5).
  void Tick(const MaybePosition& position, TimeUs now, Outbox* out);
  void TickTo(Clock clock, const MaybePosition& position, TimeUs now, Outbox* out);
  void CreateTable(const TableSpec& spec, TimeUs now, Outbox* out);
  // Of barriers, and of requests for leases, one goes out at a time and the next behind its answer: the scheduler knows
  // only a worker's newest.
  void Barrier(TimeUs now, Outbox* out);                              // completes when all live workers have entered
  void RequestLeases(LeaseRequest request, TimeUs now, Outbox* out);  // `number` is set here
  void Leave(TimeUs now, Outbox* out);  // once nothing is pending; the scheduler answers with Shutdown

  // Bytes and counts for metrics; staleness histogram of all pulls so far.
  struct Counters {
    std::uint64_t pull_bytes = 0, push_bytes = 0;  // keys and values as they travel, without repeats
    std::uint64_t pulls = 0, pushes = 0, repeats = 0;
    std::uint64_t unknown_lists = 0;  // of keys, that a shard was to hold and did not
    // Of tables whose rows are kept: rows pulled, and how many of them were here.
    std::uint64_t cache_rows = 0, cache_hits = 0;
    std::uint64_t combined_pushes = 0;  // that went along with one of a later clock
    std::uint64_t malformed = 0;        // answers that do not fit what was asked; asked again
    std::uint64_t residual_rows = 0;    // that pushes in topk have not sent yet: lost when the worker goes
    std::uint64_t residuals_expired = 0, residuals_crowded = 0;  // dropped with their row; sent for want of room
  };
  const Counters& counters() const;
  const std::vector<std::uint64_t>& staleness() const;
  void SetMetrics(std::vector<Counter> counters);  // sent with the next heartbeats
  bool idle() const;                               // nothing pending: pushes, pulls, ticks, requests
  std::size_t pending_bytes() const;               // kept for resending or waiting for credit
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The counters that every worker tells the scheduler, under the names of metrics.
std::vector<Counter> MetricsOf(const Client::Counters& counters);

}  // namespace tarn::worker
