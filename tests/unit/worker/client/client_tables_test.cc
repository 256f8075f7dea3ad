// Shows which tables of one call of Pull or Push share a message to a shard, and that each of them is pulled or pushed
// exactly once whatever is lost, refused or sent to new owners (rule W6).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

constexpr TableId kTags{3};

FleetOptions ThreeTables(std::uint32_t shards = 2) {
  FleetOptions options = TwoTables();
  options.shards = shards;
  options.tables.push_back(SparseTable("tags", 3));
  return options;
}

// A plan of n keys for each table.
std::vector<Plan> Plans(FakeFleet* fleet, std::size_t n = 90) {
  std::vector<Plan> plans;
  plans.reserve(fleet->view.tables.size());
  for (const TableSpec& spec : fleet->view.tables) plans.push_back(fleet->MakePlan(spec.id, Keys(n, spec.id.value)));
  return plans;
}

// Pulls all tables in one call.
std::vector<RequestId> PullAll(FakeFleet* fleet, const std::vector<Plan>& plans, Clock use = Clock(0)) {
  std::vector<std::pair<const Plan*, PullWhen>> tables;
  tables.reserve(plans.size());
  for (const Plan& plan : plans) tables.emplace_back(&plan, PullWhen{.use = use});
  return fleet->Pull(tables);
}

// Delivers these messages to a shard, and its answers to the client.
void Deliver(FakeFleet* fleet, std::uint32_t shard, const std::vector<Message>& messages) {
  for (const Message& message : messages)
    for (Body& body : fleet->shards[shard].Handle(message)) fleet->FromShard(shard, std::move(body));
}

// Expects that exactly these pulls are done, with the right rows.
void ExpectPulled(FakeFleet* fleet, const std::vector<RequestId>& requests, const std::vector<Plan>& plans) {
  std::map<RequestId, Buffer> values;
  for (const PullDone& done : fleet->EventsOf<PullDone>())
    EXPECT_TRUE(values.emplace(done.request, done.values).second);
  ASSERT_EQ(values.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) ExpectRows(plans[i], values[requests[i]]);
}

// Expects that each of `rows` rows has received `times` pushes of Gradients.
void ExpectPushed(const FakeFleet& fleet, std::size_t rows, int times) {
  const auto sums = AppliedSums(fleet);
  EXPECT_EQ(sums.size(), rows);
  for (const auto& [key, sum] : sums) EXPECT_EQ(sum, float(times) * float(key.second % 1000));
}

// The tables of each message of one kind.
using Tables = std::vector<std::vector<TableId>>;
template <typename Kind>
Tables TablesOf(const std::vector<Message>& messages) {
  Tables all;
  for (const Kind& body : BodiesOf<Kind>(messages)) {
    all.emplace_back();
    for (const auto& part : body.tables) all.back().push_back(part.table);
  }
  return all;
}

// The sections of the pulls or pushes that wait to be sent: each once, to the owner of its partition.
using Sections = std::map<std::pair<TableId, PartitionId>, Sequence>;
template <typename Kind>
Sections SectionsOf(const FakeFleet& fleet) {
  Sections sections;
  for (const Outgoing& o : fleet.out)
    if (const auto* body = std::get_if<Kind>(&o.message.body))
      for (const auto& part : body->tables)
        for (const Section& section : part.keys.sections) {
          EXPECT_EQ(ShardPeer(OwnerOf(fleet.view.routes, section.partition)), o.to);
          EXPECT_TRUE(sections.emplace(std::pair(part.table, section.partition), section.sequence).second);
        }
  return sections;
}

TEST(ClientTables, APullIsOneMessageToEachShard) {
  FakeFleet fleet(ThreeTables());
  fleet.Run();
  const std::vector<Plan> plans = Plans(&fleet);
  const auto requests = PullAll(&fleet, plans);
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
    const auto sent = fleet.TakeSent(ShardPeer(ShardId(shard)));
    EXPECT_EQ(TablesOf<Pull>(sent), (Tables{{kUsers, kItems, kTags}}));
    Deliver(&fleet, shard, sent);
  }
  ExpectPulled(&fleet, requests, plans);
  EXPECT_EQ(fleet.client.counters().pulls, 3u);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientTables, APushIsOneMessageToEachShardAndOneAcknowledgement) {
  FakeFleet fleet(ThreeTables());
  fleet.Run();
  const auto requests = fleet.Push(Plans(&fleet), Clock(0));
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
    const auto sent = fleet.TakeSent(ShardPeer(ShardId(shard)));
    ASSERT_EQ(TablesOf<Push>(sent), (Tables{{kUsers, kItems, kTags}}));
    const auto answers = fleet.shards[shard].Handle(sent[0]);
    ASSERT_EQ(answers.size(), 1u);
    fleet.FromShard(shard, answers[0]);
  }
  const auto done = fleet.EventsOf<PushDone>();
  ASSERT_EQ(done.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(done[i].request, requests[i]);
  ExpectPushed(fleet, 3 * 90, 1);
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_EQ(fleet.client.pending_bytes(), 0u);
}

TEST(ClientTables, PullsOfAnotherClockPriorityOrConsistencyAreSentAlone) {
  struct Case {
    PullWhen when;  // of the last table, as its consistency
    ConsistencySpec consistency;
    Tables expected;
  };
  const Tables apart = {{kUsers, kItems}, {kTags}};
  const Case cases[] = {{{}, {}, {{kUsers, kItems, kTags}}},
                        {{.use = Clock(1)}, {}, apart},
                        {{.priority = -1}, {}, apart},
                        {{}, {ConsistencyMode::kSsp, 3, ApplyMode::kImmediate}, apart}};
  for (const Case& test : cases) {
    FleetOptions options = ThreeTables(1);
    options.tables[2].consistency = test.consistency;
    FakeFleet fleet(options);
    fleet.Run();
    const std::vector<Plan> plans = Plans(&fleet);
    const auto requests = fleet.Pull({{&plans[0], PullWhen()}, {&plans[1], PullWhen()}, {&plans[2], test.when}});
    const auto sent = fleet.TakeSent(ShardPeer(ShardId(0)));
    EXPECT_EQ(TablesOf<Pull>(sent), test.expected);
    Deliver(&fleet, 0, sent);
    ExpectPulled(&fleet, requests, plans);
  }
}

// One shard and one partition; the tables of the messages of a pull of n[t] rows of each table t, or of a push.
struct Sizes {
  explicit Sizes(FleetOptions options) : fleet(WithOnePartition(std::move(options))) { fleet.Run(); }
  static FleetOptions WithOnePartition(FleetOptions options) {
    options.shards = 1;
    options.partition_bits = 0;
    return options;
  }
  std::vector<Plan> PlansOf(const std::vector<std::size_t>& n) {
    std::vector<Plan> plans;
    plans.reserve(n.size());
    for (std::uint32_t t = 0; t < n.size(); ++t) plans.push_back(fleet.MakePlan(TableId(t + 1), Keys(n[t], t)));
    return plans;
  }
  Tables Pulled(const std::vector<std::size_t>& n) {
    PullAll(&fleet, PlansOf(n));
    return TablesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))));
  }
  Tables Pushed(const std::vector<std::size_t>& n) {
    fleet.Push(PlansOf(n), Clock(0));
    return TablesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))));
  }
  FakeFleet fleet;
};

TEST(ClientTables, LargeTablesAreSentAlone) {
  const Tables together = {{kUsers, kItems}}, apart = {{kUsers}, {kItems}};
  Sizes sizes(TwoTables());
  const std::size_t pulled = limits::kSharedRequestBytes / 8 - 100;
  EXPECT_EQ(sizes.Pulled({100, pulled}), together);
  EXPECT_EQ(sizes.Pulled({100, pulled + 1}), apart);
  // Keys and values of 24 and of 16 bytes a row.
  const std::size_t pushed = (limits::kSharedRequestBytes - 100 * 24) / 16;
  EXPECT_EQ(sizes.Pushed({100, pushed}), together);
  EXPECT_EQ(sizes.Pushed({100, pushed + 1}), apart);
  // The keys and the expected rows of a pull.
  for (const std::size_t over : {0u, 1u}) {
    FleetOptions options = TwoTables();
    options.client.piece_bytes = 20 * (8 + 16) + 10 * (8 + 8) - over;
    EXPECT_EQ(Sizes(options).Pulled({20, 10}), over == 0 ? together : apart);
  }
}

TEST(ClientTables, AMessageHasALimitedNumberOfTables) {
  FleetOptions options = TwoTables();
  while (options.tables.size() <= limits::kMessageTablesMax)
    options.tables.push_back(SparseTable("table" + std::to_string(options.tables.size()), 1));
  Sizes sizes(options);
  const std::vector<std::size_t> n(options.tables.size(), 1);
  for (const Tables& sent : {sizes.Pulled(n), sizes.Pushed(n)}) {
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].size(), limits::kMessageTablesMax);
    EXPECT_EQ(sent[1].size(), 1u);
  }
}

// Which tables share a message must not depend on credit, so that a run can be repeated.
TEST(ClientTables, TwoCallsShareNoMessageEvenIfTheyWaitForCredit) {
  FleetOptions options = ThreeTables(1);
  options.client.credit_bytes = 0;  // one message at a time
  FakeFleet fleet(options);
  fleet.Run();
  std::vector<Message> sent;
  fleet.lose = [&](const Message& message) {
    sent.push_back(message);
    return false;
  };
  const std::vector<Plan> plans = Plans(&fleet);
  const std::vector<std::vector<Plan>> calls = {{plans[0]}, {plans[1], plans[2]}, {plans[0]}};
  for (const std::vector<Plan>& call : calls) PullAll(&fleet, call);
  for (const std::vector<Plan>& call : calls) fleet.Push(call, Clock(0));
  fleet.Exchange();
  const Tables expected = {{kUsers}, {kItems, kTags}, {kUsers}};
  EXPECT_EQ(TablesOf<Pull>(sent), expected);
  EXPECT_EQ(TablesOf<Push>(sent), expected);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientTables, ANewRouteMapDividesAnUnansweredPull) {
  FakeFleet fleet(ThreeTables(3));
  fleet.Run();
  const std::vector<Plan> plans = Plans(&fleet);
  fleet.Push(plans, Clock(0));
  fleet.Exchange();
  const auto requests = PullAll(&fleet, plans);
  Deliver(&fleet, 2, fleet.TakeSent(ShardPeer(ShardId(2))));
  const Sections unanswered = SectionsOf<Pull>(fleet);
  EXPECT_EQ(unanswered.size(), 3 * 6u) << "of three tables, and of the partitions of shards 0 and 1";
  for (const auto& [section, sequence] : unanswered) EXPECT_EQ(sequence, Sequence(3)) << "of the last own push";
  fleet.out.clear();
  MovePartitions(&fleet);
  EXPECT_EQ(SectionsOf<Pull>(fleet), unanswered);
  fleet.Exchange();
  ExpectPulled(&fleet, requests, plans);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientTables, ANewRouteMapDividesAnUnacknowledgedPush) {
  FakeFleet fleet(ThreeTables(3));
  fleet.Run();
  fleet.Push(Plans(&fleet), Clock(0));
  Deliver(&fleet, 0, fleet.TakeSent(ShardPeer(ShardId(0))));
  Sections unanswered = SectionsOf<Push>(fleet);
  EXPECT_EQ(unanswered.size(), 3 * 5u) << "of three tables, and of the partitions of shards 1 and 2";
  // Shard 1 applies its message, but acknowledges only the first section. The message to shard 2 is lost.
  const auto sent = fleet.TakeSent(ShardPeer(ShardId(1)));
  ASSERT_EQ(sent.size(), 1u);
  PushAck ack = std::get<PushAck>(fleet.shards[1].Handle(sent[0]).at(0));
  ack.sections.resize(1);
  EXPECT_EQ(unanswered.erase({kUsers, ack.sections[0].partition}), 1u);
  fleet.FromShard(1, ack);
  fleet.out.clear();
  MovePartitions(&fleet);
  EXPECT_EQ(SectionsOf<Push>(fleet), unanswered);
  EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 3u);
  ExpectPushed(fleet, 3 * 90, 1);
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_EQ(fleet.client.pending_bytes(), 0u);
}

TEST(ClientTables, APullOfUnknownListsIsRepeatedWithAllKeys) {
  FakeFleet fleet(ThreeTables(1));
  fleet.Run();
  const std::vector<Plan> plans = Plans(&fleet);
  PullAll(&fleet, plans);
  fleet.Exchange();
  fleet.EventsOf<PullDone>();
  fleet.shards[0].lists.clear();
  const auto requests = PullAll(&fleet, plans);
  const auto named = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(0))));
  ASSERT_EQ(named.size(), 1u);
  for (const PullPart& part : named[0].tables) EXPECT_EQ(part.keys.codec, KeyCodec::kHeld);
  fleet.FromShard(0, ErrorReply{named[0].request, ErrorCode::kUnknownKeys, "", {}});
  const auto sent = fleet.TakeSent(ShardPeer(ShardId(0)));
  ASSERT_EQ(TablesOf<Pull>(sent), (Tables{{kUsers, kItems, kTags}}));
  const Pull& repeated = std::get<Pull>(sent[0].body);
  EXPECT_EQ(repeated.request, named[0].request);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(KeysOf(repeated.tables[i].keys), plans[i].keys);
  Deliver(&fleet, 0, sent);
  ExpectPulled(&fleet, requests, plans);
  EXPECT_EQ(fleet.client.counters().repeats, 1u);
}

TEST(ClientTables, APermanentRefusalFailsAllPullsOfTheMessage) {
  FakeFleet fleet(ThreeTables());
  fleet.Run();
  const auto requests = PullAll(&fleet, Plans(&fleet));
  const auto asked = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(1))));
  ASSERT_EQ(asked.size(), 1u);
  fleet.FromShard(1, ErrorReply{asked[0].request, ErrorCode::kInvalidArgument, "no", Epoch(1)});
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(failed[i].request, requests[i]);
    EXPECT_EQ(failed[i].error.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(failed[i].error.message.find("table '" + fleet.view.tables[i].name + "'"), std::string::npos)
        << failed[i].error.message;
  }
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  EXPECT_TRUE(fleet.client.idle());
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
}

TEST(ClientTables, PullsThatSharedAMessageWithAFailedOneAreSentAgain) {
  FakeFleet fleet(ThreeTables());
  fleet.Run();
  // "users": only rows of shard 0. "items": also rows of shard 1, which refuses them.
  const Plan all = fleet.MakePlan(kUsers, Keys(90));
  std::vector<Key> keys;
  for (const PlanRun& run : all.runs)
    for (std::uint32_t i = 0; i < run.count; ++i)
      if (OwnerOf(fleet.view.routes, run.partition) == ShardId(0)) keys.push_back(all.keys[run.begin + i]);
  const std::vector<Plan> plans = {fleet.MakePlan(kUsers, keys), fleet.MakePlan(kItems, Keys(90))};
  const auto requests = PullAll(&fleet, plans);
  const auto shared = fleet.TakeSent(ShardPeer(ShardId(0)));
  EXPECT_EQ(TablesOf<Pull>(shared), (Tables{{kUsers, kItems}}));
  const auto refused = BodiesOf<Pull>(fleet.TakeSent(ShardPeer(ShardId(1))));
  ASSERT_EQ(refused.size(), 1u);
  fleet.FromShard(1, ErrorReply{refused[0].request, ErrorCode::kInvalidArgument, "no", Epoch(1)});
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].request, requests[1]);
  const auto again = fleet.TakeSent(ShardPeer(ShardId(0)));
  EXPECT_EQ(TablesOf<Pull>(again), (Tables{{kUsers}}));
  Deliver(&fleet, 0, shared);  // its answer comes late
  EXPECT_TRUE(fleet.EventsOf<PullDone>().empty());
  Deliver(&fleet, 0, again);
  ExpectPulled(&fleet, {requests[0]}, plans);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientTables, RandomLossesLoseNothing) {
  FleetOptions options = ThreeTables();
  options.client.piece_bytes = 600;
  options.client.credit_bytes = 3000;
  FakeFleet fleet(options);
  fleet.Run();
  SplitMix random(5);
  fleet.lose = [&](const Message&) { return random.Chance(0.3); };
  const std::vector<Plan> plans = Plans(&fleet, 60);
  std::vector<Plan> pulled;
  std::vector<RequestId> requests;
  for (std::uint64_t i = 0; i < 10; ++i) {
    fleet.Push(plans, fleet.client.clock());
    fleet.Tick(DataPosition{LeaseId(1), i});
    for (const RequestId request : PullAll(&fleet, plans, fleet.client.clock())) requests.push_back(request);
    pulled.insert(pulled.end(), plans.begin(), plans.end());
    fleet.Exchange();
  }
  for (int i = 0; i < 2000 && !fleet.client.idle(); ++i) {
    fleet.Wait(300'000);
    fleet.Exchange();
  }
  ASSERT_TRUE(fleet.client.idle());
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 30u);
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 10u);
  ExpectPulled(&fleet, requests, pulled);
  ExpectPushed(fleet, 3 * 60, 10);
}

}  // namespace
}  // namespace tarn::worker
