// Shows that a held list of keys is found only by its worker and number, and that the most recently used lists stay
// within the bound. A shard handles a message that names a held list like one with the keys, and requests the keys of a
// list that it does not hold (rules W2 to W4).
#include "server/shard/key_lists.h"

#include <utility>
#include <vector>

#include "kernels/key_delta.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

constexpr Incarnation kA{10}, kB{11};

KeyList Numbered(std::uint64_t number, std::uint32_t count, Key first) {
  KeyList keys{.count = count, .list = number, .frame = Buffer::Allocate(count * sizeof(Key))};
  for (std::uint32_t i = 0; i < count; ++i) keys.frame.as_mutable<Key>()[i] = first + 3 * i;
  return keys;
}

TEST(KeyListsTest, AreFoundByWorkerAndNumber) {
  KeyLists lists(1 << 20, 1 << 20);
  lists.Keep(kA, Numbered(1, 5, 100));
  lists.Keep(kB, Numbered(1, 6, 200));
  ASSERT_NE(lists.Find(kA, 1), nullptr);
  EXPECT_EQ(lists.Find(kA, 1)->count, 5u);
  EXPECT_EQ(lists.Find(kA, 1)->frame.as<Key>()[4], 112u);
  EXPECT_EQ(lists.Find(kB, 1)->frame.as<Key>()[0], 200u);
  EXPECT_EQ(lists.Find(kA, 2), nullptr);
  lists.Drop(kA);
  EXPECT_EQ(lists.Find(kA, 1), nullptr);
  EXPECT_NE(lists.Find(kB, 1), nullptr);
  lists.Clear();
  EXPECT_EQ(lists.size(), 0u);
  EXPECT_EQ(lists.bytes(), 0u);
}

TEST(KeyListsTest, TheBoundHoldsAndTheMostRecentlyUsedListsStay) {
  KeyLists probe(1 << 20, 1 << 20);
  probe.Keep(kA, Numbered(1, 100, 0));
  const std::size_t one = probe.bytes();
  KeyLists lists(3 * one, 3 * one);
  for (std::uint64_t i = 1; i <= 3; ++i) lists.Keep(kA, Numbered(i, 100, i));
  EXPECT_EQ(lists.size(), 3u);
  EXPECT_NE(lists.Find(kA, 1), nullptr);
  lists.Keep(kB, Numbered(4, 100, 4));
  EXPECT_EQ(lists.Find(kA, 2), nullptr);
  EXPECT_NE(lists.Find(kA, 1), nullptr);
  EXPECT_EQ(lists.bytes(), 3 * one);
  lists.Keep(kA, Numbered(1, 100, 7));  // replaces itself
  EXPECT_EQ(lists.size(), 3u);
  lists.Keep(kA, Numbered(5, 400, 0));  // larger than all
  EXPECT_EQ(lists.Find(kA, 5), nullptr);
  EXPECT_EQ(lists.size(), 3u);
}

TEST(KeyListsTest, ALowerBoundDropsTheOldestLists) {
  KeyLists lists(1 << 20, 1 << 20);
  for (std::uint64_t i = 1; i <= 4; ++i) lists.Keep(kA, Numbered(i, 100, i));
  const std::size_t one = lists.bytes() / 4;
  lists.SetBound(2 * one + one / 2);
  EXPECT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists.Find(kA, 2), nullptr);
  EXPECT_NE(lists.Find(kA, 3), nullptr);
  lists.Keep(kB, Numbered(1, 100, 9));
  EXPECT_EQ(lists.size(), 2u);
  lists.SetBound(0);
  EXPECT_EQ(lists.bytes(), 0u);
}

TEST(KeyListsTest, EachWorkerHasItsOwnBound) {
  KeyLists probe(1 << 20, 1 << 20);
  probe.Keep(kA, Numbered(1, 100, 0));
  const std::size_t one = probe.bytes();
  KeyLists lists(10 * one, 2 * one);
  lists.Keep(kB, Numbered(1, 100, 1));
  for (std::uint64_t i = 1; i <= 5; ++i) {
    lists.Keep(kA, Numbered(i, 100, i));
    EXPECT_NE(lists.Find(kA, 1), nullptr) << i;  // used each time, so it stays
  }
  EXPECT_EQ(lists.size(), 3u);
  EXPECT_NE(lists.Find(kB, 1), nullptr);
  EXPECT_NE(lists.Find(kA, 5), nullptr);
  EXPECT_EQ(lists.Find(kA, 4), nullptr);
}

class HeldKeysTest : public ShardTest {
 protected:
  void JoinIn(ConsistencyMode mode, ApplyMode apply, ShardOptions options = {}) {
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(mode, apply), std::move(options));
    out_.clear();
  }
  // Keys of partitions 0 and 2.
  KeyList TwoSections(std::uint64_t number, std::uint64_t sequence) {
    const Key keys[] = {KeyIn(0), KeyIn(0, 1), KeyIn(2)};
    return {.count = 3,
            .sections = {{PartitionId(0), 2, Sequence(sequence)}, {PartitionId(2), 1, Sequence(sequence)}},
            .list = number,
            .frame = Buffer::CopyOf(std::span<const Key>(keys))};
  }
  Message PullList(const KeyList& keys, std::uint64_t request, std::uint64_t clock = 0) {
    const PullPart part{.table = kTable, .keys = keys};
    return FromWorker(0, 10, Pull{RequestId(request), Clock(clock), {part}});
  }
  Message PushList(const KeyList& keys, std::uint32_t rank = 0, std::uint64_t incarnation = 10) {
    const float values[] = {1, 1, 2, 2, 3, 3};
    const PushPart part{.table = kTable, .keys = keys, .values = Buffer::CopyOf(std::span<const float>(values))};
    return FromWorker(rank, incarnation, Push{RequestId(77), Clock(0), {part}});
  }
  KeyList Held(std::uint64_t number, std::uint64_t sequence) {
    KeyList keys = TwoSections(number, sequence);
    keys.codec = KeyCodec::kHeld;
    keys.frame = {};
    return keys;
  }
  void ExpectPushed(float times) {
    EXPECT_EQ(Value(KeyIn(0)), -1.0f * times);
    EXPECT_EQ(Value(KeyIn(0, 1)), -2.0f * times);
    EXPECT_EQ(Value(KeyIn(2)), -3.0f * times);
  }
};

TEST_F(HeldKeysTest, W3APushNamesTheListOfAnEarlierPull) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Deliver(PullList(TwoSections(5, 0), 1));
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  Deliver(PushList(Held(5, 1)));
  ASSERT_EQ(Take<PushAck>().size(), 1u);
  ExpectPushed(1);
  // A second pull of the list gets the values in its order.
  Deliver(PullList(Held(5, 1), 2));
  ASSERT_EQ(out_.size(), 1u);
  const Buffer& values = PartOf<PullReply>(out_[0].message).values;
  EXPECT_EQ(std::vector<float>(values.as<float>().begin(), values.as<float>().end()),
            (std::vector<float>{-1, -1, -2, -2, -3, -3}));
}

TEST_F(HeldKeysTest, W3ARepeatedPushThatNamesItsKeysIsAppliedOnce) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Deliver(PushList(TwoSections(5, 1)));
  for (int i = 0; i < 2; ++i) Deliver(PushList(Held(5, 1)));
  ExpectPushed(1);
  Deliver(PushList(Held(5, 2)));
  ExpectPushed(2);
}

TEST_F(HeldKeysTest, W3HeldKeysGoIntoBucketsAndParkedPullsAsTheyAre) {
  JoinIn(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  Deliver(PullList(TwoSections(5, 0), 1));
  Deliver(PushList(Held(5, 1)));
  Deliver(PullList(Held(5, 1), 2, 1));
  out_.clear();
  Tick(0, 10, 1);
  Tick(1, 11, 1);
  ExpectPushed(0.5f);
  EXPECT_EQ(Take<PullReply>().size(), 1u);
}

TEST_F(HeldKeysTest, W4AListThatIsNotHeldIsAskedForAndChangesNothing) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Deliver(PushList(Held(5, 1)));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
  Deliver(PullList(Held(5, 0), 1));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
  EXPECT_TRUE(events_.applied.empty());
  Deliver(PushList(TwoSections(5, 1)));
  ExpectPushed(1);
}

TEST_F(HeldKeysTest, W4AWorkerCannotNameAnotherWorkersList) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Deliver(PushList(TwoSections(5, 1)));
  out_.clear();
  Deliver(PushList(Held(5, 1), 1, 11));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
  KeyList more = Held(5, 2);
  more.sections[0].count = 3;
  more.count = 4;
  Deliver(PushList(more));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
}

TEST_F(HeldKeysTest, W3KeysOutsideTheirSectionsAreRefusedHeldOrNot) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  KeyList wrong = TwoSections(5, 1);
  wrong.sections[1].partition = PartitionId(1);
  Deliver(PushList(wrong));
  EXPECT_EQ(TakeError(), ErrorCode::kWrongShard);
  Deliver(PushList(Held(5, 1)));  // an invalid list is not held
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
  Deliver(PushList(TwoSections(5, 1)));
  out_.clear();
  wrong = Held(5, 2);
  wrong.sections[1].partition = PartitionId(1);
  Deliver(PushList(wrong));
  EXPECT_EQ(TakeError(), ErrorCode::kWrongShard);
  ExpectPushed(1);
}

TEST_F(HeldKeysTest, W4FencingAndANewRouteMapDropLists) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Deliver(PushList(TwoSections(5, 1)));
  view_.routes.epoch = Epoch(2);
  NextView();
  out_.clear();
  Deliver(PushList(Held(5, 2)));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
  Deliver(PushList(TwoSections(5, 2)));
  Deliver(PushList(Held(5, 3)));
  ExpectPushed(3);
  view_.workers[0].state = WorkerState::kFencing;
  NextView();
  EXPECT_EQ(shard_->memory_bytes(), shard_->rows().memory_bytes());
}

TEST_F(HeldKeysTest, W3AListLargerThanTheBoundIsNotHeld) {
  JoinIn(ConsistencyMode::kAsp, ApplyMode::kImmediate, {.held_lists_bytes_max = 8});
  Deliver(PushList(TwoSections(5, 1)));
  out_.clear();
  Deliver(PushList(Held(5, 2)));
  EXPECT_EQ(TakeError(), ErrorCode::kUnknownKeys);
}

TEST_F(HeldKeysTest, W2DeltaCodedKeysAreDecoded) {
  JoinIn(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  std::vector<Key> keys;
  for (Key key = 0; keys.size() < 40; ++key)
    if (PartitionOfKey(key) == PartitionId(3)) keys.push_back(key);
  PushPart part{.table = kTable, .keys = {KeyCodec::kDelta, 0, 40, {{PartitionId(3), 40, Sequence(1)}}}};
  Buffer coded = Buffer::Allocate(DeltaBytesMax(40));
  const std::size_t bytes = kernels::EncodeKeys(keys, coded.data());
  ASSERT_NE(bytes, 0u);
  part.keys.frame = Buffer::Copy(coded.data(), bytes);
  const std::vector<float> values(80, 2.0f);
  part.values = Buffer::CopyOf(std::span<const float>(values));
  const Message message = FromWorker(0, 10, Push{RequestId(1), Clock(0), {part}});
  coded.data()[0] = std::byte{9};
  Message damaged = message;
  PartOf<Push>(damaged).keys.frame = Buffer::Copy(coded.data(), bytes);
  Deliver(damaged);
  EXPECT_EQ(TakeError(), ErrorCode::kMalformed);
  Deliver(message);
  Tick(0, 10, 1);
  Tick(1, 11, 1);
  for (Key key : keys) EXPECT_EQ(Value(key), -1.0f);
}

}  // namespace
}  // namespace tarn::server
