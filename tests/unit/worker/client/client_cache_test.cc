// Shows that pulls are answered from cached rows exactly as long as the bound allows, that only missing rows are
// requested, and which cached rows a worker's own pushes drop (rules H1 to H5, C4).
#include <gtest/gtest.h>

#include <numeric>

#include "core/hash.h"
#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

constexpr TableId kUsers{1};
constexpr std::uint32_t kBound = 3;

struct Cached {
  explicit Cached(OwnPushes own_pushes = OwnPushes::kBounded,
                  ConsistencySpec consistency = {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate},
                  FleetOptions options = {}, bool refresh_rows = false)
      : fleet(WithTables(std::move(options), consistency)) {
    fleet.job.consistency = consistency;
    if (consistency.mode != ConsistencyMode::kAsp) fleet.job.worker_cache.bytes = 1 << 20;
    fleet.job.worker_cache.own_pushes = own_pushes;
    fleet.job.worker_cache.refresh_rows = refresh_rows;
    fleet.Run();
  }

  static FleetOptions WithTables(FleetOptions options, const ConsistencySpec& consistency) {
    options.client.nonce = 1;
    options.tables = {SparseTable("users", 4), DenseTable("weights", 3, 100)};
    for (TableSpec& spec : options.tables) spec.consistency = consistency;
    return options;
  }

  // From now on shards answer with this minimum clock, and add it to all values.
  void At(std::uint64_t minimum) {
    for (FakeShard& shard : fleet.shards) {
      shard.minimum = Clock(minimum + kBound);  // lets pulls of clocks up to it pass
      shard.told_minimum = Clock(minimum);
      shard.shift = float(minimum);
    }
  }

  struct Result {
    Buffer values;
    std::uint64_t staleness = 0;
    std::size_t keys_asked = 0;  // of shards
  };
  Result Pull(const Plan& plan, std::uint64_t clock) {
    const RequestId id = fleet.Pull(plan, Clock(clock));
    return Finish(id);
  }
  Result Finish(RequestId id) {
    Result result;
    fleet.lose = [&](const Message& message) {
      if (const auto* pull = std::get_if<tarn::Pull>(&message.body))
        for (const PullPart& part : pull->tables) result.keys_asked += part.keys.count;
      return false;
    };
    fleet.Exchange();
    fleet.lose = {};
    int answers = 0;
    for (PullDone& done : fleet.EventsOf<PullDone>()) {
      if (done.request != id) continue;
      ++answers;
      result.values = done.values;
      result.staleness = done.staleness;
    }
    EXPECT_EQ(answers, 1);
    return result;
  }
  void Push(const Plan& plan) { fleet.Push(plan, fleet.Gradients(plan), Clock(0)); }

  FakeFleet fleet;
};

std::vector<Key> Keys(std::size_t n, std::uint64_t from = 0) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = Mix64(from + i + 1);
  return keys;
}

// Expects that the values of each key are shifted by shift_of(key).
template <typename ShiftOf>
void ExpectRows(const Plan& plan, const Buffer& values, ShiftOf shift_of) {
  const auto rows = values.as<float>();
  ASSERT_EQ(rows.size(), plan.keys.size() * plan.dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Key key = plan.keys[i / plan.dim];
    ASSERT_EQ(rows[i], ValueOf(plan.table, key, std::uint32_t(i % plan.dim)) + shift_of(key)) << i;
  }
}

TEST(ClientCache, CachedRowsAnswerAsLongAsTheBoundAllows) {
  Cached c;
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(100));
  c.At(2);
  EXPECT_EQ(c.Pull(plan, 4).keys_asked, 100u);
  c.At(5);
  for (std::uint64_t clock : {3, 4, 5}) {
    const auto from_cache = c.Pull(plan, clock);
    EXPECT_EQ(from_cache.keys_asked, 0u);
    EXPECT_EQ(from_cache.staleness, clock - 2);
    ExpectRows(plan, from_cache.values, [](Key) { return 2.0f; });
  }
  const auto again = c.Pull(plan, 6);
  EXPECT_EQ(again.keys_asked, 100u);
  EXPECT_EQ(again.staleness, 1u);
  ExpectRows(plan, again.values, [](Key) { return 5.0f; });
  EXPECT_EQ(c.fleet.client.counters().cache_rows, 500u);
  EXPECT_EQ(c.fleet.client.counters().cache_hits, 300u);
  // The histogram counts the staleness of each read: 2, 1, 2, 3 and 1 clocks.
  EXPECT_EQ(c.fleet.client.staleness(), (std::vector<std::uint64_t>{0, 2, 2, 1}));
}

TEST(ClientCache, RowsAreRefreshedWheneverAClockOpens) {
  Cached c(OwnPushes::kBounded, {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate}, {}, true);
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(100));
  c.At(0);
  EXPECT_GE(c.Pull(plan, 2).keys_asked, 100u);
  for (std::uint64_t minimum = 1; minimum < 9; ++minimum) {
    c.At(minimum);
    c.fleet.Exchange();  // the answer to the standing pull, and the next one
    const auto read = c.Pull(plan, minimum + 2);
    EXPECT_EQ(read.keys_asked, 0u) << "all rows are new";
    EXPECT_EQ(read.staleness, 2u);
    ExpectRows(plan, read.values, [&](Key) { return float(minimum); });
  }
  EXPECT_EQ(c.fleet.client.counters().refreshed_rows, 800u);
  EXPECT_EQ(c.fleet.client.counters().pulls, 9u) << "nobody asked for the others";
}

TEST(ClientCache, ARefreshBeforeAnOwnPushIsNotCached) {
  Cached c(OwnPushes::kSeen, {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate}, {}, true);
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(50));
  c.At(2);
  c.Pull(plan, 4);
  c.Push(plan);
  c.At(3);
  c.fleet.Exchange();
  EXPECT_GE(c.Pull(plan, 5).keys_asked, 50u) << "the standing pull did not name the push";
  c.At(4);
  c.fleet.Exchange();
  EXPECT_EQ(c.Pull(plan, 6).keys_asked, 0u) << "the next one did";
}

TEST(ClientCache, OnlyMissingRowsAreRequested) {
  for (std::size_t piece : {1u, 100u, 100'000u}) {
    FleetOptions options;
    options.shards = 3;
    options.client.piece_bytes = piece;
    Cached c(OwnPushes::kBounded, {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate}, options);
    c.At(1);
    const Plan first = c.fleet.MakePlan(kUsers, Keys(60));
    c.Pull(first, 2);
    c.At(3);
    const Plan both = c.fleet.MakePlan(kUsers, Keys(100, 20));
    const auto mixed = c.Pull(both, 4);
    EXPECT_EQ(mixed.keys_asked, 60u);
    EXPECT_EQ(mixed.staleness, 3u) << "the largest, of what was here and what came";
    const std::set<Key> old(first.keys.begin(), first.keys.end());
    ExpectRows(both, mixed.values, [&](Key key) { return old.contains(key) ? 1.0f : 3.0f; });
  }
}

TEST(ClientCache, RowsOfRangesAndOfBspAreCachedToo) {
  Cached c(OwnPushes::kSeen, {ConsistencyMode::kBsp, 0, ApplyMode::kAggregated});
  std::vector<Key> all(100);
  std::iota(all.begin(), all.end(), 0);
  const Plan plan = c.fleet.MakePlan(TableId(2), all);
  c.At(4);
  EXPECT_EQ(c.Pull(plan, 4).keys_asked, 100u);
  const auto same = c.Pull(plan, 4);
  EXPECT_EQ(same.keys_asked, 0u);
  ExpectRows(plan, same.values, [](Key) { return 4.0f; });
  c.At(5);
  EXPECT_EQ(c.Pull(plan, 5).keys_asked, 100u);
}

TEST(ClientCache, AspCachesNothing) {
  Cached c(OwnPushes::kBounded, {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate});
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(10));
  c.At(4);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(c.Pull(plan, 4).keys_asked, 10u);
  EXPECT_EQ(c.fleet.client.counters().cache_rows, 0u);
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends a program that asks for so much
TEST(ClientCache, ACacheLargerThanMemoryEndsTheClientWithTheReason) {
  const ConsistencySpec consistency{ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate};
  FakeFleet poor(Cached::WithTables({}, consistency));
  poor.job.consistency = consistency;
  poor.job.worker_cache.bytes = std::uint64_t{1} << 60;
  poor.Run();
  const Plan plan = poor.MakePlan(kUsers, Keys(10));
  poor.Pull(plan, Clock(0));
  EXPECT_EQ(poor.client.state(), ClientState::kStopped);
  EXPECT_EQ(poor.client.stop_reason().reason,
            "worker_cache = 1048576TiB for table 'users': this machine has no memory for it");
}
#endif

TEST(ClientCache, ATableMayHaveItsOwnCacheOrNone) {
  Cached c;
  FakeFleet fleet(Cached::WithTables({}, c.fleet.job.consistency));
  fleet.job.consistency = c.fleet.job.consistency;
  fleet.job.tables["weights"].has_worker_cache = true;
  fleet.job.tables["weights"].worker_cache.bytes = 1 << 20;
  fleet.Run();
  for (TableId table : {kUsers, TableId(2)}) {
    const Plan plan = fleet.MakePlan(table, {1, 2, 3});
    for (int i = 0; i < 2; ++i) {
      fleet.Pull(plan, Clock(0));
      fleet.Exchange();
    }
  }
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 4u);
  EXPECT_EQ(fleet.client.counters().cache_rows, 6u);
  EXPECT_EQ(fleet.client.counters().cache_hits, 3u);
}

TEST(ClientCache, OwnPushesAreSeenIfTheJobWantsIt) {
  for (OwnPushes own : {OwnPushes::kSeen, OwnPushes::kBounded}) {
    Cached c(own);
    c.At(1);
    const Plan all = c.fleet.MakePlan(kUsers, Keys(50));
    c.Pull(all, 1);
    c.Push(c.fleet.MakePlan(kUsers, Keys(20)));
    c.fleet.Exchange();
    EXPECT_EQ(c.Pull(all, 1).keys_asked, own == OwnPushes::kSeen ? 20u : 0u);
    EXPECT_EQ(c.Pull(all, 1).keys_asked, 0u);
  }
}

TEST(ClientCache, RowsRequestedBeforeAnOwnPushAreNotCached) {
  for (OwnPushes own : {OwnPushes::kSeen, OwnPushes::kBounded}) {
    Cached c(own);
    c.At(1);
    const Plan plan = c.fleet.MakePlan(kUsers, Keys(50));
    const RequestId before = c.fleet.Pull(plan, Clock(1));
    c.Push(plan);
    EXPECT_EQ(c.Finish(before).keys_asked, 50u);
    EXPECT_EQ(c.Pull(plan, 1).keys_asked, own == OwnPushes::kSeen ? 50u : 0u);
  }
}

TEST(ClientCache, AggregatedPushesDropNoCachedRows) {
  Cached c(OwnPushes::kSeen, {ConsistencyMode::kSsp, kBound, ApplyMode::kAggregated});
  c.At(1);
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(50));
  c.Pull(plan, 1);
  c.Push(plan);
  c.fleet.Exchange();
  EXPECT_EQ(c.Pull(plan, 1).keys_asked, 0u);
}

TEST(ClientCache, DroppedRowsAreRequestedAgain) {
  Cached c;
  c.At(1);
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(50));
  c.Pull(plan, 1);
  c.fleet.client.DropCachedRows();
  EXPECT_EQ(c.Pull(plan, 1).keys_asked, 50u);
}

TEST(ClientCache, PartsOfAPullArePlacedRightAfterANewRouteMap) {
  Cached c;
  c.At(1);
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(80));
  c.Pull(c.fleet.MakePlan(kUsers, Keys(40)), 1);
  c.At(2);
  const RequestId id = c.fleet.Pull(plan, Clock(2));
  c.fleet.out.clear();
  ++c.fleet.view.version.value;
  ++c.fleet.view.routes.epoch.value;
  std::reverse(c.fleet.view.routes.owners.begin(), c.fleet.view.routes.owners.end());
  c.fleet.FromScheduler(ViewUpdate{c.fleet.view});
  const auto result = c.Finish(id);
  const Plan kept = c.fleet.MakePlan(kUsers, Keys(40));
  const std::set<Key> old(kept.keys.begin(), kept.keys.end());
  ExpectRows(plan, result.values, [&](Key key) { return old.contains(key) ? 1.0f : 2.0f; });
  EXPECT_EQ(c.Pull(plan, 2).keys_asked, 0u) << "a row stays what it is wherever it lies";
}

}  // namespace
}  // namespace tarn::worker
