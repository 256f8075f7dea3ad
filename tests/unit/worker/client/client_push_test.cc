// Shows that pushes reach every shard exactly once and in order whatever is lost, that credits bound what is in
// flight, and what refusals lead to (rules E1 to E5).
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "kernels/convert.h"
#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

std::size_t BytesOf(const std::vector<Message>& messages) {
  std::size_t bytes = 0;
  for (const Message& m : messages)
    if (std::holds_alternative<Push>(m.body)) bytes += PayloadBytes(m);
  return bytes;
}

TEST(ClientPush, SequencesHaveNoGapsOverTablesAndEachSectionGoesOnce) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  for (int i = 0; i < 10; ++i) {
    const Plan users = fleet.MakePlan(kUsers, Keys(50));
    const Plan items = fleet.MakePlan(kItems, Keys(30));
    fleet.Push(users, fleet.Gradients(users), Clock(0));
    fleet.Push(items, fleet.Gradients(items), Clock(0));
  }
  EXPECT_FALSE(fleet.client.idle());
  EXPECT_GT(fleet.client.pending_bytes(), 0u);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 20u);
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_EQ(fleet.client.pending_bytes(), 0u);
  EXPECT_EQ(fleet.client.counters().repeats, 0u);
  for (const auto& [key, sum] : AppliedSums(fleet)) EXPECT_EQ(sum, 10 * float(key.second % 1000));
  std::map<PartitionId, std::uint64_t> last;
  for (const FakeShard& shard : fleet.shards)
    for (const Applied& applied : shard.applied) EXPECT_EQ(applied.sequence.value, ++last[applied.partition]);
  EXPECT_EQ(last.size(), 8u);
}

TEST(ClientPush, PiecesKeepTheirSizeAndMayDivideARun) {
  FleetOptions options = TwoTables();
  options.partition_bits = 0;
  options.shards = 1;
  options.client.piece_bytes = 24 * 10;  // ten rows of 8 + 16 bytes
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(25));
  const RequestId id = fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const auto pushes = BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))));
  ASSERT_EQ(pushes.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const KeyList& keys = OnlyTable(pushes[i]).keys;
    EXPECT_EQ(keys.count, i < 2 ? 10u : 5u);
    ASSERT_EQ(keys.sections.size(), 1u);
    EXPECT_EQ(keys.sections[0].sequence, Sequence(i + 1));
  }
  fleet.Wait(1'000'000);
  fleet.Exchange();
  const auto done = fleet.EventsOf<PushDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].request, id);
  EXPECT_EQ(AppliedSums(fleet).size(), 25u);
}

TEST(ClientPush, RowsWiderThanAPieceAreSentOneByOne) {
  FleetOptions options = TwoTables();
  options.client.piece_bytes = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(9));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_EQ(AppliedSums(fleet).size(), 9u);
}

TEST(ClientPush, ConsecutiveKeysAreSentAsARange) {
  FleetOptions options = TwoTables();
  options.tables.push_back(DenseTable("weights", 3, 100));
  options.partition_bits = 0;
  options.shards = 1;
  FakeFleet fleet(options);
  fleet.Run();
  std::vector<Key> keys(40);
  std::iota(keys.begin(), keys.end(), 30);
  const Plan plan = fleet.MakePlan(TableId(3), keys);
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const auto sent = fleet.TakeSent(ShardPeer(ShardId(0)));
  ASSERT_EQ(sent.size(), 1u);
  const KeyList& list = OnlyTable(std::get<Push>(sent[0].body)).keys;
  EXPECT_EQ(list.codec, KeyCodec::kRange);
  EXPECT_EQ(list.first_key, 30u);
  EXPECT_EQ(list.count, 40u);
  EXPECT_TRUE(list.frame.empty());
}

TEST(ClientPush, ValuesAreSentInTheTablesCodec) {
  for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8,
                                 ValueCodec::kQsgd, ValueCodec::kTernary, ValueCodec::kSign, ValueCodec::kOneBit}) {
    FleetOptions options = TwoTables();
    options.tables[0].push_codec = codec;
    FakeFleet fleet(options);
    fleet.Run();
    const Plan plan = fleet.MakePlan(kUsers, Keys(20));
    fleet.Push(plan, fleet.Gradients(plan), Clock(0));
    for (const Outgoing& o : fleet.out)
      if (const auto* push = std::get_if<Push>(&o.message.body)) {
        const PushPart& part = OnlyTable(*push);
        EXPECT_EQ(part.codec, codec);
        EXPECT_EQ(part.values.size(), part.keys.count * CodecRowBytes(codec, 4));
      }
    fleet.Exchange();
    EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  }
}

TEST(ClientPush, AnEmptyPushIsDoneAtOnce) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, {});
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientPush, CreditsBoundTheBytesInFlightAndOneMessageIsAlwaysSent) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.partition_bits = 0;
  const std::size_t message = 128 + 10 * 24;  // the credit of one piece of ten rows
  for (const auto& [credit, expected] : std::vector<std::pair<std::size_t, std::size_t>>{
           {2 * 3 * message, 3}, {2 * 3 * message - 2, 2}, {2 * message, 1}, {0, 1}}) {
    options.client.credit_bytes = credit;
    FakeFleet fleet(options);
    fleet.Run();
    for (std::uint64_t i = 0; i < 8; ++i) {
      const Plan plan = fleet.MakePlan(kUsers, Keys(10, i));
      fleet.Push(plan, fleet.Gradients(plan), Clock(0));
    }
    const auto first = fleet.TakeSent(ShardPeer(ShardId(0)));
    ASSERT_EQ(first.size(), expected) << credit;
    EXPECT_LE(BytesOf(first), std::max(credit, message));
    // Each acknowledgement lets the next one go, in order.
    for (const Message& m : first) {
      const auto answers = fleet.shards[0].Handle(m);
      ASSERT_EQ(answers.size(), 1u);
      fleet.FromShard(0, answers[0]);
    }
    EXPECT_EQ(fleet.TakeSent(ShardPeer(ShardId(0))).size(), expected);
    fleet.Wait(1'000'000);
    fleet.Exchange();
    EXPECT_EQ(fleet.shards[0].applied.size(), 8u);
  }
}

TEST(ClientPush, AfterALossEverythingInFlightIsRepeatedOnceInOrder) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.partition_bits = 0;
  FakeFleet fleet(options);
  fleet.Run();
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Plan plan = fleet.MakePlan(kUsers, Keys(5, i));
    fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  }
  int seen = 0;
  fleet.lose = [&](const Message& m) { return std::holds_alternative<Push>(m.body) && ++seen == 3; };
  fleet.Exchange();
  // Seven pushes were refused, but all eight unacknowledged ones are repeated only once.
  EXPECT_EQ(fleet.client.counters().repeats, 8u);
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 10u);
  ASSERT_EQ(fleet.shards[0].applied.size(), 10u);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(fleet.shards[0].applied[i].sequence, Sequence(i + 1));
}

TEST(ClientPush, UnacknowledgedPushesAreRepeatedWithGrowingPauses) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(5));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.lose = [](const Message& m) { return std::holds_alternative<PushAck>(m.body); };
  fleet.Exchange();
  std::vector<TimeUs> times;
  const TimeUs start = fleet.now;
  while (fleet.now < start + 40'000'000) {
    fleet.Wait(500'000);
    if (!BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0)))).empty()) times.push_back(fleet.now - start);
  }
  EXPECT_EQ(times,
            (std::vector<TimeUs>{1'000'000, 3'000'000, 7'000'000, 15'000'000, 23'000'000, 31'000'000, 39'000'000}));
  fleet.lose = nullptr;
  fleet.Wait(10'000'000);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_EQ(fleet.shards[0].applied.size(), plan.runs.size());  // one section a partition, applied once
}

TEST(ClientPush, RandomLossesNeverLoseNorRepeatASection) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FleetOptions options = TwoTables();
    options.shards = 3;
    options.client.piece_bytes = 100 + seed * 20;
    options.client.credit_bytes = 1000;
    FakeFleet fleet(options);
    fleet.Run();
    SplitMix random(seed);
    fleet.lose = [&](const Message&) { return random.Chance(0.3); };
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Plan plan = fleet.MakePlan(i % 2 == 0 ? kUsers : kItems, Keys(40));
      fleet.Push(plan, fleet.Gradients(plan), Clock(0));
      fleet.Exchange();
    }
    for (int i = 0; i < 2000 && !fleet.client.idle(); ++i) {
      fleet.Wait(500'000);
      fleet.Exchange();
    }
    EXPECT_TRUE(fleet.client.idle()) << seed;
    EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 20u);
    for (const auto& [key, sum] : AppliedSums(fleet)) EXPECT_EQ(sum, 10 * float(key.second % 1000));
  }
}

TEST(ClientPush, RepeatedAndForeignAcknowledgementsChangeNothing) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(5));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const RequestId id = std::get<Push>(fleet.out.back().message.body).request;
  // Of an older start (no incarnation in the id), for sequences never sent, for a partition that does not exist.
  fleet.FromShard(0, PushAck{RequestId(3), {{PartitionId(0), Sequence(1), ErrorCode::kOk, Sequence(0)}}});
  fleet.FromShard(0, PushAck{id, {{PartitionId(0), Sequence(9), ErrorCode::kOk, Sequence(0)}}});
  fleet.FromShard(0, PushAck{id, {{PartitionId(800), Sequence(1), ErrorCode::kOk, Sequence(0)}}});
  EXPECT_EQ(fleet.client.counters().malformed, 2u);
  EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
  std::vector<std::pair<std::uint32_t, Body>> answers;
  for (std::uint32_t i = 0; i < 2; ++i)
    for (const Message& m : fleet.TakeSent(ShardPeer(ShardId(i))))
      for (Body& body : fleet.shards[i].Handle(m)) answers.emplace_back(i, std::move(body));
  for (int repeat = 0; repeat < 3; ++repeat)
    for (const auto& [shard, body] : answers) fleet.FromShard(shard, body);
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
}

TEST(ClientPush, ATransientRefusalIsRetried) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  for (ErrorCode code : {ErrorCode::kStaleEpoch, ErrorCode::kUnavailable, ErrorCode::kWrongShard,
                         ErrorCode::kOverloaded, ErrorCode::kNotFound}) {
    FakeFleet fleet(options);
    fleet.Run();
    fleet.TakeSent(kSchedulerPeer);
    const Plan plan = fleet.MakePlan(kUsers, Keys(5));
    fleet.Push(plan, fleet.Gradients(plan), Clock(0));
    const auto sent = BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))));
    ASSERT_EQ(sent.size(), 1u);
    fleet.FromShard(0, ErrorReply{sent[0].request, code, "later", Epoch(2)});
    // After a refusal that a newer view may resolve, the view is requested at once.
    const bool asks = code != ErrorCode::kUnavailable && code != ErrorCode::kOverloaded;
    EXPECT_EQ(BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer)).size(), asks ? 1u : 0u);
    fleet.Wait(200'000);  // well before the ordinary pause
    EXPECT_EQ(BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0)))).size(), 1u);
    fleet.Wait(10'000'000);
    fleet.Exchange();
    EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  }
}

TEST(ClientPush, APermanentRefusalFailsThePushAndStopsTheClient) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(5));
  const RequestId id = fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const auto sent = BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))));
  ASSERT_FALSE(sent.empty());
  fleet.FromShard(0, ErrorReply{sent[0].request, ErrorCode::kInvalidArgument, "other dim", Epoch(1)});
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].request, id);
  EXPECT_EQ(failed[0].error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
}

// The shard refuses every push with `code`, for up to `us`. `named`: the refusal names the request.
void RefusePushes(FakeFleet* fleet, ErrorCode code, bool named, TimeUs us) {
  const TimeUs end = fleet->now + us;
  while (fleet->now < end && fleet->client.state() == ClientState::kRunning) {
    for (const Push& push : BodiesOf<Push>(fleet->TakeSent(ShardPeer(ShardId(0)))))
      fleet->FromShard(0, ErrorReply{named ? push.request : RequestId(0), code, "it is so", Epoch(1)});
    fleet->Wait(100'000);
  }
}

TEST(ClientPush, ARefusalThatPersistsEndsTheClientAfterTwoLeases) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  for (ErrorCode code : {ErrorCode::kStaleEpoch, ErrorCode::kUnknownKeys, ErrorCode::kWrongShard, ErrorCode::kNotFound,
                         ErrorCode::kOutOfOrder, ErrorCode::kMalformed, ErrorCode::kOverloaded}) {
    FakeFleet fleet(options);
    fleet.Run();
    const Plan plan = fleet.MakePlan(kUsers, Keys(5));
    const RequestId id = fleet.Push(plan, fleet.Gradients(plan), Clock(0));
    const bool named = code != ErrorCode::kMalformed;
    RefusePushes(&fleet, code, named, 9'500'000);
    EXPECT_EQ(fleet.client.state(), ClientState::kRunning) << ErrorName(code);
    RefusePushes(&fleet, code, named, 20'000'000);
    if (code == ErrorCode::kOverloaded) {  // an overload passes eventually
      EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
      continue;
    }
    EXPECT_EQ(fleet.client.state(), ClientState::kStopped) << ErrorName(code);
    EXPECT_EQ(fleet.client.stop_reason().code, code);
    const std::string& reason = fleet.client.stop_reason().reason;
    EXPECT_TRUE(reason.starts_with("shard 0 has refused ") && reason.ends_with("seconds: it is so")) << reason;
    if (!named) continue;
    const auto failed = fleet.EventsOf<RequestFailed>();
    ASSERT_EQ(failed.size(), 1u);
    EXPECT_EQ(failed[0].request, id);
    EXPECT_NE(failed[0].error.message.find("a push to table 'users'"), std::string::npos) << failed[0].error.message;
  }
}

TEST(ClientPush, ARefusalNamesWhatWasRefused) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  for (const auto& [action, what] : {std::pair(PushAction::kStep, "a push to"),
                                     {PushAction::kAssign, "an assignment to"},
                                     {PushAction::kDelete, "a deletion in"}}) {
    FakeFleet fleet(options);
    fleet.Run();
    const Plan plan = fleet.MakePlan(kUsers, Keys(5));
    const Buffer values = action == PushAction::kDelete ? Buffer() : fleet.Gradients(plan);
    fleet.client.Push(plan, action, values, nullptr, fleet.now, &fleet.out);
    const auto sent = BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))));
    ASSERT_EQ(sent.size(), 1u);
    fleet.FromShard(0, ErrorReply{sent[0].request, ErrorCode::kInvalidArgument, "it is so", {}});
    EXPECT_EQ(fleet.client.stop_reason().reason,
              std::string("shard 0 has refused ") + what + " table 'users': it is so");
  }
}

// Two pushes to the only partition, one message each: the shard refuses the first with `first`, and the later ones as
// out of order.
void RefuseFirstOfPartition(FakeFleet* fleet, ErrorCode first, TimeUs us) {
  const TimeUs end = fleet->now + us;
  while (fleet->now < end && fleet->client.state() == ClientState::kRunning) {
    for (const Push& push : BodiesOf<Push>(fleet->TakeSent(ShardPeer(ShardId(0))))) {
      const Sequence sequence = OnlyTable(push).keys.sections.at(0).sequence;
      const ErrorCode code = sequence == Sequence(1) ? first : ErrorCode::kOutOfOrder;
      fleet->FromShard(0, PushAck{push.request, {{PartitionId(0), sequence, code, Sequence(1)}}});
    }
    fleet->Wait(100'000);
  }
}

TEST(ClientPush, PushesOutOfOrderBehindAnOverloadAreRepeatedWithoutLimit) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.partition_bits = 0;
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  for (ErrorCode first : {ErrorCode::kOverloaded, ErrorCode::kOutOfOrder}) {
    FakeFleet fleet(options);
    fleet.Run();
    for (std::uint64_t i = 0; i < 2; ++i) {
      const Plan plan = fleet.MakePlan(kUsers, Keys(5, i));
      fleet.Push(plan, fleet.Gradients(plan), Clock(0));
    }
    RefuseFirstOfPartition(&fleet, first, 30'000'000);
    if (first == ErrorCode::kOutOfOrder) {  // not an overload, so it does not pass
      EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
      continue;
    }
    ASSERT_EQ(fleet.client.state(), ClientState::kRunning) << fleet.client.stop_reason().reason;
    fleet.Wait(10'000'000);
    fleet.Exchange();
    EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 2u);
  }
}

// A push to two partitions: one refuses it as overloaded, the other as out of order.
TEST(ClientPush, AnOverloadNextToAnotherSectionsRefusalIsRepeatedWithoutLimit) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.partition_bits = 1;
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(20));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const TimeUs end = fleet.now + 30'000'000;
  while (fleet.now < end && fleet.client.state() == ClientState::kRunning) {
    for (const Push& push : BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(0))))) {
      ASSERT_EQ(OnlyTable(push).keys.sections.size(), 2u);
      fleet.FromShard(0, PushAck{push.request,
                                 {{PartitionId(0), Sequence(1), ErrorCode::kOutOfOrder, Sequence(1)},
                                  {PartitionId(1), Sequence(1), ErrorCode::kOverloaded, Sequence(1)}}});
    }
    fleet.Wait(100'000);
  }
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning) << fleet.client.stop_reason().reason;
}

TEST(ClientPush, ANewRouteMapOrAnAcknowledgementRestartsTheTimeout) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(5));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  RefusePushes(&fleet, ErrorCode::kWrongShard, true, 8'000'000);
  fleet.view.version = ViewVersion(2);
  fleet.view.routes.epoch = Epoch(2);
  fleet.FromScheduler(ViewUpdate{fleet.view});
  RefusePushes(&fleet, ErrorCode::kWrongShard, true, 8'000'000);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  fleet.Wait(10'000'000);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  RefusePushes(&fleet, ErrorCode::kWrongShard, true, 8'000'000);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
}

TEST(ClientPush, AnUnknownTableOrAnotherShapeFailsWithoutASequence) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  Plan plan = fleet.MakePlan(kUsers, Keys(5));
  plan.table = TableId(9);
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  plan.table = kUsers;
  plan.dim = 3;
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_EQ(failed[0].error.code, ErrorCode::kNotFound);
  EXPECT_EQ(failed[1].error.code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_TRUE(fleet.TakeSent(ShardPeer(ShardId(0))).empty());
}

TEST(ClientPush, ANewRouteMapRegroupsAndRepeatsUnacknowledgedPushes) {
  FleetOptions options = TwoTables();
  options.shards = 3;
  FakeFleet fleet(options);
  fleet.Run();
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Plan plan = fleet.MakePlan(kUsers, Keys(40));
    fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  }
  // Shard 0 receives and acknowledges its first two messages; those to the other shards are lost.
  const auto first = fleet.TakeSent(ShardPeer(ShardId(0)));
  for (std::size_t i = 0; i < 2; ++i)
    for (Body& body : fleet.shards[0].Handle(first[i])) fleet.FromShard(0, std::move(body));
  fleet.out.clear();
  MovePartitions(&fleet);
  for (const Outgoing& o : fleet.out) {
    EXPECT_EQ(o.message.epoch, Epoch(2));
    if (const auto* push = std::get_if<Push>(&o.message.body)) {
      for (const PushPart& part : push->tables)
        for (const Section& section : part.keys.sections)
          EXPECT_EQ(ShardPeer(OwnerOf(fleet.view.routes, section.partition)), o.to);
    }
  }
  fleet.Exchange();
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 4u);
  for (const auto& [key, sum] : AppliedSums(fleet)) EXPECT_EQ(sum, 4 * float(key.second % 1000));
}

}  // namespace
}  // namespace tarn::worker
