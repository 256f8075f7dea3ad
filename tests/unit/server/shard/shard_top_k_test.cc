// Shows pushes whose rows are encoded together (rule W5: topk, low_rank): the decoded values are applied or gathered
// once, and a push that cannot be decoded is refused with the reason and changes nothing.
#include "kernels/low_rank.h"
#include "kernels/sparse_values.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

TableSpec Layer(ApplyMode apply) {
  TableSpec spec = CountingTable(ConsistencyMode::kBsp, apply);
  spec.kind = TableKind::kDense;
  spec.rows = 8;
  spec.push_codec = ValueCodec::kTopK;
  return spec;
}

class ShardTopKTest : public ShardTest {
 protected:
  // A push of all eight rows; values[i] belongs to row i / 2.
  Message PushAll(std::uint64_t sequence, std::uint64_t clock, const std::vector<float>& values) {
    PushPart part{.table = kTable, .pulled_clock = Clock(clock), .codec = ValueCodec::kTopK, .keys = {.count = 8}};
    std::vector<Key> keys;
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) {
      std::uint32_t count = 0;
      for (Key key = 0; key < 8; ++key)
        if (PartitionOfKey(key) == PartitionId(p)) keys.push_back(key), ++count;
      part.keys.sections.push_back({PartitionId(p), count, Sequence(sequence)});
    }
    std::vector<float> ordered;
    for (const Key key : keys) ordered.insert(ordered.end(), {values[2 * key], values[2 * key + 1]});
    part.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
    part.values = Buffer::Allocate(kernels::SparseBytes(ordered.size(), ordered.data()));
    kernels::EncodeSparse(ordered.size(), ordered.data(), part.values.data());
    return FromWorker(0, 10, Push{RequestId(100 + sequence), Clock(clock), {part}});
  }
  float ValueAt(Key key, int i) const { return shard_->rows().Values(kTable, key).value()[i]; }

  const std::vector<float> some_ = {0, 0, 0, 2.5f, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 8};
};

TEST_F(ShardTopKTest, W5DecodedValuesAreAppliedOnce) {
  Join({LiveWorker(0, 10)}, Layer(ApplyMode::kImmediate));
  Deliver(PushAll(1, 0, some_));
  Deliver(PushAll(1, 0, some_));  // repeated
  for (Key key = 0; key < 8; ++key)
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ValueAt(key, i), -some_[2 * key + i]) << key;
}

TEST_F(ShardTopKTest, W5FactorsAreMultipliedOnArrival) {
  TableSpec spec = Layer(ApplyMode::kImmediate);
  spec.push_codec = ValueCodec::kLowRank;
  spec.compression.rank = 1;
  Join({LiveWorker(0, 10)}, spec);
  const auto push = [&](std::uint32_t rank) {
    Message message = PushAll(1, 0, some_);
    PushPart& part = PartOf<Push>(message);
    part.codec = ValueCodec::kLowRank;
    const std::vector<float> right(2 * rank, 2.0f), left(8 * rank, 0.5f);
    part.values = Buffer::Allocate(kernels::LowRankBytes(8, 2, rank));
    std::memcpy(kernels::EncodeRight(2, rank, right.data(), part.values.data()), left.data(), 8 * rank * 4);
    return message;
  };
  Deliver(push(2));
  auto errors = Take<ErrorReply>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message, "table 't': 8 rows of 2: factors: rank 2, expected 1 to 1");
  Deliver(push(1));
  for (Key key = 0; key < 8; ++key)
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ValueAt(key, i), -1.0f) << key;
}

TEST_F(ShardTopKTest, W5FactorsAreRefusedIfTheTableHasAnotherCodec) {
  Join({LiveWorker(0, 10)}, Layer(ApplyMode::kImmediate));
  Message message = PushAll(1, 0, some_);
  PartOf<Push>(message).codec = ValueCodec::kLowRank;
  PartOf<Push>(message).values = Buffer::Allocate(kernels::LowRankBytes(8, 2, 1));
  Deliver(std::move(message));
  const auto errors = Take<ErrorReply>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message, "table 't': 8 rows of 2: low_rank, expected topk");
}

TEST_F(ShardTopKTest, W5GatheredPushesAreSummed) {
  Join({LiveWorker(0, 10)}, Layer(ApplyMode::kAggregated));
  Deliver(PushAll(1, 0, some_));
  Deliver(PushAll(2, 0, some_));
  EXPECT_EQ(ValueAt(7, 1), 0);
  Tick(0, 10, 1);
  for (Key key = 0; key < 8; ++key)
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ValueAt(key, i), -2 * some_[2 * key + i]) << key;
}

TEST_F(ShardTopKTest, W5TheErrorSaysWhatCannotBeDecoded) {
  Join({LiveWorker(0, 10)}, Layer(ApplyMode::kImmediate));
  const auto refusal = [&](auto change) {
    Message message = PushAll(1, 0, some_);
    PushPart& part = PartOf<Push>(message);
    part.values = Buffer::Copy(part.values.data(), part.values.size());
    change(&part);
    out_.clear();
    Deliver(std::move(message));
    const auto errors = Take<ErrorReply>();
    return errors.size() == 1 ? std::string(ErrorName(errors[0].code)) + ": " + errors[0].message : "accepted";
  };
  EXPECT_EQ(refusal([](PushPart* p) { p->values.data()[p->values.size() - 1] = std::byte{9}; }),
            "malformed: table 't': 8 rows of 2: largest values: value 2 of 3 (counted from 0) has position 17, "
            "expected below 16");
  EXPECT_EQ(refusal([](PushPart* p) { p->values.data()[0] = std::byte{17}; }),
            "malformed: table 't': 8 rows of 2: largest values: 17 of them, expected at most 16");
  EXPECT_EQ(refusal([](PushPart* p) { p->values = p->values.Slice(0, p->values.size() - 1); }),
            "malformed: table 't': 8 rows of 2: largest values: 18 bytes, expected at least 19 for 3 of them");
  EXPECT_EQ(refusal([](PushPart* p) { p->keys.count = 0xffffffff; }),
            "malformed: 8 keys in the sections, 4294967295 in the message");
  for (Key key = 0; key < 8; ++key) EXPECT_EQ(ValueAt(key, 0), 0);
  EXPECT_TRUE(events_.applied.empty());
  EXPECT_EQ(refusal([](PushPart*) {}), "accepted");
}

TEST_F(ShardTopKTest, APullWithTopKIsRefused) {
  Join({LiveWorker(0, 10)}, Layer(ApplyMode::kImmediate));
  Message pull = PullOf(0, 10, 3, 0, 50);
  PartOf<Pull>(pull).codec = ValueCodec::kTopK;
  out_.clear();
  Deliver(std::move(pull));
  EXPECT_EQ(TakeError(), ErrorCode::kMalformed);
}

}  // namespace
}  // namespace tarn::server
