// Shows that pushes contain the versions and clocks of the pulls of their rows, and the rows themselves if the table's
// rule needs them: over pieces, prefetched pulls, caches, combined pushes and repetitions (rules E8, A6).
#include "worker/client/pull_memory.h"

#include <gtest/gtest.h>

#include "core/limits.h"
#include "tests/unit/worker/client/fake_fleet.h"
#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

constexpr ConsistencySpec kAsp{ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};

FleetOptions Tables(const char* rule, std::uint32_t shards = 2, const ConsistencySpec& consistency = kAsp) {
  FleetOptions options;
  options.shards = shards;
  options.client.nonce = 1;
  options.tables = {SparseTable("users", 4)};
  options.tables[0].optimizer.kind = rule;
  options.tables[0].consistency = consistency;
  return options;
}

// A fleet whose shards all have one version.
struct Fleet : FakeFleet {
  explicit Fleet(FleetOptions of) : FakeFleet(std::move(of)) {}
  void At(std::uint64_t version, std::uint64_t minimum = 0) {
    for (FakeShard& shard : shards) {
      shard.version = Version(version);
      shard.told_minimum = Clock(minimum);
      shard.shift = float(version);
    }
  }
  void Pulled(const Plan& plan, std::uint64_t use) {
    Pull(plan, Clock(use));
    Exchange();
  }
  // Exchanges messages until nothing is left, and returns the pushes.
  std::vector<PushPart> Deliver(bool lost = false) {
    std::vector<PushPart> pushes;
    lose = [&](const Message& message) {
      const auto* push = std::get_if<tarn::Push>(&message.body);
      if (push != nullptr) pushes.insert(pushes.end(), push->tables.begin(), push->tables.end());
      return push != nullptr && lost;
    };
    Exchange();
    lose = {};
    return pushes;
  }
  // Pushes a plan whose rows were pulled for use at that clock. Returns the messages.
  std::vector<PushPart> Pushed(const Plan& plan, std::uint64_t use) {
    Push(plan, Gradients(plan), Clock(use));
    return Deliver();
  }
};

std::set<std::uint64_t> VersionsIn(const std::vector<PushPart>& pushes) {
  std::set<std::uint64_t> versions;
  for (const PushPart& push : pushes)
    for (const Section& section : push.keys.sections) versions.insert(section.version.value);
  return versions;
}

TEST(PullMemory, APushHasTheVersionsOfItsPull) {
  Fleet fleet(Tables("sgd"));
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  EXPECT_EQ(VersionsIn(fleet.Pushed(plan, 0)), std::set{kNoVersion.value}) << "nothing was pulled";
  fleet.At(5);
  fleet.Pulled(plan, 0);
  fleet.At(9);
  fleet.Pulled(plan, 1);  // ahead
  EXPECT_EQ(VersionsIn(fleet.Pushed(plan, 0)), std::set<std::uint64_t>{5});
  EXPECT_EQ(VersionsIn(fleet.Pushed(plan, 1)), std::set<std::uint64_t>{9});
  fleet.Pulled(fleet.MakePlan(kUsers, Keys(3)), 0);
  EXPECT_TRUE(VersionsIn(fleet.Pushed(plan, 0)).contains(9)) << "of one clock the newest pull counts";
  for (const PushPart& push : fleet.Pushed(plan, 0)) EXPECT_FALSE(push.pulled);
}

TEST(PullMemory, APushHasTheLeastMinimumClock) {
  Fleet fleet(Tables("sgd"));
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  fleet.TickTo(Clock(7), {});
  for (const PushPart& push : fleet.Pushed(plan, 7)) EXPECT_EQ(push.pulled_clock, Clock(7)) << "not known";
  fleet.At(1, 6);
  fleet.shards[1].told_minimum = Clock(4);
  fleet.Pulled(plan, 7);
  for (const PushPart& push : fleet.Pushed(plan, 7)) EXPECT_EQ(push.pulled_clock, Clock(4));
}

TEST(PullMemory, RepeatedPushesHaveTheSameVersionsAndRows) {
  Fleet fleet(Tables("dc_asgd"));
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  fleet.At(5);
  fleet.Pulled(plan, 0);
  fleet.At(9);
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const std::vector<PushPart> first = fleet.Deliver(true);
  fleet.Wait(10'000'000);
  const std::vector<PushPart> again = fleet.Deliver();
  ASSERT_EQ(first.size(), 2u);
  ASSERT_GE(again.size(), first.size());
  for (const PushPart& repeated : again) {
    EXPECT_EQ(repeated.pulled, ValueCodec::kFp32);
    EXPECT_EQ(VersionsIn({repeated}), std::set<std::uint64_t>{5});
    const bool same = std::ranges::any_of(first, [&](const PushPart& push) {
      return push.values.size() == repeated.values.size() &&
             std::memcmp(push.values.data(), repeated.values.data(), push.values.size()) == 0;
    });
    EXPECT_TRUE(same) << "gradients and pulled rows";
  }
}

// The rows of a push as they were pulled, by key.
std::map<Key, float> RowsIn(const std::vector<PushPart>& pushes, std::uint32_t dim) {
  std::map<Key, float> rows;
  for (const PushPart& push : pushes) {
    const std::vector<Key> keys = KeysOf(push.keys);
    const auto floats = push.values.as<float>();
    EXPECT_EQ(floats.size(), 2 * keys.size() * dim);
    for (std::size_t i = 0; i < keys.size(); ++i) rows[keys[i]] = floats[(keys.size() + i) * dim];
  }
  return rows;
}

TEST(PullMemory, APushHasItsRowsAsTheyWerePulled) {
  FleetOptions options = Tables("dc_asgd", 1);
  options.client.piece_bytes = 400;  // several pieces
  Fleet fleet(options);
  fleet.job.train.key_caching = false;
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50)), part = fleet.MakePlan(kUsers, Keys(20));
  fleet.At(5);
  fleet.Pulled(plan, 0);
  fleet.At(9);
  fleet.Pulled(plan, 1);
  for (const Plan* pushed : {&plan, &part}) {
    const auto rows = RowsIn(fleet.Pushed(*pushed, 0), 4);
    EXPECT_EQ(rows.size(), pushed->keys.size());
    for (const auto& [key, value] : rows) EXPECT_EQ(value, ValueOf(kUsers, key, 0) + 5) << key;
  }
}

// Otherwise a push would send the memory of rows that have not arrived.
TEST(PullMemory, ARecordHasNoRowsBeforeAllHaveArrived) {
  Fleet fleet(Tables("dc_asgd"));
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  ASSERT_GE(plan.runs.size(), 2u);
  PullRecord record(plan, Clock(0), true);
  for (const PlanRun& run : plan.runs) {
    EXPECT_FALSE(record.HasRows());
    EXPECT_EQ(record.RowOf(plan.keys.front()), nullptr);
    Buffer values = Buffer::Allocate(run.count * plan.dim * sizeof(float));
    std::ranges::fill(values.as_mutable<float>(), 3.0f);
    record.NoteRows({std::span(&run, 1), ValueCodec::kFp32, values});
  }
  ASSERT_TRUE(record.HasRows());
  EXPECT_EQ(*record.RowOf(plan.keys.back()), 3.0f);
}

TEST(PullMemory, PushingARowThatWasNotPulledIsAnError) {
  Fleet fleet(Tables("dc_asgd"));
  fleet.Run();
  fleet.Pulled(fleet.MakePlan(kUsers, Keys(20)), 0);
  const Plan more = fleet.MakePlan(kUsers, Keys(21));
  fleet.Push(more, fleet.Gradients(more), Clock(0));
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(failed[0].error.message.find("was not pulled for clock 0"), std::string::npos) << failed[0].error.message;
  const Plan plan = fleet.MakePlan(kUsers, Keys(20));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u) << "the client goes on";
}

TEST(PullMemory, CachedRowsAreNeverOlderThanTheirVersion) {
  Fleet fleet(Tables("sgd", 2, {ConsistencyMode::kSsp, 3, ApplyMode::kImmediate}));
  fleet.job.consistency = fleet.options.tables[0].consistency;
  fleet.job.worker_cache.bytes = 1 << 20;
  fleet.job.worker_cache.own_pushes = OwnPushes::kBounded;
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  fleet.At(5, 2);
  fleet.Pulled(plan, 2);
  fleet.At(8, 4);
  fleet.Pulled(plan, 4);  // all of them from the cache
  EXPECT_EQ(VersionsIn(fleet.Pushed(plan, 4)), std::set<std::uint64_t>{5});
  const Plan more = fleet.MakePlan(kUsers, Keys(300));
  fleet.Pulled(more, 5);  // some of them
  EXPECT_EQ(VersionsIn(fleet.Pushed(more, 5)), std::set<std::uint64_t>{5});
  fleet.At(12, 9);
  fleet.Pulled(more, 9);  // none
  EXPECT_EQ(VersionsIn(fleet.Pushed(more, 9)), std::set<std::uint64_t>{12});
}

TEST(PullMemory, AVersionIsNotNewerThanACachedRowWhateverWasAskedBefore) {
  constexpr TableId kTable{1};
  constexpr PartitionId kPartition{0}, kOther{1};
  constexpr std::uint64_t kBound = 4;
  PullMemory memory;
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(0)), kNoVersion);
  for (const std::uint64_t clock : {5, 7, 9})
    memory.NoteHistory(kTable, kPartition, Version(clock * 10), Clock(clock), Clock(clock), kBound);
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(9)), Version(90));
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(6)), Version(70)) << "another pull found older rows";
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(5)), Version(50));
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(10)), Version(90));
  EXPECT_EQ(memory.OldestSince(kTable, kOther, Clock(5)), kNoVersion);
  memory.NoteHistory(kTable, kPartition, Version(100), Clock(10), Clock(10), kBound);
  EXPECT_EQ(memory.OldestSince(kTable, kPartition, Clock(0)), Version(70)) << "no cached row is older than the bound";
}

TEST(PullMemory, AVersionIsNotNewerThanARowThatArrivedLate) {
  constexpr TableId kTable{1};
  constexpr PartitionId kPartition{0};
  PullMemory memory;
  const auto note = [&](std::uint64_t clock, std::uint64_t version) {
    memory.NoteHistory(kTable, kPartition, Version(version), Clock(clock), Clock(9), 4);
  };
  const auto oldest = [&](std::uint64_t clock) { return memory.OldestSince(kTable, kPartition, Clock(clock)); };
  note(7, 70);
  note(9, 90);
  note(9, 95);
  EXPECT_EQ(oldest(9), Version(90));
  note(9, 85);  // sent before the others
  EXPECT_EQ(oldest(9), Version(85));
  EXPECT_EQ(oldest(8), Version(85));
  EXPECT_EQ(oldest(7), Version(70));
  note(6, 65);
  EXPECT_EQ(oldest(6), Version(65));
  EXPECT_EQ(oldest(7), Version(70));
  note(8, 68);
  EXPECT_EQ(oldest(7), Version(68));
  EXPECT_EQ(oldest(9), Version(85));
  note(7, 80);
  EXPECT_EQ(oldest(7), Version(68));
  note(20, 200);
  EXPECT_EQ(oldest(7), Version(68)) << "shards have passed this worker (C8), which may still read these rows";
}

TEST(PullMemory, CombinedPushesHaveTheOldestVersions) {
  Fleet fleet(Tables("sgd", 2, {ConsistencyMode::kSsp, 3, ApplyMode::kImmediate}));
  fleet.job.consistency = fleet.options.tables[0].consistency;
  fleet.job.worker_cache.push_every = 2;
  fleet.job.worker_cache.own_pushes = OwnPushes::kBounded;
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  fleet.At(5, 0);
  fleet.Pulled(plan, 0);
  fleet.At(8, 1);
  fleet.Pulled(plan, 1);
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Tick({});
  fleet.Push(plan, fleet.Gradients(plan), Clock(1));
  fleet.Tick({});
  const std::vector<PushPart> pushes = fleet.Deliver();
  ASSERT_FALSE(pushes.empty());
  EXPECT_EQ(VersionsIn(pushes), std::set<std::uint64_t>{5});
  for (const PushPart& push : pushes) EXPECT_EQ(push.pulled_clock, Clock(0));
}

TEST(PullMemory, RemembersALimitedNumberOfPulls) {
  PullMemory memory;
  Plan plan;
  plan.table = kUsers;
  plan.dim = 1;
  plan.keys = {7};
  plan.runs = {{PartitionId(2), 0, 1}};
  TableSpec spec = SparseTable("users", 1);
  spec.id = kUsers;
  for (std::uint64_t use = 0; use <= limits::kPullsRememberedMax; ++use)
    memory.Begin(plan, spec, Clock(use))->NoteVersion(PartitionId(2), Version(use + 1));
  EXPECT_EQ(memory.OriginOf(plan, spec, Clock(500), {Clock(0), Clock(0)})->versions[0], kNoVersion);
  EXPECT_EQ(memory.OriginOf(plan, spec, Clock(500), {Clock(1), Clock(1)})->versions[0], Version(2));
}

TEST(PullMemory, TheCodecOfPulledRowsIsExact) {
  TableSpec spec = SparseTable("users", 4);
  for (const auto& [pull, pulled] : {std::pair{ValueCodec::kFp32, ValueCodec::kFp32},
                                     {ValueCodec::kBf16, ValueCodec::kBf16},
                                     {ValueCodec::kInt8, ValueCodec::kFp32}}) {
    spec.pull_codec = pull;
    EXPECT_EQ(PulledCodec(spec), pulled);
  }
}

}  // namespace
}  // namespace tarn::worker
