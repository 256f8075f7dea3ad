// Shows that the real sets are read as their README describes them: rows, columns, labels, keys. Skipped if the sets
// are missing (../shared/data beside the repository; Fashion-MNIST from its Debian package).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "worker/data/dataset.h"
#include "worker/data/keys.h"

namespace tarn::worker {
namespace {

constexpr const char* kFashion = "/usr/share/datasets/fashion-mnist";

DataSection Section(const std::string& set, DataFormat format, std::uint32_t integers = 0,
                    std::uint32_t categories = 0) {
  DataSection section;
  section.dir = std::string(TARN_SOURCE_DIR) + "/../shared/data/" + set;
  section.format = format;
  section.integer_columns = integers;
  section.categorical_columns = categories;
  return section;
}

#define SKIP_WITHOUT(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no data set at " << (path)

Batch ReadWhole(const DataSection& section, const std::string& file) {
  const auto dataset = Dataset::Open(section, file);
  EXPECT_TRUE(dataset) << dataset.error().message;
  Batch batch;
  if (!dataset) return batch;
  const Status read = (*dataset)->Read(0, (*dataset)->rows(), &batch);
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(batch.rows, (*dataset)->rows());
  return batch;
}

double MeanLabel(const Batch& batch) {
  return std::accumulate(batch.labels.begin(), batch.labels.end(), 0.0) / static_cast<double>(batch.rows);
}

TEST(RealData, Flights) {
  const DataSection section = Section("flights", DataFormat::kCriteo, 0, 10);
  SKIP_WITHOUT(section.dir);
  const Batch train = ReadWhole(section, "train.tsv.gz");
  EXPECT_EQ(train.rows, 261878u);
  EXPECT_EQ(train.fields, 10u);
  EXPECT_NEAR(MeanLabel(train), 0.237, 0.0005);
  EXPECT_EQ(ReadWhole(section, "valid.tsv.gz").rows, 32734u);
  EXPECT_EQ(ReadWhole(section, "test.tsv.gz").rows, 32734u);

  std::unordered_map<Key, std::uint32_t> counts;
  for (Key key : train.keys) ++counts[key];
  EXPECT_EQ(counts.size(), 8392u);  // the README counts one more a column
  std::vector<std::uint32_t> sorted;
  for (const auto& [key, count] : counts) sorted.push_back(count);
  std::ranges::sort(sorted, std::greater<>());
  const double top = std::accumulate(sorted.begin(), sorted.begin() + 84, 0.0);
  EXPECT_NEAR(top / static_cast<double>(train.keys.size()), 0.626, 0.001);
}

TEST(RealData, Adult) {
  DataSection section = Section("adult", DataFormat::kCriteo, 6, 8);
  SKIP_WITHOUT(section.dir);
  const BinRule log;
  section.bins = {{BinRule::Kind::kWidth, 5}, {BinRule::Kind::kWidth, 50000}, log, log, log,
                  {BinRule::Kind::kWidth, 5}};
  const Batch train = ReadWhole(section, "train.tsv.gz");
  EXPECT_EQ(train.rows, 29305u);
  EXPECT_EQ(train.fields, 14u);
  EXPECT_EQ(ReadWhole(section, "valid.tsv.gz").rows, 3256u);
  EXPECT_EQ(ReadWhole(section, "test.tsv.gz").rows, 16281u);
  const std::unordered_set<Key> keys(train.keys.begin(), train.keys.end());
  EXPECT_TRUE(keys.contains(ColumnBits(6) | kMissingValue));
  EXPECT_LT(keys.size(), 400u);
}

TEST(RealData, A9a) {
  const DataSection section = Section("libsvm", DataFormat::kLibsvm);
  SKIP_WITHOUT(section.dir);
  const Batch train = ReadWhole(section, "a9a.gz");
  EXPECT_EQ(train.rows, 32561u);
  EXPECT_TRUE(train.weights.empty());
  EXPECT_EQ(std::unordered_set<Key>(train.keys.begin(), train.keys.end()).size(), 123u);
  EXPECT_EQ(ReadWhole(section, "a9a.t.gz").rows, 16281u);
}

TEST(RealData, Agaricus) {
  const DataSection section = Section("libsvm", DataFormat::kLibsvm);
  SKIP_WITHOUT(section.dir);
  const Batch train = ReadWhole(section, "agaricus.txt.train.gz");
  EXPECT_EQ(train.rows, 6513u);
  EXPECT_LE(*std::ranges::max_element(train.keys) & ((1ULL << kValueBits) - 1), 126u);
  EXPECT_EQ(ReadWhole(section, "agaricus.txt.test.gz").rows, 1611u);
}

TEST(RealData, FashionMnist) {
  SKIP_WITHOUT(kFashion);
  DataSection section = Section("", DataFormat::kIdx);
  section.dir = kFashion;
  section.classes = 10;
  const Batch test = ReadWhole(section, "t10k");
  EXPECT_EQ(test.rows, 10000u);
  EXPECT_EQ(test.dense_columns, 784u);
  EXPECT_DOUBLE_EQ(MeanLabel(test), 4.5);
  EXPECT_EQ(*std::ranges::max_element(test.dense), 1.0f);
  EXPECT_EQ(*std::ranges::min_element(test.dense), 0.0f);
}

}  // namespace
}  // namespace tarn::worker
