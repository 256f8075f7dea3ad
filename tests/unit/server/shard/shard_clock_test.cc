// Shows what a pull waits for in each mode (C1 to C6), and that aggregated clocks close with equal bits (A2).
#include <algorithm>
#include <array>

#include "core/hash.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

using ShardClockTest = ShardTest;

TEST_F(ShardClockTest, C1ATickIsAcknowledgedEachTime) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  for (std::uint64_t clock : {1u, 1u, 3u, 2u}) {
    out_.clear();
    Tick(0, 10, clock);
    const auto acks = Take<TickAck>();
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_EQ(acks[0].clock, Clock(clock));
  }
  EXPECT_EQ(shard_->minimum_clock(), Clock(3));
}

TEST_F(ShardClockTest, ATickBeyondTheLargestJumpIsRefused) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  out_.clear();
  Tick(0, 10, std::uint64_t{limits::kClocksAheadMax} + 1);
  EXPECT_EQ(TakeError(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(shard_->minimum_clock(), Clock(0));
  Tick(0, 10, limits::kClocksAheadMax);
  EXPECT_EQ(shard_->minimum_clock(), Clock(limits::kClocksAheadMax));
}

TEST_F(ShardClockTest, C3UnderBspAPullWaitsForAllWorkers) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PullOf(0, 10, 5, 0, 1));
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  Deliver(PullOf(0, 10, 5, 1, 2));
  Tick(0, 10, 1);
  EXPECT_TRUE(Take<PullReply>().empty());
  Tick(1, 11, 1);
  const auto replies = Take<PullReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].request, RequestId(2));
  EXPECT_EQ(replies[0].min_clock, Clock(1));
  EXPECT_EQ(shard_->counters().pulls_parked, 1u);
}

TEST_F(ShardClockTest, C3UnderSspTheBoundIsExact) {
  constexpr std::uint32_t kBound = 3;
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kSsp, ApplyMode::kImmediate, kBound));
  Tick(0, 10, 20);
  Tick(1, 11, 2);
  out_.clear();
  Deliver(PullOf(0, 10, 5, 2 + kBound, 1));
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  Deliver(PullOf(0, 10, 5, 2 + kBound + 1, 2));
  EXPECT_TRUE(Take<PullReply>().empty());
  Tick(1, 11, 3);
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  EXPECT_EQ(events_.served, (std::vector{Clock(5), Clock(6)}));
}

TEST_F(ShardClockTest, C3UnderAspNothingWaits) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  out_.clear();
  Deliver(PullOf(0, 10, 5, 1'000'000, 1));
  EXPECT_EQ(Take<PullReply>().size(), 1u);
}

TEST_F(ShardClockTest, C3APullWaitsForThePushesThatItNames) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  Deliver(PullOf(0, 10, 5, 0, 1, 2));
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_TRUE(Take<PullReply>().empty());
  Deliver(PushOf(0, 10, 5, 2, 0));
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(PartOf<PullReply>(out_[1].message).values.as<float>()[0], -2.0f);
}

TEST_F(ShardClockTest, C3APullWaitsForTheClockAndThenForThePush) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kImmediate));
  Deliver(PullOf(0, 10, 5, 1, 1, 1));
  Tick(0, 10, 1);
  EXPECT_TRUE(Take<PullReply>().empty());
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_EQ(Take<PullReply>().size(), 1u);
}

TEST_F(ShardClockTest, C3ARepeatedPullReplacesTheParkedOne) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PullOf(0, 10, 5, 1, 1));
  const Peer again(kFirstAcceptedPeer + 9);
  shard_->OnMessage(again, PullOf(0, 10, 5, 1, 1), now_, &out_);
  out_.clear();
  Tick(0, 10, 1);
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(out_[1].to, again);
  EXPECT_EQ(shard_->counters().pulls_parked, 1u);
}

TEST_F(ShardClockTest, ParkedPullsAreBounded) {
  ShardOptions options;
  options.parked_pulls_max = 3;
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
  out_.clear();
  for (std::uint64_t request = 1; request <= 3; ++request) Deliver(PullOf(0, 10, 5, 1, request));
  EXPECT_TRUE(out_.empty());
  Deliver(PullOf(0, 10, 5, 1, 4));
  EXPECT_EQ(TakeError(), ErrorCode::kOverloaded);
  Tick(0, 10, 1);
  EXPECT_EQ(Take<PullReply>().size(), 3u);
}

TEST_F(ShardClockTest, APullOfMoreThanAFrameIsRefused) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  Message message = PullOf(0, 10, 5, 0, 1);
  auto& keys = PartOf<Pull>(message).keys;
  keys.frame = {};
  keys.codec = KeyCodec::kRange;
  keys.count = keys.sections[0].count = limits::kFrameBytesMax / 8 + 1;
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kTooLarge);
}

TEST_F(ShardClockTest, A2PushesAreVisibleOnceTheirClockCloses) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PushOf(0, 10, 5, 1, 0, 4.0f));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  Deliver(PushOf(1, 11, 5, 1, 0, 2.0f));
  Deliver(PushOf(1, 11, 5, 2, 1, 8.0f));
  EXPECT_EQ(Value(5), 0.0f);
  Tick(0, 10, 1);
  EXPECT_EQ(Value(5), 0.0f);
  Tick(1, 11, 2);
  EXPECT_EQ(Value(5), -3.0f);  // (4 + 2) / 2
  Tick(0, 10, 2);
  EXPECT_EQ(Value(5), -7.0f);  // a worker without gradients counts in the cohort
  EXPECT_EQ(events_.closed, (std::vector{Clock(0), Clock(1)}));
}

TEST_F(ShardClockTest, A2AJumpClosesOnlyClocksWithPushes) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PushOf(0, 10, 5, 1, 7, 1.0f));
  Deliver(PushOf(0, 10, 5, 2, 900'000'000, 1.0f));
  Tick(0, 10, 1'000'000'000);
  EXPECT_EQ(events_.closed, (std::vector{Clock(7), Clock(900'000'000)}));
  EXPECT_EQ(Value(5), -2.0f);
}

TEST_F(ShardClockTest, A2APushOfAClosedClockIsDiscarded) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Tick(0, 10, 5);
  out_.clear();
  Deliver(PushOf(0, 10, 5, 1, 4));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  EXPECT_EQ(events_.voided, std::vector{Sequence(1)});
  Deliver(PushOf(0, 10, 5, 2, 5));
  Tick(0, 10, 6);
  EXPECT_EQ(Value(5), -1.0f);
}

TEST_F(ShardClockTest, A2BucketsAreBoundedButTheNextClockHasRoom) {
  ShardOptions options;
  options.bucket_bytes_max = 700;
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kSsp, ApplyMode::kAggregated, 100), options);
  std::uint64_t sequence = 0;
  auto push = [&](std::uint64_t clock) {
    out_.clear();
    Deliver(PushOf(0, 10, 5, sequence + 1, clock));
    const ErrorCode code = TakeAck().code;
    if (code == ErrorCode::kOk) ++sequence;
    return code;
  };
  while (push(3) == ErrorCode::kOk) ASSERT_LT(sequence, 100u);
  const std::uint64_t ahead = sequence;
  EXPECT_GT(ahead, 0u);
  EXPECT_EQ(push(3), ErrorCode::kOverloaded);
  EXPECT_EQ(push(0), ErrorCode::kOk);
  Tick(0, 10, 3);
  EXPECT_EQ(Value(5), -float(sequence - ahead));
  EXPECT_EQ(push(3), ErrorCode::kOk);
}

// If such a push were refused forever, the fleet would stop without an error.
TEST_F(ShardClockTest, A2AClockThatDoesNotFitEndsTheJob) {
  ShardOptions options;
  options.bucket_bytes_max = 700;
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
  std::uint64_t sequence = 0;
  while (!shard_->stopped()) {
    ASSERT_LT(sequence, 100u);
    out_.clear();
    Deliver(PushOf(0, 10, 5, ++sequence, 0));
  }
  EXPECT_GT(sequence, 2u);
  const auto ends = Take<Shutdown>();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].code, ErrorCode::kTooLarge);
  for (const char* part :
       {"shard 0", "clock 0", "table 't'", "at most 1400 bytes", "train.batch_rows", "fleet.servers"})
    EXPECT_NE(ends[0].reason.find(part), std::string::npos) << part << " in: " << ends[0].reason;
}

// Pushes of a worker that is being fenced may be discarded by its verdict, which makes room.
TEST_F(ShardClockTest, A2AFullClockWaitsForTheVerdictOfADeadWorker) {
  ShardOptions options;
  options.bucket_bytes_max = 700;
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
  Deliver(PushOf(1, 11, 5, 1, 0));
  view_.workers[1].state = WorkerState::kFencing;
  NextView();
  std::uint64_t sequence = 0;
  for (ErrorCode code = ErrorCode::kOk; code == ErrorCode::kOk; ++sequence) {
    ASSERT_LT(sequence, 100u);
    out_.clear();
    Deliver(PushOf(0, 10, 5, sequence + 1, 0));
    code = TakeAck().code;
    EXPECT_TRUE(code == ErrorCode::kOk || code == ErrorCode::kOverloaded);
  }
  EXPECT_FALSE(shard_->stopped());
  view_.workers[1].state = WorkerState::kEnded;
  NextView();
  out_.clear();
  Deliver(PushOf(0, 10, 5, sequence, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

// Rule A5: the row of a worker that is not finite is left out, those of others count; bits of the rest are the same.
TEST_F(ShardClockTest, A5AggregatedRowsThatAreNotFiniteAreLeftOut) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
    const Key both = KeyIn(0, 0), alone = KeyIn(0, 1), only = KeyIn(1);
    Deliver(PushOf(0, 10, both, 1, 0, bad));
    Deliver(PushOf(1, 11, both, 1, 0, 4.0f));
    Deliver(PushOf(0, 10, alone, 2, 0, bad));
    Deliver(PushOf(0, 10, only, 1, 0, bad));  // the only contribution to its partition
    for (const auto& ack : Take<PushAck>()) EXPECT_EQ(ack.sections[0].code, ErrorCode::kOk);
    Tick(0, 10, 1);
    Tick(1, 11, 1);
    EXPECT_EQ(Value(both), -2.0f);
    EXPECT_EQ(shard_->rows().row_count(), 1u);  // the other keys have no row
    EXPECT_EQ(shard_->rows().counters().not_finite, 3u);
  }
}

// Rule A5, for a push with rows of both kinds whose keys another worker has pushed before it.
TEST_F(ShardClockTest, A5FiniteRowsBesideOthersAreSummed) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  const Key keys[] = {KeyIn(0, 0), KeyIn(0, 1), KeyIn(0, 2)};
  const auto push = [&](std::uint32_t rank, std::uint64_t incarnation, const std::array<float, 6>& values) {
    Message message = PushOf(rank, incarnation, keys[0], 1, 0);
    PushPart& part = PartOf<Push>(message);
    part.keys.count = part.keys.sections[0].count = 3;
    part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
    part.values = Buffer::CopyOf(std::span<const float>(values));
    Deliver(message);
  };
  push(0, 10, {1, 1, 2, 2, 3, 3});
  push(1, 11, {4, 4, std::numeric_limits<float>::infinity(), 4, 6, 6});
  Tick(0, 10, 1);
  Tick(1, 11, 1);
  EXPECT_EQ(Value(keys[0]), -2.5f);
  EXPECT_EQ(Value(keys[1]), -1.0f);
  EXPECT_EQ(Value(keys[2]), -4.5f);
}

// Rule E6, aggregated: one step with the sum, also where nothing else is summed.
TEST_F(ShardClockTest, E6AKeyNamedTwiceIsSummed) {
  for (const bool another : {false, true}) {
    TableSpec table = CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated);
    table.optimizer.kind = "adagrad";
    table.optimizer.options["epsilon"] = 1e-10f;
    Join({LiveWorker(0, 10)}, table);
    const Key key = KeyIn(0);
    const Key keys[] = {key, KeyIn(0, 1), key};
    Message message = PushOf(0, 10, key, 1, 0);
    PushPart& part = PartOf<Push>(message);
    part.keys.count = part.keys.sections[0].count = 3;
    const float values[] = {1, 1, 5, 5, 2, 2};
    part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
    part.values = Buffer::CopyOf(std::span<const float>(values));
    Deliver(message);
    if (another) Deliver(PushOf(0, 10, KeyIn(0, 2), 2, 0));
    Tick(0, 10, 1);
    EXPECT_EQ(Value(key), -1.0f);  // 3 / sqrt(9), not 1 / 1 + 2 / sqrt(5)
    EXPECT_EQ(Value(KeyIn(0, 1)), -1.0f);
  }
}

// Any order of arrival, and any split of the workers' pushes over messages, gives the same bits.
TEST_F(ShardClockTest, A2TheOrderOfArrivalDoesNotMatter) {
  constexpr std::uint32_t kWorkers = 5;
  std::vector<WorkerEntry> workers;
  workers.reserve(kWorkers);
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) workers.push_back(LiveWorker(rank, 20 - rank));
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Join(workers, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
    std::vector<std::vector<Message>> of_worker(kWorkers);
    for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
      std::map<PartitionId, std::uint64_t> sequences;
      for (Key key = 0; key < 40; ++key) {
        const std::uint64_t word = Mix64(key * 100 + rank);
        if (word % 3 == 0) continue;
        const float gradient = static_cast<float>(UnitDouble(word)) * (word & 1 ? 1e-3f : 1e3f);
        of_worker[rank].push_back(PushOf(rank, 20 - rank, key, ++sequences[PartitionOfKey(key)], 0, gradient));
      }
    }
    // A random interleaving of the workers, each in order.
    SplitMix random(seed);
    std::vector<std::size_t> next(kWorkers, 0);
    for (bool left = true; left;) {
      const std::uint32_t rank = static_cast<std::uint32_t>(random.Below(kWorkers));
      if (next[rank] < of_worker[rank].size()) Deliver(of_worker[rank][next[rank]++]);
      left = false;
      for (std::uint32_t r = 0; r < kWorkers; ++r) left |= next[r] < of_worker[r].size();
    }
    for (std::uint32_t rank = 0; rank < kWorkers; ++rank) Tick(rank, 20 - rank, 1);
    hashes.push_back(shard_->rows().StateHash().value());
    // The sum in the order of ranks, as plain floats.
    for (Key key = 0; key < 40; ++key) {
      float sum = 0;
      bool first = true;
      for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
        const std::uint64_t word = Mix64(key * 100 + rank);
        if (word % 3 == 0) continue;
        const float gradient = static_cast<float>(UnitDouble(word)) * (word & 1 ? 1e-3f : 1e3f);
        sum = first ? gradient : sum + gradient;
        first = false;
      }
      EXPECT_EQ(Value(key), 0.0f - sum * (1.0f / kWorkers));
    }
  }
  EXPECT_EQ(std::ranges::count(hashes, hashes[0]), 8);
}

TEST_F(ShardClockTest, C2WithoutLiveWorkersTheMinimumIsTheLargestEndClock) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Tick(0, 10, 4);
  view_.workers[0].state = view_.workers[1].state = WorkerState::kEnded;
  view_.workers[0].end = Clock(4);
  view_.workers[1].end = Clock(2);
  NextView();
  EXPECT_EQ(shard_->minimum_clock(), Clock(4));
  view_.workers = {LiveWorker(2, 12, 13)};
  NextView();
  EXPECT_EQ(shard_->minimum_clock(), Clock(13));
}

}  // namespace
}  // namespace tarn::server
