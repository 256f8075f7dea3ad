// A shard with messages made by tests of its rules. The job has one or more worker ranks, four partitions, all owned by
// the shard, and the tables that a test selects.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/position.h"
#include "server/shard/shard.h"
#include "server/store/store.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::server {

constexpr std::uint64_t kJobFingerprint = 0xabcdef;
constexpr std::uint32_t kBits = 2;
constexpr std::uint64_t kJobSeed = 42;
constexpr TableId kTable{1};
constexpr Peer kWorkerPeer{kFirstAcceptedPeer + 1};

// The part of one table in a Pull, a Push or a PullReply.
template <typename T, typename AnyMessage>
auto& PartOf(AnyMessage& message, std::size_t table = 0) {
  return std::get<T>(message.body).tables.at(table);
}
// One message with the tables of both.
template <typename T>
Message Joined(Message first, const Message& second) {
  auto& tables = std::get<T>(first.body).tables;
  const auto& more = std::get<T>(second.body).tables;
  tables.insert(tables.end(), more.begin(), more.end());
  return first;
}

// The recorded events of the observer.
struct Events : ShardObserver {
  void OnPushApplied(Incarnation, PartitionId, Sequence sequence, Clock) override {
    applied.push_back(sequence);
    if (before_rows) before_rows();
  }
  void OnPushVoided(Incarnation, PartitionId, Sequence sequence, Clock) override { voided.push_back(sequence); }
  void OnPushTaken(WorkerRank, const Push&, std::size_t first_new) override { taken.push_back(first_new); }
  void OnPullServed(WorkerRank, Incarnation, const Pull& pull, Clock) override { served.push_back(pull.clock); }
  void OnClockClosed(Clock clock) override { closed.push_back(clock); }
  std::vector<Sequence> applied, voided;
  std::vector<std::size_t> taken;
  std::vector<Clock> served, closed;
  std::function<void()> before_rows;  // called after a push was checked, before its rows are accessed
};

inline TableSpec CountingTable(ConsistencyMode mode, ApplyMode apply, std::uint32_t staleness = 0) {
  TableSpec spec;
  spec.id = kTable;
  spec.name = "t";
  spec.dim = 2;
  spec.optimizer.learning_rate = 1.0f;  // SGD: value = -sum of gradients
  spec.consistency = {mode, staleness, apply};
  return spec;
}

inline WorkerEntry LiveWorker(std::uint32_t rank, std::uint64_t incarnation, std::uint64_t join = 0) {
  return {WorkerRank(rank), Incarnation(incarnation), WorkerState::kLive, Clock(join), Clock(0)};
}

class ShardTest : public testing::Test {
 protected:
  // Joins with these workers and this table.
  void Join(std::vector<WorkerEntry> workers, const TableSpec& table, ShardOptions options = {}) {
    options.nonce = 77;
    spec_ = table;
    store_ = std::make_unique<MemoryCheckpointStore>(&files_, options.shard,
                                                     [this](const CheckpointPart& part) { written_.push_back(part); });
    shard_ = std::make_unique<Shard>(options, store_.get(), &events_);
    shard_->Start(now_, &out_);
    view_.version = ViewVersion(1);
    view_.routes = {Epoch(1), kBits, EvenOwners(kBits, 1), {"tcp://127.0.0.1:1"}};
    view_.workers = std::move(workers);
    view_.tables = {table};
    out_.clear();
    SendWelcome("");
  }
  static std::string JobText() {
    Job job;
    job.job.seed = kJobSeed;
    job.fleet.lease_seconds = 10;
    job.fleet.heartbeat_seconds = 1;
    return ToToml(job);
  }
  void SendWelcome(const std::string& resume_directory) {
    Welcome welcome;
    welcome.nonce = 77;
    welcome.incarnation = Incarnation(5);
    welcome.job_text = JobText();
    welcome.resume_directory = resume_directory;
    welcome.view = view_;
    FromScheduler(welcome);
  }
  void FromScheduler(Body body) {
    Message message;
    message.job = kJobFingerprint;
    message.sender = {Role::kScheduler, 0, Incarnation(1)};
    message.body = std::move(body);
    shard_->OnMessage(kSchedulerPeer, std::move(message), now_, &out_);
  }
  // Sends view_ as the next version.
  void NextView() {
    ++view_.version.value;
    FromScheduler(ViewUpdate{view_});
  }

  PartitionId PartitionOfKey(Key key) const {
    return PartitionOf(Positioner(spec_, TableSalt(kJobSeed, spec_.name))(key), kBits);
  }
  // A key of the partition, the n-th from 0 on.
  Key KeyIn(std::uint32_t partition, int n = 0) const {
    for (Key key = 0;; ++key)
      if (PartitionOfKey(key) == PartitionId(partition) && n-- == 0) return key;
  }

  Message FromWorker(std::uint32_t rank, std::uint64_t incarnation, Body body) const {
    Message message;
    message.job = kJobFingerprint;
    message.sender = {Role::kWorker, rank, Incarnation(incarnation)};
    message.epoch = view_.routes.epoch;
    message.body = std::move(body);
    return message;
  }
  KeyList ListOf(Key key, std::uint64_t sequence) const {
    return {KeyCodec::kRaw, 0, 1, {{PartitionOfKey(key), 1, Sequence(sequence)}}, 0, Buffer::Copy(&key, sizeof key)};
  }
  // A push of one key, every gradient element `gradient`.
  Message PushOf(std::uint32_t rank, std::uint64_t incarnation, Key key, std::uint64_t sequence, std::uint64_t clock,
                 float gradient = 1.0f) const {
    const std::vector<float> values(spec_.dim, gradient);
    PushPart part{.table = kTable, .pulled_clock = Clock(clock), .keys = ListOf(key, sequence)};
    part.values = Buffer::CopyOf(std::span<const float>(values));
    return FromWorker(rank, incarnation, Push{RequestId(100 + sequence), Clock(clock), {part}});
  }
  Message PullOf(std::uint32_t rank, std::uint64_t incarnation, Key key, std::uint64_t clock, std::uint64_t request,
                 std::uint64_t sequence = 0) const {
    const PullPart part{.table = kTable, .keys = ListOf(key, sequence)};
    return FromWorker(rank, incarnation, Pull{RequestId(request), Clock(clock), {part}});
  }
  void Deliver(Message message) { shard_->OnMessage(kWorkerPeer, std::move(message), now_, &out_); }
  void Tick(std::uint32_t rank, std::uint64_t incarnation, std::uint64_t clock, std::uint64_t lease = 0) {
    Deliver(FromWorker(rank, incarnation, tarn::Tick{Clock(clock), {LeaseId(lease), clock}}));
  }

  // The messages of one kind sent since the last call; drops the others.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Outgoing& outgoing : out_)
      if (auto* body = std::get_if<T>(&outgoing.message.body)) found.push_back(std::move(*body));
    out_.clear();
    return found;
  }
  ErrorCode TakeError() {
    const auto errors = Take<ErrorReply>();
    return errors.size() == 1 ? errors[0].code : ErrorCode::kOk;
  }
  // The only acknowledgement of the only section pushed.
  SectionAck TakeAck() {
    const auto acks = Take<PushAck>();
    EXPECT_EQ(acks.size(), 1u);
    return acks.size() == 1 && acks[0].sections.size() == 1 ? acks[0].sections[0]
                                                            : SectionAck{{}, {}, ErrorCode::kInternal, {}};
  }
  float Value(Key key) const { return shard_->rows().Values(kTable, key).value()[0]; }

  TimeUs now_ = 1'000'000;
  Outbox out_;
  View view_;
  TableSpec spec_;
  Events events_;
  MemoryCheckpointFiles files_;
  std::vector<CheckpointPart> written_;
  std::unique_ptr<MemoryCheckpointStore> store_;
  std::unique_ptr<Shard> shard_;
};

}  // namespace tarn::server
