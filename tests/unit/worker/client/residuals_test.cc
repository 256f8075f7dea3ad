// Shows pushes that keep residuals: no gradient is lost or sent twice, the selection equals that of a simple model,
// residuals are bounded and expire with their row, and a blob restores all of them.
#include "worker/client/residuals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "core/hash.h"
#include "core/limits.h"
#include "kernels/convert.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kBits = 3;
constexpr std::uint64_t kSeed = 7;

TableSpec Sparse(std::uint32_t dim, float share) {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "rows";
  spec.dim = dim;
  spec.push_codec = ValueCodec::kTopK;
  spec.compression.share = share;
  return spec;
}

TableSpec Dense(std::uint32_t dim, std::uint64_t rows, float share) {
  TableSpec spec = Sparse(dim, share);
  spec.name = "layer";
  spec.kind = TableKind::kDense;
  spec.rows = rows;
  return spec;
}

Plan PlanOf(const TableSpec& spec, const std::vector<Key>& keys) {
  Planner planner(kBits);
  Plan plan;
  planner.Make(spec.id, spec.dim, Positioner(spec, TableSalt(kSeed, spec.name)), keys, &plan);
  return plan;
}

Buffer BufferOf(const std::vector<float>& values) { return Buffer::CopyOf(std::span<const float>(values)); }

struct Case {
  explicit Case(TableSpec table) : spec(std::move(table)) { residuals.Begin(kSeed); }

  // Pushes `keys` with their gradients; returns the rows that were sent, by key.
  std::map<Key, std::vector<float>> Push(const std::vector<Key>& keys, const std::map<Key, std::vector<float>>& rows,
                                         std::uint64_t clock) {
    const Plan plan = PlanOf(spec, keys);
    std::vector<float> gradients;
    for (const Key key : plan.keys) gradients.insert(gradients.end(), rows.at(key).begin(), rows.at(key).end());
    const Residuals::Sent sent = residuals.Compress(plan, spec, kBits, BufferOf(gradients), Clock(clock));
    CheckRuns(*sent.plan);
    std::map<Key, std::vector<float>> out;
    EXPECT_TRUE(sent.rows.right.empty());
    const auto values = sent.rows.rows.as<float>();
    EXPECT_EQ(values.size(), sent.plan->keys.size() * spec.dim);
    for (std::size_t i = 0; i < sent.plan->keys.size(); ++i) {
      const auto row = values.subspan(i * spec.dim, spec.dim);
      EXPECT_TRUE(out.emplace(sent.plan->keys[i], std::vector<float>(row.begin(), row.end())).second) << "a key twice";
    }
    return out;
  }

  // Expects that the keys are grouped by partition in ascending order, each in its partition.
  void CheckRuns(const Plan& plan) const {
    const Positioner position(spec, TableSalt(kSeed, spec.name));
    std::uint32_t next = 0;
    for (std::size_t r = 0; r < plan.runs.size(); ++r) {
      const PlanRun& run = plan.runs[r];
      EXPECT_EQ(run.begin, next);
      EXPECT_GT(run.count, 0u);
      if (r > 0) {
        EXPECT_GT(run.partition, plan.runs[r - 1].partition);
      }
      for (; next < run.begin + run.count; ++next)
        EXPECT_EQ(PartitionOf(position(plan.keys[next]), kBits), run.partition);
    }
    EXPECT_EQ(next, plan.keys.size());
  }

  std::vector<Buffer> Blob(std::size_t chunk_bytes = limits::kBlobChunkBytes) const {
    return residuals.Encode({CheckpointId(4), WorkerRank(2), Clock(9), 0, false, {}}, {{spec.id, spec}}, chunk_bytes);
  }

  TableSpec spec;
  Residuals residuals;
};

Buffer Joined(const std::vector<Buffer>& chunks) {
  std::string bytes;
  for (const Buffer& chunk : chunks) bytes.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
  return Buffer::Copy(bytes.data(), bytes.size());
}

TEST(Residuals, SparseSendsTheRowsOfTheLargestNorms) {
  Case test(Sparse(2, 0.5f));
  const auto first = test.Push({1, 2, 3, 4}, {{1, {3, 4}}, {2, {0, -6}}, {3, {1, 1}}, {4, {2, 0}}}, 0);
  EXPECT_EQ(first, (std::map<Key, std::vector<float>>{{1, {3, 4}}, {2, {0, -6}}}));
  EXPECT_EQ(test.residuals.counters().rows, 2u);
  // Residuals count in the selection.
  const auto second = test.Push({3, 5}, {{3, {1, 1}}, {5, {2.5f, 0}}}, 1);
  EXPECT_EQ(second, (std::map<Key, std::vector<float>>{{3, {2, 2}}}));
  EXPECT_EQ(test.residuals.counters().rows, 2u) << "4 and 5";
}

TEST(Residuals, DenseSendsTheLargestValuesOfAllRows) {
  Case test(Dense(2, 4, 0.25f));
  const auto first = test.Push({0, 1, 2, 3}, {{0, {1, -9}}, {1, {2, 3}}, {2, {8, 0}}, {3, {1, 1}}}, 0);
  EXPECT_EQ(first, (std::map<Key, std::vector<float>>{{0, {0, -9}}, {1, {0, 0}}, {2, {8, 0}}, {3, {0, 0}}}));
  const auto second = test.Push({0, 1, 2, 3}, {{0, {1, 1}}, {1, {2, 3}}, {2, {1, 1}}, {3, {1, 1}}}, 1);
  EXPECT_EQ(second, (std::map<Key, std::vector<float>>{{0, {0, 0}}, {1, {4, 6}}, {2, {0, 0}}, {3, {0, 0}}}));
}

TEST(Residuals, AtLeastOneRowIsSentAndTiesFollowThePlan) {
  Case test(Sparse(1, 0.001f));
  const Plan plan = PlanOf(test.spec, {10, 20, 30});
  const auto sent = test.Push({10, 20, 30}, {{10, {1}}, {20, {-1}}, {30, {1}}}, 0);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent.begin()->first, plan.keys[0]);
}

TEST(Residuals, AShareOfOneLeavesNoResiduals) {
  for (const TableSpec& spec : {Sparse(3, 1.0f), Dense(3, 100, 1.0f)}) {
    Case test(spec);
    const std::map<Key, std::vector<float>> rows{{1, {1, 2, 3}}, {2, {0, 0, 1e-30f}}};
    EXPECT_EQ(test.Push({1, 2}, rows, 0), rows);
    EXPECT_EQ(test.Push({1, 2}, rows, 1), rows);
  }
}

// Values that are not finite are sent first and leave no residual.
TEST(Residuals, ValuesThatAreNotFiniteAreSent) {
  Case test(Sparse(2, 0.34f));
  const auto sent = test.Push({1, 2, 3}, {{1, {1e30f, 1e30f}}, {2, {0, std::nanf("")}}, {3, {5, 5}}}, 0);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent.contains(2));
  const auto next = test.Push({2, 3}, {{2, {1, 1}}, {3, {1, 1}}}, 1);
  EXPECT_EQ(next, (std::map<Key, std::vector<float>>{{3, {6, 6}}})) << "no trace of the NaN";
}

// Of the rows that are not sent, too: what was stored before remains (rule A5).
TEST(Residuals, AGradientThatIsNotFiniteIsNotStored) {
  for (const TableSpec& spec : {Sparse(1, 0.34f), Dense(1, 3, 0.34f)}) {
    Case test(spec);
    test.Push({0, 1, 2}, {{0, {9}}, {1, {4}}, {2, {4}}}, 0);
    const float nan = std::nanf("");
    test.Push({0, 1, 2}, {{0, {nan}}, {1, {nan}}, {2, {nan}}}, 1);
    float sent = 0;
    for (std::uint64_t clock = 2; clock < 6; ++clock)
      for (const auto& [key, row] : test.Push({0, 1, 2}, {{0, {1}}, {1, {1}}, {2, {1}}}, clock)) sent += row[0];
    EXPECT_GE(sent, 4 + 4.0f);  // at least one of the residuals, and a gradient of each clock
  }
}

// A long run with whole numbers: every gradient is sent or kept exactly, and a simple model selects the same rows.
TEST(Residuals, NoGradientIsLostOrSentTwice) {
  SplitMix random(3);
  for (const float share : {0.02f, 0.3f}) {
    Case test(Sparse(2, share));
    std::map<Key, float> given, sent, model;
    for (std::uint64_t clock = 0; clock < 200; ++clock) {
      std::vector<Key> keys;
      std::map<Key, std::vector<float>> rows;
      for (std::size_t i = 0; i < 30; ++i) {
        const Key key = random.Below(300);
        const float value = float(int(random.Below(19)) - 9);
        if (!rows.emplace(key, std::vector<float>{value, -value}).second) continue;
        keys.push_back(key);
        given[key] += value;
        model[key] += value;
      }
      const Plan plan = PlanOf(test.spec, keys);
      std::vector<Key> order = plan.keys;
      std::ranges::stable_sort(order, [&](Key a, Key b) { return std::abs(model[a]) > std::abs(model[b]); });
      order.resize(std::clamp<std::size_t>(std::size_t(std::lround(double(share) * double(order.size()))), 1, 30));
      const auto out = test.Push(keys, rows, clock);
      ASSERT_EQ(out.size(), order.size());
      for (const Key key : order) {
        ASSERT_TRUE(out.contains(key));
        EXPECT_EQ(out.at(key)[0], model[key]);
        EXPECT_EQ(out.at(key)[1], -model[key]);
        sent[key] += std::exchange(model[key], 0.0f);
      }
    }
    for (const auto& [key, sum] : given) EXPECT_EQ(sent[key] + model[key], sum);
  }
}

// The values that a server receives plus the residual are the sum of all gradients; the residual is the codec's error.
TEST(Residuals, LowBitCodecsSendTheErrorLater) {
  SplitMix random(5);
  for (const ValueCodec codec : {ValueCodec::kSign, ValueCodec::kOneBit})
    for (TableSpec spec : {Sparse(4, 1.0f), Dense(4, 40, 1.0f)}) {
      spec.push_codec = codec;
      Case test(spec);
      std::map<Key, std::vector<double>> given, arrived;
      for (std::uint64_t clock = 0; clock < 50; ++clock) {
        std::map<Key, std::vector<float>> rows;
        std::vector<Key> keys;
        for (Key key = 0; key < 40; ++key) {
          if (spec.kind == TableKind::kSparse && random.Chance(0.5)) continue;
          keys.push_back(key);
          for (int j = 0; j < 4; ++j) rows[key].push_back(float(random.Unit()) - 0.4f);
        }
        for (const auto& [key, row] : rows) {
          given[key].resize(4);
          for (int j = 0; j < 4; ++j) given[key][j] += double(row[j]);
        }
        const auto sent = test.Push(keys, rows, clock);
        ASSERT_EQ(sent.size(), keys.size()) << "all rows are sent";
        for (const auto& [key, row] : sent) {
          std::vector<std::byte> bytes(CodecRowBytes(codec, 4));
          float decoded[4];
          kernels::EncodeRows(codec, 4, 1, row.data(), bytes.data());
          kernels::DecodeRows(codec, 4, 1, bytes.data(), decoded);
          arrived[key].resize(4);
          for (int j = 0; j < 4; ++j) arrived[key][j] += double(decoded[j]);
        }
      }
      const std::map<Key, std::vector<float>> none{{1, {0, 0, 0, 0}}, {2, {0, 0, 0, 0}}};
      for (const auto& [key, residual] : test.Push({1, 2}, none, 50)) {
        EXPECT_NE(residual, none.at(key));
        for (int j = 0; j < 4; ++j)
          EXPECT_NEAR(arrived[key][j] + double(residual[j]), given[key][j], 1e-4) << Name(codec);
      }
    }
}

TEST(Residuals, ExactValuesLeaveNoResiduals) {
  TableSpec spec = Sparse(4, 1.0f);
  spec.push_codec = ValueCodec::kSign;
  Case test(spec);
  test.Push({1, 2}, {{1, {3, -3, 3, 3}}, {2, {0, 0, 0, 0}}}, 0);
  EXPECT_EQ(test.residuals.counters().rows, 0u);
  test.Push({1}, {{1, {1, 2, 3, 4}}}, 1);
  EXPECT_EQ(test.residuals.counters().rows, 1u);
  test.Push({1}, {{1, {std::nanf(""), 2, 3, 4}}}, 2);
  EXPECT_EQ(test.residuals.counters().rows, 0u) << "no trace of the NaN";
}

TEST(Residuals, LowBitCodecsWithoutRoomSendEarlierErrors) {
  TableSpec spec = Sparse(2, 1.0f);
  spec.push_codec = ValueCodec::kOneBit;
  spec.dim = 4;
  spec.compression.residual_bytes = limits::kResidualBytesMin;
  Case test(spec);
  const std::uint64_t rows_max = ResidualRowsMax(test.spec);
  std::map<Key, std::vector<float>> rows;
  std::vector<Key> keys;
  for (Key key = 1; key <= rows_max; ++key) {
    keys.push_back(key);
    rows[key] = {1, 2, -3, -5};
  }
  test.Push(keys, rows, 0);
  EXPECT_EQ(test.residuals.counters().rows, rows_max);
  const auto next = test.Push({1001, 1002}, {{1001, {1, 2, 3, 5}}, {1002, {1, 2, 3, 5}}}, 1);
  EXPECT_EQ(next.size(), 4u) << "the two oldest go along";
  EXPECT_EQ(test.residuals.counters().crowded, 2u);
  // A push of more rows than the limit contains no key twice (Push checks it).
  keys.clear();
  rows.clear();
  for (Key key = 2001; key <= 2001 + 2 * rows_max; ++key) {
    keys.push_back(key);
    rows[key] = {1, 2, -3, -5};
  }
  const auto many = test.Push(keys, rows, 2);
  EXPECT_EQ(many.size(), keys.size() + rows_max);
  EXPECT_EQ(test.residuals.counters().rows, rows_max);
}

// Deep gradient compression: u = m u + g, v = v + u; sending an element of v sets it to zero in v and u.
TEST(Residuals, MomentumFollowsTheReference) {
  for (const bool sparse : {true, false}) {
    Case test(sparse ? Sparse(3, 0.4f) : Dense(3, 10, 0.4f));
    test.spec.compression.momentum = 0.5f;
    std::map<Key, std::vector<double>> u, v;
    SplitMix random(6);
    for (std::uint64_t clock = 0; clock < 40; ++clock) {
      std::vector<Key> keys;
      std::map<Key, std::vector<float>> rows;
      for (Key key = 0; key < 10; ++key) {
        if (sparse && random.Below(2) == 0) continue;
        keys.push_back(key);
        rows[key] = {float(random.Unit()), -float(random.Unit()), 0.1f * float(random.Unit())};
        u.try_emplace(key, 3);
        v.try_emplace(key, 3);
        for (std::size_t j = 0; j < 3; ++j) {
          u[key][j] = 0.5 * u[key][j] + double(rows[key][j]);
          v[key][j] += u[key][j];
        }
      }
      if (keys.empty()) continue;
      for (const auto& [key, row] : test.Push(keys, rows, clock))
        for (std::size_t j = 0; j < 3; ++j) {
          if (row[j] == 0) continue;
          EXPECT_NEAR(row[j], v[key][j], 1e-5) << "key " << key << " at clock " << clock;
          u[key][j] = v[key][j] = 0;
        }
    }
  }
}

TEST(Residuals, TheShareDecreasesInTheFirstClocks) {
  Case test(Sparse(1, 0.01f));
  test.spec.compression.warmup_clocks = 4;
  std::vector<std::size_t> sent;
  for (std::uint64_t clock = 0; clock < 6; ++clock) {
    std::map<Key, std::vector<float>> rows;
    std::vector<Key> keys;
    for (Key key = 0; key < 100; ++key) {
      keys.push_back(key);
      rows[key] = {float(key) + 1};
    }
    sent.push_back(test.Push(keys, rows, clock).size());
  }
  EXPECT_EQ(sent, (std::vector<std::size_t>{32, 10, 3, 1, 1, 1})) << "0.01^(1/4), ^(2/4), ^(3/4), then 0.01";
}

TableSpec LowRank(std::uint32_t dim, std::uint64_t rows, std::uint32_t rank) {
  TableSpec spec = Dense(dim, rows, 1);
  spec.push_codec = ValueCodec::kLowRank;
  spec.compression.rank = rank;
  return spec;
}

// What a push sends, decoded, in the order of the plan.
std::vector<float> Decoded(const Residuals::Sent& sent, const TableSpec& spec) {
  const Piece all{.shard = {},
                  .parts = {{{}, 0, std::uint32_t(sent.plan->keys.size())}},
                  .rows = std::uint32_t(sent.plan->keys.size())};
  const PushValues rows = RowByRow(EncodePush(sent.rows, spec, all), spec.dim, all.rows);
  const auto values = rows.values.as<float>();
  return {values.begin(), values.end()};
}

TEST(Residuals, LowRankLosesNothing) {
  Case test(LowRank(16, 24, 2));
  const std::vector<Key> keys = [] {
    std::vector<Key> all(24);
    std::iota(all.begin(), all.end(), Key{0});
    return all;
  }();
  const Plan plan = PlanOf(test.spec, keys);
  SplitMix random(8);
  std::vector<double> pushed(24 * 16), sent(24 * 16);
  for (std::uint64_t clock = 0; clock < 50; ++clock) {
    std::vector<float> gradients(24 * 16);
    for (float& g : gradients) g = float(random.Unit()) - 0.3f;
    const Residuals::Sent out = test.residuals.Compress(plan, test.spec, kBits, BufferOf(gradients), Clock(clock));
    EXPECT_EQ(out.rows.right.size(), 2u * 16);
    EXPECT_EQ(out.rows.rows.size(), 2u * 24 * sizeof(float));
    const std::vector<float> decoded = Decoded(out, test.spec);
    for (std::size_t i = 0; i < pushed.size(); ++i) {
      pushed[i] += double(gradients[i]);
      sent[i] += double(decoded[i]);
    }
  }
  double lost = 0, whole = 0;
  for (std::size_t i = 0; i < pushed.size(); ++i) {
    lost += std::pow(pushed[i] - sent[i], 2);
    whole += pushed[i] * pushed[i];
  }
  EXPECT_LT(lost, 0.1 * whole) << "the rest is kept for the next pushes";
  EXPECT_EQ(test.residuals.counters().rows, 24u);

  // A blob restores the errors and the factor: the next pushes are the same.
  const Buffer blob = Joined(test.Blob(100));
  Case again(test.spec);
  ASSERT_TRUE(ReadBlob({blob.data(), blob.size()}, {"blob", CheckpointId(4), WorkerRank(2)},
                       [&](const BlobChunk& chunk) -> Status {
                         again.residuals.Restore(chunk.rows);
                         return {};
                       }));
  EXPECT_EQ(again.residuals.Hash(), test.residuals.Hash());
  const std::vector<float> gradients(24 * 16, 0.25f);
  EXPECT_EQ(Decoded(again.residuals.Compress(plan, test.spec, kBits, BufferOf(gradients), Clock(50)), test.spec),
            Decoded(test.residuals.Compress(plan, test.spec, kBits, BufferOf(gradients), Clock(50)), test.spec));
}

TEST(Residuals, LowRankSendsNonFiniteRowsAndSmallMatricesUnencoded) {
  Case test(LowRank(8, 16, 1));
  std::vector<Key> keys(16);
  std::iota(keys.begin(), keys.end(), Key{0});
  const Plan plan = PlanOf(test.spec, keys);
  std::vector<float> gradients(16 * 8, 0.5f);
  gradients[3 * 8 + 2] = std::nanf("");
  const auto decoded =
      Decoded(test.residuals.Compress(plan, test.spec, kBits, BufferOf(gradients), Clock(0)), test.spec);
  for (std::size_t i = 0; i < decoded.size(); ++i)
    EXPECT_EQ(std::isnan(decoded[i]), i / 8 == 3) << "row " << i / 8 << ": only its own row is lost";
  EXPECT_NEAR(decoded[0], 0.5, 1e-5);

  Case small(LowRank(8, 3, 4));
  const Plan three = PlanOf(small.spec, {0, 1, 2});
  const std::vector<float> values(3 * 8, 0.125f);
  const Residuals::Sent sent = small.residuals.Compress(three, small.spec, kBits, BufferOf(values), Clock(0));
  EXPECT_TRUE(sent.rows.right.empty());
  EXPECT_EQ(Decoded(sent, small.spec), values);
  EXPECT_EQ(small.residuals.counters().rows, 0u);
}

TEST(Residuals, ResidualsBeyondTheLimitAreSent) {
  Case test(Sparse(2, 0.001f));
  test.spec.compression.residual_bytes = limits::kResidualBytesMin;  // 16 rows
  const std::uint64_t rows_max = ResidualRowsMax(test.spec);
  EXPECT_EQ(rows_max, 16u);
  std::map<Key, float> sent;
  for (Key key = 1; key <= 100; key += 2)
    for (const auto& [out, row] : test.Push({key, key + 1}, {{key, {2, 0}}, {key + 1, {1, 0}}}, key)) {
      EXPECT_TRUE(sent.emplace(out, row[0]).second);
      EXPECT_LE(test.residuals.counters().rows, rows_max);
    }
  // The larger of each pair is sent at once, the smaller ones in order once there are more than sixteen.
  EXPECT_EQ(sent.size(), 100 - rows_max);
  for (const auto& [key, value] : sent) EXPECT_EQ(value, key % 2 == 1 ? 2.0f : 1.0f);
  for (Key key = 100; key > 100 - 2 * rows_max; key -= 2) EXPECT_FALSE(sent.contains(key));
  EXPECT_EQ(test.residuals.counters().crowded, 50 - rows_max);
}

TEST(Residuals, ExpireWithTheirRow) {
  Case test(Sparse(1, 0.001f));
  test.spec.life = {.on = true, .expire_clocks = 10};
  test.Push({1, 2}, {{1, {5}}, {2, {1}}}, 0);
  test.Push({3, 4}, {{3, {5}}, {4, {1}}}, 5);
  EXPECT_EQ(test.residuals.counters().rows, 2u);
  test.Push({3}, {{3, {1}}}, 10);
  EXPECT_EQ(test.residuals.counters().expired, 0u);
  test.Push({3}, {{3, {1}}}, 11);
  EXPECT_EQ(test.residuals.counters().expired, 1u);
  EXPECT_EQ(test.Push({2}, {{2, {1}}}, 12).at(2), (std::vector<float>{1})) << "what was kept of it is gone";
  EXPECT_EQ(test.Push({4}, {{4, {1}}}, 13).at(4), (std::vector<float>{2}));
}

TEST(Residuals, ABlobRestoresEverything) {
  for (const std::size_t chunk_bytes : {std::size_t{1}, std::size_t{100}, limits::kBlobChunkBytes}) {
    Case test(Sparse(2, 0.1f));
    test.spec.compression.residual_bytes = limits::kResidualBytesMin;
    SplitMix random(4);
    const auto push = [&](Case* on, std::uint64_t clock, std::uint64_t seed) {
      SplitMix draw(seed);
      std::vector<Key> keys;
      std::map<Key, std::vector<float>> rows;
      for (int i = 0; i < 10; ++i)
        if (const Key key = draw.Below(50); rows.emplace(key, std::vector<float>{float(draw.Unit()), 1e-3f}).second)
          keys.push_back(key);
      return on->Push(keys, rows, clock);
    };
    for (std::uint64_t clock = 0; clock < 20; ++clock) push(&test, clock, clock);
    const std::vector<Buffer> chunks = test.Blob(chunk_bytes);
    EXPECT_EQ(chunks.size(), chunk_bytes == 1 ? test.residuals.counters().rows + 1 : chunk_bytes == 100 ? 4u + 1 : 1u);
    const Buffer blob = Joined(chunks);
    Case again(test.spec);
    const Status status = ReadBlob({blob.data(), blob.size()}, {"blob", CheckpointId(4), WorkerRank(2)},
                                   [&](const BlobChunk& chunk) -> Status {
                                     EXPECT_EQ(chunk.clock, Clock(9));
                                     again.residuals.Restore(chunk.rows);
                                     return {};
                                   });
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(again.residuals.Hash(), test.residuals.Hash()) << "the order too: who is crowded out first";
    EXPECT_EQ(again.residuals.counters().rows, test.residuals.counters().rows);
    for (std::uint64_t clock = 20; clock < 40; ++clock)
      EXPECT_EQ(push(&again, clock, clock), push(&test, clock, clock));
  }
}

TEST(Residuals, ABlobLeavesOutTablesWithoutResiduals) {
  Case test(Sparse(1, 0.001f));
  test.Push({1, 2}, {{1, {5}}, {2, {1}}}, 0);
  const std::size_t with = Joined(test.Blob()).size();
  test.spec.push_codec = ValueCodec::kFp32;
  EXPECT_LT(Joined(test.Blob()).size(), with);
}

}  // namespace
}  // namespace tarn::worker
