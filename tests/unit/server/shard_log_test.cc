// Shows that a shard with a log acknowledges only what is durable (L1), and that it comes back from its log bit for
// bit, wherever it ended: random lives with pushes, ticks, deaths, joins, new tables and checkpoints, ended after each
// input.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/hash.h"
#include "server/log/log_format.h"
#include "server/log/memory_shard_log.h"
#include "tests/unit/server/log/faulty_files.h"
#include "tests/unit/server/shard_fixture.h"

namespace tarn::server {
namespace {

constexpr const char* kFolder = "run/log/shard-0";
constexpr std::uint64_t kRun = 99;

std::string LogJob() {
  Job job;
  job.job.seed = kJobSeed;
  job.storage.durability = Durability::kLog;
  job.fleet.lease_seconds = 10;
  job.fleet.heartbeat_seconds = 1;
  return ToToml(job);
}

TableSpec TableOf(std::uint32_t id) {
  static const struct {
    ConsistencyMode mode;
    ApplyMode apply;
    OptimizerKind optimizer;
  } kKinds[] = {{ConsistencyMode::kBsp, ApplyMode::kAggregated, OptimizerKind::kAdam},
                {ConsistencyMode::kSsp, ApplyMode::kImmediate, OptimizerKind::kAdagrad},
                {ConsistencyMode::kSsp, ApplyMode::kAggregated, OptimizerKind::kSgd}};
  const auto& kind = kKinds[id % 3];
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "t" + std::to_string(id);
  spec.dim = 1 + id;
  spec.kind = id == 2 ? TableKind::kDense : TableKind::kSparse;
  spec.rows = id == 2 ? 40 : 0;
  spec.optimizer.kind = kind.optimizer;
  spec.optimizer.learning_rate = 0.1f;
  spec.initializer = {InitializerKind::kUniform, -1, 1};
  spec.consistency = {kind.mode, 3, kind.apply};
  return spec;
}

// One shard, its log and its checkpoints.
struct Node {
  Node(MemoryDisk disk_of_it, MemoryCheckpointFiles* files, Fault* fault = nullptr)
      : disk(std::move(disk_of_it)),
        log(&disk, kFolder, Faulty(fault)),
        store(files, ShardId(0), [this](CheckpointPart part) { written.push_back(std::move(part)); }) {
    ShardOptions options;
    options.nonce = 77;
    options.log = &log;
    options.cut_slice_bytes = 1;
    shard.emplace(options, &store, nullptr);
    shard->Start(now, &out);
  }
  std::unique_ptr<FileOps> Faulty(Fault* fault) {
    if (fault == nullptr) return nullptr;
    return std::make_unique<FaultyFileOps>(MakeMemoryFileOps(&disk), fault);
  }
  void FromScheduler(Body body) {
    Message message;
    message.job = kJobFingerprint;
    message.sender = {Role::kScheduler, 0, Incarnation(1)};
    message.body = std::move(body);
    shard->OnMessage(kSchedulerPeer, std::move(message), now, &out);
  }
  void Welcomed(const View& view, LogOrder order, const std::string& resume) {
    Welcome welcome;
    welcome.nonce = 77;
    welcome.incarnation = Incarnation(5);
    welcome.job_text = LogJob();
    welcome.resume_directory = resume;
    welcome.view = view;
    welcome.log = order;
    FromScheduler(welcome);
  }
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Outgoing& outgoing : out)
      if (auto* body = std::get_if<T>(&outgoing.message.body)) found.push_back(std::move(*body));
    out.clear();
    return found;
  }
  void Commit() {
    log.Commit();
    shard->OnLogSynced(now, &out);
  }

  MemoryDisk disk;
  MemoryShardLog log;
  std::vector<CheckpointPart> written;
  MemoryCheckpointStore store;
  Outbox out;
  TimeUs now = 1'000'000;
  std::optional<Shard> shard;
};

View FirstView(std::vector<WorkerEntry> workers) {
  View view;
  view.version = ViewVersion(1);
  view.routes = {Epoch(1), kBits, EvenOwners(kBits, 1), {"tcp://127.0.0.1:1"}};
  view.workers = std::move(workers);
  view.tables = {TableOf(1)};
  return view;
}

// A life of a shard: random inputs, and the state behind each.
class Life {
 public:
  explicit Life(std::uint64_t seed) : random_(seed), node_(MemoryDisk(), &files_) {
    view_ = FirstView({LiveWorker(0, 10), LiveWorker(1, 11)});
    for (std::uint64_t i : {10, 11}) workers_[i] = {};
    node_.Welcomed(view_, {.run = kRun}, "");
    node_.Commit();  // before that nobody knows of a log
    Note();
  }

  void Step() {
    const std::uint64_t dice = random_.Below(100);
    if (dice < 62) {
      Push();
    } else if (dice < 86) {
      Tick();
    } else if (dice < 90) {
      Checkpoint();
    } else if (dice < 93) {
      Die();
    } else if (dice < 96) {
      Join();
    } else if (view_.tables.size() < 3) {
      view_.tables.push_back(TableOf(static_cast<std::uint32_t>(view_.tables.size() + 1)));
      NextView();
    }
    node_.now += 1000;
    while (node_.shard->NextTimer() < node_.now) node_.shard->OnTimer(node_.now, &node_.out);
    for (CheckpointPart& part : std::exchange(node_.written, {})) {
      const CheckpointId id = part.id;
      const bool given_up = part.code == ErrorCode::kCancelled;
      node_.shard->OnCheckpointWritten(std::move(part), node_.now, &node_.out);
      if (given_up) continue;
      node_.Commit();
      view_.whole = whole_ = id;
      view_.checkpoint = {};
      NextView();
    }
    ASSERT_FALSE(node_.shard->stopped()) << node_.shard->stop_reason().reason;
    Note();
  }

  // Ends here and comes back. `cut`: the power goes, with what is not durable yet written or not.
  void Recover(bool cut) {
    MemoryDisk disk = node_.disk.Copy();
    if (cut) {
      disk.LosePower([this](std::uint64_t below) { return random_.Below(below); });
    } else {
      disk.EndProcess();
    }
    const LogSequence durable = *node_.log.TakeSynced();
    Node again(std::move(disk), &files_);
    View view = view_;
    view.version = ViewVersion(0);  // older than what the log has: changes nothing
    again.Welcomed(view, {kRun, true, whole_, durable}, whole_.value == 0 ? "" : Directory(whole_));
    ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
    const LogSequence end = again.log.recovered();
    ASSERT_GE(end, durable);
    const auto state = states_.find(end);
    if (state == states_.end()) {
      ASSERT_TRUE(cut) << "the middle of an input";
      return;
    }
    ASSERT_EQ(again.shard->DurableHash(), state->second) << "behind record " << end.value;
    ++compared;
    from_checkpoint += whole_.value != 0 ? 1 : 0;
  }

  void Write() { node_.log.Write(); }
  void Commit() { node_.Commit(); }
  int compared = 0, from_checkpoint = 0;

 private:
  struct Worker {
    Clock clock;
    std::map<std::uint32_t, std::uint64_t> sequences;  // by partition
  };

  static std::string Directory(CheckpointId id) { return "ckpt-" + std::to_string(id.value); }
  void Note() { states_[node_.log.appended()] = node_.shard->DurableHash(); }

  void NextView() {
    ++view_.version.value;
    node_.FromScheduler(ViewUpdate{view_});
  }
  std::uint64_t AnyWorker() {
    std::vector<std::uint64_t> live;
    for (const auto& [incarnation, worker] : workers_) live.push_back(incarnation);
    return live[random_.Below(live.size())];
  }
  std::uint32_t RankOf(std::uint64_t incarnation) const {
    for (const WorkerEntry& entry : view_.workers)
      if (entry.incarnation.value == incarnation) return entry.rank.value;
    return 0;
  }
  void Deliver(std::uint64_t incarnation, Body body, Buffer keys = {}, Buffer values = {}) {
    Message message;
    message.job = kJobFingerprint;
    message.sender = {Role::kWorker, RankOf(incarnation), Incarnation(incarnation)};
    message.epoch = view_.routes.epoch;
    message.body = std::move(body);
    message.keys = std::move(keys);
    message.values = std::move(values);
    node_.shard->OnMessage(kWorkerPeer, std::move(message), node_.now, &node_.out);
  }

  // A push to several partitions; some of its sections may be repeated ones, which are not taken again.
  void Push() {
    const std::uint64_t incarnation = AnyWorker();
    Worker& worker = workers_[incarnation];
    const TableSpec& spec = view_.tables[random_.Below(view_.tables.size())];
    const Positioner position(spec, TableSalt(kJobSeed, spec.name));
    std::map<std::uint32_t, std::set<Key>> by_partition;
    for (std::uint64_t i = 0, n = 1 + random_.Below(6); i < n; ++i) {
      const Key key = random_.Below(40);
      by_partition[PartitionOf(position(key), kBits).value].insert(key);
    }
    tarn::Push push{RequestId(next_request_++), spec.id, Clock(worker.clock.value + random_.Below(2)), worker.clock};
    std::vector<Key> keys;
    for (const auto& [partition, of_it] : by_partition) {
      std::uint64_t& sequence = worker.sequences[partition];
      const bool repeated = sequence > 0 && random_.Chance(0.1);
      push.keys.sections.push_back({PartitionId(partition), static_cast<std::uint32_t>(of_it.size()),
                                    Sequence(repeated ? sequence : ++sequence)});
      keys.insert(keys.end(), of_it.begin(), of_it.end());
    }
    push.keys.count = static_cast<std::uint32_t>(keys.size());
    push.codec = random_.Chance(0.3) ? ValueCodec::kBf16 : ValueCodec::kFp32;
    Buffer values = Buffer::Allocate(keys.size() * spec.dim * (push.codec == ValueCodec::kFp32 ? 4 : 2));
    // Small numbers in both codecs: the upper half of a float.
    for (std::size_t i = 0; i < values.size(); ++i)
      values.data()[i] = std::byte(i % 2 == 1 ? 0x3d : random_.Below(256));
    Deliver(incarnation, push, Buffer::CopyOf(std::span<const Key>(keys)), values);
    // Refused for now (a cut is due): it comes again, with the same numbers.
    for (const PushAck& ack : node_.Take<PushAck>())
      for (const SectionAck& section : ack.sections)
        if (section.code == ErrorCode::kOverloaded) --worker.sequences[section.partition.value];
  }

  void Tick() {
    const std::uint64_t incarnation = AnyWorker();
    Worker& worker = workers_[incarnation];
    std::vector<TickPoint> earlier;
    if (random_.Chance(0.2)) {
      earlier.push_back({worker.clock + 1, {LeaseId(1), worker.clock.value + 1}});
      worker.clock.value += 1;
    }
    worker.clock.value += 1;
    Deliver(incarnation, tarn::Tick{worker.clock, {LeaseId(1), worker.clock.value}, earlier});
  }

  void Checkpoint() {
    if (view_.checkpoint.id.value != 0) return;
    view_.checkpoint.id = CheckpointId(++last_order_);
    view_.checkpoint.at_clock = random_.Chance(0.6);
    view_.checkpoint.clock = node_.shard->minimum_clock() + random_.Below(4);
    view_.checkpoint.directory = random_.Chance(0.9) ? Directory(view_.checkpoint.id) : "";
    NextView();
    if (random_.Chance(0.1) || view_.checkpoint.directory.empty()) {  // given up
      view_.checkpoint = {};
      NextView();
    }
  }

  void Die() {
    if (workers_.size() < 2) return;
    const std::uint64_t incarnation = AnyWorker();
    for (WorkerEntry& entry : view_.workers) {
      if (entry.incarnation.value != incarnation) continue;
      entry.state = WorkerState::kFencing;
      NextView();
      entry.state = WorkerState::kEnded;
      entry.end = workers_[incarnation].clock;
    }
    workers_.erase(incarnation);
    NextView();
    if (random_.Chance(0.5)) {
      std::erase_if(view_.workers, [&](const WorkerEntry& entry) {
        return entry.state == WorkerState::kEnded && entry.end <= node_.shard->minimum_clock();
      });
      NextView();
    }
  }

  void Join() {
    if (workers_.size() > 4) return;
    Clock most = node_.shard->minimum_clock();
    for (const auto& [incarnation, worker] : workers_) most = std::max(most, worker.clock);
    const std::uint64_t incarnation = next_incarnation_++;
    view_.workers.push_back(LiveWorker(static_cast<std::uint32_t>(incarnation % 5), incarnation, most.value + 2));
    workers_[incarnation] = {.clock = most + 2};
    NextView();
  }

  SplitMix random_;
  MemoryCheckpointFiles files_;
  Node node_;
  View view_;
  CheckpointId whole_;
  std::map<std::uint64_t, Worker> workers_;
  std::map<LogSequence, std::uint64_t> states_;
  std::uint64_t next_request_ = 1, last_order_ = 0, next_incarnation_ = 12;
};

TEST(ShardLogTest, ComesBackFromEveryInputBitForBit) {
  int from_checkpoint = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Life life(seed);
    for (int step = 0; step < 100; ++step) {
      life.Step();
      life.Commit();
      life.Recover(false);
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(life.compared, 100);
    from_checkpoint += life.from_checkpoint;
  }
  EXPECT_GT(from_checkpoint, 500);
}

TEST(ShardLogTest, ComesBackFromLossesOfPower) {
  int compared = 0;
  for (std::uint64_t seed = 100; seed <= 160; ++seed) {
    SCOPED_TRACE(seed);
    Life life(seed);
    SplitMix random(seed);
    for (int step = 0; step < 80; ++step) {
      life.Step();
      if (random.Chance(0.3)) life.Write();
      if (random.Chance(0.2)) life.Recover(true);
      if (random.Chance(0.3)) life.Commit();
      if (testing::Test::HasFatalFailure()) return;
    }
    compared += life.compared;
  }
  EXPECT_GT(compared, 400);
}

// A message of worker 10 to a shard of FirstView.
Message FromWorker10(Body body) {
  Message message;
  message.job = kJobFingerprint;
  message.sender = {Role::kWorker, 0, Incarnation(10)};
  message.epoch = Epoch(1);
  message.body = std::move(body);
  return message;
}

Message PushOfOneKey(std::uint64_t sequence) {
  const Key key = 7;
  const TableSpec spec = TableOf(1);
  const PartitionId partition = PartitionOf(Positioner(spec, TableSalt(kJobSeed, spec.name))(key), kBits);
  Message message = FromWorker10(Push{RequestId(sequence),
                                      spec.id,
                                      Clock(0),
                                      Clock(0),
                                      ValueCodec::kFp32,
                                      {KeyCodec::kRaw, 0, 1, {{partition, 1, Sequence(sequence)}}}});
  message.keys = Buffer::Copy(&key, sizeof key);
  message.values = Buffer::CopyOf(std::span<const float>(std::vector<float>{1, 1}));
  return message;
}

class ShardWithLog : public testing::Test {
 protected:
  ShardWithLog() : node_(MemoryDisk(), &files_) {}
  void Join() {
    view_ = FirstView({LiveWorker(0, 10)});
    node_.Welcomed(view_, {.run = kRun}, "");
  }
  void Deliver(Message message) { node_.shard->OnMessage(kWorkerPeer, std::move(message), node_.now, &node_.out); }
  void Push(std::uint64_t sequence) { Deliver(PushOfOneKey(sequence)); }
  void Tick(std::uint64_t clock) { Deliver(FromWorker10(tarn::Tick{Clock(clock), {LeaseId(1), clock}, {}})); }

  MemoryCheckpointFiles files_;
  Node node_;
  View view_;
};

TEST_F(ShardWithLog, NothingIsConfirmedBeforeItIsDurable) {
  Join();
  EXPECT_TRUE(node_.Take<Heartbeat>().empty()) << "the view is not confirmed yet";
  node_.Commit();
  EXPECT_EQ(node_.Take<Heartbeat>().size(), 1u);
  Push(1);
  Tick(1);
  EXPECT_TRUE(node_.out.empty());
  node_.log.Write();
  node_.shard->OnLogSynced(node_.now, &node_.out);
  EXPECT_TRUE(node_.out.empty()) << "written is not durable";
  node_.Commit();
  ASSERT_EQ(node_.out.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PushAck>(node_.out[0].message.body));
  EXPECT_TRUE(std::holds_alternative<TickAck>(node_.out[1].message.body));
}

TEST_F(ShardWithLog, ARepeatedPushWaitsForTheFirst) {
  Join();
  node_.Commit();
  node_.out.clear();
  Push(1);
  Push(1);
  EXPECT_TRUE(node_.out.empty());
  node_.Commit();
  EXPECT_EQ(node_.Take<PushAck>().size(), 2u);
  Push(1);
  EXPECT_EQ(node_.Take<PushAck>().size(), 1u) << "durable long since";
}

TEST_F(ShardWithLog, HeartbeatsTellWhatIsDurable) {
  Join();
  node_.Commit();
  Tick(3);
  node_.now += 2'000'000;
  node_.shard->OnTimer(node_.now, &node_.out);
  for (const Heartbeat& beat : node_.Take<Heartbeat>()) EXPECT_EQ(beat.clock, Clock(0));
  node_.Commit();
  const auto beats = node_.Take<Heartbeat>();
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].clock, Clock(3));
}

TEST_F(ShardWithLog, AJobWithALogNeedsOne) {
  view_ = FirstView({LiveWorker(0, 10)});
  node_.Welcomed(view_, {}, "");
  EXPECT_TRUE(node_.shard->stopped());
  EXPECT_EQ(node_.shard->stop_reason().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShardWithLog, ADamagedLogIsNotServedFrom) {
  Join();
  Push(1);
  node_.Commit();
  Push(2);
  node_.Commit();
  MemoryDisk disk = node_.disk.Copy();
  (*disk.Find(std::string(kFolder) + "/" + SegmentName(1)))[kLogPage + 50] ^= std::byte{1};
  Node again(std::move(disk), &files_);
  again.Welcomed(view_, {.run = kRun, .recover = true}, "");
  ASSERT_TRUE(again.shard->stopped());
  EXPECT_EQ(again.shard->stop_reason().code, ErrorCode::kCorrupt);
  EXPECT_NE(again.shard->stop_reason().reason.find(SegmentName(1)), std::string::npos)
      << again.shard->stop_reason().reason;
}

// A log that ends before what the scheduler knows to be in it.
TEST_F(ShardWithLog, AnOlderLogIsNotServedFrom) {
  Join();
  node_.Commit();
  Node again(node_.disk.Copy(), &files_);
  again.Welcomed(view_, {.run = kRun, .recover = true, .at_least = LogSequence(3)}, "");
  ASSERT_TRUE(again.shard->stopped());
  EXPECT_EQ(again.shard->stop_reason().code, ErrorCode::kCorrupt);
}

// Pushes until its log fails at operation n. Whatever failed, what was acknowledged comes back.
void PushUntilItFails(FaultKind kind, std::uint64_t n, bool* failed) {
  MemoryCheckpointFiles files;
  Fault fault{.at = n, .kind = kind};
  Node node(MemoryDisk(), &files, &fault);
  const View view = FirstView({LiveWorker(0, 10)});
  node.Welcomed(view, {.run = kRun}, "");
  std::uint64_t acked = 0;
  bool begun = false;
  for (std::uint64_t sequence = 1; sequence <= 6 && !node.shard->stopped(); ++sequence) {
    node.Commit();
    begun |= !node.Take<Heartbeat>().empty();
    node.shard->OnMessage(kWorkerPeer, PushOfOneKey(sequence), node.now, &node.out);
    node.Commit();
    for (const PushAck& ack : node.Take<PushAck>()) acked = ack.sections[0].sequence.value;
  }
  *failed = node.shard->stopped();
  if (*failed) {
    EXPECT_EQ(node.shard->stop_reason().code, ErrorCode::kIo);
    EXPECT_NE(node.shard->stop_reason().reason.find(kFolder), std::string::npos) << node.shard->stop_reason().reason;
  }
  if (!begun) return;
  MemoryDisk disk = node.disk.Copy();
  disk.EndProcess();
  Node again(std::move(disk), &files);
  View older = view;
  older.version = ViewVersion(0);
  again.Welcomed(older, {.run = kRun, .recover = true}, "");
  ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
  if (acked == 0) return;
  again.shard->OnMessage(kWorkerPeer, PushOfOneKey(acked), again.now, &again.out);
  EXPECT_EQ(again.shard->counters().pushes_repeated, 1u) << "operation " << n << ", push " << acked;
}

TEST(ShardLogTest, EveryOperationOfItsLogMayFail) {
  for (FaultKind kind : {FaultKind::kError, FaultKind::kShortWrite, FaultKind::kFull, FaultKind::kHalt}) {
    bool failed = true;
    std::uint64_t n = 0;
    for (; failed; ++n) PushUntilItFails(kind, n, &failed);
    EXPECT_GT(n, 20u);
  }
}

}  // namespace
}  // namespace tarn::server
