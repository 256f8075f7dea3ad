// Random lives of one shard with a log, for tests: pushes, ticks, deaths, joins, new tables and checkpoints, and
// recoveries after any of them, which must restore the same state. The tables, a memory budget and incremental
// checkpoints are options, which a test may combine.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "server/log/log_format.h"
#include "sim/disks/memory_cold_store.h"
#include "sim/disks/memory_shard_log.h"
#include "tests/unit/server/log/faulty_files.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {

constexpr const char* kFolder = "run/log/shard-0";
constexpr std::uint64_t kRun = 99;

inline std::string LogJob() {
  Job job;
  job.job.seed = kJobSeed;
  job.storage.durability = Durability::kLog;
  job.fleet.lease_seconds = 10;
  job.fleet.heartbeat_seconds = 1;
  return ToToml(job);
}

inline TableSpec TableOf(std::uint32_t id) {
  static const struct {
    ConsistencyMode mode;
    ApplyMode apply;
    const char* optimizer;
  } kKinds[] = {{ConsistencyMode::kBsp, ApplyMode::kAggregated, "adam"},
                {ConsistencyMode::kSsp, ApplyMode::kImmediate, "adagrad"},
                {ConsistencyMode::kSsp, ApplyMode::kAggregated, "sgd"}};
  const auto& kind = kKinds[id % 3];
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = std::string("t").append(std::to_string(id));
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
  // memory_limit 0: no tier. `late`: asynchronous operations of the tier's store end in EndWork, not at once.
  Node(MemoryDisk disk_of_it, MemoryCheckpointFiles* files, std::size_t memory_limit = 0, bool late = false,
       Fault* fault = nullptr)
      : disk(std::move(disk_of_it)),
        log(&disk, kFolder, Faulty(fault)),
        store(files, ShardId(0), [this](CheckpointPart part) { written.push_back(std::move(part)); }) {
    ShardOptions options;
    options.nonce = 77;
    options.log = &log;
    options.cut_slice_bytes = 1;
    if (memory_limit != 0)
      options.make_tier = [this, memory_limit, late](const Job&) -> Expected<Tier> {
        auto rows = late ? std::make_unique<MemoryColdStore>([] {}) : std::make_unique<MemoryColdStore>();
        cold = rows.get();
        return Tier{std::move(rows), memory_limit};
      };
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
  // Ends the operations of the tier's store, and those that the shard then begins. Returns whether there were any.
  bool EndWork() {
    bool any = false;
    for (; cold != nullptr && cold->under_way() != 0; any = true) {
      cold->RunOne();
      shard->OnTier(now, &out);
    }
    return any;
  }

  MemoryDisk disk;
  MemoryShardLog log;
  std::vector<CheckpointPart> written;
  MemoryCheckpointStore store;
  Outbox out;
  TimeUs now = 1'000'000;
  MemoryColdStore* cold = nullptr;  // the shard's
  std::optional<Shard> shard;
};

inline View FirstView(std::vector<WorkerEntry> workers, const TableSpec& table = TableOf(1)) {
  View view;
  view.version = ViewVersion(1);
  view.routes = {Epoch(1), kBits, EvenOwners(kBits, 1), {"tcp://127.0.0.1:1"}};
  view.workers = std::move(workers);
  view.tables = {table};
  return view;
}

struct LifeOptions {
  std::uint64_t seed = 1;
  std::vector<TableSpec> tables = {TableOf(1), TableOf(2), TableOf(3)};  // the first exists from the beginning
  std::size_t memory_limit = 0;                                          // 0: all rows stay in memory
  bool late = false;      // rows are read from disk asynchronously, not at once
  bool chains = false;    // incremental checkpoints
  double two_tables = 0;  // how often a push has rows of two tables
};

// A life of a shard: random inputs, and the state after each.
class Life {
 public:
  explicit Life(LifeOptions options)
      : options_(std::move(options)),
        random_(options_.seed),
        node_(MemoryDisk(), &files_, options_.memory_limit, options_.late) {
    view_ = FirstView({LiveWorker(0, 10), LiveWorker(1, 11)}, options_.tables[0]);
    for (std::uint64_t i : {10, 11}) workers_[i] = {};
    node_.Welcomed(view_, {.run = kRun}, "");
    node_.Commit();  // before that the log has no durable record
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
    } else if (view_.tables.size() < options_.tables.size()) {
      view_.tables.push_back(options_.tables[view_.tables.size()]);
      NextView();
    }
    node_.now += 1000;
    do {
      while (node_.shard->NextTimer() < node_.now) node_.shard->OnTimer(node_.now, &node_.out);
    } while (node_.EndWork());
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

  // Ends the shard and recovers it. `cut`: the power fails, so that unsynced data is written or lost at random.
  void Recover(bool cut) {
    MemoryDisk disk = node_.disk.Copy();
    if (cut) {
      disk.LosePower([this](std::uint64_t below) { return random_.Below(below); });
    } else {
      disk.EndProcess();
    }
    const LogSequence durable = *node_.log.TakeSynced();
    Node again(std::move(disk), &files_, options_.memory_limit, options_.late);
    View view = view_;
    view.version = ViewVersion(0);  // older than the view in the log, so it changes nothing
    again.Welcomed(view, {kRun, true, whole_, durable}, whole_.value == 0 ? "" : Directory(whole_));
    ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
    const LogSequence end = again.log.recovered();
    ASSERT_GE(end, durable);
    const auto state = states_.find(end);
    if (state == states_.end()) {
      ASSERT_TRUE(cut) << "the middle of an input";
      return;
    }
    ASSERT_EQ(again.shard->DurableHash().value(), state->second) << "behind record " << end.value;
    ++compared;
    from_checkpoint += whole_.value != 0 ? 1 : 0;
  }

  void Write() { node_.log.Write(); }
  void Commit() { node_.Commit(); }
  std::uint64_t hash() const { return node_.shard->DurableHash().value(); }
  const Shard& shard() const { return *node_.shard; }
  int compared = 0, from_checkpoint = 0;

 private:
  struct Worker {
    Clock clock;
    std::map<std::uint32_t, std::uint64_t> sequences;  // by partition
  };

  static std::string Directory(CheckpointId id) { return std::string("ckpt-").append(std::to_string(id.value)); }
  void Note() { states_[node_.log.appended()] = node_.shard->DurableHash().value(); }

  void NextView() {
    ++view_.version.value;
    node_.FromScheduler(ViewUpdate{view_});
  }
  std::uint64_t AnyWorker() {
    std::vector<std::uint64_t> live;
    live.reserve(workers_.size());
    for (const auto& [incarnation, worker] : workers_) live.push_back(incarnation);
    return live[random_.Below(live.size())];
  }
  std::uint32_t RankOf(std::uint64_t incarnation) const {
    for (const WorkerEntry& entry : view_.workers)
      if (entry.incarnation.value == incarnation) return entry.rank.value;
    return 0;
  }
  void Deliver(std::uint64_t incarnation, Body body) {
    Message message;
    message.job = kJobFingerprint;
    message.sender = {Role::kWorker, RankOf(incarnation), Incarnation(incarnation)};
    message.epoch = view_.routes.epoch;
    message.body = std::move(body);
    node_.shard->OnMessage(kWorkerPeer, std::move(message), node_.now, &node_.out);
    for (int i = 0; i < 3; ++i)
      node_.shard->OnTier(node_.now, &node_.out);  // rows from disk arrive, and waiting messages continue
    node_.EndWork();
  }

  // Rows of one table in several partitions; some sections may be repetitions, which are not applied again.
  PushPart RowsOf(const TableSpec& spec, Worker* worker) {
    const Positioner position(spec, TableSalt(kJobSeed, spec.name));
    std::map<std::uint32_t, std::set<Key>> by_partition;
    for (std::uint64_t i = 0, n = 1 + random_.Below(6); i < n; ++i) {
      const Key key = random_.Below(40);
      by_partition[PartitionOf(position(key), kBits).value].insert(key);
    }
    PushPart part{.table = spec.id, .pulled_clock = worker->clock};
    std::vector<Key> keys;
    for (const auto& [partition, of_it] : by_partition) {
      std::uint64_t& sequence = worker->sequences[partition];
      const bool repeated = sequence > 0 && random_.Chance(0.1);
      part.keys.sections.push_back({PartitionId(partition), static_cast<std::uint32_t>(of_it.size()),
                                    Sequence(repeated ? sequence : ++sequence)});
      keys.insert(keys.end(), of_it.begin(), of_it.end());
    }
    part.keys.count = static_cast<std::uint32_t>(keys.size());
    part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
    part.codec = random_.Chance(0.3) ? ValueCodec::kBf16 : ValueCodec::kFp32;
    part.values = Buffer::Allocate(keys.size() * spec.dim * (part.codec == ValueCodec::kFp32 ? 4 : 2));
    // Small numbers in both codecs: the upper half of a float.
    for (std::size_t i = 0; i < part.values.size(); ++i)
      part.values.data()[i] = std::byte(i % 2 == 1 ? 0x3d : random_.Below(256));
    return part;
  }

  // A push of rows of one table or of two.
  void Push() {
    const std::uint64_t incarnation = AnyWorker();
    Worker& worker = workers_[incarnation];
    tarn::Push push{RequestId(next_request_++), Clock(worker.clock.value + random_.Below(2)), {}};
    const std::size_t first = random_.Below(view_.tables.size());
    const bool two = options_.two_tables > 0 && view_.tables.size() > 1 && random_.Chance(options_.two_tables);
    for (std::size_t i = 0; i < (two ? 2 : 1); ++i)
      push.tables.push_back(RowsOf(view_.tables[(first + i) % view_.tables.size()], &worker));
    Deliver(incarnation, push);
    // Rejected (a cut is due, or a section of the same partition was rejected): repeated later with the same numbers.
    for (const PushAck& ack : node_.Take<PushAck>())
      for (const SectionAck& section : ack.sections)
        if (section.code == ErrorCode::kOverloaded || (two && section.code == ErrorCode::kOutOfOrder))
          --worker.sequences[section.partition.value];
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
    if (options_.chains && whole_.value != 0 && last_order_ % 4 != 0) {
      view_.checkpoint.base = whole_;
      view_.checkpoint.base_directory = Directory(whole_);
    }
    NextView();
    if (random_.Chance(0.1) || view_.checkpoint.directory.empty()) {  // abandoned
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

  LifeOptions options_;
  SplitMix random_;
  MemoryCheckpointFiles files_;
  Node node_;
  View view_;
  CheckpointId whole_;
  std::map<std::uint64_t, Worker> workers_;
  std::map<LogSequence, std::uint64_t> states_;
  std::uint64_t next_request_ = 1, last_order_ = 0, next_incarnation_ = 12;
};

}  // namespace tarn::server
