// Shows that no batch reads a row that is older than the staleness bound allows, whether the row was kept, is pending
// for an earlier batch, or was pulled without a slot. Random batches, several in flight, are compared with a model of
// the servers; then each special case is tested.
#include "worker/train/hot_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core/hash.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kDim = 2, kPartitionBits = 3;
constexpr std::uint64_t kBucket = 128;  // rows of the smallest cache

ConsistencySpec Ssp(std::uint32_t bound) { return {ConsistencyMode::kSsp, bound, ApplyMode::kImmediate}; }

// A table and its servers. The value of a row tells its key and the version that the servers had.
class Scene {
 public:
  struct InFlight {
    Plan plan;
    HotBatch hot;
    Clock use;
    std::uint64_t looked_at = 0;
    bool arrived = false;
    std::size_t missing() const { return hot.missing().keys.size(); }
  };

  explicit Scene(ConsistencySpec consistency, HotTableOptions options = {.keep = {.rows = kBucket}}) {
    spec_.name = "users";
    spec_.dim = kDim;
    spec_.consistency = consistency;
    seen_ = options.own_pushes == OwnPushes::kSeen && consistency.apply == ApplyMode::kImmediate;
    auto table = HotTable::Make(place_.get(), spec_, options);
    TARN_CHECK(table.has_value(), "a small table has room");
    table_ = std::move(*table);
  }

  // Looks up a batch for use at clock `use`.
  InFlight& Look(const std::vector<Key>& keys, std::uint64_t use) {
    InFlight& batch = batches_.emplace_back();
    batch.use = Clock(use);
    batch.looked_at = ++now_;
    Planner planner(kPartitionBits);
    planner.Make(TableId(1), kDim, Positioner(spec_, 5), keys, &batch.plan);
    EXPECT_TRUE(table_->Look(batch.plan, batch.use, &batch.hot));
    ExpectSoundPart(batch.plan, batch.hot.missing());
    batch.arrived = batch.missing() == 0;
    return batch;
  }

  // Answers the batch's pull with the rows that servers have at `version`.
  void Arrive(InFlight* batch, std::uint64_t version) {
    const Plan& missing = batch->hot.missing();
    Buffer values = Buffer::Allocate(missing.keys.size() * kDim * sizeof(float));
    for (std::size_t i = 0; i < missing.keys.size(); ++i) {
      values.as_mutable<float>()[i * kDim] = float(missing.keys[i]);
      values.as_mutable<float>()[i * kDim + 1] = float(pulls_.size());
    }
    pulls_.push_back({version, batch->looked_at});
    EXPECT_TRUE(table_->Arrive(std::move(values), Clock(version), &batch->hot));
    batch->arrived = true;
  }

  // The oldest batch computes, pushes and ends. Returns the versions that it read, in the order of its plan.
  std::vector<std::uint64_t> Finish(bool pushes = true) {
    InFlight& batch = batches_.front();
    const std::size_t n = batch.plan.keys.size();
    const auto read = table_->Read(&batch.hot);
    EXPECT_TRUE(read) << read.error().message;
    const float* rows = *read;
    std::vector<std::uint64_t> versions;
    std::uint64_t oldest = batch.use.value;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(rows[i * kDim], float(batch.plan.keys[i]));
      const Pull& pull = pulls_.at(static_cast<std::size_t>(rows[i * kDim + 1]));
      EXPECT_GE(pull.version + Bound(), batch.use.value) << "the staleness bound";
      EXPECT_GE(pull.version, cleared_at_) << "evaluation begins with nothing";
      if (const auto pushed = pushed_.find(batch.plan.keys[i]); seen_ && pushed != pushed_.end()) {
        // Of pushes before the batch looked, what it reads was asked for behind all.
        for (const std::uint64_t at : pushed->second) EXPECT_FALSE(at < batch.looked_at && at > pull.asked_at);
      }
      versions.push_back(pull.version);
      oldest = std::min(oldest, pull.version);
    }
    if (pushes) Push(batch);
    table_->End(&batch.hot);
    EXPECT_EQ(batch.hot.staleness(), batch.use.value - oldest);
    batches_.pop_front();
    return versions;
  }

  // Runs a batch from lookup to end. Returns how many of its rows were requested.
  std::size_t Run(const std::vector<Key>& keys, std::uint64_t use, std::uint64_t version, bool pushes = true) {
    InFlight& batch = Look(keys, use);
    const std::size_t missing = batch.missing();
    if (missing != 0) Arrive(&batch, version);
    Finish(pushes);
    return missing;
  }

  void Clear(std::uint64_t version) {
    table_->Clear();
    cleared_at_ = version;
  }

  std::deque<InFlight>& batches() { return batches_; }
  const HotTable& table() const { return *table_; }

 private:
  struct Pull {
    std::uint64_t version, asked_at;
  };

  std::uint64_t Bound() const {
    return spec_.consistency.mode == ConsistencyMode::kSsp ? spec_.consistency.staleness : 0;
  }

  void Push(const InFlight& batch) {
    table_->Push(batch.hot);
    ++now_;
    for (const Key key : batch.plan.keys) pushed_[key].push_back(now_);
  }

  // Expects that the client can divide `part`: its runs are in order of partition, with their keys in the plan's order.
  static void ExpectSoundPart(const Plan& plan, const Plan& part) {
    EXPECT_EQ(part.dim, plan.dim);
    std::map<Key, PartitionId> of;
    for (const PlanRun& run : plan.runs)
      for (std::uint32_t i = 0; i < run.count; ++i) of[plan.keys[run.begin + i]] = run.partition;
    std::uint32_t next = 0;
    for (const PlanRun& run : part.runs) {
      EXPECT_EQ(run.begin, next);
      EXPECT_GT(run.count, 0u);
      for (std::uint32_t i = 0; i < run.count; ++i) EXPECT_EQ(of.at(part.keys[run.begin + i]), run.partition);
      next += run.count;
    }
    EXPECT_EQ(next, part.keys.size());
    EXPECT_TRUE(std::ranges::is_sorted(part.runs, {}, &PlanRun::partition));
  }

  std::unique_ptr<RowPlace> place_ = MakeHostPlace();
  TableSpec spec_;
  bool seen_ = false;
  std::unique_ptr<HotTable> table_;
  std::deque<InFlight> batches_;
  std::vector<Pull> pulls_;
  std::map<Key, std::vector<std::uint64_t>> pushed_;  // when
  std::uint64_t now_ = 0, cleared_at_ = 0;
};

std::vector<Key> Keys(Key first, std::size_t n) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = first + i;
  return keys;
}

// Runs random batches: the slowest worker is up to the bound behind this one, `depth` batches are in flight, and their
// pulls are answered in any order that the bound allows.
void RunByChance(std::uint64_t seed, ConsistencySpec consistency, HotTableOptions options, std::size_t depth) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  SplitMix random(seed);
  Scene scene(consistency, options);
  const std::uint64_t bound = consistency.mode == ConsistencyMode::kSsp ? consistency.staleness : 0;
  std::uint64_t clock = 0, slowest = 0;
  const auto answer_some = [&](bool all) {
    for (Scene::InFlight& batch : scene.batches()) {
      if (batch.arrived || (!all && random.Chance(0.5))) continue;
      slowest = std::max(slowest, batch.use.value - std::min(batch.use.value, bound));
      scene.Arrive(&batch, std::min(slowest, batch.use.value));
    }
  };
  for (int step = 0; step < 250; ++step) {
    if (random.Chance(0.02)) {  // the end of an epoch: all batches end, an evaluation runs, and training continues at a
                                // later clock
      answer_some(true);
      while (!scene.batches().empty()) scene.Finish(), ++clock;
      clock += random.Below(5);
      slowest = clock;
      scene.Clear(clock);
      for (int i = 0; i < 3; ++i) scene.Run(Keys(random.Below(300), random.Below(80)), clock, clock, /*pushes=*/false);
    }
    std::vector<Key> keys;
    const std::size_t n = random.Chance(0.1) ? 200 : random.Below(50);
    keys.reserve(n);
    for (std::size_t i = 0; i < n; ++i) keys.push_back(random.Below(random.Chance(0.6) ? 60 : 900));
    scene.Look(keys, clock + scene.batches().size());
    answer_some(false);
    if (scene.batches().size() < depth) continue;
    answer_some(true);
    scene.Finish(random.Chance(0.8));
    ++clock;
    slowest = std::min(clock, slowest + random.Below(3));
  }
}

TEST(HotTable, NoReadIsOlderThanTheBoundAllows) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const std::uint32_t bound = std::uint32_t(seed * 7 % 10);
    const ConsistencySpec consistency = seed % 6 == 0 ? ConsistencySpec{} : Ssp(bound);
    const HotTableOptions options{.keep = {.rows = (1 + seed % 4) * kBucket, .score = HotScore(seed % 2)},
                                  .own_pushes = OwnPushes(seed / 2 % 2),
                                  .keys_at_once = seed % 5 == 0 ? 7u : 1u << 20};
    RunByChance(seed, consistency, options, 1 + seed % 4);
  }
}

TEST(HotTable, RowsAreReadAgainUntilTheyAreTooOld) {
  Scene scene(Ssp(3));
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, 2), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 5, 0), 0u);
  EXPECT_EQ(scene.Run(Keys(40, 20), 5, 4), 10u);
  EXPECT_EQ(scene.Run(Keys(0, 60), 6, 6), 50u) << "those of version 2 are too old now, those of 4 are not";
  EXPECT_EQ(scene.table().looked_for(), 180u);
  EXPECT_EQ(scene.table().found(), 70u);
}

TEST(HotTable, UnderBspNoRowOfAnotherClockIsRead) {
  Scene scene(ConsistencySpec{});
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, 4), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 4, 4), 0u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 5, 5), 50u);
}

TEST(HotTable, AJumpOfTheClockMakesRowsTooOld) {
  Scene scene(Ssp(3));
  scene.Run(Keys(0, 50), 4, 4);
  EXPECT_EQ(scene.Run(Keys(0, 50), 1000, 1000), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 1003, 0), 0u);
}

TEST(HotTable, APendingRowServesTheNextBatchToo) {
  Scene scene(Ssp(8));
  Scene::InFlight& first = scene.Look(Keys(0, 30), 5);
  Scene::InFlight& second = scene.Look(Keys(10, 30), 6);
  EXPECT_EQ(first.missing(), 30u);
  EXPECT_EQ(second.missing(), 10u) << "least versions of both are 0";
  scene.Arrive(&second, 2);
  scene.Arrive(&first, 1);
  EXPECT_EQ(scene.Finish(), std::vector<std::uint64_t>(30, 1));
  const std::vector<std::uint64_t> versions = scene.Finish();
  EXPECT_EQ(std::ranges::count(versions, 1u), 20);
  EXPECT_EQ(std::ranges::count(versions, 2u), 10);
}

TEST(HotTable, APendingRowIsNotUsedIfItsPullAllowsOlderRows) {
  Scene scene(Ssp(2));
  Scene::InFlight& first = scene.Look(Keys(0, 30), 5);
  Scene::InFlight& second = scene.Look(Keys(0, 30), 6);
  EXPECT_EQ(second.missing(), 30u) << "the first may bring version 3, the second needs 4";
  scene.Arrive(&first, 3);
  scene.Arrive(&second, 4);
  EXPECT_EQ(scene.Finish(), std::vector<std::uint64_t>(30, 3)) << "its rows stayed where they were";
  EXPECT_EQ(scene.Finish(), std::vector<std::uint64_t>(30, 4));
  EXPECT_EQ(scene.Run(Keys(0, 30), 6, 6), 0u);
}

TEST(HotTable, RowsWithoutASlotAreReadFromThePull) {
  Scene scene(Ssp(8));
  Scene::InFlight& first = scene.Look(Keys(0, kBucket), 5);
  Scene::InFlight& second = scene.Look(Keys(100, 2 * kBucket), 6);
  EXPECT_EQ(second.missing(), 2 * kBucket - 28);
  Scene::InFlight& none = scene.Look(Keys(5000, 10), 7);
  scene.Arrive(&first, 1);
  scene.Arrive(&second, 2);
  scene.Arrive(&none, 0);
  scene.Finish();
  const std::vector<std::uint64_t> versions = scene.Finish();
  EXPECT_EQ(std::ranges::count(versions, 1u), 28);
  EXPECT_EQ(std::ranges::count(versions, 2u), 2 * kBucket - 28);
  EXPECT_EQ(scene.Finish(), std::vector<std::uint64_t>(10, 0));
}

TEST(HotTable, OwnPushesAreSeenIfTheJobWantsIt) {
  for (const OwnPushes own : {OwnPushes::kSeen, OwnPushes::kBounded})
    for (const ApplyMode apply : {ApplyMode::kImmediate, ApplyMode::kAggregated}) {
      Scene scene({ConsistencyMode::kSsp, 8, apply}, {.keep = {.rows = kBucket}, .own_pushes = own});
      scene.Run(Keys(0, 50), 1, 1, /*pushes=*/false);
      EXPECT_EQ(scene.Run(Keys(0, 20), 1, 1), 0u);
      const bool goes = own == OwnPushes::kSeen && apply == ApplyMode::kImmediate;
      EXPECT_EQ(scene.Run(Keys(0, 50), 1, 1, /*pushes=*/false), goes ? 20u : 0u);
      EXPECT_EQ(scene.Run(Keys(0, 50), 1, 1), 0u);
    }
}

TEST(HotTable, RowsRequestedBeforeAnOwnPushAreNotKept) {
  Scene scene(Ssp(8), {.keep = {.rows = kBucket}, .own_pushes = OwnPushes::kSeen});
  Scene::InFlight& first = scene.Look(Keys(0, 10), 1);
  Scene::InFlight& second = scene.Look(Keys(0, 20), 2);
  scene.Arrive(&first, 1);
  scene.Arrive(&second, 1);
  scene.Finish();  // pushes rows that the second batch has found pending
  scene.Finish(/*pushes=*/false);
  EXPECT_EQ(scene.Run(Keys(0, 20), 2, 2), 10u);
}

TEST(HotTable, EvaluationReadsNoRowKeptBefore) {
  Scene scene(Ssp(100));
  scene.Run(Keys(0, 50), 4, 1);
  scene.Clear(5);
  EXPECT_EQ(scene.Run(Keys(0, 50), 5, 5, /*pushes=*/false), 50u);
  EXPECT_EQ(scene.Run(Keys(0, 50), 5, 5, /*pushes=*/false), 0u);
}

TEST(HotTable, ABatchMayBeEmpty) {
  Scene scene(Ssp(3));
  EXPECT_EQ(scene.Run({}, 4, 4), 0u);
}

TEST(HotTable, HotRowsStay) {
  for (const std::uint32_t bound : {4u, 1000u}) {  // with bound 4 each row is pulled again every fifth clock
    Scene scene(Ssp(bound));
    for (std::uint64_t clock = 0; clock < 400; ++clock) {
      std::vector<Key> keys = Keys(1, 40);
      for (const Key cold : Keys(1000 + 30 * clock, 30)) keys.push_back(cold);
      const std::size_t missing = scene.Run(keys, clock, clock);
      EXPECT_EQ(missing, clock % (bound + 1) == 0 ? 70u : 30u) << "at clock " << clock << ", bound " << bound;
    }
  }
}

TEST(HotTable, RowsThatAreNoLongerHotAreReplaced) {
  Scene scene(Ssp(1'000'000));
  for (std::uint64_t clock = 0; clock < 300; ++clock) scene.Run(Keys(0, 100), clock, clock);
  std::size_t missing = 0;
  for (std::uint64_t clock = 300; clock < 2000; ++clock)  // a batch alone would push them out by its pins
    missing = scene.Run(Keys(1000 + clock % 4 * 25, 25), clock, clock);
  EXPECT_EQ(missing, 0u) << "there is room for 128";
}

TEST(HotTable, ATableLargerThanMemoryIsAnError) {
  const auto place = MakeHostPlace();
  TableSpec spec;
  spec.name = "users";
  spec.dim = 1 << 20;
  const auto table = HotTable::Make(place.get(), spec, {.keep = {.rows = 1u << 31}});
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(table.error().message,
            "hot_rows = 2147483648 for table 'users': hot rows: this machine has no memory for 9007270121701376 bytes; "
            "each worker keeps so many of each sparse table, 4194337 bytes a row: expected fewer");
}

// A GPU computes with the rows of one batch while the rows of the next are collected.
TEST(HotTable, TheRowsOfABatchStayWhileTheNextIsRead) {
  const auto place = MakeHostPlace();
  TableSpec spec;
  spec.name = "users";
  spec.dim = kDim;
  spec.consistency = Ssp(8);
  auto table = HotTable::Make(place.get(), spec, {.keep = {.rows = kBucket}});
  ASSERT_TRUE(table.has_value());
  constexpr std::size_t kBatches = 6, kAtATime = 2;
  std::deque<std::unique_ptr<Plan>> plans;
  std::vector<HotBatch> batches(kBatches);
  std::vector<const float*> rows(kBatches);
  Planner planner(kPartitionBits);
  const auto end = [&](std::size_t b) {
    const Plan& plan = *plans[b];
    for (std::size_t i = 0; i < plan.keys.size(); ++i) EXPECT_EQ(rows[b][i * kDim], float(plan.keys[i])) << b;
    (*table)->End(&batches[b]);
  };
  for (std::size_t b = 0; b < kBatches; ++b) {
    if (b >= kAtATime) end(b - kAtATime);
    planner.Make(TableId(1), kDim, Positioner(spec, 5), Keys(100 * b, 20 + b), plans.emplace_back(new Plan).get());
    ASSERT_TRUE((*table)->Look(*plans[b], Clock(b), &batches[b]));
    const Plan& missing = batches[b].missing();
    Buffer values = Buffer::Allocate(missing.keys.size() * kDim * sizeof(float));
    for (std::size_t i = 0; i < missing.keys.size(); ++i) values.as_mutable<float>()[i * kDim] = float(missing.keys[i]);
    ASSERT_TRUE((*table)->Arrive(std::move(values), Clock(b), &batches[b]));
    const auto read = (*table)->Read(&batches[b]);
    ASSERT_TRUE(read.has_value());
    rows[b] = *read;
  }
  for (std::size_t b = kBatches - kAtATime; b < kBatches; ++b) end(b);
}

TEST(HotTableDeathTest, MisuseIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Scene scene(Ssp(8));
  Scene::InFlight& first = scene.Look(Keys(0, 10), 1);
  Scene::InFlight& second = scene.Look(Keys(0, 20), 2);
  scene.Arrive(&second, 1);
  EXPECT_DEATH(scene.Finish(), "in the order in which they looked") << "what it waits for has not come";
  EXPECT_DEATH(scene.Arrive(&second, 1), "once, a row for each key that is missing");
  scene.Arrive(&first, 1);
  std::swap(scene.batches()[0], scene.batches()[1]);
  EXPECT_DEATH(scene.Finish(), "in the order in which they looked");
}

}  // namespace
}  // namespace tarn::worker
