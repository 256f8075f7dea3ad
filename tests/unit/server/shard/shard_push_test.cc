// Shows which pushes a shard applies, once each, and which it refuses (rules E1 to E6, A1, A5), with malformed pushes
// of all kinds.
#include <limits>

#include "kernels/convert.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

class ShardPushTest : public ShardTest {
 protected:
  ShardPushTest() {
    Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
    out_.clear();
  }
  const Key key_ = 12345;
};

TEST_F(ShardPushTest, A1AppliedAtOnceAndAcknowledged) {
  Deliver(PushOf(0, 10, key_, 1, 0, 3.0f));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].to, kWorkerPeer);
  EXPECT_EQ(out_[0].message.sender.role, Role::kShard);
  EXPECT_EQ(out_[0].message.job, kJobFingerprint);
  const SectionAck ack = TakeAck();
  EXPECT_EQ(ack.code, ErrorCode::kOk);
  EXPECT_EQ(ack.sequence, Sequence(1));
  EXPECT_EQ(ack.partition, PartitionOfKey(key_));
  EXPECT_EQ(Value(key_), -3.0f);
}

TEST_F(ShardPushTest, E2ARepeatedPushIsAcknowledgedAgainAndNotApplied) {
  Deliver(PushOf(0, 10, key_, 1, 0));
  Deliver(PushOf(0, 10, key_, 2, 0));
  out_.clear();
  for (std::uint64_t sequence : {1u, 2u, 1u}) {
    Deliver(PushOf(0, 10, key_, sequence, 0));
    EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  }
  EXPECT_EQ(Value(key_), -2.0f);
  EXPECT_EQ(events_.applied.size(), 2u);
  EXPECT_EQ(shard_->counters().pushes_repeated, 3u);
}

TEST_F(ShardPushTest, E2APushOutOfOrderIsRefusedWithTheExpectedSequence) {
  Deliver(PushOf(0, 10, key_, 2, 0));
  SectionAck ack = TakeAck();
  EXPECT_EQ(ack.code, ErrorCode::kOutOfOrder);
  EXPECT_EQ(ack.expected, Sequence(1));
  EXPECT_EQ(Value(key_), 0.0f);
  Deliver(PushOf(0, 10, key_, 1, 0));
  Deliver(PushOf(0, 10, key_, 2, 0));
  EXPECT_EQ(Value(key_), -2.0f);
}

TEST_F(ShardPushTest, E2EachSectionIsHandledByItself) {
  // Partition 1 is at sequence 1. Then a message has sections for partition 0: sequence 1 (new), 1: 1 (repeated), 2: 2
  // (out of order), 3: 1 (new).
  const Key keys[] = {KeyIn(0), KeyIn(1), KeyIn(2), KeyIn(3)};
  Deliver(PushOf(0, 10, keys[1], 1, 0, 8.0f));
  out_.clear();
  PushPart part{.table = kTable, .keys = {.count = 4, .frame = Buffer::CopyOf(std::span<const Key>(keys))}};
  const std::uint64_t sequences[] = {1, 1, 2, 1};
  for (std::uint32_t p = 0; p < 4; ++p) part.keys.sections.push_back({PartitionId(p), 1, Sequence(sequences[p])});
  const float values[] = {1, 1, 2, 2, 3, 3, 4, 4};
  part.values = Buffer::CopyOf(std::span<const float>(values));
  Deliver(FromWorker(0, 10, Push{RequestId(9), Clock(0), {part}}));
  const auto acks = Take<PushAck>();
  ASSERT_EQ(acks.size(), 1u);
  ASSERT_EQ(acks[0].sections.size(), 4u);
  EXPECT_EQ(acks[0].sections[0].code, ErrorCode::kOk);
  EXPECT_EQ(acks[0].sections[1].code, ErrorCode::kOk);
  EXPECT_EQ(acks[0].sections[2].code, ErrorCode::kOutOfOrder);
  EXPECT_EQ(acks[0].sections[2].expected, Sequence(1));
  EXPECT_EQ(acks[0].sections[3].code, ErrorCode::kOk);
  EXPECT_EQ(Value(keys[0]), -1.0f);
  EXPECT_EQ(Value(keys[1]), -8.0f);
  EXPECT_EQ(Value(keys[2]), 0.0f);
  EXPECT_EQ(Value(keys[3]), -4.0f);
}

TEST_F(ShardPushTest, E1SequencesAreCountedPerIncarnation) {
  view_.workers.push_back(LiveWorker(1, 11));
  NextView();
  Deliver(PushOf(0, 10, key_, 1, 0));
  out_.clear();
  Deliver(PushOf(1, 11, key_, 1, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  EXPECT_EQ(Value(key_), -2.0f);
}

TEST_F(ShardPushTest, E3RefusesAnotherJob) {
  Message message = PushOf(0, 10, key_, 1, 0);
  message.job = 1;
  message.epoch = Epoch(99);
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kWrongJob);
}

TEST_F(ShardPushTest, E3RefusesAnOlderAndANewerEpoch) {
  view_.routes.epoch = Epoch(5);
  NextView();
  for (std::uint64_t epoch : {4u, 6u}) {
    out_.clear();
    Message message = PushOf(0, 99, key_, 1, 0);  // the epoch is checked before the incarnation
    message.epoch = Epoch(epoch);
    Deliver(message);
    const auto errors = Take<ErrorReply>();
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(errors[0].epoch, Epoch(5));
  }
  Deliver(PushOf(0, 10, key_, 1, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

TEST_F(ShardPushTest, E3RefusesAnUnknownTable) {
  Message message = PushOf(0, 10, key_, 1, 0);
  for (std::uint32_t table : {0u, 2u, 0xffffffffu}) {
    PartOf<Push>(message).table = TableId(table);
    Deliver(message);
    EXPECT_EQ(TakeError(), ErrorCode::kNotFound);
  }
}

TEST_F(ShardPushTest, E3RefusesKeysOfAnotherPartition) {
  Message message = PushOf(0, 10, key_, 1, 0);
  auto& section = PartOf<Push>(message).keys.sections[0];
  section.partition = PartitionId(section.partition.value ^ 1);
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kWrongShard);
  section.partition = PartitionId(4);
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kWrongShard);
}

TEST_F(ShardPushTest, E3RefusesCountsThatDoNotMatch) {
  const Message good = PushOf(0, 10, key_, 1, 0);
  auto refused = [&](auto change) {
    Message message = good;
    change(PartOf<Push>(message));
    Deliver(message);
    const ErrorCode code = TakeError();
    EXPECT_EQ(Value(key_), 0.0f);
    return code;
  };
  const ErrorCode malformed = ErrorCode::kMalformed;
  EXPECT_EQ(refused([](PushPart& p) { p.keys.count = 2; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.sections[0].count = 2; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.sections.clear(); }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.count = p.keys.sections[0].count = 2; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.sections[0].sequence = Sequence(0); }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.codec = ValueCodec::kBf16; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.codec = static_cast<ValueCodec>(9); }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.codec = static_cast<KeyCodec>(9); }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.codec = KeyCodec::kRange; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.values = Buffer::Allocate(7); }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.values = {}; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.frame = {}; }), malformed);
  EXPECT_EQ(refused([](PushPart& p) { p.keys.frame = Buffer::Allocate(9); }), malformed);
  const auto max = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(refused([&](PushPart& p) { p.keys.count = p.keys.sections[0].count = max; }), ErrorCode::kTooLarge);
  Deliver(good);
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

TEST_F(ShardPushTest, RefusesImpossibleClocks) {
  Deliver(PushOf(0, 10, key_, 1, std::uint64_t{limits::kClocksAheadMax} + 1));
  EXPECT_EQ(TakeError(), ErrorCode::kInvalidArgument);
  Deliver(PushOf(0, 10, key_, 1, limits::kClocksAheadMax));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

TEST_F(ShardPushTest, E4AnUnknownIncarnationIsNotServedYet) {
  Deliver(PushOf(1, 11, key_, 1, 0));
  EXPECT_EQ(TakeError(), ErrorCode::kUnavailable);
  view_.workers.push_back(LiveWorker(1, 11));
  NextView();
  out_.clear();
  Deliver(PushOf(1, 11, key_, 1, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

TEST_F(ShardPushTest, E4AWrongRankIsFenced) {
  Deliver(PushOf(1, 10, key_, 1, 0));
  EXPECT_EQ(TakeError(), ErrorCode::kFenced);
}

TEST_F(ShardPushTest, AnIncarnationThatWasReplacedIsFenced) {
  view_.workers = {LiveWorker(0, 12)};
  NextView();
  out_.clear();
  Deliver(PushOf(0, 10, key_, 1, 0));
  EXPECT_EQ(TakeError(), ErrorCode::kFenced);
}

TEST_F(ShardPushTest, OnlyWorkersPush) {
  Message message = PushOf(0, 10, key_, 1, 0);
  message.sender.role = Role::kShard;
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kInvalidArgument);
  Deliver(FromWorker(0, 10, Barrier{1}));  // nobody to answer: no request
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(shard_->counters().refused_other, 2u);
}

TEST_F(ShardPushTest, ARangeOfKeysOfADenseTable) {
  TableSpec dense = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  dense.id = TableId(2);
  dense.name = "dense";
  dense.kind = TableKind::kDense;
  dense.rows = 40;
  view_.tables.push_back(dense);
  NextView();
  out_.clear();
  const Positioner position(dense, TableSalt(kJobSeed, dense.name));
  PushPart part{.table = TableId(2), .keys = {.codec = KeyCodec::kRange, .count = 40}};
  for (Key key = 0; key < 40; ++key) {
    const PartitionId p = PartitionOf(position(key), kBits);
    auto& sections = part.keys.sections;
    if (sections.empty() || sections.back().partition != p) {
      std::uint64_t before = 0;
      for (const Section& s : sections) before += s.partition == p ? 1 : 0;
      sections.push_back({p, 0, Sequence(before + 1)});
    }
    ++sections.back().count;
  }
  std::vector<float> values(80);
  for (std::size_t i = 0; i < 80; ++i) values[i] = static_cast<float>(i);
  part.values = Buffer::CopyOf(std::span<const float>(values));
  Message message = FromWorker(0, 10, Push{RequestId(9), Clock(0), {part}});
  Deliver(message);
  for (const auto& ack : Take<PushAck>())
    for (const SectionAck& section : ack.sections) EXPECT_EQ(section.code, ErrorCode::kOk);
  for (Key key = 0; key < 40; ++key) EXPECT_EQ(shard_->rows().Values(TableId(2), key).value()[1], -float(2 * key + 1));
  // Past the end of the table, and past the end of the keys.
  PartOf<Push>(message).keys.first_key = 1;
  Deliver(message);
  EXPECT_NE(TakeError(), ErrorCode::kOk);
  PartOf<Push>(message).keys.first_key = ~Key{0} - 38;
  Deliver(message);
  EXPECT_EQ(TakeError(), ErrorCode::kMalformed);
}

// A worker can change memory that it shares with the shard at any time. The shard must apply the keys that it checked;
// otherwise it would write outside of the dense rows.
TEST_F(ShardPushTest, AppliesTheCheckedKeysEvenIfSharedMemoryChanges) {
  for (const TableKind kind : {TableKind::kDense, TableKind::kSparse}) {
    TableSpec table = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
    table.kind = kind;
    if (kind == TableKind::kDense) table.rows = 64;
    Join({LiveWorker(0, 10)}, table);
    const Key checked = KeyIn(0);
    const Key foreign = kind == TableKind::kDense ? Key{1} << 24 : KeyIn(1);
    Message message = PushOf(0, 10, checked, 1, 0, 3.0f);
    PushPart& part = PartOf<Push>(message);
    part.keys.list = 1;  // to be held
    alignas(8) Key shared = checked;
    const auto lender = std::make_shared<int>(0);
    part.keys.frame = Buffer::Lend(reinterpret_cast<std::byte*>(&shared), sizeof shared, lender);
    Buffer gradients = part.values;
    part.values = Buffer::Lend(gradients.data(), gradients.size(), lender);
    out_.clear();
    events_.before_rows = [&] { shared = foreign; };
    Deliver(message);
    events_.before_rows = nullptr;
    EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
    EXPECT_EQ(Value(checked), -3.0f);
    if (kind == TableKind::kSparse) {
      EXPECT_EQ(shard_->rows().row_count(), 1u);
      EXPECT_EQ(Value(foreign), 0.0f);
    }
    // The list that the shard holds is that of the checked keys.
    Message named = PushOf(0, 10, checked, 2, 0, 1.0f);
    KeyList& keys = PartOf<Push>(named).keys;
    keys.codec = KeyCodec::kHeld;
    keys.list = 1;
    keys.frame = {};
    Deliver(named);
    EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
    EXPECT_EQ(Value(checked), -4.0f);
  }
}

// Rule A5: such a row is neither updated nor created; the push counts, and its other rows are applied.
TEST_F(ShardPushTest, A5RowsThatAreNotFiniteAreSkipped) {
  for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8,
                                 ValueCodec::kTernary, ValueCodec::kSign, ValueCodec::kOneBit}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
      constexpr int kRows = 70;  // more than two groups
      std::vector<Key> keys;
      std::vector<float> values;
      for (int n = 0; n < kRows; ++n) {
        keys.push_back(KeyIn(0, n));
        values.insert(values.end(), {n % 7 == 0 ? bad : 1.0f, 1.0f});
      }
      Message message = PushOf(0, 10, keys[0], 1, 0);
      PushPart& part = PartOf<Push>(message);
      part.codec = codec;
      part.keys.count = part.keys.sections[0].count = kRows;
      part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
      part.values = Buffer::Allocate(kRows * CodecRowBytes(codec, 2));
      kernels::EncodeRows(codec, 2, kRows, values.data(), part.values.data());
      out_.clear();
      Deliver(message);
      EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
      for (int n = 0; n < kRows; ++n) EXPECT_FLOAT_EQ(Value(keys[n]), n % 7 == 0 ? 0.0f : -1.0f) << n;
      EXPECT_EQ(shard_->rows().row_count(), 60u);
      EXPECT_EQ(shard_->rows().counters().not_finite, 10u);
      const auto by_table = shard_->rows().not_finite();
      ASSERT_EQ(by_table.size(), 1u);
      EXPECT_EQ(by_table[0].table, "t");
      EXPECT_EQ(by_table[0].rows, 10u);
      EXPECT_EQ(by_table[0].key, keys[63]);
      // A repetition is not applied, so the watermark has advanced.
      Deliver(message);
      EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
      EXPECT_EQ(shard_->counters().pushes_repeated, 1u);
    }
  }
}

// Rule E6, immediate: as many steps, in order, as by pushes of their own.
TEST_F(ShardPushTest, E6AKeyNamedTwiceTakesTwoSteps) {
  TableSpec table = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  table.optimizer.kind = "adagrad";
  std::vector<std::uint64_t> hashes;
  for (const bool together : {false, true}) {
    Join({LiveWorker(0, 10)}, table);
    if (together) {
      const Key keys[] = {key_, key_};
      Message message = PushOf(0, 10, key_, 1, 0);
      PushPart& part = PartOf<Push>(message);
      part.keys.count = part.keys.sections[0].count = 2;
      const float values[] = {1, 1, 2, 2};
      part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
      part.values = Buffer::CopyOf(std::span<const float>(values));
      Deliver(message);
    } else {
      Deliver(PushOf(0, 10, key_, 1, 0, 1.0f));
      Deliver(PushOf(0, 10, key_, 2, 0, 2.0f));
    }
    hashes.push_back(shard_->rows().StateHash().value());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace tarn::server
