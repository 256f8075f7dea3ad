// Shows how batches in flight get their rows through a real client: which rows of a batch are requested with and
// without hot rows, what is counted (rules C4, H3, H9), and that evaluation begins without hot rows (H5).
#include "worker/train/pull_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>

#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kBound = 3;
constexpr TableId kUsers{1};

struct Scene {
  struct InFlight {
    std::vector<Plan> plans;
    BatchRows rows;
  };

  // Tables "users", which keeps hot rows, and "weights", dense.
  explicit Scene(std::uint64_t hot_rows = 1024,
                 ConsistencySpec consistency = {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate})
      : fleet(Options(consistency)) {
    job.consistency = fleet.job.consistency = consistency;
    job.worker_cache.own_pushes = OwnPushes::kBounded;
    job.train.hot_rows.rows = hot_rows;
    uses = {{fleet.view.tables[0], RowsNeeded::kBatchKeys}, {fleet.view.tables[1], RowsNeeded::kAll}};
  }

  static FleetOptions Options(const ConsistencySpec& consistency) {
    FleetOptions options;
    options.client.nonce = 1;
    options.tables = {SparseTable("users", 4), DenseTable("weights", 3, 20)};
    for (TableSpec& spec : options.tables) spec.consistency = consistency;
    return options;
  }

  void Start() {
    fleet.Run();
    auto made = PullStage::Make(job, uses, fleet.options.partition_bits, &fleet.client, &trace);
    ASSERT_TRUE(made) << made.error().message;
    stage = std::move(*made);
    fleet.lose = [this](const Message& message) {
      if (const auto* pull = std::get_if<Pull>(&message.body))
        for (const PullPart& part : pull->tables) asked += part.table == kUsers ? part.keys.count : 0;
      return false;
    };
  }

  // From now on shards answer with this minimum clock, and add it to all values.
  void At(std::uint64_t minimum) {
    for (FakeShard& shard : fleet.shards) {
      shard.minimum = Clock(minimum + kBound);
      shard.told_minimum = Clock(minimum);
      shard.shift = float(minimum);
    }
  }

  void Begin(const std::vector<Key>& keys, std::uint64_t use, bool train = true) {
    InFlight& batch = batches.emplace_back();
    batch.plans = {fleet.MakePlan(kUsers, keys), {}};
    ASSERT_TRUE(stage->Begin(batch.plans, Clock(use), train, fleet.now, &fleet.out, &batch.rows));
  }

  void Exchange() {
    fleet.Exchange();
    EXPECT_TRUE(stage->status());
  }

  // Ends the oldest batch. Returns the shifts of its rows of "users", by key.
  std::map<Key, float> Finish(bool pushed = true) {
    InFlight batch = std::move(batches.front());
    batches.pop_front();
    EXPECT_TRUE(batch.rows.ready());
    EXPECT_TRUE(stage->Read(&batch.rows, nullptr));
    std::map<Key, float> shifts;
    const Plan& plan = batch.plans[0];
    const std::size_t floats = plan.keys.size() * plan.dim;
    const float* rows = batch.rows.placed[0];
    if (rows == nullptr) {
      EXPECT_EQ(batch.rows.values[0].size(), floats * sizeof(float));
      rows = std::as_const(batch.rows.values[0]).as<float>().data();
    }
    for (std::size_t i = 0; i < floats; ++i) {
      const Key key = plan.keys[i / plan.dim];
      const float shift = rows[i] - ValueOf(kUsers, key, std::uint32_t(i % plan.dim));
      EXPECT_EQ(shifts.try_emplace(key, shift).first->second, shift) << "all of a row is of one version";
    }
    EXPECT_EQ(batch.rows.values[1].size(), 20 * 3 * sizeof(float));
    EXPECT_EQ(batch.rows.placed[1], nullptr);
    stage->End(&batch.rows, pushed, fleet.now, &fleet.out);
    return shifts;
  }

  // Runs a batch. Returns how many rows of "users" it requested from shards.
  std::uint32_t Run(const std::vector<Key>& keys, std::uint64_t use, bool train = true) {
    asked = 0;
    Begin(keys, use, train);
    Exchange();
    Finish(train);
    return asked;
  }

  FakeFleet fleet;
  Job job;
  std::vector<TableUse> uses;
  Trace trace;
  std::unique_ptr<PullStage> stage;
  std::deque<InFlight> batches;
  std::uint32_t asked = 0;
};

std::vector<Key> Keys(Key first, std::size_t n) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = first + i;
  return keys;
}

TEST(PullStage, WithoutHotRowsEverythingIsPulled) {
  Scene scene(0);
  scene.Start();
  scene.At(1);
  for (std::uint64_t use : {1, 1, 2}) EXPECT_EQ(scene.Run(Keys(0, 50), use), 50u);
  EXPECT_EQ(scene.stage->hot().looked_for(), 0u);
  EXPECT_EQ(scene.fleet.client.counters().pulls, 6u);
  EXPECT_EQ(scene.fleet.client.staleness(), (std::vector<std::uint64_t>{4, 2}));
}

TEST(PullStage, OnlyRowsThatAreNotHotArePulledAndAllAreCounted) {
  Scene scene;
  scene.Start();
  scene.At(2);
  EXPECT_EQ(scene.Run(Keys(0, 60), 4), 60u);  // 2 clocks behind
  scene.At(5);
  EXPECT_EQ(scene.Run(Keys(0, 60), 5), 0u);    // 3 behind: no row is requested
  EXPECT_EQ(scene.Run(Keys(30, 60), 5), 30u);  // 3 behind: the oldest of the hot and the pulled rows
  EXPECT_EQ(scene.Run(Keys(30, 60), 6), 30u);  // 1 behind: those of version 2 are too old now
  EXPECT_EQ(scene.stage->hot().looked_for(), 240u);
  EXPECT_EQ(scene.stage->hot().found(), 120u);
  EXPECT_EQ(scene.fleet.client.counters().pulls, 8u);
  // Of "users" 2, 3, 3, 1; of "weights" 2, 0, 0, 1.
  EXPECT_EQ(scene.fleet.client.staleness(), (std::vector<std::uint64_t>{2, 2, 2, 2}));
}

TEST(PullStage, BatchesInFlightGetTheirRowsInAnyOrderOfAnswers) {
  Scene scene;
  scene.Start();
  scene.At(0);
  scene.Begin(Keys(0, 40), 1);
  scene.Begin(Keys(20, 40), 2);
  scene.Begin(Keys(0, 60), 3);
  EXPECT_TRUE(scene.batches[2].rows.hot[0].missing().keys.empty()) << "all of it is on its way";
  EXPECT_FALSE(scene.batches[2].rows.ready()) << "its dense rows are not";
  std::vector<Message> first = scene.fleet.TakeSent(ShardPeer(ShardId(0)));
  scene.Exchange();  // shard 0 has received no message yet
  for (Message& message : first) scene.fleet.out.push_back({ShardPeer(ShardId(0)), std::move(message)});
  for (FakeShard& shard : scene.fleet.shards) shard.shift = 1;
  scene.Exchange();
  std::set<float> versions;
  for (const auto& [key, shift] : scene.Finish()) versions.insert(shift);
  EXPECT_EQ(versions, (std::set<float>{0, 1}));
  scene.Finish();
  EXPECT_EQ(scene.Finish().size(), 60u);
}

TEST(PullStage, APushHasTheVersionsOfRowsThatWereFoundInFlight) {
  Scene scene;
  scene.Start();
  scene.At(0);
  const auto take_sent = [&] {
    std::vector<Outgoing> sent;
    for (const std::uint32_t shard : {0, 1})
      for (Message& message : scene.fleet.TakeSent(ShardPeer(ShardId(shard))))
        sent.push_back({ShardPeer(ShardId(shard)), std::move(message)});
    return sent;
  };
  const auto answer = [&](std::vector<Outgoing> sent, std::uint64_t version) {
    for (FakeShard& shard : scene.fleet.shards) shard.version = Version(version);
    std::ranges::move(sent, std::back_inserter(scene.fleet.out));
    scene.Exchange();
  };
  scene.Begin(Keys(0, 40), 1);
  std::vector<Outgoing> first = take_sent();
  scene.Begin(Keys(0, 60), 2);
  EXPECT_EQ(scene.batches[1].rows.hot[0].missing().keys.size(), 20u) << "the others are on their way";
  std::vector<Outgoing> second = take_sent();
  answer(std::move(first), 4);
  answer(std::move(second), 9);
  scene.Finish();
  scene.Finish();

  const Plan plan = scene.fleet.MakePlan(kUsers, Keys(0, 40));
  scene.fleet.Push(plan, scene.fleet.Gradients(plan), Clock(2));
  std::set<std::uint64_t> versions;
  for (const Outgoing& sent : take_sent())
    if (const auto* push = std::get_if<Push>(&sent.message.body))
      for (const PushPart& part : push->tables)
        for (const Section& section : part.keys.sections) versions.insert(section.version.value);
  EXPECT_EQ(versions, std::set<std::uint64_t>{4});
}

TEST(PullStage, EvaluationBeginsWithoutHotRows) {
  Scene scene;
  scene.Start();
  scene.At(4);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 0u) << "its own rows stay";
  EXPECT_EQ(scene.Run(Keys(0, 50), 4), 0u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 50u);
}

// A worker that has no lease in the epoch between two evaluations goes from one to the next, within the bound.
TEST(PullStage, EachEvaluationBeginsWithoutHotRows) {
  Scene scene;
  scene.Start();
  scene.At(4);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 50u);
  scene.At(6);
  EXPECT_EQ(scene.Run(Keys(0, 50), 6, /*train=*/false), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 6, /*train=*/false), 0u);
}

TEST(PullStage, OwnPushesDropHotRowsIfTheJobWantsIt) {
  Scene scene;
  scene.job.worker_cache.own_pushes = OwnPushes::kSeen;
  scene.Start();
  scene.At(4);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.Run(Keys(0, 50), 4), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, /*train=*/false), 0u) << "evaluation pushes nothing";
  EXPECT_EQ(scene.Run(Keys(0, 30), 4), 0u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4), 30u);
}

// Rule C3 for batches that are pulled ahead: rows of a batch in flight are requested after its push, and the others at
// once, if they are many.
TEST(PullStage, ARowThatABatchInFlightWillPushIsRequestedAfterThatPush) {
  constexpr std::size_t kMany = 8000;
  Scene scene(0);
  scene.job.worker_cache.own_pushes = OwnPushes::kSeen;
  scene.Start();
  scene.At(1);
  scene.Run(Keys(100'000, kMany + 10), 1);  // as large as the largest that follows
  scene.asked = 0;
  scene.Begin(Keys(0, 40), 1);
  scene.Begin(Keys(20, 40), 2);  // too few others to be pulled ahead
  std::vector<Key> third = Keys(0, 10);
  for (const Key key : Keys(1000, kMany)) third.push_back(key);
  scene.Begin(third, 3);
  scene.Exchange();
  const std::uint32_t ahead = scene.asked - 40;
  EXPECT_GT(ahead, kMany * 3 / 4);
  EXPECT_LE(ahead, kMany);
  EXPECT_TRUE(scene.batches[0].rows.ready());
  EXPECT_FALSE(scene.batches[1].rows.ready());
  EXPECT_FALSE(scene.batches[2].rows.ready());
  EXPECT_EQ(scene.Finish().size(), 40u);
  scene.At(2);
  scene.Exchange();
  EXPECT_EQ(scene.asked, 40 + ahead + 40u);
  EXPECT_TRUE(scene.batches[0].rows.ready());
  for (const auto& [key, shift] : scene.Finish()) EXPECT_EQ(shift, 2) << key;
  scene.At(3);
  scene.Exchange();
  EXPECT_EQ(scene.asked, 40 + 40 + kMany + 10);
  std::size_t late = 0;
  for (const auto& [key, shift] : scene.Finish()) {
    if (key < 10) {
      EXPECT_EQ(shift, 3) << key;
    }
    late += shift == 3;
  }
  EXPECT_EQ(late, kMany + 10 - ahead);
  EXPECT_EQ(scene.fleet.client.counters().pulls, 8u) << "one a table and batch, in how many parts it came";
}

TEST(PullStage, WithoutOwnPushesToSeeAllRowsArePulledAhead) {
  for (const bool bsp : {false, true}) {
    Scene scene(0, {bsp ? ConsistencyMode::kBsp : ConsistencyMode::kSsp, bsp ? 0 : kBound, ApplyMode::kImmediate});
    scene.job.worker_cache.own_pushes = bsp ? OwnPushes::kSeen : OwnPushes::kBounded;
    scene.Start();
    scene.At(4);
    for (std::uint64_t use : {1, 2, 3}) scene.Begin(Keys(0, 40), use);
    scene.Exchange();
    EXPECT_EQ(scene.asked, 120u);
  }
}

// A skipped batch pushes nothing, and later batches continue.
TEST(PullStage, ABatchThatPushesNothingDelaysNoOther) {
  Scene scene(0);
  scene.job.worker_cache.own_pushes = OwnPushes::kSeen;
  scene.Start();
  scene.At(1);
  for (std::uint64_t use : {1, 2}) scene.Begin(Keys(0, 40), use);
  scene.Exchange();
  scene.Finish(/*pushed=*/false);
  scene.Exchange();
  EXPECT_EQ(scene.Finish().size(), 40u);
}

TEST(PullStage, ABatchBehindAFailedPullIsNeverComputed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Scene scene;
  scene.Start();
  scene.At(1);
  scene.Begin(Keys(0, 50), 1);
  for (std::uint32_t shard = 0; shard < 2; ++shard)
    for (const Message& message : scene.fleet.TakeSent(ShardPeer(ShardId(shard))))
      if (const auto* pull = std::get_if<Pull>(&message.body))
        scene.fleet.FromShard(shard, ErrorReply{pull->request, ErrorCode::kInvalidArgument, "no", {}});
  ASSERT_FALSE(scene.stage->status());
  EXPECT_EQ(scene.stage->status().error().code, ErrorCode::kInvalidArgument);
  scene.Begin(Keys(0, 50), 1);
  scene.fleet.Exchange();
  EXPECT_FALSE(scene.batches[0].rows.ready());
  EXPECT_TRUE(scene.batches[1].rows.ready());
  EXPECT_DEATH((void)scene.stage->Read(&scene.batches[1].rows, nullptr), "in the order in which they looked")
      << "it has found rows that will never come";
}

TEST(PullStage, TablesWithoutABoundKeepNoHotRows) {
  Scene scene(1024, {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate});
  scene.Start();
  scene.At(1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.Run(Keys(0, 50), 1), 50u);
  EXPECT_EQ(scene.stage->hot().looked_for(), 0u);
}

}  // namespace
}  // namespace tarn::worker
