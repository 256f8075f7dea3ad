// A scripted scheduler and scripted shards around one worker::Client: a test decides which messages are delivered, lost
// or rejected.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "core/message.h"
#include "worker/client/client.h"

namespace tarn::worker {

// One section of a push that a shard applied.
struct Applied {
  PartitionId partition;
  Sequence sequence;
  TableId table;
  Clock clock;
  std::vector<Key> keys;
  std::vector<float> values;  // none of a deletion
};

// Follows rules E2 and C3 for one worker; stores the applied sections.
class FakeShard {
 public:
  // The answers to one data message; a pull whose clock or pushes are missing is answered later.
  std::vector<Body> Handle(const Message& message);
  // The answers to parked pulls that may be answered now.
  std::vector<Body> Release();

  std::map<PartitionId, Sequence> watermark;
  std::map<std::uint64_t, std::vector<Key>> lists;  // stored lists
  std::vector<Applied> applied;
  std::optional<Clock> minimum;       // pulls of later clocks are parked; none: all are answered
  std::optional<Clock> told_minimum;  // minimum clock in replies, if different
  float shift = 0;                    // added to all values
  Version version;                    // of all partitions, in replies
  std::set<TableId> on_disk;          // tables with rows on disk, in replies
  Clock ticked;
  std::map<TableId, TableSpec> tables;

 private:
  using TableKeys = std::vector<std::vector<Key>>;  // of each table of a message
  struct Parked {
    Pull pull;
    TableKeys keys;
  };
  std::optional<PullReply> Answer(const Parked& parked);
  ReplyPart RowsOf(const PullPart& part, const std::vector<Key>& keys);
  // The keys of a message, also if it names lists; nullopt if a list is missing.
  template <typename Part>
  std::optional<TableKeys> TakeKeys(const TableParts<Part>& parts);
  PushAck Apply(const Push& push, const TableKeys& keys);
  void Apply(Clock clock, const PushPart& part, const std::vector<Key>& keys, PushAck* ack);
  std::vector<Parked> parked_;
};

// The value of a row's element in replies.
float ValueOf(TableId table, Key key, std::uint32_t column);

std::vector<Key> KeysOf(const KeyList& list);

// The table of a Pull, PullReply or Push about one table.
template <typename AnyMessage>
auto& OnlyTable(AnyMessage& message) {
  TARN_CHECK(message.tables.size() == 1, "a message about one table");
  return message.tables.front();
}

struct FleetOptions {
  std::uint32_t shards = 2;
  std::uint32_t partition_bits = 3;
  Clock start;
  ClientOptions client;
  std::vector<TableSpec> tables;  // ids are assigned here: 1, 2, ...
  double lease_seconds = 3000;
  double heartbeat_seconds = 1000;  // long, so that heartbeats do not interfere
};

// The outcomes of the requests of a test, in order. Requests are numbered in order of issue.
struct PullDone {
  RequestId request;
  Buffer values;  // in the plan's order
  std::uint64_t staleness = 0;
};
struct PushDone {
  RequestId request;
};
struct TickDone {
  Clock clock;
};
struct TableReady {
  TableSpec wanted, spec;
  ErrorCode code = ErrorCode::kOk;
};
struct BarrierDone {
  RequestId request;
};
struct LeasesGranted {
  LeaseReply reply;
};
struct CheckpointWritten {
  std::string directory;
};
struct LeaveDone {};
struct RequestFailed {
  RequestId request;
  Error error;
};
using FleetEvent = std::variant<PullDone, PushDone, TickDone, TableReady, BarrierDone, LeasesGranted, CheckpointWritten,
                                LeaveDone, RequestFailed>;

class FakeFleet {
 public:
  explicit FakeFleet(FleetOptions options);
  ~FakeFleet();

  // Submits a request to the client at the current time. Its outcome is added to the events.
  RequestId Pull(const Plan& plan, Clock use, int priority = 0);
  RequestId Push(const Plan& plan, Buffer gradients, Clock pulled_clock);
  // The same for several tables in one call.
  std::vector<RequestId> Pull(const std::vector<std::pair<const Plan*, PullWhen>>& tables);
  std::vector<RequestId> Push(const std::vector<Plan>& plans, Clock pulled_clock);  // of their Gradients
  void Prefetch(const Plan& plan) { client.Prefetch(plan, now, &out); }
  void Tick(const MaybePosition& position) { TickTo(client.clock() + 1, position); }
  void TickTo(Clock clock, const MaybePosition& position);
  void CreateTable(const TableSpec& spec);
  void FindTable(const std::string& name);
  void Barrier();
  void RequestLeases(LeaseRequest request);
  void RequestCheckpoint();
  void Leave();

  // Starts the client and sends it a Welcome.
  void Run();
  void FromScheduler(Body body);
  void FromShard(std::uint32_t shard, Body body, Buffer values = {});
  // Advances time and fires the client's timers.
  void Wait(TimeUs us);
  // Takes the messages that the client sent since the last call to the scheduler or a shard.
  std::vector<Message> TakeSent(Peer to);
  // Delivers all messages to the shards and their answers, until none is in flight. `lose` may drop messages in both
  // directions.
  void Exchange();

  Plan MakePlan(TableId table, const std::vector<Key>& keys);
  Buffer Gradients(const Plan& plan);  // row of key k: k % 1000 + column
  Welcome MakeWelcome() const;
  // Takes the events of one kind.
  template <typename Event>
  std::vector<Event> EventsOf() {
    std::vector<Event> found;
    for (auto it = events_.begin(); it != events_.end();) {
      if (auto* event = std::get_if<Event>(&*it)) {
        found.push_back(std::move(*event));
        it = events_.erase(it);
      } else {
        ++it;
      }
    }
    return found;
  }

  FleetOptions options;
  Job job;
  View view;
  TimeUs now = 1'000'000;
  Outbox out;
  Client client;
  std::vector<FakeShard> shards;
  std::function<bool(const Message&)> lose;

 private:
  class PullRecorder;
  template <typename Value>
  class Recorder;
  template <typename Event>
  Completion<>* Record(Event event);
  RequestId NextRequest() { return RequestId(++requests_); }

  std::uint64_t requests_ = 0;
  std::vector<FleetEvent> events_;
  // The recorders of all requests: the client may call them until its end.
  std::vector<std::shared_ptr<void>> recorders_;
};

TableSpec SparseTable(std::string name, std::uint32_t dim);
TableSpec DenseTable(std::string name, std::uint32_t dim, std::uint64_t rows);

// The bodies of one kind among messages.
template <typename Kind>
std::vector<Kind> BodiesOf(const std::vector<Message>& messages) {
  std::vector<Kind> out;
  for (const Message& message : messages)
    if (const auto* body = std::get_if<Kind>(&message.body)) out.push_back(*body);
  return out;
}

// The sum of all applied pushes by table and key: the first value of each row.
std::map<std::pair<TableId, Key>, float> AppliedSums(const FakeFleet& fleet);

}  // namespace tarn::worker
