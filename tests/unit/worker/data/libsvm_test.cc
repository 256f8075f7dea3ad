// Shows how lines in libsvm's format become batches (labels, keys, weights if they are needed, comments), and which
// lines are malformed.
#include <gtest/gtest.h>

#include <string>

#include "worker/data/dataset.h"
#include "worker/data/keys.h"

namespace tarn::worker {
namespace {

DataSection Libsvm(std::uint32_t classes = 2) {
  DataSection section;
  section.format = DataFormat::kLibsvm;
  section.classes = classes;
  return section;
}

Status ReadAll(const DataSection& section, const std::string& text, Batch* batch) {
  auto dataset = Dataset::FromText(section, "small.svm", text);
  if (!dataset) return std::unexpected(dataset.error());
  return (*dataset)->Read(0, (*dataset)->rows(), batch);
}

Key Feature(std::uint64_t index) { return ColumnBits(0) | index; }

TEST(Libsvm, BinaryFeatures) {
  Batch batch;
  ASSERT_TRUE(ReadAll(Libsvm(), "-1 3:1 11:1 \n+1 5 7:1\n0\n1\t140737488355327:1", &batch));
  EXPECT_EQ(batch.rows, 4u);
  EXPECT_EQ(batch.fields, 0u);
  EXPECT_EQ(batch.labels, (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(batch.offsets, (std::vector<std::uint32_t>{0, 2, 4, 4, 5}));
  EXPECT_EQ(batch.keys, (std::vector<Key>{Feature(3), Feature(11), Feature(5), Feature(7), Feature((1ULL << 47) - 1)}));
  EXPECT_TRUE(batch.weights.empty());
}

TEST(Libsvm, ValuesBecomeWeights) {
  Batch batch;
  ASSERT_TRUE(ReadAll(Libsvm(), "1 1:1 2\n1 3:0.5 4:-2e3 5\r\n0 6:1 # a comment 7:x\n", &batch));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 0.5f, -2000, 1, 1}));
  EXPECT_EQ(batch.keys.size(), 6u);
}

// As of programs that write double precision.
TEST(Libsvm, ValuesBelowTheSmallestFloatAreZero) {
  Batch batch;
  ASSERT_TRUE(ReadAll(Libsvm(), "1 1:1e-50 2:-1e-400 3:2 4:0." + std::string(60, '0') + "7\n", &batch));
  EXPECT_EQ(batch.weights, (std::vector<float>{0, 0, 2, 0}));
}

TEST(Libsvm, ManyClasses) {
  Batch batch;
  ASSERT_TRUE(ReadAll(Libsvm(3), "0 1:1\n2 1:1\n", &batch));
  EXPECT_EQ(batch.labels, (std::vector<float>{0, 2}));
  EXPECT_FALSE(ReadAll(Libsvm(3), "3 1:1\n", &batch));
  EXPECT_FALSE(ReadAll(Libsvm(3), "-1 1:1\n", &batch));
  EXPECT_FALSE(ReadAll(Libsvm(1), "0 1:1\n", &batch));
}

TEST(Libsvm, MalformedLinesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "empty line"},
      {"   ", "empty line"},
      {"# only a comment", "empty line"},
      {"2 1:1", "'2': expected a label -1, 0 or 1"},
      {"1,3:1,4:1", "'1,3:1,4:1': expected a label, then column:value or column, separated by blanks"},
      {"0.5 1:1", "'0.5': expected a label"},
      {"nan 1:1", "'nan': expected a label"},
      {"+-1 1:1", "'+-1': expected a label"},
      {"1 x:1", "'x:1': expected column:value"},
      {"1 -3:1", "'-3:1': expected column:value"},
      {"1 140737488355328:1", "'140737488355328:1': expected column:value"},
      {"1 qid:7 1:1", "'qid:7': expected column:value"},
      {"1 :1", "':1': expected column:value"},
      {"1 3:", "'3:': expected a finite number"},
      {"1 3:a", "'3:a': expected a finite number"},
      {"1 3:inf", "'3:inf': expected a finite number"},
      {"1 3:1e50", "'3:1e50': expected a finite number"},
      {"1 3:1e-50x", "'3:1e-50x': expected a finite number"},
      {"1 3:1:1", "'3:1:1': expected a finite number"},
  };
  for (const auto& [line, why] : cases) {
    Batch batch;
    const Status read = ReadAll(Libsvm(), std::string("1 1:1\n") + line + "\n", &batch);
    ASSERT_FALSE(read) << line;
    EXPECT_NE(read.error().message.find(std::string("small.svm:2: ") + why), std::string::npos) << read.error().message;
  }
}

TEST(Libsvm, AMalformedLineAddsNothingToTheBatch) {
  DataSection section = Libsvm();
  section.malformed_max = 5;
  Batch batch;
  ASSERT_TRUE(ReadAll(section, "1 1:1\n1 2:7 3:8 x\n0 4:1\n0 5:2\n1 6:3 7:x\n1 8:1\n", &batch));
  EXPECT_EQ(batch.rows, 4u);
  EXPECT_EQ(batch.labels, (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(batch.keys, (std::vector<Key>{Feature(1), Feature(4), Feature(5), Feature(8)}));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 2, 1}));
  EXPECT_EQ(batch.offsets, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace tarn::worker
