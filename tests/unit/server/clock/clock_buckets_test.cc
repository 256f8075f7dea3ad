// Shows that closing a clock sums the contributions to each row in worker order, whatever their codec and the order in
// which they arrived, and that a single contribution keeps its exact bits.
#include "server/clock/clock_buckets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/position.h"
#include "kernels/convert.h"

namespace tarn::server {
namespace {

class ClockBucketsTest : public testing::Test {
 protected:
  ClockBucketsTest() {
    spec_.id = TableId(1);
    spec_.name = std::string("t");
    spec_.optimizer.learning_rate = 1.0f;
    EXPECT_TRUE(rows_.AddTable(spec_));
  }
  Contribution From(std::uint32_t rank, std::uint64_t sequence, std::vector<Key> keys, std::vector<float> gradients) {
    return {.table = TableId(1),
            .partition = PartitionId(0),
            .rank = WorkerRank(rank),
            .incarnation = Incarnation(100 - rank),
            .sequence = Sequence(sequence),
            .count = static_cast<std::uint32_t>(keys.size()),
            .keys = Buffer::CopyOf(std::span<const Key>(keys)),
            .values = Buffer::CopyOf(std::span<const float>(gradients)),
            .bytes = keys.size() * 12};
  }
  void Close(std::uint64_t clock, std::vector<Contribution> contributions, std::uint32_t divisor) {
    SortForClosing(&contributions);
    ASSERT_TRUE(closer_.Close(Clock(clock), contributions, divisor, &rows_));
  }
  float Value(Key key) const { return rows_.Values(TableId(1), key).value()[0]; }

  TableSpec spec_;
  Store rows_{{.job_seed = 1, .partition_bits = 0, .owned = {PartitionId(0)}}};
  BucketCloser closer_;
};

TEST_F(ClockBucketsTest, SumsInWorkerOrder) {
  // 1e8 + 1 - 1e8 + 1: summed in worker order, the first 1 is lost to rounding; in order of arrival, none would be.
  Close(0, {From(3, 1, {7}, {1}), From(1, 1, {7, 8}, {1, 5}), From(2, 1, {7}, {-1e8f}), From(0, 1, {7}, {1e8f})}, 1);
  EXPECT_EQ(Value(7), -1.0f);
  EXPECT_EQ(Value(8), -5.0f);
}

TEST_F(ClockBucketsTest, RowsAreAssignedAndDeletedAfterTheSumsInWorkerOrder) {
  Contribution first = From(0, 1, {7, 8, 9}, {10, 20, 30}), second = From(1, 1, {8}, {40}), third = From(2, 1, {9}, {});
  first.action = second.action = PushAction::kAssign;
  third.action = PushAction::kDelete;
  Close(0, {third, second, first, From(0, 2, {7, 8}, {1, 1}), From(3, 1, {6, 9}, {1, 1})}, 2);
  EXPECT_EQ(Value(6), -0.5f);
  EXPECT_EQ(Value(7), 10.0f);
  EXPECT_EQ(Value(8), 40.0f);
  EXPECT_EQ(Value(9), 0.0f);
  EXPECT_EQ(rows_.row_count(), 3u);
}

TEST_F(ClockBucketsTest, PushesOfOneWorkerAreSummedInOrderOfSequence) {
  Close(0, {From(0, 3, {7}, {1}), From(0, 2, {7}, {-1e8f}), From(0, 1, {7}, {1e8f})}, 1);
  EXPECT_EQ(Value(7), -1.0f);
}

TEST_F(ClockBucketsTest, ASingleContributionKeepsItsBits) {
  spec_.id = TableId(2);
  spec_.name = std::string("z");
  spec_.optimizer.kind = "momentum";
  spec_.optimizer.options["momentum"] = 0.5f;
  ASSERT_TRUE(rows_.AddTable(spec_));
  Contribution c = From(0, 1, {7, 8}, {-0.0f, 1e-42f});
  Contribution other = From(1, 1, {9}, {1});
  c.table = other.table = TableId(2);
  Close(0, {other, c}, 1);
  EXPECT_EQ(Value(7), 0.0f);
  EXPECT_EQ(rows_.Values(TableId(2), 8).value()[0], -1e-42f);
}

TEST_F(ClockBucketsTest, DividesByTheCohort) {
  Close(0, {From(0, 1, {7}, {1}), From(1, 1, {7}, {1})}, 3);
  EXPECT_EQ(Value(7), -(2.0f * (1.0f / 3.0f)));
}

TEST_F(ClockBucketsTest, ManyKeysInManyPartsAreSummed) {
  std::vector<Contribution> contributions;
  constexpr std::uint32_t kKeys = 300'000;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    std::vector<Key> keys;
    std::vector<float> gradients;
    for (Key key = rank; key < kKeys; key += rank + 1) {
      keys.push_back(key);
      gradients.push_back(static_cast<float>(key % 1000));
    }
    contributions.push_back(From(rank, 1, keys, gradients));
  }
  Close(0, std::move(contributions), 1);
  for (Key key = 0; key < kKeys; key += 997) {
    int pushed = 0;
    for (std::uint32_t rank = 0; rank < 3; ++rank) pushed += key >= rank && (key - rank) % (rank + 1) == 0 ? 1 : 0;
    ASSERT_EQ(Value(key), -float(pushed) * float(key % 1000));
  }
}

// The length of an int8 row need not be a multiple of four bytes, and its address need not be aligned.
TEST_F(ClockBucketsTest, DecodesRowsOfBytes) {
  Contribution a = From(0, 1, {7, 8, 9}, {});
  const float values[] = {127.0f, 254.0f, -381.0f};
  a.codec = ValueCodec::kInt8;
  a.values = Buffer::Allocate(3 * 5 + 3);
  a.value_offset = 3;
  kernels::EncodeRows(a.codec, 1, 3, values, a.values.data() + 3);
  Close(0, {a, From(1, 1, {9, 8}, {1, 2})}, 1);
  EXPECT_EQ(Value(7), -127.0f);
  EXPECT_EQ(Value(8), -256.0f);
  EXPECT_EQ(Value(9), 380.0f);
  Close(1, {a}, 1);
  EXPECT_EQ(Value(9), 761.0f);
}

TEST_F(ClockBucketsTest, DecodesEachContribution) {
  Contribution a = From(0, 1, {7, 8}, {});
  const float values[] = {0.5f, 2.0f};
  a.codec = ValueCodec::kBf16;
  a.values = Buffer::Allocate(4);
  kernels::EncodeValues(a.codec, 2, values, a.values.data());
  Contribution range = From(1, 1, {}, {1, 1, 1});
  range.key_codec = KeyCodec::kRange;
  range.first_key = 7;
  range.count = 3;
  Close(0, {a, range}, 1);
  EXPECT_EQ(Value(7), -1.5f);
  EXPECT_EQ(Value(8), -3.0f);
  EXPECT_EQ(Value(9), -1.0f);
}

TEST_F(ClockBucketsTest, BytesAreCountedWhenAddedAndWhenTaken) {
  ClockBuckets buckets;
  buckets.Add(Clock(3), From(0, 1, {1, 2}, {1, 1}));
  buckets.Add(Clock(5), From(1, 1, {1}, {1}));
  buckets.Add(Clock(6), From(1, 2, {1}, {1}));
  EXPECT_GT(buckets.bytes(), 48u);
  const auto voided = buckets.Void(Incarnation(99), Clock(6));
  ASSERT_EQ(voided.size(), 1u);
  EXPECT_EQ(voided[0].first, Clock(6));
  EXPECT_EQ(buckets.First(), Clock(3));
  EXPECT_EQ(buckets.Behind(Clock(3)), Clock(5));
  EXPECT_EQ(buckets.Behind(Clock(5)), std::nullopt);
  const auto all = [](TableId) { return true; };
  EXPECT_EQ(buckets.Take(Clock(3), all).size(), 1u);
  EXPECT_TRUE(buckets.Take(Clock(4), all).empty());
  EXPECT_EQ(buckets.Take(Clock(5), all).size(), 1u);
  EXPECT_TRUE(buckets.empty());
  EXPECT_EQ(buckets.bytes(), 0u);
}

TEST_F(ClockBucketsTest, TakesOnlyTheSelectedTablesOfAClock) {
  ClockBuckets buckets;
  Contribution other = From(1, 1, {1}, {1});
  other.table = TableId(2);
  buckets.Add(Clock(3), From(0, 1, {1}, {1}));
  buckets.Add(Clock(3), other);
  buckets.Add(Clock(3), From(1, 2, {1}, {1}));
  const auto only = [](std::uint32_t table) { return [table](TableId id) { return id == TableId(table); }; };
  EXPECT_TRUE(buckets.Take(Clock(3), only(7)).empty());
  EXPECT_EQ(buckets.Take(Clock(3), only(2)).size(), 1u);
  EXPECT_TRUE(buckets.Take(Clock(3), only(2)).empty());
  ASSERT_EQ(buckets.buckets().at(Clock(3)).contributions.size(), 2u);
  EXPECT_EQ(buckets.Take(Clock(3), only(1)).size(), 2u);
  EXPECT_TRUE(buckets.empty());
  EXPECT_EQ(buckets.bytes(), 0u);
}

}  // namespace
}  // namespace tarn::server
