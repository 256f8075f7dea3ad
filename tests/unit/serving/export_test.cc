// Shows that exports are read as they were written, in every codec; that errors name a damaged, truncated, longer or
// foreign file; and that an export appears only once it is complete.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>

#include "core/file.h"
#include "serving/export_file.h"
#include "serving/export_format.h"
#include "tests/unit/kernels/scalar_half.h"
#include "tests/unit/serving/small_export.h"

namespace tarn::serving {
namespace {

namespace fs = std::filesystem;

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("tarn-export-{}-{}", getpid(), test->name());
    fs::create_directories(folder_);
    path_ = (folder_ / "model.tarn").string();
  }
  ~ExportTest() override { fs::remove_all(folder_); }
  void Write(ValueCodec codec, Key rows = 20) {
    const auto totals = WriteExport(
        path_, FullInfo(),
        {{SparseSpec(), SomeRows(rows, 3, 1.5f), {}, codec}, {DenseSpec(), {{0, {1, 2}}, {9, {3, 4}}}, {}, codec}});
    ASSERT_TRUE(totals) << totals.error().message;
    EXPECT_EQ(totals->rows, rows + 2);
    EXPECT_EQ(totals->bytes, fs::file_size(path_));
  }
  std::vector<std::uint64_t> Bytes() const {
    const auto text = ReadFile(path_, std::size_t{1} << 30).value();
    std::vector<std::uint64_t> bytes(text.size() / 8 + 1);
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
  }
  fs::path folder_;
  std::string path_;
};

TEST_F(ExportTest, IsReadBackInEveryCodec) {
  for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16}) {
    Write(codec);
    const auto file = ExportFile::Open(path_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->is_delta());
    EXPECT_EQ(file->info().job, "job");
    EXPECT_EQ(file->info().clock, Clock(30));
    const ExportTable* users = file->FindTable("users");
    ASSERT_NE(users, nullptr);
    EXPECT_EQ(users->rows, 20u);
    EXPECT_EQ(users->codec, codec);
    EXPECT_EQ(users->initializer, "normal(0, 0.5)");
    EXPECT_EQ(file->FindTable("nobody"), nullptr);
    for (const auto& [key, values] : SomeRows(20, 3, 1.5f)) {
      const auto found = file->Find(*users, key);
      ASSERT_TRUE(found.row) << key;
      std::vector<float> out(3);
      DecodeValues(codec, *found.row, out);
      for (std::size_t i = 0; i < 3; ++i) {
        const float expected = codec == ValueCodec::kFp32   ? values[i]
                               : codec == ValueCodec::kBf16 ? FloatFromBf16(Bf16FromFloat(values[i]))
                                                            : FloatFromFp16(Fp16FromFloat(values[i]));
        EXPECT_EQ(out[i], expected);
      }
      EXPECT_FALSE(file->Find(*users, key + (Key{1} << 39)).row) << key;
    }
    const ExportTable* layer = file->FindTable("layer");
    EXPECT_TRUE(file->Find(*layer, 9).row);
    EXPECT_FALSE(file->Find(*layer, 5).row);
    EXPECT_FALSE(file->Find(*layer, 10).row);  // beyond the table
  }
}

TEST_F(ExportTest, ManySectionsAreSearchedAsOne) {
  Write(ValueCodec::kFp32, 400'000);  // 8 MB; a section has 4 MB
  const auto file = ExportFile::Open(path_);
  ASSERT_TRUE(file) << file.error().message;
  const ExportTable* users = file->FindTable("users");
  EXPECT_GE(users->sections.size(), 4u);
  std::uint64_t seen = 0;
  for (const ExportSection& section : users->sections)
    for (const Key key : file->Keys(section)) seen += file->Find(*users, key).row ? 1 : 0;
  EXPECT_EQ(seen, 400'000u);
}

TEST_F(ExportTest, ADamagedByteAnywhereIsRefused) {
  Write(ValueCodec::kFp32);
  const auto good = Bytes();
  const std::size_t size = fs::file_size(path_);
  for (std::size_t at = 0; at < size; ++at) {
    auto bad = good;
    reinterpret_cast<char*>(bad.data())[at] ^= '\x21';
    const auto file = ExportFile::Parse(std::as_bytes(std::span(bad)).first(size), "m.tarn", {});
    // Between the sections there is nothing.
    if (file) {
      EXPECT_EQ(reinterpret_cast<const char*>(good.data())[at], 0) << at;
      const ExportFile whole = ExportFile::Parse(std::as_bytes(std::span(good)).first(size), "m.tarn", {}).value();
      for (const ExportTable& table : whole.tables())
        for (const ExportSection& section : table.sections)
          EXPECT_TRUE(at < section.offset || at >= section.offset + section.bytes) << at;
      continue;
    }
    EXPECT_TRUE(file.error().message.starts_with("m.tarn: ")) << file.error().message;
  }
}

TEST_F(ExportTest, ATruncatedOrLongerFileIsRefused) {
  Write(ValueCodec::kFp16);
  auto bytes = Bytes();
  bytes.resize(bytes.size() + 8);
  const std::size_t size = fs::file_size(path_);
  for (std::size_t length = 0; length < size + 8; ++length) {
    const bool whole = ExportFile::Parse(std::as_bytes(std::span(bytes)).first(length), "m.tarn", {}).has_value();
    EXPECT_EQ(whole, length == size) << length;
  }
}

TEST_F(ExportTest, ErrorsNameANewerFormatAndOtherFiles) {
  Write(ValueCodec::kFp32);
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put('\x02');
  EXPECT_EQ(ExportFile::Open(path_).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(ExportFile::Open(folder_.string()).error().message, folder_.string() + ": not a regular file");
  EXPECT_EQ(ExportFile::Open(path_ + "x").error().code, ErrorCode::kNotFound);
  std::ofstream(path_ + "y");
  EXPECT_EQ(ExportFile::Open(path_ + "y").error().code, ErrorCode::kCorrupt);
  std::ofstream(path_ + "z") << std::string(100, 'z');
  EXPECT_NE(ExportFile::Open(path_ + "z").error().message.find("not an export"), std::string::npos);
}

TEST_F(ExportTest, APipeIsRefusedAtOnce) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto opened = std::async(std::launch::async, [&] { return ExportFile::Open(pipe).error().message; });
  if (opened.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
    ADD_FAILURE() << "waits for a writer";
    std::ofstream writer(pipe);
  }
  EXPECT_EQ(opened.get(), pipe + ": not a regular file");
}

TEST_F(ExportTest, AnUnfinishedExportLeavesNoFile) {
  {
    auto writer = ExportWriter::Create(path_, FullInfo());
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->BeginTable(SparseSpec(), 1, ValueCodec::kFp32));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(ExportWriter::Create((folder_ / "nowhere" / "x").string(), FullInfo()).error().code, ErrorCode::kNotFound);
}

// Wherever its empty list of sections lies.
TEST_F(ExportTest, TheErrorOfAValueBeyondFp16NamesItsKey) {
  Rows rows = SomeRows(3, 3, 1.5f);
  rows[77] = {1.0f, -70000.0f, 2.0f};
  const auto totals = WriteExport(path_, FullInfo(), {{SparseSpec(), rows, {}, ValueCodec::kFp16}});
  ASSERT_FALSE(totals);
  EXPECT_NE(totals.error().message.find("key 77: -70000"), std::string::npos) << totals.error().message;
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_TRUE(WriteExport(path_, FullInfo(), {{SparseSpec(), rows, {}, ValueCodec::kBf16}}));
}

TEST_F(ExportTest, AnExportMayHaveNoRows) {
  for (std::size_t length = 1; length < 40; ++length) {
    ExportInfo info = FullInfo();
    info.job = std::string(length, 'j');
    ASSERT_TRUE(WriteExport(path_, info, {{SparseSpec(), {}, {}}}));
    const auto file = ExportFile::Open(path_);
    ASSERT_TRUE(file) << length << ": " << file.error().message;
    EXPECT_FALSE(file->Find(*file->FindTable("users"), 4).row);
  }
}

}  // namespace
}  // namespace tarn::serving
