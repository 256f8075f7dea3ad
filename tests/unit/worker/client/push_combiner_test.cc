// Shows that the pushes of several clocks are sent as one push with the sums of their gradients, that ticks wait for
// it, and what causes held pushes to be sent at once (rules H6 to H8, C1, K1).
#include "worker/client/push_combiner.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/hash.h"
#include "core/limits.h"
#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

constexpr TableId kUsers{1};
constexpr TableId kLayer{2};
constexpr std::uint32_t kClocks = 3;

struct Combining {
  explicit Combining(ValueCodec codec = ValueCodec::kFp32) : fleet(Options(codec)) {
    fleet.job.consistency = {ConsistencyMode::kSsp, 4, ApplyMode::kImmediate};
    fleet.job.worker_cache = {0, OwnPushes::kBounded, kClocks};
    fleet.job.tables["layer"].has_worker_cache = true;  // its pushes are not held
    fleet.job.tables["layer"].worker_cache = {};
    fleet.Run();
  }

  static FleetOptions Options(ValueCodec codec) {
    FleetOptions options;
    options.client.nonce = 1;
    options.start = Clock(10);
    options.tables = {SparseTable("users", 4), SparseTable("layer", 4)};
    options.tables[0].push_codec = codec;
    for (TableSpec& spec : options.tables) spec.consistency = {ConsistencyMode::kSsp, 4, ApplyMode::kImmediate};
    return options;
  }

  RequestId Push(const std::vector<Key>& keys, TableId table = kUsers) {
    const Plan plan = fleet.MakePlan(table, keys);
    return fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());
  }
  void Tick() { fleet.Tick({}); }
  std::size_t PushesOut() {
    std::size_t n = 0;
    for (const Outgoing& o : fleet.out) n += std::holds_alternative<tarn::Push>(o.message.body);
    return n;
  }
  // The sum that the shards applied to each key.
  std::map<Key, float> Sums(TableId table = kUsers) {
    std::map<Key, float> sums;
    for (const FakeShard& shard : fleet.shards)
      for (const Applied& a : shard.applied)
        for (std::size_t i = 0; a.table == table && i < a.keys.size(); ++i) sums[a.keys[i]] += a.values[i * 4];
    return sums;
  }
  std::set<Clock> ClocksApplied() {
    std::set<Clock> clocks;
    for (const FakeShard& shard : fleet.shards)
      for (const Applied& a : shard.applied) clocks.insert(a.clock);
    return clocks;
  }
  void Adopt(const std::function<void(View*)>& change) {
    ++fleet.view.version.value;
    change(&fleet.view);
    fleet.FromScheduler(ViewUpdate{fleet.view});
  }

  FakeFleet fleet;
};

std::vector<Key> Keys(std::size_t n, std::uint64_t from = 0) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = Mix64(from + i + 1);
  return keys;
}

// A job that names the codec is rejected; a program may give it to its own table.
TEST(PushCombiner, PushesOfACodecWithResidualsAreNotHeld) {
  Combining c(ValueCodec::kTopK);
  c.Push({1, 2, 3});
  EXPECT_GT(c.PushesOut(), 0u);
}

TEST(PushCombiner, PushesOfSeveralClocksAreSentAsTheirSum) {
  Combining c;
  std::set<RequestId> issued;
  std::map<Key, float> expected;
  for (std::uint64_t clock = 0; clock < kClocks; ++clock) {
    EXPECT_EQ(c.PushesOut(), 0u);
    const std::vector<Key> keys = Keys(40, clock * 20);
    issued.insert(c.Push(keys));
    for (Key key : keys) expected[key] += float(key % 1000);
    c.Tick();
  }
  EXPECT_EQ(c.PushesOut(), 2u) << "one a shard";
  EXPECT_EQ(c.fleet.client.counters().combined_pushes, 2u);
  c.fleet.Exchange();
  EXPECT_EQ(c.Sums(), expected);
  EXPECT_EQ(c.ClocksApplied(), std::set<Clock>{Clock(12)}) << "that of the last part";
  std::set<RequestId> done;
  for (const PushDone& push : c.fleet.EventsOf<PushDone>()) EXPECT_TRUE(done.insert(push.request).second);
  EXPECT_EQ(done, issued);
  EXPECT_TRUE(c.fleet.client.idle());
}

TEST(PushCombiner, TicksWaitForHeldPushes) {
  Combining c;
  c.Tick();
  c.fleet.Exchange();
  EXPECT_EQ(c.fleet.shards[0].ticked, Clock(11));
  for (int i = 0; i < 2; ++i) {
    c.Push(Keys(10));
    c.Tick();
    c.fleet.Exchange();
    EXPECT_EQ(c.fleet.shards[0].ticked, Clock(11)) << "clock 11 has a push that nobody has";
  }
  EXPECT_FALSE(c.fleet.client.idle());
  EXPECT_EQ(c.fleet.EventsOf<TickDone>().size(), 1u);
  c.Push(Keys(10));
  c.Tick();
  EXPECT_TRUE(BodiesOf<tarn::Tick>(c.fleet.TakeSent(ShardPeer(ShardId(1)))).empty()) << "not before acknowledgements";
  c.fleet.Wait(5'000'000);
  c.fleet.Exchange();
  EXPECT_EQ(c.fleet.shards[0].ticked, Clock(14));
  EXPECT_EQ(c.fleet.EventsOf<TickDone>().size(), 3u);
}

TEST(PushCombiner, PushesOfOtherTablesAreSentAtOnce) {
  Combining c;
  c.Push(Keys(10));
  c.Push(Keys(10), kLayer);
  EXPECT_EQ(c.PushesOut(), 2u);
  c.fleet.Exchange();
  EXPECT_EQ(c.Sums(kLayer).size(), 10u);
  EXPECT_TRUE(c.Sums().empty());
  EXPECT_EQ(c.fleet.EventsOf<PushDone>().size(), 1u);
}

TEST(PushCombiner, SeveralPushesOfOneClockAreCombined) {
  Combining c;
  c.Push({1, 2});
  c.Push({2, 3});
  c.fleet.TickTo(Clock(20), {});  // jumps
  c.fleet.Exchange();
  EXPECT_EQ(c.Sums(), (std::map<Key, float>{{1, 1}, {2, 4}, {3, 3}}));
  EXPECT_EQ(c.fleet.shards[0].ticked, Clock(20));
}

TEST(PushCombiner, AnEmptyPushIsDoneAtOnce) {
  Combining c;
  c.Push({});
  EXPECT_EQ(c.fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_TRUE(c.fleet.client.idle());
}

TEST(PushCombiner, HeldPushesAreSentWhenSomethingWaitsForThem) {
  const std::map<std::string, std::function<void(Combining*)>> causes = {
      {"barrier", [](Combining* c) { c->fleet.Barrier(); }},
      {"leave", [](Combining* c) { c->fleet.Leave(); }},
      {"jump", [](Combining* c) { c->fleet.TickTo(Clock(13), {}); }},
      {"proposal", [](Combining* c) { c->Adopt([](View* view) { view->proposal = {1, true}; }); }},
      {"checkpoint", [](Combining* c) { c->Adopt([](View* view) { view->checkpoint.id = CheckpointId(1); }); }},
      {"jump awaited",
       [](Combining* c) {
         c->fleet.RequestLeases({});
         LeaseReply reply;
         reply.number = 1;
         reply.jump_to = Clock(15);
         c->fleet.FromScheduler(reply);
       }},
      {"a second of silence", [](Combining* c) { c->fleet.Wait(kCombinePauseUs); }},
  };
  for (const auto& [cause, happen] : causes) {
    Combining c;
    c.Push(Keys(10));
    c.Tick();
    c.Push(Keys(10, 5));
    c.fleet.Exchange();
    ASSERT_TRUE(c.Sums().empty()) << cause;
    happen(&c);
    EXPECT_EQ(c.PushesOut(), 2u) << cause;
    c.fleet.Exchange();
    EXPECT_EQ(c.Sums().size(), 15u) << cause;
    EXPECT_GE(c.fleet.shards[0].ticked, Clock(11)) << cause;
  }
}

TEST(PushCombiner, PushesAreSentOneByOneUntilACutIsDone) {
  Combining c;
  const auto goes_at_once = [&] {
    c.fleet.Exchange();
    c.Push(Keys(10));
    const bool at_once = c.PushesOut() == 2;  // one a shard
    c.Tick();
    c.fleet.Exchange();
    return at_once;
  };
  EXPECT_FALSE(goes_at_once());
  c.Adopt([](View* view) { view->proposal = {1, true}; });
  EXPECT_TRUE(goes_at_once());
  c.Adopt([](View* view) {
    view->proposal.open = false;
    view->checkpoint = {.id = CheckpointId(1), .at_clock = true, .clock = Clock(30)};
  });
  EXPECT_TRUE(goes_at_once());
  c.Adopt([](View* view) { view->checkpoint = {}; });
  EXPECT_FALSE(goes_at_once());
}

TEST(PushCombiner, MemoryIsBounded) {
  Combining c;
  const std::size_t rows = limits::kGatheredBytesMax / (sizeof(Key) + 4 * sizeof(float)) / 2;
  c.Push(Keys(rows));
  EXPECT_EQ(c.PushesOut(), 0u);
  c.Push(Keys(rows));
  c.Push(Keys(1));
  EXPECT_EQ(c.PushesOut(), 0u) << "8 bytes below the limit";
  c.Push(Keys(1));
  EXPECT_GT(c.PushesOut(), 0u) << "past it";
}

TEST(PushCombiner, PullsDoNotWaitForHeldPushes) {
  Combining c;
  c.Push(Keys(10));
  const Plan plan = c.fleet.MakePlan(kUsers, Keys(10));
  c.fleet.Pull(plan, Clock(10));
  c.fleet.Exchange();
  EXPECT_EQ(c.fleet.EventsOf<PullDone>().size(), 1u);
  c.Push(Keys(10));
  c.Tick();
  const RequestId next = c.fleet.Pull(plan, Clock(11));
  c.fleet.Exchange();
  const auto done = c.fleet.EventsOf<PullDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].request, next);
  EXPECT_TRUE(c.fleet.EventsOf<PushDone>().empty());
}

}  // namespace
}  // namespace tarn::worker
