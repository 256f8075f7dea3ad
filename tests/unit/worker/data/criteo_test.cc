// Shows how lines of Criteo's format become batches: keys, missing values, bins, dense integers, line ends; and how
// malformed lines are counted, named and, past the limit, refused.
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "core/limits.h"
#include "worker/data/dataset.h"
#include "worker/data/keys.h"

namespace tarn::worker {
namespace {

// 2 integers, 2 categories.
DataSection Small() {
  DataSection section;
  section.integer_columns = 2;
  section.categorical_columns = 2;
  return section;
}

std::unique_ptr<Dataset> Make(const DataSection& section, const std::string& text, DatasetOptions options = {}) {
  auto dataset = Dataset::FromText(section, "small.tsv", text, options);
  EXPECT_TRUE(dataset) << dataset.error().message;
  return std::move(*dataset);
}

Batch ReadAll(const DataSection& section, const std::string& text) {
  const auto dataset = Make(section, text);
  Batch batch;
  const Status read = dataset->Read(0, dataset->rows(), &batch);
  EXPECT_TRUE(read) << read.error().message;
  return batch;
}

TEST(Criteo, AValidLineIsRead) {
  const Batch batch = ReadAll(Small(), "1\t-1\t7\t05db9164\tUA\n");
  EXPECT_EQ(batch.rows, 1u);
  EXPECT_EQ(batch.fields, 4u);
  EXPECT_EQ(batch.labels, std::vector<float>{1});
  EXPECT_EQ(batch.offsets, (std::vector<std::uint32_t>{0, 4}));
  EXPECT_TRUE(batch.weights.empty());
  EXPECT_TRUE(batch.dense.empty());
  ASSERT_EQ(batch.keys.size(), 4u);
  EXPECT_EQ(batch.keys[0], ColumnBits(0) | IntegerValue(-1));
  EXPECT_EQ(batch.keys[1], ColumnBits(1) | (kBinBase + 3));  // ln(7)^2 = 3.79
  EXPECT_EQ(batch.keys[2], ColumnBits(2) | 0x05db9164);
  EXPECT_EQ(batch.keys[3], ColumnBits(3) | CategoryValue("UA"));
}

TEST(Criteo, MissingFieldsHaveTheirOwnKeys) {
  const Batch batch = ReadAll(Small(), "0\t\t\t\t\n");
  ASSERT_EQ(batch.keys.size(), 4u);
  for (std::uint32_t column = 0; column < 4; ++column)
    EXPECT_EQ(batch.keys[column], ColumnBits(column) | kMissingValue);
}

TEST(Criteo, AllLineEndsAreAccepted) {
  const std::string lines[] = {"1\t1\t2\t05db9164\t68fd1e64", "0\t3\t\tAA\t", "1\t\t5\t\tffffffff"};
  std::string unix_text, dos_text;
  for (const std::string& line : lines) {
    unix_text += line + "\n";
    dos_text += line + "\r\n";
  }
  const Batch expected = ReadAll(Small(), unix_text);
  EXPECT_EQ(expected.rows, 3u);
  for (const std::string& text : {dos_text, unix_text.substr(0, unix_text.size() - 1),
                                  dos_text.substr(0, dos_text.size() - 2), dos_text.substr(0, dos_text.size() - 1)}) {
    const Batch batch = ReadAll(Small(), text);
    EXPECT_EQ(batch.keys, expected.keys);
    EXPECT_EQ(batch.labels, expected.labels);
  }
}

TEST(Criteo, RulesPerColumn) {
  DataSection section = Small();
  section.bins = {{BinRule::Kind::kNone, 1}, {BinRule::Kind::kWidth, 10}};
  const Batch batch = ReadAll(section, "0\t5\t25\ta\tb\n");
  EXPECT_EQ(batch.fields, 3u);
  ASSERT_EQ(batch.keys.size(), 3u);
  EXPECT_EQ(batch.keys[0], ColumnBits(1) | IntegerValue(2));
  EXPECT_EQ(batch.keys[1] >> kValueBits, ColumnBits(2) >> kValueBits);
  section.bins = {{BinRule::Kind::kIdentity, 1}};
  EXPECT_EQ(ReadAll(section, "0\t5\t25\ta\tb\n").keys[1], ColumnBits(1) | IntegerValue(25));
}

TEST(Criteo, DenseIntegersAreLogs) {
  DataSection section = Small();
  section.integer_columns = 5;
  section.dense_integers = true;
  section.bins = {{BinRule::Kind::kNone, 1}};
  const Batch batch = ReadAll(section, "0\t-3\t\t1\t4095\t1000000\ta\tb\n");
  EXPECT_EQ(batch.fields, 2u);
  EXPECT_EQ(batch.dense_columns, 5u);
  ASSERT_EQ(batch.dense.size(), 5u);
  EXPECT_EQ(batch.dense[0], 0);
  EXPECT_EQ(batch.dense[1], 0);
  EXPECT_FLOAT_EQ(batch.dense[2], std::log(2.0f));
  EXPECT_FLOAT_EQ(batch.dense[3], std::log(4096.0f));
  EXPECT_FLOAT_EQ(batch.dense[4], std::log(1000001.0f));
}

TEST(Criteo, IntegersUpToTheEndsOf64Bits) {
  const Batch batch = ReadAll(Small(), "0\t9223372036854775807\t-9223372036854775808\ta\tb\n");
  EXPECT_EQ(batch.keys[0], ColumnBits(0) | (kBinBase + 1906));
  EXPECT_EQ(batch.keys[1], ColumnBits(1) | IntegerValue(std::numeric_limits<std::int64_t>::min()));
}

struct Bad {
  const char* line;
  const char* why;
};

TEST(Criteo, MalformedLinesAreNamed) {
  const Bad cases[] = {
      {"", "empty line"},
      {"1\t1\t2\ta", "4 tab-separated fields: expected 5 (label, 2 integers, 2 categorical)"},
      {"1\t1\t2\ta\tb\tc", "6 tab-separated fields: expected 5"},
      {"1\t1\t2\ta\tb\t", "6 tab-separated fields: expected 5"},
      {"2\t1\t2\ta\tb", "label '2': expected 0 or 1"},
      {"\t1\t2\ta\tb", "label '': expected 0 or 1"},
      {"10\t1\t2\ta\tb", "label '10': expected 0 or 1"},
      {"1\tx\t2\ta\tb", "integer column 1 is 'x': expected a 64-bit integer or nothing"},
      {"1\t1\t2.5\ta\tb", "integer column 2 is '2.5'"},
      {"1\t-\t2\ta\tb", "integer column 1 is '-'"},
      {"1\t+1\t2\ta\tb", "integer column 1 is '+1'"},
      {"1\t9223372036854775808\t2\ta\tb", "integer column 1 is '9223372036854775808'"},
      {"1", "1 tab-separated field: expected 5 (label, 2 integers, 2 categorical)"},
      {"1,3,4,a,b", "1 tab-separated field: expected 5 (label, 2 integers, 2 categorical); the line has 4 commas, but"},
      {"\"1\"\t1\t2\ta\tb", "label '\"1\"': expected 0 or 1"},
      {"1\t", "2 tab-separated fields"},
  };
  for (const Bad& bad : cases) {
    const auto dataset = Make(Small(), std::string("0\t1\t1\ta\tb\n") + bad.line + "\n0\t1\t1\ta\tb\n");
    Batch batch;
    const Status read = dataset->Read(0, 3, &batch);
    ASSERT_FALSE(read) << bad.line;
    EXPECT_EQ(read.error().code, ErrorCode::kMalformed);
    EXPECT_NE(read.error().message.find(std::string("small.tsv:2: ") + bad.why), std::string::npos)
        << read.error().message;
  }
}

TEST(Criteo, AnInvalidFirstLineIsExplained) {
  const Bad cases[] = {
      {"label\tI1\tI2\tC1\tC2", "label 'label': expected 0 or 1; to skip a header, set data.malformed_max = 1"},
      {"\xEF\xBB\xBF\x31\t1\t2\ta\tb", "begins with a byte order mark: expected the label"},
      {"\xFF\xFE\x31", "begins with the byte order mark of UTF-16"},
  };
  for (const Bad& bad : cases) {
    const auto dataset = Make(Small(), std::string(bad.line) + "\n0\t1\t1\ta\tb\n");
    Batch batch;
    const Status read = dataset->Read(0, 2, &batch);
    ASSERT_FALSE(read) << bad.line;
    EXPECT_NE(read.error().message.find(std::string("small.tsv:1: ") + bad.why), std::string::npos)
        << read.error().message;
  }
}

TEST(Criteo, MalformedLinesUpToTheLimitAreSkippedAndCountedOnce) {
  DataSection section = Small();
  section.malformed_max = 2;
  std::string text = "0\t1\t1\ta\tb\nbad\n1\t1\t1\ta\tb\nworse\n0\t1\t1\ta\tb\n";
  std::vector<std::string> reported;
  const auto dataset =
      Make(section, text, {.report_malformed = [&](const std::string& line) { reported.push_back(line); }});
  EXPECT_EQ(dataset->rows(), 5u);
  Batch batch;
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_TRUE(dataset->Read(0, 5, &batch));
    EXPECT_EQ(batch.rows, 3u);
    EXPECT_EQ(batch.labels, (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(batch.offsets, (std::vector<std::uint32_t>{0, 4, 8, 12}));
  }
  EXPECT_EQ(dataset->malformed(), 2u);
  ASSERT_EQ(reported.size(), 2u);
  EXPECT_EQ(reported, dataset->malformed_messages());
  EXPECT_TRUE(reported[1].starts_with("small.tsv:4: ")) << reported[1];
  // Rows keep their numbers.
  ASSERT_TRUE(dataset->Read(2, 1, &batch));
  EXPECT_EQ(batch.labels, std::vector<float>{1});
}

TEST(Criteo, OneMalformedLinePastTheLimitIsAnError) {
  DataSection section = Small();
  section.malformed_max = 2;
  const auto dataset = Make(section, "0\t1\t1\ta\tb\nbad\nbad\nbad\n0\t1\t1\ta\tb\n");
  Batch batch;
  EXPECT_TRUE(dataset->Read(0, 3, &batch));
  const Status read = dataset->Read(0, 5, &batch);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("small.tsv: 3 malformed lines, more than data.malformed_max = 2:"),
            std::string::npos)
      << read.error().message;
  EXPECT_EQ(batch.rows, 1u);
}

// Workers begin anywhere in a file. A file in another format than the job's is malformed from its first line on.
TEST(Criteo, TheErrorOfAFileInAnotherFormatNamesItsFirstLine) {
  const auto dataset = Make(Small(), "1\t1\t1\ta\n0\t1\t1\ta\n1\t1\t1\ta\n");
  Batch batch;
  const Status read = dataset->Read(2, 1, &batch);
  ASSERT_FALSE(read);
  const std::string& why = read.error().message;
  const std::size_t first = why.find("\n  small.tsv:1: 4 tab-separated fields: expected 5"),
                    third = why.find("\n  small.tsv:3: ");
  EXPECT_LT(first, third) << why;
  EXPECT_NE(third, std::string::npos) << why;
  // The first line of this file is valid, so the error does not suspect the format.
  const auto sound = Make(Small(), "1\t1\t1\ta\tb\n0\t1\t1\ta\n");
  const Status late = sound->Read(1, 1, &batch);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message.find("small.tsv:1: "), std::string::npos) << late.error().message;
}

TEST(Criteo, LinesUpToTheLimitOfBytes) {
  DataSection section = Small();
  section.malformed_max = 1;
  const std::string head = "1\t1\t1\ta\t";
  const std::string longest = head + std::string(limits::kLineBytesMax - head.size(), 'x');
  const auto dataset = Make(section, longest + "\n" + longest + "x\n1\t1\t1\ta\tb\n");
  Batch batch;
  ASSERT_TRUE(dataset->Read(0, 3, &batch));
  EXPECT_EQ(batch.rows, 2u);
  ASSERT_EQ(dataset->malformed(), 1u);
  EXPECT_NE(dataset->malformed_messages()[0].find("small.tsv:2: line of 1048577 bytes: expected at most 1048576"),
            std::string::npos);
}

TEST(Criteo, InvalidSectionsAreRefused) {
  DataSection section = Small();
  section.bins.resize(3);
  EXPECT_FALSE(Dataset::FromText(section, "x", "0\n"));
  section = Small();
  section.integer_columns = section.categorical_columns = 0;
  EXPECT_FALSE(Dataset::FromText(section, "x", "0\n"));
  section.integer_columns = limits::kColumnsMax;
  EXPECT_TRUE(Dataset::FromText(section, "x", "0\n"));
  section.categorical_columns = 1;
  EXPECT_FALSE(Dataset::FromText(section, "x", "0\n"));
}

// A simple reader, which splits the line. Returns the keys, or none if the line is malformed.
std::vector<Key> SplitAndParse(const std::string& line) {
  std::vector<std::string> fields(1);
  for (char c : line) {
    if (c == '\t')
      fields.emplace_back();
    else
      fields.back() += c;
  }
  if (fields.size() != 5 || (fields[0] != "0" && fields[0] != "1")) return {};
  std::vector<Key> keys;
  for (std::uint32_t column = 0; column < 2; ++column) {
    const std::string& text = fields[column + 1];
    std::int64_t v = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (!text.empty() && (failed != std::errc{} || end != text.data() + text.size())) return {};
    keys.push_back(ColumnBits(column) | (text.empty() ? kMissingValue : IntegerValue(v)));
  }
  for (std::uint32_t column = 2; column < 4; ++column)
    keys.push_back(ColumnBits(column) | CategoryValue(fields[column + 1]));
  return keys;
}

TEST(Criteo, RandomDamageIsReadLikeByASimpleReader) {
  DataSection section = Small();
  section.bins = {{BinRule::Kind::kIdentity, 1}};
  section.malformed_max = 1;
  SplitMix random(1);
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string line = "1\t-17\t123456\t05db9164\t68fd1e64";
    for (std::uint64_t damage = random.Below(4); damage > 0; --damage) {
      constexpr std::string_view kBytes = "\t\t\t0119-af:. x";
      const std::size_t place = random.Below(line.size());
      if (random.Chance(0.5))
        line[place] = kBytes[random.Below(kBytes.size())];
      else
        line.erase(place, 1 + random.Below(3));
    }
    const auto dataset = Make(section, line + "\n");
    Batch batch;
    ASSERT_TRUE(dataset->Read(0, 1, &batch));
    ASSERT_EQ(batch.keys, SplitAndParse(line)) << line;
    good += batch.rows == 1;
    for (const std::string& message : dataset->malformed_messages())
      ASSERT_EQ(message.find("not a line"), std::string::npos) << message << ": " << line;
  }
  EXPECT_GT(good, 5000);
  EXPECT_LT(good, 15000);
}

TEST(Criteo, AppendAddsToABatch) {
  const auto dataset = Make(Small(), "0\t1\t1\ta\tb\n1\t2\t2\tc\td\n");
  Batch batch, whole;
  ASSERT_TRUE(dataset->Append(0, 1, &batch));
  ASSERT_TRUE(dataset->Append(1, 1, &batch));
  ASSERT_TRUE(dataset->Append(1, 0, &batch));
  ASSERT_TRUE(dataset->Read(0, 2, &whole));
  EXPECT_EQ(batch.keys, whole.keys);
  EXPECT_EQ(batch.offsets, whole.offsets);
  EXPECT_EQ(batch.rows, 2u);
}

}  // namespace
}  // namespace tarn::worker
