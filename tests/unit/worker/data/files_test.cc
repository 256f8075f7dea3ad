// Shows that plain and gzip files give the same rows, in memory or through a cache file; that ranges equal the whole;
// that many threads can read at once; that errors name missing, empty and damaged files; and that idx pairs are checked
// and scaled.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/tools/generate/criteo_text.h"
#include "tests/unit/worker/data/temp_dir.h"
#include "worker/data/dataset.h"

namespace tarn::worker {
namespace {

using testing::TempDir;

constexpr std::size_t kRows = 3000;

const std::string& Text() {
  static const std::string kText = generate::CriteoText(generate::Generator({}), 0, kRows);
  return kText;
}

DataSection Section(const TempDir& dir, DataFormat format = DataFormat::kCriteo) {
  DataSection section;
  section.dir = dir.path();
  section.format = format;
  return section;
}

void ExpectSame(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.fields, b.fields);
  EXPECT_EQ(a.dense_columns, b.dense_columns);
  EXPECT_TRUE(a.labels == b.labels);
  EXPECT_TRUE(a.keys == b.keys);
  EXPECT_TRUE(a.offsets == b.offsets);
  EXPECT_TRUE(a.dense == b.dense);
}

Batch ReadWhole(const DataSection& section, const std::string& file, const DatasetOptions& options = {}) {
  auto dataset = Dataset::Open(section, file, options);
  EXPECT_TRUE(dataset) << dataset.error().message;
  Batch batch;
  if (dataset) {
    const Status read = (*dataset)->Read(0, (*dataset)->rows(), &batch);
    EXPECT_TRUE(read) << read.error().message;
  }
  return batch;
}

std::string ErrorOf(const DataSection& section, const std::string& file, ErrorCode code,
                    const DatasetOptions& options = {}) {
  const auto dataset = Dataset::Open(section, file, options);
  if (dataset) return "no error";
  EXPECT_EQ(dataset.error().code, code) << dataset.error().message;
  return dataset.error().message;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Files, PlainGzipAndCacheFileGiveTheSameRows) {
  TempDir dir, cache;
  dir.Write("rows.tsv", Text());
  dir.WriteGzip("rows.tsv.gz", Text());
  const Batch plain = ReadWhole(Section(dir), "rows.tsv");
  EXPECT_EQ(plain.rows, kRows);
  EXPECT_EQ(plain.fields, 39u);
  ExpectSame(ReadWhole(Section(dir), "rows.tsv.gz"), plain);
  ExpectSame(ReadWhole(Section(dir), dir.path() + "/rows.tsv"), plain);
  ExpectSame(ReadWhole(Section(dir), "rows.tsv.gz", {.inflated_ram_bytes_max = 100'000, .cache_dir = cache.path()}),
             plain);
  EXPECT_TRUE(std::filesystem::is_empty(cache.path()));
}

TEST(Files, GzipOfSeveralMembers) {
  TempDir dir;
  dir.WriteGzip("a", "1\t" + std::string(38, '\t') + "\n");
  dir.WriteGzip("b", "0\t" + std::string(38, '\t') + "\n");
  std::string joined;
  for (const char* name : {"/a", "/b"}) {
    std::ifstream in(dir.path() + name, std::ios::binary);
    joined.append(std::istreambuf_iterator<char>(in), {});
  }
  dir.Write("joined.gz", joined);
  EXPECT_EQ(ReadWhole(Section(dir), "joined.gz").labels, (std::vector<float>{1, 0}));
  dir.Write("padded.gz", joined + std::string(1000, '\0'));
  EXPECT_EQ(ReadWhole(Section(dir), "padded.gz").labels, (std::vector<float>{1, 0}));
}

// zlib's gzread would end without an error behind the first member.
TEST(Files, GzipWithOtherBytesBehindAMember) {
  TempDir dir;
  dir.WriteGzip("a", Text());
  std::ifstream in(dir.path() + "/a", std::ios::binary);
  const std::string member(std::istreambuf_iterator<char>(in), {});
  std::string damaged = member;
  damaged[1] ^= 1;
  for (const auto& [name, behind] : {std::pair<std::string, std::string>("damaged.gz", damaged + member),
                                     {"plain.gz", Text()},
                                     {"header.gz", member.substr(0, 1)},
                                     {"padded.gz", std::string(8, '\0') + member}}) {
    dir.Write(name, member + behind);
    EXPECT_HAS(ErrorOf(Section(dir), name, ErrorCode::kMalformed), name + " is not a complete gzip file");
  }
}

TEST(Files, RangesEqualTheWhole) {
  TempDir dir;
  dir.Write("rows.tsv", Text());
  DataSection section = Section(dir);
  section.dense_integers = true;
  const Batch whole = ReadWhole(section, "rows.tsv");
  const auto dataset = Dataset::Open(section, "rows.tsv");
  ASSERT_TRUE(dataset);
  for (std::size_t step : {1u, 63u, 64u, 65u, 1000u}) {
    Batch joined;
    for (std::size_t first = 0; first < kRows; first += step)
      ASSERT_TRUE((*dataset)->Append(first, std::min(step, kRows - first), &joined));
    ExpectSame(joined, whole);
  }
}

TEST(Files, RowsOutsideTheSetAreRefused) {
  TempDir dir;
  dir.Write("rows.tsv", Text());
  const auto dataset = Dataset::Open(Section(dir), "rows.tsv");
  ASSERT_TRUE(dataset);
  Batch batch;
  EXPECT_TRUE((*dataset)->Read(kRows - 1, 1, &batch));
  EXPECT_TRUE((*dataset)->Read(kRows, 0, &batch));
  EXPECT_FALSE((*dataset)->Read(kRows - 1, 2, &batch));
  EXPECT_FALSE((*dataset)->Read(kRows + 1, 0, &batch));
  EXPECT_FALSE((*dataset)->Read(~0ULL, 2, &batch));
}

TEST(Files, LimitRowsBoundsTheRows) {
  TempDir dir;
  dir.Write("rows.tsv", Text());
  for (std::uint64_t limit : {1ULL, 64ULL, 65ULL, 1000ULL})
    EXPECT_EQ(ReadWhole(Section(dir), "rows.tsv", {.limit_rows = limit}).rows, limit);
  EXPECT_EQ(ReadWhole(Section(dir), "rows.tsv", {.limit_rows = kRows + 1}).rows, kRows);
}

// A program that must end while it opens its data does not wait until the data are open.
TEST(Files, OpeningStopsOnRequest) {
  TempDir dir;
  dir.Write("rows.tsv", Text());
  dir.WriteGzip("rows.gz", Text());
  std::stop_source stop;
  const DatasetOptions options{.stop = stop.get_token()};
  EXPECT_EQ(ReadWhole(Section(dir), "rows.tsv", options).rows, kRows);
  stop.request_stop();
  EXPECT_HAS(ErrorOf(Section(dir), "rows.tsv", ErrorCode::kCancelled, options), "was cancelled");
  EXPECT_HAS(ErrorOf(Section(dir), "rows.gz", ErrorCode::kCancelled, options), "was cancelled");
}

TEST(Files, ManyThreadsReadAtOnce) {
  DataSection section;
  section.malformed_max = 10;
  std::string text = Text() + "bad\nbad\nbad\n";
  const auto dataset = Dataset::FromText(section, "rows.tsv", text);
  ASSERT_TRUE(dataset);
  Batch whole;
  ASSERT_TRUE((*dataset)->Read(0, kRows + 3, &whole));
  std::vector<Batch> batches(8);
  {
    std::vector<std::jthread> threads;
    threads.reserve(batches.size());
    for (std::size_t t = 0; t < batches.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::size_t first = 0; first < kRows + 3; first += 50 + t)
          EXPECT_TRUE((*dataset)->Append(first, std::min(50 + t, kRows + 3 - first), &batches[t]));
      });
  }
  for (const Batch& batch : batches) ExpectSame(batch, whole);
  EXPECT_EQ((*dataset)->malformed(), 3u);
}

// The last field lies at the end of a page, where the mapping ends.
TEST(Files, AFileThatEndsAtAPageBoundaryIsRead) {
  TempDir dir;
  DataSection section = Section(dir);
  section.integer_columns = 1;
  section.categorical_columns = 1;
  for (const char* last : {"05db9164", "05db916", "", "AA"}) {
    const std::string end = std::string("1\t\t") + last;
    const std::string head = "0\t\t" + std::string(8192 - 4 - end.size(), 'x') + "\n";
    dir.Write("page.tsv", head + end);
    ASSERT_EQ(std::filesystem::file_size(dir.path() + "/page.tsv"), 8192u);
    EXPECT_EQ(ReadWhole(section, "page.tsv").rows, 2u);
  }
}

TEST(Files, TheErrorOfAMissingFileNamesItAndTheExpectedFile) {
  TempDir dir;
  const std::string missing = ErrorOf(Section(dir), "train.tsv", ErrorCode::kNotFound);
  EXPECT_HAS(missing, dir.path() + "/train.tsv does not exist");
  EXPECT_HAS(missing, "expected Criteo format, plain or gzip (tab-separated: label, 13 integers, 26 categorical");
  dir.WriteGzip("train.tsv.gz", Text());
  EXPECT_HAS(ErrorOf(Section(dir), "train.tsv", ErrorCode::kNotFound), "there is " + dir.path() + "/train.tsv.gz");
  EXPECT_HAS(ErrorOf(Section(dir, DataFormat::kLibsvm), "a9a", ErrorCode::kNotFound), "libsvm");
  EXPECT_HAS(ErrorOf(Section(dir, DataFormat::kIdx), "train", ErrorCode::kNotFound), "train-images-idx3-ubyte");
  EXPECT_HAS(ErrorOf(Section(dir), "", ErrorCode::kInvalidArgument), "has no name");
}

TEST(Files, FoldersEmptyAndBrokenFilesAreRefused) {
  TempDir dir;
  std::filesystem::create_directory(dir.path() + "/folder");
  EXPECT_HAS(ErrorOf(Section(dir), "folder", ErrorCode::kMalformed),
             "folder is a folder, in which rows cannot be read");
  dir.Write("empty.tsv", "");
  EXPECT_HAS(ErrorOf(Section(dir), "empty.tsv", ErrorCode::kInvalidArgument), "is empty");
  dir.WriteGzip("empty.gz", "");
  EXPECT_HAS(ErrorOf(Section(dir), "empty.gz", ErrorCode::kInvalidArgument), "is empty");
  dir.WriteGzip("whole.gz", Text());
  std::ifstream in(dir.path() + "/whole.gz", std::ios::binary);
  std::string gzip(std::istreambuf_iterator<char>(in), {});
  dir.Write("cut.gz", gzip.substr(0, gzip.size() / 2));
  EXPECT_HAS(ErrorOf(Section(dir), "cut.gz", ErrorCode::kMalformed), "cut.gz is not a complete gzip file");
  gzip[gzip.size() / 2] = static_cast<char>(gzip[gzip.size() / 2] ^ 0x55);
  dir.Write("flipped.gz", gzip);
  EXPECT_HAS(ErrorOf(Section(dir), "flipped.gz", ErrorCode::kMalformed), "flipped.gz is not a complete gzip file");
  for (const auto& [begin, name] : {std::pair<std::string, std::string>("PAR1\x15\x04", "a Parquet file"),
                                    {"\x28\xB5\x2F\xFD\x04", "a zstd file"},
                                    {"PK\x03\x04", "a zip file"}}) {
    dir.Write("other", begin + Text());
    EXPECT_HAS(ErrorOf(Section(dir), "other", ErrorCode::kMalformed), "other is " + name + ": expected Criteo format");
  }
  const DatasetOptions nowhere{.inflated_ram_bytes_max = 10, .cache_dir = dir.path() + "/nowhere"};
  EXPECT_HAS(ErrorOf(Section(dir), "whole.gz", ErrorCode::kNotFound, nowhere), "create a cache file");
}

// Opening a pipe for reading waits for a writer, and reading a terminal for its user.
TEST(Files, PipesAndDevicesAreRefusedAtOnce) {
  TempDir dir;
  ASSERT_EQ(mkfifo((dir.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_HAS(ErrorOf(Section(dir), "pipe", ErrorCode::kMalformed),
             "pipe is a pipe (FIFO), in which rows cannot be read");
  EXPECT_HAS(ErrorOf(Section(dir), "/dev/zero", ErrorCode::kMalformed), "/dev/zero is a device");
}

// Reading beyond the end of a mapped file is a SIGBUS.
TEST(Files, TheErrorOfATruncatedFileNamesIt) {
  TempDir dir;
  dir.Write("plain.tsv", Text());
  const std::string path = dir.path() + "/plain.tsv";
  ASSERT_GT(Text().size(), std::size_t{64} << 10);
  for (const std::size_t left : {std::size_t{0}, std::size_t{100}, std::size_t{8192}, Text().size() - 1}) {
    dir.Write("plain.tsv", Text());
    const auto dataset = Dataset::Open(Section(dir), "plain.tsv");
    ASSERT_TRUE(dataset) << dataset.error().message;
    std::filesystem::resize_file(path, left);
    Batch batch;
    const Status read = (*dataset)->Read(0, kRows, &batch);
    ASSERT_FALSE(read) << left;
    EXPECT_EQ(read.error().code, ErrorCode::kIo);
    EXPECT_HAS(read.error().message, path + " was truncated while it was read: it has " + std::to_string(left) +
                                         " bytes, expected " + std::to_string(Text().size()));
    EXPECT_FALSE((*dataset)->Read(kRows - 1, 1, &batch));
  }
}

TEST(Files, AFileThatGrowsIsReadAsItWasWhenOpened) {
  TempDir dir;
  dir.Write("plain.tsv", Text());
  const auto dataset = Dataset::Open(Section(dir), "plain.tsv");
  ASSERT_TRUE(dataset);
  dir.Write("plain.tsv", Text() + Text());
  Batch batch;
  EXPECT_TRUE((*dataset)->Read(0, kRows, &batch));
  EXPECT_EQ((*dataset)->rows(), kRows);
}

std::string Idx(std::uint32_t magic, std::initializer_list<std::uint32_t> sizes, const std::string& bytes) {
  std::string file;
  const auto add = [&](std::uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(v >> shift);
  };
  add(magic);
  for (std::uint32_t size : sizes) add(size);
  return file + bytes;
}

const std::string kImages = Idx(0x803, {3, 2, 2},
                                std::string("\0\xff\x33\x66"
                                            "abcd"
                                            "efgh",
                                            12));
const std::string kLabels = Idx(0x801, {3}, std::string("\0\x09\x01", 3));

TEST(Idx, ImagesAreScaled) {
  TempDir dir;
  DataSection section = Section(dir, DataFormat::kIdx);
  section.classes = 10;
  dir.Write("t-images-idx3-ubyte", kImages);
  dir.WriteGzip("t-labels-idx1-ubyte.gz", kLabels);
  const Batch whole = ReadWhole(section, "t");
  EXPECT_EQ(whole.rows, 3u);
  EXPECT_EQ(whole.dense_columns, 4u);
  EXPECT_EQ(whole.labels, (std::vector<float>{0, 9, 1}));
  EXPECT_EQ(whole.offsets, (std::vector<std::uint32_t>{0, 0, 0, 0}));
  EXPECT_EQ(std::vector<float>(whole.dense.begin(), whole.dense.begin() + 4), (std::vector<float>{0, 1, 0.2f, 0.4f}));
  const auto dataset = Dataset::Open(section, "t");
  Batch joined;
  for (std::uint64_t row = 0; row < 3; ++row) ASSERT_TRUE((*dataset)->Append(row, 1, &joined));
  ExpectSame(joined, whole);
  EXPECT_FALSE((*dataset)->Append(3, 1, &joined));
  EXPECT_EQ(ReadWhole(section, "t", {.limit_rows = 2}).rows, 2u);
}

TEST(Idx, DamagedPairsAreRefused) {
  const struct {
    std::string images, labels, why;
  } cases[] = {
      {kLabels, kLabels, "t-images-idx3-ubyte is not an idx file"},
      {kImages, kImages, "t-labels-idx1-ubyte is not an idx file"},
      {"", kLabels, "t-images-idx3-ubyte is not an idx file"},
      {kImages + "x", kLabels, "t-images-idx3-ubyte has 29 bytes: expected 28"},
      {kImages.substr(0, 27), kLabels, "t-images-idx3-ubyte has 27 bytes: expected 28"},
      {kImages, kLabels + "x", "t-labels-idx1-ubyte has 12 bytes: expected 11"},
      {kImages, Idx(0x801, {2}, "\1\1"), "has 2 labels: expected 3"},
      {kImages, Idx(0x801, {3}, "\1\1\x0a"), "label 2 is 10: expected less than data.classes = 10"},
      {Idx(0x803, {3, 0xffffffff, 0xffffffff}, ""), kLabels, "pixels: expected 1 to"},
      {Idx(0x803, {0xffffffff, 1024, 1024}, ""), kLabels, "bytes: expected"},
  };
  for (const auto& bad : cases) {
    TempDir dir;
    DataSection section = Section(dir, DataFormat::kIdx);
    section.classes = 10;
    dir.Write("t-images-idx3-ubyte", bad.images);
    dir.Write("t-labels-idx1-ubyte", bad.labels);
    EXPECT_HAS(ErrorOf(section, "t", ErrorCode::kMalformed), bad.why);
  }
}

}  // namespace
}  // namespace tarn::worker
