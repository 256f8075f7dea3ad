// Compares the row store with a simple model, a map from key to floats: any mixture of pushes and pulls over any
// widths, dense and sparse, gives the same bits; only pushes create rows; cuts and hashes include every row.
#include "server/store/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "core/hash.h"
#include "core/limits.h"
#include "core/position.h"
#include "kernels/convert.h"
#include "kernels/initialize.h"
#include "kernels/optimizer.h"
#include "server/checkpoint/row_loader.h"
#include "server/store/dense_range.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 7;

std::vector<PartitionId> AllPartitions(std::uint32_t bits) {
  std::vector<PartitionId> all;
  for (std::uint32_t p = 0; p < 1u << bits; ++p) all.push_back(PartitionId(p));
  return all;
}

TableSpec MakeSpec(std::uint32_t id, TableKind kind, std::uint32_t dim, const char* optimizer) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.kind = kind;
  spec.dim = dim;
  spec.rows = kind == TableKind::kDense ? 300 : 0;
  spec.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
  spec.optimizer.kind = optimizer;
  return spec;
}

// A message's keys: sorted by partition, with their sections.
struct Batch {
  std::vector<Key> keys;
  std::vector<Section> sections;
};
Batch MakeBatch(const TableSpec& spec, std::uint32_t bits, std::vector<Key> keys) {
  const Positioner position(spec, TableSalt(kSeed, spec.name));
  auto partition = [&](Key key) { return PartitionOf(position(key), bits); };
  std::ranges::stable_sort(keys, {}, partition);
  Batch batch{keys, {}};
  for (Key key : keys) {
    if (batch.sections.empty() || batch.sections.back().partition != partition(key))
      batch.sections.push_back({partition(key), 0, {}});
    ++batch.sections.back().count;
  }
  return batch;
}

// The simple implementation.
class Model {
 public:
  explicit Model(TableSpec spec) : spec_(std::move(spec)), salt_(TableSalt(kSeed, spec_.name)) {}

  std::vector<float> Values(Key key) const {
    std::vector<float> row = Row(key);
    row.resize(spec_.dim);
    return row;
  }
  std::vector<float> Row(Key key) const {
    if (const auto it = rows_.find(key); it != rows_.end()) return it->second;
    std::vector<float> row(spec_.dim + SlotFloats(spec_.optimizer.kind, spec_.dim));
    kernels::InitializeRow(spec_.initializer, salt_, key, {row.data(), spec_.dim});
    kernels::InitSlots(spec_.optimizer, spec_.dim, row.data() + spec_.dim);
    return row;
  }
  void Apply(Key key, const float* gradient, Clock clock) {
    std::vector<float> row = Row(key);
    float* values = row.data();
    float* slots = row.data() + spec_.dim;
    kernels::ApplyOptimizer(spec_.optimizer, clock, spec_.dim, 1, &values, &slots, gradient);
    rows_[key] = row;
  }
  const std::map<Key, std::vector<float>>& rows() const { return rows_; }

 private:
  TableSpec spec_;
  std::uint64_t salt_;
  std::map<Key, std::vector<float>> rows_;
};

std::vector<float> GatherAll(const Store& rows, const TableSpec& spec, const Batch& batch) {
  std::vector<float> out(batch.keys.size() * spec.dim);
  rows.Gather(spec.id, batch.sections, batch.keys, ValueCodec::kFp32, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool SameBits(std::span<const std::uint32_t> a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Case {
  TableKind kind;
  std::uint32_t dim;
  const char* optimizer;
  std::uint32_t bits;
  std::uint32_t steps;
};

class RowStoreModelTest : public testing::TestWithParam<Case> {};

TEST_P(RowStoreModelTest, AgreesWithAMap) {
  const Case& c = GetParam();
  const TableSpec spec = MakeSpec(3, c.kind, c.dim, c.optimizer);
  Store rows({.job_seed = kSeed, .partition_bits = c.bits, .owned = AllPartitions(c.bits)});
  ASSERT_TRUE(rows.AddTable(spec));
  Model model(spec);
  SplitMix random(c.dim * 31 + c.bits);
  const std::uint64_t key_space = c.kind == TableKind::kDense ? spec.rows : 4000;
  for (std::uint32_t step = 0; step < c.steps; ++step) {
    std::vector<Key> keys;
    for (int i = 0; i < 150; ++i) {
      const Key key = random.Below(key_space);
      keys.push_back(c.kind == TableKind::kDense ? key : Mix64(key));
    }
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const Batch batch = MakeBatch(spec, c.bits, keys);
    ASSERT_TRUE(rows.CheckKeys(spec.id, batch.sections, batch.keys));
    const std::vector<float> pulled = GatherAll(rows, spec, batch);
    std::vector<float> gradients(batch.keys.size() * spec.dim);
    for (float& g : gradients) g = static_cast<float>(random.Unit()) - 0.5f;
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      ASSERT_TRUE(SameBits(std::span(pulled).subspan(i * c.dim, c.dim), model.Values(batch.keys[i])));
      model.Apply(batch.keys[i], &gradients[i * c.dim], Clock(step));
    }
    rows.Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32,
               reinterpret_cast<const std::byte*>(gradients.data()), Clock(step));
  }
  const std::vector<TableRows> copy = CutAll(&rows);
  ASSERT_EQ(copy.size(), 1u);
  EXPECT_EQ(StateHash(copy), rows.StateHash().value());
  EXPECT_EQ(RowCount(copy), rows.row_count());
  if (c.kind == TableKind::kSparse) {
    EXPECT_EQ(rows.row_count(), model.rows().size());
  }
  std::uint64_t seen = 0;
  for (const PartitionRows& partition : copy[0].partitions) {
    for (std::size_t i = 0; i < partition.keys.size(); ++i) {
      const std::span row = std::span(partition.rows).subspan(i * copy[0].row_words, copy[0].row_words);
      ASSERT_TRUE(SameBits(row, model.Row(partition.keys[i])));
      seen += model.rows().contains(partition.keys[i]) ? 1 : 0;
    }
  }
  EXPECT_EQ(seen, model.rows().size());
}

INSTANTIATE_TEST_SUITE_P(
    Widths, RowStoreModelTest,
    testing::Values(Case{TableKind::kSparse, 1, "sgd", 0, 200}, Case{TableKind::kSparse, 1, "ftrl", 6, 100},
                    Case{TableKind::kSparse, 16, "row_wise_adagrad", 3, 100},
                    Case{TableKind::kSparse, 16, "adam", 12, 40}, Case{TableKind::kSparse, 33, "adagrad", 1, 40},
                    Case{TableKind::kSparse, 4096, "adam", 2, 3}, Case{TableKind::kDense, 1, "sgd", 6, 50},
                    Case{TableKind::kDense, 17, "adam", 0, 50}, Case{TableKind::kDense, 8, "momentum", 12, 50},
                    Case{TableKind::kDense, 4096, "adam", 4, 3}));

class RowStoreTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBits = 4;
  RowStoreTest() { Add(sparse_), Add(dense_); }
  void Add(const TableSpec& spec) { EXPECT_TRUE(rows_.AddTable(spec)); }
  void Push(Store* rows, const TableSpec& spec, std::vector<Key> keys) {
    const Batch batch = MakeBatch(spec, kBits, std::move(keys));
    const std::vector<float> ones(batch.keys.size() * spec.dim, 1.0f);
    rows->Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(ones.data()),
                Clock(0));
  }

  const TableSpec sparse_ = MakeSpec(1, TableKind::kSparse, 4, "adagrad");
  const TableSpec dense_ = MakeSpec(2, TableKind::kDense, 4, "adagrad");
  Store rows_{{.job_seed = kSeed, .partition_bits = kBits, .owned = AllPartitions(kBits)}};
};

TEST_F(RowStoreTest, APullOfAbsentRowsGivesInitialValuesAndLeavesThemAbsent) {
  for (const TableSpec& spec : {sparse_, dense_}) {
    const Batch batch = MakeBatch(spec, kBits, {1, 2, 3, 299});
    const std::vector<float> pulled = GatherAll(rows_, spec, batch);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(SameBits(std::span(pulled).subspan(i * 4, 4), Model(spec).Values(batch.keys[i])));
  }
  EXPECT_EQ(rows_.row_count(), 0u);
  EXPECT_EQ(rows_.StateHash().value(), 0u);
}

TEST_F(RowStoreTest, AnswersInEveryCodec) {
  Push(&rows_, sparse_, {5, 6});
  const Batch batch = MakeBatch(sparse_, kBits, {4, 5, 6, 7});
  const std::vector<float> exact = GatherAll(rows_, sparse_, batch);
  for (ValueCodec codec : {ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8}) {
    std::vector<std::byte> expected(4 * CodecRowBytes(codec, 4)), got(expected.size());
    kernels::EncodeRows(codec, 4, 4, exact.data(), expected.data());
    rows_.Gather(sparse_.id, batch.sections, batch.keys, codec, got.data());
    EXPECT_EQ(got, expected);
  }
}

TEST_F(RowStoreTest, AppliesEncodedGradients) {
  Store other({.job_seed = kSeed, .partition_bits = kBits, .owned = AllPartitions(kBits)});
  ASSERT_TRUE(other.AddTable(sparse_));
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  const Batch batch = MakeBatch(sparse_, kBits, keys);
  std::vector<float> gradients(batch.keys.size() * 4);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i % 128) / 64.0f;
  std::vector<std::byte> encoded(gradients.size() * 2);
  kernels::EncodeValues(ValueCodec::kBf16, gradients.size(), gradients.data(), encoded.data());
  rows_.Apply(sparse_.id, batch.sections, batch.keys, ValueCodec::kBf16, encoded.data(), Clock(3));
  other.Apply(sparse_.id, batch.sections, batch.keys, ValueCodec::kFp32,
              reinterpret_cast<const std::byte*>(gradients.data()), Clock(3));
  EXPECT_EQ(rows_.StateHash().value(), other.StateHash().value());
}

TEST_F(RowStoreTest, AppliesInt8Gradients) {
  Store other({.job_seed = kSeed, .partition_bits = kBits, .owned = AllPartitions(kBits)});
  ASSERT_TRUE(other.AddTable(sparse_));
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  const Batch batch = MakeBatch(sparse_, kBits, keys);
  std::vector<float> gradients(batch.keys.size() * 4);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::sin(static_cast<float>(i)) * float(i % 40);
  std::vector<std::byte> encoded(batch.keys.size() * CodecRowBytes(ValueCodec::kInt8, 4));
  kernels::EncodeRows(ValueCodec::kInt8, 4, batch.keys.size(), gradients.data(), encoded.data());
  kernels::DecodeRows(ValueCodec::kInt8, 4, batch.keys.size(), encoded.data(), gradients.data());
  rows_.Apply(sparse_.id, batch.sections, batch.keys, ValueCodec::kInt8, encoded.data(), Clock(3));
  other.Apply(sparse_.id, batch.sections, batch.keys, ValueCodec::kFp32,
              reinterpret_cast<const std::byte*>(gradients.data()), Clock(3));
  EXPECT_EQ(rows_.StateHash().value(), other.StateHash().value());
}

// A gradient that is not finite must not become finite when it is encoded as int8: the row is skipped (rule A5).
TEST_F(RowStoreTest, AGradientThatIsNotFiniteStaysSoInInt8) {
  const Batch batch = MakeBatch(sparse_, kBits, {5});
  const float gradient[] = {1, std::numeric_limits<float>::infinity(), 0, 2};
  std::byte encoded[CodecRowBytes(ValueCodec::kInt8, 4)];
  kernels::EncodeRows(ValueCodec::kInt8, 4, 1, gradient, encoded);
  rows_.Apply(sparse_.id, batch.sections, batch.keys, ValueCodec::kInt8, encoded, Clock(3));
  EXPECT_EQ(rows_.counters().not_finite, 1u);
  EXPECT_EQ(rows_.row_count(), 0u);
}

TEST_F(RowStoreTest, StateHashDoesNotDependOnHowRowsAreSpread) {
  std::uint64_t sum = 0;
  std::vector<Key> keys;
  for (Key key = 0; key < 300; ++key) keys.push_back(key);
  Push(&rows_, sparse_, keys);
  Push(&rows_, dense_, keys);
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    std::vector<PartitionId> owned;
    for (std::uint32_t p = 0; p < 1u << kBits; ++p)
      if (p % 3 == shard) owned.push_back(PartitionId(p));
    Store part({.job_seed = kSeed, .partition_bits = kBits, .owned = owned});
    for (const TableSpec& spec : {sparse_, dense_}) {
      ASSERT_TRUE(part.AddTable(spec));
      const Positioner position(spec, TableSalt(kSeed, spec.name));
      std::vector<Key> mine;
      for (Key key : keys)
        if (part.Owns(PartitionOf(position(key), kBits))) mine.push_back(key);
      Push(&part, spec, mine);
    }
    sum += part.StateHash().value();
  }
  EXPECT_EQ(sum, rows_.StateHash().value());
}

TEST_F(RowStoreTest, LoadsTheRowsOfACut) {
  Push(&rows_, sparse_, {1, 2, 3, 4, 5});
  Push(&rows_, dense_, {0, 100, 299});
  Store other({.job_seed = kSeed, .partition_bits = kBits + 2, .owned = AllPartitions(kBits + 2)});
  // Ids may differ: tables are found by name.
  TableSpec moved = sparse_;
  moved.id = TableId(9);
  ASSERT_TRUE(other.AddTable(moved));
  ASSERT_TRUE(other.AddTable(dense_));
  RowLoader loader(&other);
  for (const TableRows& table : CutAll(&rows_)) {
    ASSERT_TRUE(loader.OnTable(table.spec));
    for (const PartitionRows& partition : table.partitions) ASSERT_TRUE(loader.OnRows(partition.keys, partition.rows));
  }
  for (Key key : {1, 2, 3, 4, 5, 6})
    EXPECT_EQ(other.Values(moved.id, key).value(), rows_.Values(sparse_.id, key).value());
  for (Key key : {0, 1, 100, 299})
    EXPECT_EQ(other.Values(dense_.id, key).value(), rows_.Values(dense_.id, key).value());
}

TEST_F(RowStoreTest, LoadIgnoresPartitionsThatItDoesNotOwn) {
  Push(&rows_, sparse_, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Store part({.job_seed = kSeed, .partition_bits = kBits, .owned = {PartitionId(3)}});
  ASSERT_TRUE(part.AddTable(sparse_));
  std::uint64_t in_partition_3 = 0;
  for (const TableRows& table : CutAll(&rows_)) {
    for (const PartitionRows& partition : table.partitions) {
      if (table.spec.id != sparse_.id) continue;
      ASSERT_TRUE(part.Load(sparse_.id, partition.keys, partition.rows));
      if (partition.partition == PartitionId(3)) in_partition_3 = partition.keys.size();
    }
  }
  EXPECT_EQ(part.row_count(), in_partition_3);
}

TEST_F(RowStoreTest, RefusesATableOfAnotherShapeByName) {
  RowLoader loader(&rows_);
  TableSpec wider = sparse_;
  wider.dim = 8;
  const Status status = loader.OnTable(wider);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "table 'table1': dim is 8 in the checkpoint and 4 in the job");
  TableSpec other = sparse_;
  other.optimizer.kind = "sgd";
  EXPECT_EQ(loader.OnTable(other).error().message,
            "table 'table1': optimizer is sgd in the checkpoint and adagrad in the job");
  TableSpec unknown = sparse_;
  unknown.name = "strange";
  EXPECT_EQ(loader.OnTable(unknown).error().code, ErrorCode::kNotFound);
}

TEST_F(RowStoreTest, ATableCreatedAfterTheCutMustBeEmpty) {
  RowLoader loader(&rows_, RowLoader::Unknown::kEmpty);
  TableSpec later = sparse_;
  later.name = "later";
  EXPECT_TRUE(loader.OnTable(later));
  const Key key = 1;
  EXPECT_EQ(loader.OnRows({&key, 1}, {}).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(loader.OnRemoved({&key, 1}).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(loader.OnSeen({}).error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(loader.OnTable(sparse_));
  EXPECT_TRUE(loader.OnRemoved({&key, 1}));
}

TEST_F(RowStoreTest, ATableMayChangeItsSettings) {
  TableSpec faster = sparse_;
  faster.optimizer.learning_rate *= 2;
  faster.push_codec = ValueCodec::kBf16;
  ASSERT_TRUE(rows_.AddTable(faster));
  EXPECT_EQ(*rows_.FindTable(sparse_.id), faster);
  EXPECT_EQ(*rows_.FindTable(sparse_.name), faster);
}

TEST_F(RowStoreTest, ATableMayBeAddedTwiceButNotAnotherWithItsNameOrId) {
  EXPECT_TRUE(rows_.AddTable(sparse_));
  TableSpec other = sparse_;
  other.dim = 5;
  EXPECT_EQ(rows_.AddTable(other).error().code, ErrorCode::kAlreadyExists);
  other = sparse_;
  other.id = TableId(7);
  EXPECT_EQ(rows_.AddTable(other).error().code, ErrorCode::kAlreadyExists);
  other = MakeSpec(1025, TableKind::kSparse, 4, "sgd");
  EXPECT_EQ(rows_.AddTable(other).error().code, ErrorCode::kTooLarge);
  other.id = TableId(1024);
  EXPECT_TRUE(rows_.AddTable(other));
}

TEST_F(RowStoreTest, ADensePartitionHasALimit) {
  TableSpec spec = MakeSpec(5, TableKind::kDense, 1, "sgd");
  spec.rows = ((limits::kDensePartitionBytesMax / 4) << kBits) + 1;
  EXPECT_EQ(rows_.AddTable(spec).error().code, ErrorCode::kTooLarge);
  --spec.rows;
  EXPECT_TRUE(rows_.AddTable(spec));
}

TEST_F(RowStoreTest, RefusesKeysOfOtherPartitionsAndShards) {
  Store part({.job_seed = kSeed, .partition_bits = kBits, .owned = {PartitionId(3), PartitionId(4)}});
  ASSERT_TRUE(part.AddTable(sparse_));
  ASSERT_TRUE(part.AddTable(dense_));
  for (const TableSpec& spec : {sparse_, dense_}) {
    for (Key key = 0; key < 300; ++key) {
      Batch batch = MakeBatch(spec, kBits, {key});
      const bool owned = part.Owns(batch.sections[0].partition);
      EXPECT_EQ(part.CheckKeys(spec.id, batch.sections, batch.keys).has_value(), owned);
      batch.sections[0].partition = PartitionId(owned ? 7 - batch.sections[0].partition.value : 3);
      EXPECT_EQ(part.CheckKeys(spec.id, batch.sections, batch.keys).error().code, ErrorCode::kWrongShard);
    }
  }
  const Section beyond{PartitionId(16), 0, {}};
  EXPECT_EQ(part.CheckKeys(sparse_.id, {&beyond, 1}, {}).error().code, ErrorCode::kWrongShard);
  const Section section{PartitionId(3), 1, {}};
  const Key key = 300;
  EXPECT_EQ(part.CheckKeys(dense_.id, {&section, 1}, {&key, 1}).error().code, ErrorCode::kInvalidArgument);
}

// Our clients do not send such messages.
TEST_F(RowStoreTest, AMessageThatNamesAKeyTwiceStepsItTwice) {
  for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16}) {
    TableSpec spec = MakeSpec(1, TableKind::kSparse, 2, "sgd");
    spec.initializer = {InitializerKind::kZero, 0, 0};
    spec.optimizer.learning_rate = 1;
    spec.row_codec = codec;
    Store rows({.job_seed = kSeed, .partition_bits = 0, .owned = AllPartitions(0)});
    ASSERT_TRUE(rows.AddTable(spec));
    const Batch batch = MakeBatch(spec, 0, {5, 6, 5});
    const float gradients[] = {-1, -2, -4, -8, -16, -32};
    rows.Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients),
               Clock(0));
    EXPECT_EQ(rows.Values(spec.id, 5).value(), (std::vector<float>{17, 34}));
    EXPECT_EQ(rows.Values(spec.id, 6).value(), (std::vector<float>{4, 8}));
  }
}

// A step that is too small for a value in 16 bits moves it as often as it should, also if all are of one clock.
TEST_F(RowStoreTest, SmallStepsOfOneClockAddUp) {
  TableSpec spec = MakeSpec(1, TableKind::kSparse, 1, "sgd");
  spec.initializer = {InitializerKind::kZero, 0, 0};
  spec.optimizer.learning_rate = 1;
  spec.row_codec = ValueCodec::kBf16;
  Store rows({.job_seed = kSeed, .partition_bits = 0, .owned = AllPartitions(0)});
  ASSERT_TRUE(rows.AddTable(spec));
  std::vector<Key> keys(500);
  std::iota(keys.begin(), keys.end(), Key{1});
  const Batch batch = MakeBatch(spec, 0, keys);
  const auto step = [&](float by, std::uint64_t push) {
    const std::vector<float> gradients(keys.size(), -by);
    rows.Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32,
               reinterpret_cast<const std::byte*>(gradients.data()), Clock(7), push);
  };
  step(1, 0);
  for (std::uint64_t push = 1; push <= 1000; ++push) step(-0.0005f, push);
  double sum = 0;
  for (const Key key : keys) sum += double(rows.Values(spec.id, key).value()[0]);
  EXPECT_NEAR(sum / double(keys.size()), 0.5, 0.01);
}

TEST_F(RowStoreTest, OverheadIsAtMost24BytesARow) {
  Store rows({.job_seed = kSeed, .partition_bits = 2, .owned = AllPartitions(2)});
  const TableSpec spec = MakeSpec(1, TableKind::kSparse, 16, "sgd");
  ASSERT_TRUE(rows.AddTable(spec));
  double overhead = 0;
  int measured = 0;
  std::vector<float> zeros(1000 * 16);
  for (Key next = 0; next < 200'000; next += 1000) {
    std::vector<Key> keys(1000);
    for (std::size_t i = 0; i < 1000; ++i) keys[i] = next + i;
    const Batch batch = MakeBatch(spec, 2, keys);
    rows.Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(zeros.data()),
               Clock(0));
    if (next < 50'000) continue;
    const double begun = double(Arena::kBlockBytesMax);  // the arena's last block may be nearly empty
    overhead += std::max(0.0, double(rows.memory_bytes()) - begun) / double(rows.row_count()) - 64;
    ++measured;
  }
  EXPECT_LT(overhead / measured, 24);
}

TEST(DenseRangeTest, HoldsExactlyTheKeysOfThePartition) {
  for (std::uint64_t rows : {1u, 2u, 7u, 64u, 1000u}) {
    for (std::uint64_t salt : {std::uint64_t{0}, ~std::uint64_t{0}, Mix64(5), Mix64(6)}) {
      for (std::uint32_t bits : {0u, 1u, 3u, 12u}) {
        TableSpec spec = MakeSpec(1, TableKind::kDense, 1, "sgd");
        spec.rows = rows;
        const Positioner position(spec, salt);
        std::uint64_t total = 0;
        for (PartitionId p : AllPartitions(bits)) {
          const DenseRange range = DenseRangeOf(rows, salt, bits, p);
          total += range.count;
          for (std::uint64_t i = 0; i < range.count; ++i) {
            ASSERT_EQ(PartitionOf(position(range.KeyAt(i)), bits), p);
            ASSERT_EQ(range.IndexOf(range.KeyAt(i)), i);
          }
        }
        ASSERT_EQ(total, rows);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::server
