// Shows that the options of storage work together in every combination: lives of rows, 16-bit rows, a memory budget,
// full and incremental checkpoints, and the log. Each case is a random run of a shard that ends and recovers
// repeatedly, bit for bit; and its states must not depend on the budget or on the kind of checkpoints.
#include <gtest/gtest.h>

#include "server/tier/residency.h"
#include "tests/unit/server/shard/shard_life.h"

namespace tarn::server {
namespace {

constexpr int kSteps = 60;
constexpr int kExpiries = 7;
constexpr std::size_t kTightBytes = 24 << 10;  // a few dozen rows of all tables

// One setting of a row's life, with its name.
struct LifeCase {
  const char* name;
  LifeSpec life;
};

std::vector<LifeCase> Admissions() {
  std::vector<LifeCase> cases(4, {"", {.on = true, .sweep_clocks = 4}});
  cases[0] = {"none", {}};
  cases[1].name = "count";
  cases[1].life.admit_count = 3;
  cases[2].name = "chance";
  cases[2].life.admit_probability = 0.5f;
  cases[3].name = "both";
  cases[3].life.admit_count = 2;
  cases[3].life.admit_probability = 0.5f;
  return cases;
}

std::vector<LifeCase> Expiries() {
  std::vector<LifeCase> cases(kExpiries, {"", {.on = true, .sweep_clocks = 4}});
  cases[0] = {"never", {}};
  cases[1].name = "clocks";
  cases[1].life.expire_clocks = 6;
  cases[2].name = "seconds";
  cases[2].life.expire_seconds = 0.05;
  cases[3].name = "score";
  cases[3].life.min_score = 0.5f;
  cases[3].life.score_decay = 0.8f;
  cases[4].name = "rows";
  cases[4].life.rows_max = 16;
  cases[5].name = "clocks_and_rows";
  cases[5].life.expire_clocks = 6;
  cases[5].life.rows_max = 16;
  cases[6].name = "score_and_rows";
  cases[6].life.min_score = 0.5f;
  cases[6].life.score_decay = 0.8f;
  cases[6].life.rows_max = 16;
  return cases;
}

LifeSpec Together(LifeSpec admission, const LifeSpec& expiry) {
  LifeSpec both = expiry;
  both.on = admission.on || expiry.on;
  if (!both.on) return {};
  both.admit_count = admission.admit_count;
  both.admit_probability = admission.admit_probability;
  both.sweep_clocks = 4;
  return both;
}

std::vector<TableSpec> Tables(const LifeSpec& life, ValueCodec row_codec) {
  std::vector<TableSpec> tables = {TableOf(1), TableOf(2), TableOf(3)};
  for (TableSpec& table : tables) {
    if (table.kind == TableKind::kDense) continue;
    table.life = life;
    table.row_codec = row_codec;
    table.dim += 20;  // so that rows outgrow the budget
  }
  return tables;
}

// Runs a random life of a shard, with recoveries if `recover`. Returns its states.
std::vector<std::uint64_t> Live(const LifeOptions& options, bool recover) {
  std::vector<std::uint64_t> states;
  Life life(options);
  for (int step = 0; step < kSteps; ++step) {
    life.Step();
    life.Commit();
    states.push_back(life.hash());
    if (recover && step % 5 == 4) life.Recover(false);
    if (testing::Test::HasFatalFailure()) return states;
  }
  const Residency* tier = life.shard().rows().tier();
  EXPECT_EQ(tier != nullptr, options.memory_limit != 0);
  if (tier != nullptr) {
    EXPECT_GT(tier->counters().evicted, 0u) << "the budget was never used up";
    if (options.late && options.tables[0].life.admit_count < 3) {  // few keys are pushed three times
      EXPECT_GT(life.shard().counters().waited_for_rows, 0u) << "nothing ever waited for its rows";
    }
  }
  return states;
}

class StorageProduct : public testing::TestWithParam<std::tuple<int, int, ValueCodec>> {};

TEST_P(StorageProduct, RecoversAndDoesNotDependOnBudgetOrChains) {
  const auto [admission, expiry, codec] = GetParam();
  const LifeSpec life = Together(Admissions()[std::size_t(admission)].life, Expiries()[std::size_t(expiry)].life);
  LifeOptions options{.seed = 7, .tables = Tables(life, codec)};
  const std::vector<std::uint64_t> plain = Live(options, true);
  enum Tiering { kNoTier, kTier, kLateTier };
  for (const Tiering tier : {kNoTier, kTier, kLateTier})
    for (const bool chains : {false, true}) {
      if (tier == kNoTier && !chains) continue;
      SCOPED_TRACE(testing::Message() << (tier != kNoTier ? "tier " : "") << (tier == kLateTier ? "late " : "")
                                      << (chains ? "chains" : ""));
      options.memory_limit = tier == kNoTier ? 0 : kTightBytes;
      options.late = tier == kLateTier;
      options.chains = chains;
      ASSERT_EQ(Live(options, true), plain);
    }
}

std::string NameOf(const testing::TestParamInfo<StorageProduct::ParamType>& test) {
  const auto admission = static_cast<std::size_t>(std::get<0>(test.param));
  const auto expiry = static_cast<std::size_t>(std::get<1>(test.param));
  return std::string(Admissions()[admission].name) + "_" + Expiries()[expiry].name + "_" +
         std::string(Name(std::get<2>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(All, StorageProduct,
                         testing::Combine(testing::Range(0, 4), testing::Range(0, kExpiries),
                                          testing::Values(ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16)),
                         NameOf);

}  // namespace
}  // namespace tarn::server
