// Shows that generated rows are a pure function of (options, n) at any parallelism, that columns have the published
// statistics, that the teacher's AUC and log-loss are those of the profile, and that sets on disk are complete.
#include "tools/generate/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <unordered_map>
#include <unordered_set>

#include "core/file.h"
#include "core/hash.h"
#include "core/quality.h"
#include "tests/unit/tools/generate/criteo_text.h"
#include "tests/unit/worker/data/temp_dir.h"
#include "tools/generate/write_set.h"
#include "worker/data/dataset.h"

namespace tarn::generate {
namespace {

constexpr std::size_t kRows = 100'000;

const std::vector<Row>& Rows() {
  static const std::vector<Row> kMade = [] {
    std::vector<Row> made(kRows);
    const Generator generator({});
    for (std::size_t n = 0; n < kRows; ++n) generator.Make(n, &made[n]);
    return made;
  }();
  return kMade;
}

// Shares below are of 100,000 rows: four standard errors are 0.0063 at most.
TEST(Generator, IntegersHaveTheirMoments) {
  for (int j = 0; j < kIntegerColumns; ++j) {
    const IntegerColumn& column = kIntegers[j];
    double present = 0, zeros = 0, sum = 0, squares = 0;
    for (const Row& row : Rows()) {
      if (row.integers[j] == kMissingInteger) continue;
      const double l = std::log1p(static_cast<double>(row.integers[j]));
      ++present;
      zeros += row.integers[j] == 0;
      sum += l;
      squares += l * l;
    }
    const double mean = sum / present;
    EXPECT_NEAR(1 - present / kRows, column.missing, 0.0065) << "I" << j + 1;
    EXPECT_NEAR(zeros / present, column.zero, 0.012) << "I" << j + 1;
    EXPECT_NEAR(mean, column.mean, 5 * column.sd / std::sqrt(present)) << "I" << j + 1;
    EXPECT_NEAR(std::sqrt(squares / present - mean * mean), column.sd, 0.02 * column.sd + 0.01) << "I" << j + 1;
  }
}

TEST(Generator, CategoriesHaveTheirMostFrequentValues) {
  for (int f = 0; f < kCategoricalColumns; ++f) {
    const CategoricalColumn& column = kCategoricals[f];
    std::array<double, kHeadRanks + 1> counts{};
    double missing = 0;
    for (const Row& row : Rows()) {
      const std::uint32_t rank = row.ranks[f];
      EXPECT_LE(rank, column.values);
      if (rank == kMissingRank)
        ++missing;
      else if (rank <= kHeadRanks)
        ++counts[rank];
    }
    EXPECT_NEAR(missing / kRows, column.missing, 0.0065) << "C" << f + 1;
    for (int r = 1; r <= kHeadRanks; ++r)
      EXPECT_NEAR(counts[r] / (kRows - missing), column.head[r - 1], 0.012) << "C" << f + 1 << " rank " << r;
  }
}

TEST(Generator, ColumnsAreMissingTogether) {
  for (const Row& row : Rows()) {
    const auto missing = [&](int f) { return row.ranks[f - 1] == kMissingRank; };
    const auto lacks = [&](int j) { return row.integers[j - 1] == kMissingInteger; };
    for (int f : {4, 12, 16, 21, 24}) ASSERT_EQ(missing(f), missing(3));
    for (int f : {20, 25, 26}) ASSERT_EQ(missing(f), missing(19));
    ASSERT_EQ(lacks(1), lacks(10));
    ASSERT_EQ(lacks(4), lacks(13));
    ASSERT_EQ(lacks(7), lacks(9));
    ASSERT_EQ(lacks(7), lacks(11));
  }
}

// Unique keys per occurrence as published for the generator; a batch's own scatter is a few thousandths.
TEST(Generator, BatchesHaveTheirShareOfUniqueKeys) {
  const auto dataset = worker::Dataset::FromText(DataSection{}, "made", CriteoText(Generator({}), 0, 65536));
  ASSERT_TRUE(dataset);
  const std::pair<std::size_t, double> expected[] = {{256, .326}, {1024, .240}, {4096, .165}, {16384, .108}};
  for (const auto& [rows, share] : expected) {
    double unique = 0, keys = 0;
    worker::Batch batch;
    for (std::size_t first = 0; first < 65536; first += std::max<std::size_t>(rows, 4096)) {
      ASSERT_TRUE((*dataset)->Read(first, rows, &batch));
      unique += static_cast<double>(std::unordered_set<Key>(batch.keys.begin(), batch.keys.end()).size());
      keys += static_cast<double>(batch.keys.size());
    }
    EXPECT_NEAR(unique / keys, share, 0.004) << rows;
  }
}

Quality BestOf(const std::vector<Row>& rows) {
  Quality best;
  for (const Row& row : rows) {
    best.AddBinary(static_cast<float>(row.logit), row.label);
    best.AddLoss(std::log1p(std::exp(row.label ? -row.logit : row.logit)));
  }
  return best;
}

// One standard error of the AUC of 100,000 rows is 0.0015.
TEST(Generator, TheTeacherHasTheQualityOfItsProfile) {
  const Quality criteo = BestOf(Rows());
  EXPECT_NEAR(criteo.Auc(), 0.8246, 0.005);
  EXPECT_NEAR(criteo.LogLoss(), 0.4276, 0.006);
  const auto teacher = TeacherOfProfile("interaction");
  ASSERT_TRUE(teacher);
  const Generator generator({.teacher = *teacher});
  std::vector<Row> rows(kRows);
  for (std::size_t n = 0; n < kRows; ++n) generator.Make(n, &rows[n]);
  EXPECT_NEAR(BestOf(rows).Auc(), 0.8453, 0.006);
  EXPECT_NEAR(BestOf(rows).LogLoss(), 0.4133, 0.008);
  EXPECT_FALSE(TeacherOfProfile("kriteo"));
}

TEST(Generator, LabelsHaveTheirStatedProbability) {
  std::array<double, 10> labels{}, sums{}, counts{};
  for (const Row& row : Rows()) {
    const double p = 1 / (1 + std::exp(-row.logit));
    const auto bucket = static_cast<std::size_t>(p * 10);
    labels[bucket] += row.label;
    sums[bucket] += p;
    ++counts[bucket];
  }
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(labels[i] / counts[i], sums[i] / counts[i], 2.5 / std::sqrt(counts[i])) << i;
}

TEST(Generator, RowsDependOnSeedAndNumberAlone) {
  const std::string whole = CriteoText(Generator({}), 0, 300);
  EXPECT_EQ(CriteoText(Generator({}), 0, 100) + CriteoText(Generator({}), 100, 200), whole);
  EXPECT_NE(CriteoText(Generator({.seed = 8}), 0, 300), whole);
}

// If the bytes change for the same parameters, raise kVersion in write_set.cc together with this value.
TEST(Generator, BytesAreStable) {
  const std::string text = CriteoText(Generator({}), 0, 10000) + CriteoText(Generator({}), kTestFirstRow, 10000);
  EXPECT_EQ(HashBytes(text), 0xdc6c5100e28f3a1bULL);
}

TEST(Generator, ValuesOfRanksAreDistinct) {
  std::unordered_set<std::uint32_t> values;
  for (std::uint32_t rank = 1; rank <= 100000; ++rank) values.insert(ValueOfRank(2, rank));
  EXPECT_EQ(values.size(), 100000u);
  EXPECT_NE(ValueOfRank(2, 1), ValueOfRank(3, 1));
}

TEST(Generator, SkewMakesKeysHotter) {
  const auto unique_of = [](double skew) {
    const Generator generator({.skew = skew});
    std::unordered_set<std::uint32_t> ranks;
    Row row;
    for (std::uint64_t n = 0; n < 5000; ++n) {
      generator.Make(n, &row);
      ranks.insert(row.ranks[2]);
    }
    return ranks.size();
  };
  EXPECT_GT(unique_of(1), 2 * unique_of(1.5));
  EXPECT_GT(unique_of(1 / 1.04), unique_of(1));  // where the closed form has its pole
}

TEST(Generator, NoiseFlipsLabelsAndChangesTheProbability) {
  const Generator clean({}), noisy({.label_noise = 0.25});
  Row a, b;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    clean.Make(n, &a);
    noisy.Make(n, &b);
    const double p = 1 / (1 + std::exp(-a.logit));
    EXPECT_NEAR(1 / (1 + std::exp(-b.logit)), 0.25 + 0.5 * p, 1e-12);
    EXPECT_EQ(a.integers, b.integers);
  }
}

TEST(Generator, DriftRedrawsAShareOfTheWeightsEachDay) {
  const Generator still({}), moving({.drift = 0.1, .day_rows = 1});
  const Generator next({.drift = 0.1, .day_rows = 1, .last_day = 1});
  Row a, b;
  int same = 0;
  for (std::uint64_t n = 2; n < 1000; ++n) {
    moving.Make(n, &a);
    next.Make(n, &b);
    EXPECT_EQ(a.ranks, b.ranks);
    same += a.logit == b.logit;
  }
  EXPECT_LT(same, 5);
  moving.Make(0, &a);
  Generator({.drift = 0.1, .day_rows = 1'000'000}).Make(0, &b);
  EXPECT_EQ(a.logit, b.logit);
}

TEST(Generator, ErrorsNameOptionsOutOfRange) {
  EXPECT_TRUE(Validate(GeneratorOptions{}));
  const auto bad = Validate(GeneratorOptions{.label_noise = 0.6});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "label noise is 0.6: expected 0 to 0.5");
  EXPECT_FALSE(Validate(GeneratorOptions{.skew = 0}));
  EXPECT_FALSE(Validate(GeneratorOptions{.drift = std::nan("")}));
  EXPECT_FALSE(Validate(GeneratorOptions{.day_rows = 0}));
}

SetOptions SmallSet(const std::string& dir) {
  SetOptions options;
  options.train_rows = 40000;  // more than a round of chunks
  options.valid_rows = 1000;
  options.test_rows = 2000;
  options.dir = dir;
  return options;
}

std::string Read(const std::string& path) {
  const auto bytes = ReadFile(path, std::size_t{1} << 30);
  return bytes ? *bytes : bytes.error().message;
}

TEST(Set, AnyNumberOfThreadsWritesTheSameBytes) {
  testing::TempDir one, three;
  ASSERT_TRUE(WriteSet(SmallSet(one.path())));
  SetOptions options = SmallSet(three.path() + "/made/deep");
  options.threads = 3;
  ASSERT_TRUE(WriteSet(options));
  for (const char* name : {"/train.tsv", "/valid.tsv", "/test.tsv", "/generate.json"})
    EXPECT_TRUE(Read(one.path() + name) == Read(options.dir + name)) << name;
  EXPECT_TRUE(Read(one.path() + "/train.tsv") == CriteoText(Generator({}), 0, 40000));
  EXPECT_TRUE(Read(one.path() + "/test.tsv") == CriteoText(Generator({}), kTestFirstRow, 2000));
}

TEST(Set, ACompleteSetIsNotWrittenAgain) {
  testing::TempDir dir;
  const SetOptions options = SmallSet(dir.path());
  const auto first = WriteSet(options);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->existed);
  const auto second = WriteSet(options);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->existed);
  EXPECT_EQ(second->report, first->report);

  std::filesystem::resize_file(dir.path() + "/test.tsv", 100);
  EXPECT_FALSE(WriteSet(options)->existed);
  std::ofstream(dir.path() + "/generate.json") << "{ not json";
  EXPECT_FALSE(WriteSet(options)->existed);
  SetOptions other = options;
  other.generator.seed = 8;
  EXPECT_FALSE(WriteSet(other)->existed);
  EXPECT_TRUE(WriteSet(other)->existed);
  other.valid_rows = 0;
  EXPECT_FALSE(WriteSet(other)->existed);
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/valid.tsv"));
}

TEST(Set, ACheckSaysWhatDiffersAndWritesNothing) {
  testing::TempDir dir;
  SetOptions options = SmallSet(dir.path() + "/set");
  EXPECT_EQ(CheckSet(options).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options.dir));
  ASSERT_TRUE(WriteSet(options));
  EXPECT_TRUE(CheckSet(options));

  SetOptions other = options;
  other.profile = "interaction";
  EXPECT_EQ(CheckSet(other).error().message,
            options.dir + "/generate.json: profile = \"criteo\", expected \"interaction\"");
  const std::string report = Read(options.dir + "/generate.json");
  std::ofstream(options.dir + "/generate.json") << "{}";
  EXPECT_NE(CheckSet(options).error().message.find("no parameters"), std::string::npos);
  std::ofstream(options.dir + "/generate.json") << report;
  std::filesystem::resize_file(options.dir + "/test.tsv", 100);
  EXPECT_NE(CheckSet(options).error().message.find("test.tsv: 100 bytes, expected "), std::string::npos);
  std::filesystem::remove(options.dir + "/test.tsv");
  EXPECT_NE(CheckSet(options).error().message.find("test.tsv"), std::string::npos);
}

TEST(Set, FailuresLeaveNoFile) {
  testing::TempDir dir;
  SetOptions options = SmallSet(dir.path());
  options.generator.skew = -1;
  EXPECT_FALSE(WriteSet(options));
  options = SmallSet(dir.path());
  options.train_rows = 0;
  EXPECT_FALSE(WriteSet(options));
  dir.Write("file", "");
  EXPECT_FALSE(WriteSet(SmallSet(dir.path() + "/file")));
  std::filesystem::create_directory(dir.path() + "/valid.tsv");
  EXPECT_FALSE(WriteSet(SmallSet(dir.path())));
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/generate.json"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/valid.tsv.partial"));
}

}  // namespace
}  // namespace tarn::generate
