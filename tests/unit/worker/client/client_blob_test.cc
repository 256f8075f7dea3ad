// Shows the client's blob: taken at the order's clock, sent in pieces in spite of losses, reported to the scheduler as
// a file (rule K9), and fetched before a resumed worker begins (rule K10). And the messages of top-k pushes (rule W5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "core/codec/worker_blob.h"
#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

constexpr TableId kUsers{1};
constexpr TableId kLayer{2};

FleetOptions Options(float share = 0.25f) {
  FleetOptions options;
  options.client.nonce = 1;
  options.client.blob_chunk_bytes = 60;
  options.tables = {SparseTable("users", 2), DenseTable("layer", 2, 16)};
  for (TableSpec& table : options.tables) {
    table.push_codec = ValueCodec::kTopK;
    table.compression.share = share;
  }
  return options;
}

std::vector<Key> Keys(std::uint64_t from, std::uint64_t n) {
  std::vector<Key> keys(n);
  std::iota(keys.begin(), keys.end(), from);
  return keys;
}

class ClientBlobTest : public testing::Test {
 protected:
  void Push(FakeFleet* fleet, TableId table, const std::vector<Key>& keys) {
    const Plan plan = fleet->MakePlan(table, keys);
    fleet->Push(plan, fleet->Gradients(plan), fleet->client.clock());
  }
  void Order(FakeFleet* fleet, std::uint64_t id, bool at_clock, std::uint64_t clock) {
    fleet->view.checkpoint = {.id = CheckpointId(id), .at_clock = at_clock, .clock = Clock(clock), .directory = "d"};
    fleet->view.checkpoint.blobs = id != 0;
    ++fleet->view.version.value;
    fleet->FromScheduler(ViewUpdate{fleet->view});
  }
  static std::vector<Message> Puts(FakeFleet* fleet) {
    std::vector<Message> puts;
    for (Message& message : fleet->TakeSent(ShardPeer(ShardId(0))))
      if (std::holds_alternative<PutBlob>(message.body)) puts.push_back(std::move(message));
    return puts;
  }
  // Receives all pieces like a shard. `lose`: every third message of either direction is lost.
  std::string Receive(FakeFleet* fleet, bool lose) {
    std::string bytes;
    for (int i = 0; i < 200; ++i) {
      for (const Message& message : Puts(fleet)) {
        const PutBlob& put = std::get<PutBlob>(message.body);
        if (lose && ++messages_ % 3 == 0) continue;
        if (put.offset == bytes.size())
          bytes.append(reinterpret_cast<const char*>(message.values.data()), message.values.size());
        PutBlobAck ack{put.checkpoint, bytes.size(), {}};
        if (bytes.size() == put.total) ack.file = {.name = "f", .bytes = put.total, .crc32c = 5};
        if (lose && ++messages_ % 3 == 0) continue;
        fleet->FromShard(0, ack);
        if (!ack.file.name.empty()) return bytes;
      }
      fleet->Wait(2'000'000);
    }
    ADD_FAILURE() << "the blob was not sent";
    return bytes;
  }
  static std::vector<CheckpointPart> Files(FakeFleet* fleet) {
    std::vector<CheckpointPart> parts = BodiesOf<CheckpointPart>(fleet->TakeSent(kSchedulerPeer));
    std::erase_if(parts, [](const CheckpointPart& part) { return part.files.empty(); });
    return parts;
  }
  static std::map<Key, float> Kept(const std::string& bytes, Clock* clock) {
    std::map<Key, float> kept;
    const Status status =
        ReadBlob(std::as_bytes(std::span(bytes)), {"blob", CheckpointId(3), WorkerRank(0)},
                 [&](const BlobChunk& chunk) -> Status {
                   *clock = chunk.clock;
                   for (std::size_t i = 0; chunk.rows.table == "users" && i < chunk.rows.keys.size(); ++i)
                     kept[chunk.rows.keys[i]] = chunk.rows.values[2 * i];
                   return {};
                 });
    EXPECT_TRUE(status) << status.error().message;
    return kept;
  }
  int messages_ = 0;
};

template <typename Value>
struct Answer final : Completion<Value> {
  void Done(Value given) override { value = std::move(given); }
  void Failed(const Error& error) override { failure = error.message; }
  std::optional<Value> value;
  std::string failure;
};

// Chunks of sixty bytes with this state, for checkpoint 3.
std::vector<Buffer> Encoded(const FakeFleet& fleet, const std::string& state) {
  const BlobChunk head{.checkpoint = CheckpointId(3), .clock = fleet.client.clock(), .rows = {}, .state = {}};
  return EncodeProgramState(head, std::as_bytes(std::span(state)), 60);
}

Buffer BytesOf(const std::string& text) { return Buffer::Copy(text.data(), text.size()); }
std::string TextOf(const Buffer& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The state of a program in a blob.
std::string ProgramStateIn(const std::string& blob) {
  std::string state;
  const Status status = ReadBlob(std::as_bytes(std::span(blob)), {"blob", CheckpointId(3), WorkerRank(0)},
                                 [&](const BlobChunk& chunk) -> Status {
                                   state += TextOf(chunk.state);
                                   return {};
                                 });
  EXPECT_TRUE(status) << status.error().message;
  return state;
}

class ProgramStateTest : public ClientBlobTest {
 protected:
  ProgramStateTest() : fleet_(Options()) {
    fleet_.Run();
    fleet_.client.KeepState(fleet_.now, &fleet_.out);
  }
  std::optional<CheckpointId> Ask() {
    answers_.emplace_back();
    fleet_.client.AwaitSave(&answers_.back(), fleet_.now, &fleet_.out);
    return answers_.back().value;
  }
  std::optional<CheckpointId> answer() const { return answers_.back().value; }
  void Propose(bool open, bool drain = false) {
    fleet_.view.proposal.id = 1;
    fleet_.view.proposal.open = open;
    fleet_.view.proposal.drain = drain;
    ++fleet_.view.version.value;
    fleet_.FromScheduler(ViewUpdate{fleet_.view});
  }

  std::list<Answer<CheckpointId>> answers_;
  FakeFleet fleet_;
};

TEST_F(ProgramStateTest, K9TheStateIsSavedWhenTheProgramAsks) {
  Push(&fleet_, kUsers, Keys(1, 8));
  Order(&fleet_, 3, true, 2);
  fleet_.Tick({});
  EXPECT_EQ(Ask(), CheckpointId(0)) << "a clock too early";
  Push(&fleet_, kUsers, Keys(100, 4));
  fleet_.Tick({});
  EXPECT_TRUE(Puts(&fleet_).empty()) << "the state of the program is missing";
  EXPECT_EQ(Ask(), CheckpointId(3));
  const std::string state(200, 's');  // several chunks
  fleet_.client.Save(CheckpointId(3), Encoded(fleet_, state), fleet_.now, &fleet_.out);
  const std::string blob = Receive(&fleet_, true);
  EXPECT_EQ(ProgramStateIn(blob), state);
  Clock clock;
  EXPECT_EQ(Kept(blob, &clock).size(), 9u) << "with the residuals";
  EXPECT_EQ(clock, Clock(2));
  const auto parts = Files(&fleet_);
  ASSERT_FALSE(parts.empty());
  EXPECT_TRUE(parts[0].program_state);
  EXPECT_EQ(Ask(), CheckpointId(0)) << "once";
}

TEST_F(ProgramStateTest, M1TheProgramWaitsUntilTheClockOfAnOrderIsKnown) {
  Propose(true);
  fleet_.TickTo(Clock(kProposalSlack), {});
  EXPECT_EQ(Ask(), CheckpointId(0)) << "the order's clock will be a later one";
  fleet_.Tick({});
  EXPECT_FALSE(Ask());
  Order(&fleet_, 3, true, kProposalSlack + 1);
  EXPECT_EQ(answer(), CheckpointId(3));
  fleet_.client.Save(CheckpointId(3), Encoded(fleet_, "s"), fleet_.now, &fleet_.out);
  Propose(false);
  EXPECT_EQ(Ask(), CheckpointId(0));
}

TEST_F(ProgramStateTest, M1TheProgramContinuesIfTheProposalClosesWithoutAnOrder) {
  Propose(true);
  fleet_.TickTo(Clock(kProposalSlack + 1), {});
  EXPECT_FALSE(Ask());
  Propose(false);
  EXPECT_EQ(answer(), CheckpointId(0));
}

TEST_F(ProgramStateTest, AnOrderThatIsAbandonedMeanwhileGetsNoState) {
  Order(&fleet_, 3, false, 0);
  EXPECT_EQ(Ask(), CheckpointId(3));
  Order(&fleet_, 0, false, 0);
  fleet_.client.Save(CheckpointId(3), Encoded(fleet_, "s"), fleet_.now, &fleet_.out);
  EXPECT_TRUE(Puts(&fleet_).empty());
}

// Otherwise the state would contain one step more than the recorded position.
TEST_F(ProgramStateTest, K11ADrainEndsAfterTheClockThatTheProgramMayHaveBegun) {
  const auto drained = [&] {
    fleet_.Exchange();
    fleet_.Wait(1);
    const auto beats = BodiesOf<Heartbeat>(fleet_.TakeSent(kSchedulerPeer));
    return std::ranges::any_of(beats, [](const Heartbeat& beat) { return beat.drained == 1; });
  };
  Propose(true, true);
  EXPECT_FALSE(drained());
  Push(&fleet_, kUsers, Keys(1, 8));
  fleet_.Tick({});
  EXPECT_FALSE(Ask());
  EXPECT_TRUE(drained());
  Order(&fleet_, 3, false, 0);
  EXPECT_EQ(answer(), CheckpointId(3));
}

TEST_F(ProgramStateTest, K11ADrainEndsAtOnceWhileTheProgramWaitsForLeases) {
  fleet_.RequestLeases({});
  EXPECT_FALSE(Ask());
  Propose(true, true);
  fleet_.Exchange();
  fleet_.Wait(1);
  const auto beats = BodiesOf<Heartbeat>(fleet_.TakeSent(kSchedulerPeer));
  ASSERT_FALSE(beats.empty());
  EXPECT_TRUE(beats.back().keeps_state);
  EXPECT_EQ(beats.back().drained, 1u);
}

TEST_F(ProgramStateTest, TwoThreadsThatAskAtOnceEndTheClient) {
  Propose(true);
  fleet_.TickTo(Clock(kProposalSlack + 1), {});
  EXPECT_FALSE(Ask());
  Ask();
  EXPECT_EQ(fleet_.client.state(), ClientState::kStopped);
  EXPECT_TRUE(
      answers_.back().failure.ends_with("expected all pulls, pushes, ticks and requests for leases in one thread"));
}

TEST_F(ProgramStateTest, AStateThatCannotBeSavedEndsTheClient) {
  Order(&fleet_, 3, false, 0);
  ASSERT_EQ(Ask(), CheckpointId(3));
  fleet_.client.Save(CheckpointId(3), Fail(ErrorCode::kIo, "no memory"), fleet_.now, &fleet_.out);
  EXPECT_EQ(fleet_.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet_.client.stop_reason().reason, "the program's state: no memory");
}

TEST_F(ProgramStateTest, K10TheStateOfAnyRankIsRead) {
  Order(&fleet_, 3, false, 0);
  Ask();
  const std::string state = "the state of a program, in several chunks of sixty bytes, in order";
  fleet_.client.Save(CheckpointId(3), Encoded(fleet_, state), fleet_.now, &fleet_.out);
  const std::string bytes = Receive(&fleet_, false);

  FakeFleet fleet(Options());
  fleet.options.client.rank = 1;
  fleet.client.Start(fleet.now, &fleet.out);
  Welcome welcome = fleet.MakeWelcome();
  welcome.rank = 1;
  welcome.blobs = {{0, bytes.size()}};
  fleet.FromScheduler(welcome);
  ASSERT_EQ(fleet.client.state(), ClientState::kRunning) << "its own rank has none";
  Answer<Buffer> none, read;
  fleet.client.ReadBlobOf(WorkerRank(1), &none, fleet.now, &fleet.out);
  EXPECT_EQ(TextOf(none.value.value()), "");
  fleet.client.ReadBlobOf(WorkerRank(0), &read, fleet.now, &fleet.out);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  for (int i = 0; i < 100 && !read.value; ++i) {
    for (const GetBlob& get : BodiesOf<GetBlob>(fleet.TakeSent(ShardPeer(ShardId(1))))) {
      EXPECT_EQ(get.rank, 0u);
      const std::size_t size = std::min<std::size_t>(50, bytes.size() - get.offset);
      fleet.FromShard(1, BlobPiece{get.offset, bytes.size(), 1}, BytesOf("late, of the worker's own blob"));
      fleet.FromShard(1, BlobPiece{get.offset, bytes.size(), 0}, Buffer::Copy(bytes.data() + get.offset, size));
    }
    fleet.Wait(2'000'000);
  }
  EXPECT_EQ(TextOf(read.value.value()), bytes);
  EXPECT_EQ(ProgramStateIn(bytes), state);
}

TEST_F(ClientBlobTest, K9TheBlobIsTakenAtTheTickToTheClock) {
  for (const bool lose : {false, true}) {
    FakeFleet fleet(Options());
    fleet.Run();
    Push(&fleet, kUsers, Keys(1, 8));  // 8 and 7 are sent, 1 to 6 stay as residuals
    Push(&fleet, kLayer, Keys(0, 16));
    Order(&fleet, 3, true, 2);
    fleet.Tick({});
    EXPECT_TRUE(Puts(&fleet).empty());
    Push(&fleet, kUsers, Keys(100, 4));  // 103 is sent
    fleet.Tick({});                      // to clock 2
    Push(&fleet, kUsers, Keys(200, 4));  // after the cut
    Clock clock;
    const auto kept = Kept(Receive(&fleet, lose), &clock);
    EXPECT_EQ(clock, Clock(2));
    const std::map<Key, float> expected{{1, 1}, {2, 2},     {3, 3},     {4, 4},    {5, 5},
                                        {6, 6}, {100, 100}, {101, 101}, {102, 102}};
    EXPECT_EQ(kept, expected);
    // The report to the scheduler is repeated until the order is withdrawn.
    auto parts = Files(&fleet);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].id, CheckpointId(3));
    EXPECT_EQ(parts[0].files[0].name, "f");
    fleet.Wait(20'000'000);
    EXPECT_GE(Files(&fleet).size(), 2u);
    EXPECT_TRUE(Puts(&fleet).empty());
    Order(&fleet, 0, false, 0);
    fleet.Wait(20'000'000);
    EXPECT_TRUE(Files(&fleet).empty());
  }
}

TEST_F(ClientBlobTest, K9TheBlobIsTakenAtOnceIfTheOrderHasNoClock) {
  FakeFleet fleet(Options());
  fleet.Run();
  Push(&fleet, kUsers, Keys(1, 4));
  Order(&fleet, 3, false, 0);
  Clock clock;
  EXPECT_EQ(Kept(Receive(&fleet, false), &clock).size(), 3u);
  EXPECT_FALSE(fleet.client.idle());
}

TEST_F(ClientBlobTest, K9AShardThatLostTheBlobGetsItFromTheBeginning) {
  FakeFleet fleet(Options());
  fleet.Run();
  Push(&fleet, kUsers, Keys(1, 20));
  Order(&fleet, 3, false, 0);
  const auto first = Puts(&fleet);
  ASSERT_EQ(first.size(), 1u);
  fleet.FromShard(0, PutBlobAck{CheckpointId(3), first[0].values.size(), {}});
  const auto second = Puts(&fleet);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(std::get<PutBlob>(second[0].body).offset, first[0].values.size());
  fleet.FromShard(0, PutBlobAck{CheckpointId(3), 0, {}});
  const auto again = Puts(&fleet);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].values.data(), first[0].values.data()) << "the same bytes";
  fleet.FromShard(0, PutBlobAck{CheckpointId(3), 1, {}});  // no piece ends at byte 1
  fleet.FromShard(0, PutBlobAck{CheckpointId(2), 0, {}});
  fleet.FromShard(1, PutBlobAck{CheckpointId(3), first[0].values.size(), {}});
  EXPECT_TRUE(Puts(&fleet).empty());
  EXPECT_EQ(fleet.client.counters().malformed, 1u);
}

TEST_F(ClientBlobTest, K9NoBlobIsSentIfTheOrderWantsNone) {
  FakeFleet fleet(Options());
  fleet.Run();
  Push(&fleet, kUsers, Keys(1, 4));
  fleet.view.checkpoint = {.id = CheckpointId(3), .directory = "d"};
  ++fleet.view.version.value;
  fleet.FromScheduler(ViewUpdate{fleet.view});
  EXPECT_TRUE(Puts(&fleet).empty());
}

TEST_F(ClientBlobTest, K10TheBlobIsFetchedBeforeTheWorkerBegins) {
  FakeFleet before(Options());
  before.Run();
  Push(&before, kUsers, Keys(1, 8));
  Push(&before, kLayer, Keys(0, 16));
  Order(&before, 3, false, 0);
  const std::string bytes = Receive(&before, false);

  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.out.clear();
  Welcome welcome = fleet.MakeWelcome();
  welcome.blobs = {{0, bytes.size()}};
  fleet.FromScheduler(welcome);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);
  Push(&fleet, kUsers, Keys(1, 8));  // dropped: the client is not running yet
  EXPECT_TRUE(fleet.client.idle());
  std::size_t asked = 0;
  for (int i = 0; i < 500 && fleet.client.state() == ClientState::kJoining; ++i) {
    for (const GetBlob& get : BodiesOf<GetBlob>(fleet.TakeSent(ShardPeer(ShardId(0))))) {
      if (++asked % 3 == 0) continue;  // lost
      const std::size_t size = std::min<std::size_t>(50, bytes.size() - get.offset);
      fleet.FromShard(0, BlobPiece{get.offset, bytes.size(), 0}, Buffer::Copy(bytes.data() + get.offset, size));
      fleet.FromShard(0, BlobPiece{get.offset, bytes.size(), 0}, Buffer::Copy(bytes.data() + get.offset, size));
    }
    fleet.Wait(2'000'000);
  }
  ASSERT_EQ(fleet.client.state(), ClientState::kRunning) << fleet.client.stop_reason().reason;
  EXPECT_GT(asked, 5u);
  // The resumed client continues like the previous one.
  for (FakeFleet* each : {&before, &fleet}) {
    each->out.clear();
    Push(each, kUsers, Keys(1, 8));
    Push(each, kLayer, Keys(0, 16));
  }
  const auto bytes_of = [](FakeFleet* each) {
    std::vector<std::string> sent;
    for (std::uint32_t shard : {0, 1})
      for (const tarn::Push& push : BodiesOf<tarn::Push>(each->TakeSent(ShardPeer(ShardId(shard))))) {
        const Buffer& values = OnlyTable(push).values;
        sent.emplace_back(reinterpret_cast<const char*>(values.data()), values.size());
      }
    return sent;
  };
  EXPECT_EQ(bytes_of(&fleet), bytes_of(&before));
}

TEST_F(ClientBlobTest, K10ADamagedBlobEndsTheWorker) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  Welcome welcome = fleet.MakeWelcome();
  welcome.blobs = {{0, 30}};
  fleet.FromScheduler(welcome);
  const std::string garbage(30, 'x');
  fleet.FromShard(0, BlobPiece{0, 30, 0}, Buffer::Copy(garbage.data(), garbage.size()));
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet.client.stop_reason().code, ErrorCode::kCorrupt);
  EXPECT_NE(fleet.client.stop_reason().reason.find("the blob of worker 0"), std::string::npos);
}

// Over many pushes, with messages lost in both directions, the values that arrive are those given minus the residuals.
TEST_F(ClientBlobTest, W5EveryPushArrivesOnceWhateverIsLost) {
  FakeFleet fleet(Options(0.3f));
  fleet.options.client.piece_bytes = 100;
  fleet.Run();
  int n = 0;
  fleet.lose = [&](const Message&) { return ++n % 4 == 0; };
  std::map<std::pair<TableId, Key>, float> given;
  for (int i = 0; i < 20; ++i) {
    for (const Key key : Keys(std::uint64_t(i), 10)) given[{kUsers, key}] += float(key);
    for (const Key key : Keys(0, 16)) given[{kLayer, key}] += float(key);
    Push(&fleet, kUsers, Keys(std::uint64_t(i), 10));
    Push(&fleet, kLayer, Keys(0, 16));
    fleet.Tick({});
    fleet.Exchange();
    fleet.Wait(3'000'000);
    fleet.Exchange();
  }
  fleet.lose = nullptr;
  for (int i = 0; i < 20 && !fleet.client.idle(); ++i) {
    fleet.Wait(10'000'000);
    fleet.Exchange();
  }
  ASSERT_TRUE(fleet.client.idle());
  std::map<std::pair<TableId, Key>, float> sums;
  for (const FakeShard& shard : fleet.shards)
    for (const Applied& applied : shard.applied)
      for (std::size_t i = 0; i < applied.keys.size(); ++i)
        sums[{applied.table, applied.keys[i]}] += applied.values[2 * i];
  Order(&fleet, 3, false, 0);
  Clock clock;
  const std::map<Key, float> kept = Kept(Receive(&fleet, false), &clock);
  for (const auto& [key, value] : given) {
    if (key.first != kUsers) continue;
    EXPECT_EQ(sums[key] + (kept.contains(key.second) ? kept.at(key.second) : 0), value);
  }
}

// A new route map arrives when part of a message is acknowledged: the rest is sent on its own, with the same values.
TEST_F(ClientBlobTest, W5APushThatIsDividedAgainHasTheSameValues) {
  FakeFleet fleet(Options());
  fleet.Run();
  Push(&fleet, kLayer, Keys(0, 16));
  bool any = false;
  for (std::uint32_t i = 0; i < 2; ++i)
    for (const Message& message : fleet.TakeSent(ShardPeer(ShardId(i)))) {
      const tarn::Push& push = std::get<tarn::Push>(message.body);
      const PushPart& part = OnlyTable(push);
      if (part.codec == ValueCodec::kTopK) any = true;
      if (part.keys.sections.size() < 2) continue;
      const Section& first = part.keys.sections.front();
      fleet.FromShard(i, PushAck{push.request, {{first.partition, first.sequence, ErrorCode::kOk, Sequence(0)}}});
      fleet.shards[i].watermark[first.partition] = first.sequence;
    }
  ASSERT_TRUE(any);
  ++fleet.view.routes.epoch.value;
  ++fleet.view.version.value;
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Exchange();
  EXPECT_TRUE(fleet.client.idle());
  std::map<Key, std::pair<float, float>> applied;
  for (const FakeShard& shard : fleet.shards)
    for (const Applied& a : shard.applied)
      for (std::size_t k = 0; k < a.keys.size(); ++k) applied[a.keys[k]] = {a.values[2 * k], a.values[2 * k + 1]};
  EXPECT_FALSE(applied.empty());
  // The eight largest of 0, 1, 1, 2, 2 ... 15, 15, 16: those from 13 on, and one of the two 12.
  for (const auto& [key, row] : applied) {
    if (key == 11 || key == 12) continue;
    EXPECT_EQ(row.first, key >= 13 ? float(key) : 0.0f) << key;
    EXPECT_EQ(row.second, key >= 13 ? float(key + 1) : 0.0f) << key;
  }
}

}  // namespace
}  // namespace tarn::worker
