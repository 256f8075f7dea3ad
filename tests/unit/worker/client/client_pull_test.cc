// Shows that pulls put rows into the plan's order whatever pieces, codecs and shards they come in, that they name the
// worker's own pushes, survive losses and wrong answers, and can never stop the pushes that they wait for.
#include <gtest/gtest.h>

#include <climits>
#include <memory>
#include <numeric>

#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

FleetOptions Options() {
  FleetOptions options;
  options.client.nonce = 1;
  options.tables = {SparseTable("users", 4), DenseTable("weights", 3, 1000)};
  return options;
}

// A reply with `count` rows in `bytes` bytes.
PullReply ReplyTo(const Pull& pull, std::uint32_t count, std::size_t bytes) {
  const PullPart& asked = OnlyTable(pull);
  const std::vector<Version> versions(asked.keys.sections.size());
  return {pull.request, Clock(0), {{asked.table, asked.codec, count, versions, Buffer::Allocate(bytes)}}};
}

TEST(ClientPull, AssemblesPiecesOfManyShardsInThePlansOrder) {
  for (std::size_t piece : {1u, 50u, 333u, 100'000u}) {
    FleetOptions options = Options();
    options.shards = 3;
    options.client.piece_bytes = piece;
    FakeFleet fleet(options);
    fleet.Run();
    const Plan users = fleet.MakePlan(kUsers, Keys(200));
    std::vector<Key> dense(1000);
    std::iota(dense.begin(), dense.end(), 0);
    const Plan weights = fleet.MakePlan(TableId(2), dense);
    const RequestId first = fleet.Pull(users, Clock(0));
    const RequestId second = fleet.Pull(weights, Clock(0));
    fleet.Exchange();
    for (const PullDone& done : fleet.EventsOf<PullDone>()) {
      ASSERT_TRUE(done.request == first || done.request == second);
      ExpectRows(done.request == first ? users : weights, done.values);
    }
    EXPECT_TRUE(fleet.client.idle());
    EXPECT_EQ(fleet.client.counters().pulls, 2u);
  }
}

TEST(ClientPull, AnswersHaveTheTablesCodec) {
  for (ValueCodec codec : {ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8}) {
    FleetOptions options = Options();
    options.tables[0].pull_codec = codec;
    FakeFleet fleet(options);
    fleet.Run();
    const Plan plan = fleet.MakePlan(kUsers, Keys(20));
    fleet.Pull(plan, Clock(0));
    fleet.Exchange();
    const auto done = fleet.EventsOf<PullDone>();
    ASSERT_EQ(done.size(), 1u);
    const auto rows = done[0].values.as<float>();
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], ValueOf(kUsers, plan.keys[i / 4], i % 4), 8.0f);
  }
}

TEST(ClientPull, AnEmptyPullIsDoneAtOnce) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.Pull(fleet.MakePlan(kUsers, {}), Clock(0));
  const auto done = fleet.EventsOf<PullDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_TRUE(done[0].values.empty());
}

TEST(ClientPull, NamesTheLastOwnPushOfEachPartitionWhenRequested) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(100));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Pull(plan, Clock(0));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  std::size_t sections = 0;
  for (std::uint32_t i = 0; i < 2; ++i)
    for (const Pull& pull : BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(i)))))
      for (const Section& section : OnlyTable(pull).keys.sections) {
        EXPECT_EQ(section.sequence, Sequence(2));
        ++sections;
      }
  EXPECT_EQ(sections, 8u);
}

TEST(ClientPull, LostRequestsAndAnswersAreRepeatedUnderTheSameNumber) {
  FleetOptions options = Options();
  options.shards = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(10));
  fleet.Pull(plan, Clock(0));
  const auto first = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))));
  fleet.Wait(1'000'000);
  const auto second = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))));
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].request, second[0].request);
  fleet.Wait(2'000'000);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 1u);
  EXPECT_EQ(fleet.client.counters().repeats, 2u);
  fleet.Wait(30'000'000);
  EXPECT_TRUE(BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0)))).empty());
}

TEST(ClientPull, WrongAnswersAreCountedAndRequestedAgain) {
  FleetOptions options = Options();
  options.shards = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(10));
  fleet.Pull(plan, Clock(0));
  const auto asked = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))));
  ASSERT_EQ(asked.size(), 1u);
  fleet.FromShard(0, ReplyTo(asked[0], 10, 159));  // not 10 x 4 floats
  fleet.FromShard(0, ReplyTo(asked[0], 9, 144));
  PullReply reply = ReplyTo(asked[0], 10, 160);
  OnlyTable(reply).table = TableId(2);
  fleet.FromShard(0, reply);
  reply.tables.clear();
  fleet.FromShard(0, reply);
  EXPECT_EQ(fleet.client.counters().malformed, 4u);
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
  fleet.Wait(200'000);
  EXPECT_EQ(BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0)))).size(), 1u);
  fleet.Wait(4'000'000);
  fleet.Exchange();
  const auto done = fleet.EventsOf<PullDone>();
  ASSERT_EQ(done.size(), 1u);
  ExpectRows(plan, done[0].values);
}

TEST(ClientPull, RepeatedAnswersAndAnswersOfAnotherShardAreIgnored) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.Pull(plan, Clock(0));
  const auto asked = fleet.TakeSent(ShardPeer(ShardId(0)));
  ASSERT_EQ(asked.size(), 1u);
  const auto answers = fleet.shards[0].Handle(asked[0]);
  fleet.FromShard(1, answers[0]);
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
  fleet.FromShard(0, answers[0]);
  fleet.FromShard(0, answers[0]);
  fleet.Exchange();
  fleet.FromShard(0, answers[0]);
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 1u);
}

TEST(ClientPull, ARefusalThatPersistsFailsThePullAfterTwoLeases) {
  FleetOptions options = Options();
  options.shards = 1;
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  // kOk: a wrong answer; kUnknownKeys: although the keys were sent
  for (ErrorCode code : {ErrorCode::kWrongShard, ErrorCode::kNotFound, ErrorCode::kOk, ErrorCode::kUnknownKeys}) {
    FakeFleet fleet(options);
    fleet.Run();
    const RequestId id = fleet.Pull(fleet.MakePlan(kUsers, Keys(10)), Clock(0));
    const TimeUs start = fleet.now;
    std::vector<RequestFailed> failed;
    while (failed.empty() && fleet.now < start + 30'000'000) {
      for (const Pull& pull : BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))))) {
        if (code == ErrorCode::kOk) {
          fleet.FromShard(0, ReplyTo(pull, 9, 144));
        } else {
          fleet.FromShard(0, ErrorReply{pull.request, code, "not mine", Epoch(1)});
        }
      }
      fleet.Wait(100'000);
      failed = fleet.EventsOf<RequestFailed>();
    }
    ASSERT_EQ(failed.size(), 1u);
    EXPECT_GE(fleet.now - start, 10'000'000);
    EXPECT_LE(fleet.now - start, 15'000'000);
    EXPECT_EQ(failed[0].request, id);
    EXPECT_TRUE(failed[0].error.message.starts_with("shard 0 has refused a pull of table 'users' for 1"))
        << failed[0].error.message;
    EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
    EXPECT_TRUE(fleet.client.idle());
  }
}

TEST(ClientPull, APermanentRefusalFailsOnlyThePull) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  const RequestId id = fleet.Pull(plan, Clock(0));
  const auto asked = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(1))));
  ASSERT_EQ(asked.size(), 1u);
  fleet.FromShard(1, ErrorReply{asked[0].request, ErrorCode::kInvalidArgument, "no", Epoch(1)});
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].request, id);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientPull, StalenessIsTheLargestOverTheShardsAndGoesIntoTheHistogram) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.Pull(plan, Clock(10));
  const Clock minimum[] = {Clock(8), Clock(7)};
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto asked = fleet.TakeSent(ShardPeer(ShardId(i)));
    auto answers = fleet.shards[i].Handle(asked[0]);
    std::get<PullReply>(answers[0]).min_clock = minimum[i];
    fleet.FromShard(i, answers[0]);
  }
  const auto done = fleet.EventsOf<PullDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].staleness, 3u);
  EXPECT_EQ(fleet.client.staleness(), (std::vector<std::uint64_t>{0, 0, 0, 1}));
}

TEST(ClientPull, CreditsBoundRequestsAndExpectedAnswers) {
  FleetOptions options = Options();
  options.shards = 1;
  options.partition_bits = 0;
  const std::size_t ask = 128 + 10 * 8 + 10 * 16;
  for (const auto& [credit, expected] :
       std::vector<std::pair<std::size_t, std::size_t>>{{2 * 2 * ask, 2}, {2 * 2 * ask - 2, 1}, {0, 1}}) {
    options.client.credit_bytes = credit;
    FakeFleet fleet(options);
    fleet.Run();
    for (std::uint64_t i = 0; i < 6; ++i) fleet.Pull(fleet.MakePlan(kUsers, Keys(10, i)), Clock(0));
    EXPECT_EQ(fleet.TakeSent(ShardPeer(ShardId(0))).size(), expected) << credit;
    fleet.Wait(1'000'000);
    fleet.Exchange();
    EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 6u);
  }
}

TEST(ClientPull, WaitingPullsAreSentByClockThenPriority) {
  FleetOptions options = Options();
  options.shards = 1;
  options.partition_bits = 0;
  options.client.credit_bytes = 0;  // one pull at a time
  FakeFleet fleet(options);
  fleet.Run();
  struct Asked {
    std::uint64_t clock;
    int priority;
  };
  const std::vector<Asked> asked = {{4, 0}, {5, 9}, {4, 0}, {4, -1}, {4, 7}, {4, 7}, {5, INT_MIN}, {5, INT_MAX}};
  std::vector<RequestId> requests;
  requests.reserve(asked.size());
  for (std::uint64_t i = 0; i < asked.size(); ++i)
    requests.push_back(fleet.Pull(fleet.MakePlan(kUsers, Keys(10, i)), Clock(asked[i].clock), asked[i].priority));
  std::vector<RequestId> done;
  fleet.Exchange();
  for (const PullDone& pull : fleet.EventsOf<PullDone>()) done.push_back(pull.request);
  std::vector<RequestId> expected;
  for (std::size_t i : {0u, 4u, 5u, 2u, 3u, 7u, 1u, 6u}) expected.push_back(requests[i]);
  EXPECT_EQ(done, expected);
}

TEST(ClientPull, AnAnswerWithTheWholePullIsNotCopiedUnlessItIsLent) {
  FleetOptions options = Options();
  options.shards = 1;
  options.partition_bits = 2;
  for (const bool lent : {false, true}) {
    FakeFleet fleet(options);
    fleet.Run();
    const Plan plan = fleet.MakePlan(kUsers, Keys(30));
    fleet.Pull(plan, Clock(0));
    const auto asked = fleet.TakeSent(ShardPeer(ShardId(0)));
    ASSERT_EQ(asked.size(), 1u);
    const auto answers = fleet.shards[0].Handle(asked[0]);
    PullReply reply = std::get<PullReply>(answers[0]);
    Buffer& values = OnlyTable(reply).values;
    const auto owner = std::make_shared<Buffer>(values);
    if (lent) values = Buffer::Lend(owner->data(), owner->size(), owner);
    fleet.FromShard(0, reply);
    const auto done = fleet.EventsOf<PullDone>();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].values.data() == owner->data(), !lent);
    EXPECT_FALSE(done[0].values.lent());
    ExpectRows(plan, done[0].values);
  }
}

TEST(ClientPull, ParkedPullsDoNotBlockThePushesAndPullsThatTheyWaitFor) {
  FleetOptions options = Options();
  options.shards = 1;
  options.client.credit_bytes = 1000;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.shards[0].minimum = Clock(0);
  for (std::uint64_t i = 0; i < 6; ++i)  // far ahead: uses up all credit, and is held back
    fleet.Pull(fleet.MakePlan(kUsers, Keys(20, i)), Clock(1));
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
  const Plan plan = fleet.MakePlan(kUsers, Keys(50));
  fleet.Pull(plan, Clock(0));
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 1u);
  for (int i = 0; i < 5; ++i) fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Tick({});
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 5u);
  EXPECT_EQ(fleet.shards[0].ticked, Clock(1));
  fleet.shards[0].minimum = Clock(1);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 6u);
}

class ClientPrefetch : public testing::Test {
 protected:
  ClientPrefetch() : fleet_(Options()) { fleet_.Run(); }
  // The shards to which it is sent.
  std::vector<std::uint32_t> Prefetch() {
    fleet_.Prefetch(users_);
    std::vector<std::uint32_t> found;
    for (const std::uint32_t shard : {0u, 1u})
      if (!BodiesOf<tarn::Prefetch>(fleet_.TakeSent(ShardPeer(ShardId(shard)))).empty()) found.push_back(shard);
    return found;
  }
  void PullBothTables() {
    fleet_.Pull({{&users_, {}}, {&weights_, {}}});
    fleet_.Exchange();
  }

  FakeFleet fleet_;
  const Plan users_ = fleet_.MakePlan(kUsers, Keys(200));
  const Plan weights_ = fleet_.MakePlan(TableId(2), {0, 500, 999});
};

TEST_F(ClientPrefetch, OmitsShardsWhoseLastAnswerHadNoRowsOfTheTableOnDisk) {
  EXPECT_EQ(Prefetch(), (std::vector{0u, 1u})) << "none has answered yet";
  for (const std::uint32_t with_disk : {0u, 1u, 0u}) {
    fleet_.shards[with_disk].on_disk = {kUsers};
    fleet_.shards[1 - with_disk].on_disk = {TableId(2)};
    PullBothTables();
    EXPECT_EQ(Prefetch(), std::vector{with_disk});
  }
}

TEST_F(ClientPrefetch, ANewRouteMapMakesTheAnswersVoid) {
  PullBothTables();
  EXPECT_EQ(Prefetch(), std::vector<std::uint32_t>{});
  ++fleet_.view.version.value;
  ++fleet_.view.routes.epoch.value;
  fleet_.FromScheduler(ViewUpdate{fleet_.view});
  EXPECT_EQ(Prefetch(), (std::vector{0u, 1u}));
}

TEST(ClientPull, ANewRouteMapSendsUnansweredPullsToTheNewOwners) {
  FleetOptions options = Options();
  options.shards = 3;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(90));
  fleet.Pull(plan, Clock(0));
  fleet.TakeSent(ShardPeer(ShardId(0)));
  fleet.TakeSent(ShardPeer(ShardId(1)));
  fleet.Exchange();  // only shard 2 answers
  for (std::uint32_t p = 0; p < 8; ++p) fleet.view.routes.owners[p] = ShardId(p % 3);
  fleet.view.version = ViewVersion(2);
  fleet.view.routes.epoch = Epoch(2);
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Exchange();
  const auto done = fleet.EventsOf<PullDone>();
  ASSERT_EQ(done.size(), 1u);
  ExpectRows(plan, done[0].values);
  EXPECT_TRUE(fleet.client.idle());
}

}  // namespace
}  // namespace tarn::worker
