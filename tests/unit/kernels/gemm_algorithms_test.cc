// Shows that measured algorithms are read from their file as they were written, next to those of other GPUs and
// libraries; that a file which is damaged, or of another version or kind, is an error; and that only a damaged file is
// replaced.
#include "kernels/gemm_algorithms.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "core/file.h"

namespace tarn::kernels {
namespace {

class GemmAlgorithmsTest : public ::testing::Test {
 protected:
  GemmAlgorithmsTest() { std::filesystem::remove_all(folder_); }
  ~GemmAlgorithmsTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const { return ReadFile(path_, 1 << 20).value_or("none"); }
  void Write(const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    ASSERT_TRUE(WriteFileAtomic(path_, text));
  }
  // The text with a valid checksum.
  static std::string Sealed(const std::string& text) {
    char line[32];
    std::snprintf(line, sizeof line, "crc32c %08x\n", Crc32c(text));
    return text + line;
  }

  const std::string folder_ = ::testing::TempDir() + "gemm_algorithms_test-" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/cache/tarn/gemm-algorithms";  // none of these folders exists yet
};

GemmKey Key(std::size_t m) {
  return {.m = m,
          .n = 512,
          .k = 479,
          .precision = Precision::kBf16,
          .factors = Element::kBf16,
          .c = Element::kFp32,
          .b_transpose = Transpose::kYes,
          .a_stride = 480,
          .b_stride = 480,
          .c_stride = 512,
          .alignment = 256,
          .epilogue = Epilogue::kReluBiasMask};
}

GemmChoice Choice(std::uint64_t seed) {
  GemmChoice choice{.fused = seed % 2 == 0, .us = 12.5f * float(seed)};
  for (std::size_t i = 0; i < 8; ++i) choice.algorithm[i] = seed * 0x0123456789abcdef + i;
  return choice;
}

GemmAlgorithms Algorithms() { return {"NVIDIA H200", 130101}; }

TEST_F(GemmAlgorithmsTest, AreReadBackAsWritten) {
  GemmAlgorithms written = Algorithms();
  EXPECT_FALSE(written.changed());
  std::vector<GemmKey> keys = {Key(1), Key(65536)};
  for (int e = 0; e <= int(Epilogue::kBiasGradient); ++e) keys.push_back(Key(2)), keys.back().epilogue = Epilogue(e);
  for (int p = 0; p <= int(Precision::kFp16); ++p) keys.push_back(Key(3)), keys.back().precision = Precision(p);
  keys.push_back({.m = 5, .beta = true, .alignment = 2});
  keys.push_back({.factors = Element::kFp16, .c = Element::kFp16, .a_transpose = Transpose::kYes});
  for (std::size_t i = 0; i < keys.size(); ++i) written.Keep(keys[i], Choice(i));
  EXPECT_TRUE(written.changed());
  ASSERT_TRUE(written.Save(path_));
  EXPECT_FALSE(written.changed());

  GemmAlgorithms read = Algorithms();
  ASSERT_TRUE(read.Load(path_));
  EXPECT_EQ(read.size(), written.size());
  for (const GemmKey& key : keys) {
    ASSERT_NE(read.Find(key), nullptr);
    EXPECT_EQ(*read.Find(key), *written.Find(key));
  }
  EXPECT_EQ(read.Find(Key(4)), nullptr);
  EXPECT_FALSE(read.changed());
}

TEST_F(GemmAlgorithmsTest, TheFileHasTheDocumentedFormat) {
  GemmAlgorithms algorithms = Algorithms();
  GemmChoice choice{.fused = true, .us = 42.75f};
  choice.algorithm = {0x1f, 0, 0, 0, 0, 0, 0, 0xffffffffffffffff};
  algorithms.Keep(Key(65536), choice);
  ASSERT_TRUE(algorithms.Save(path_));
  const std::string line =
      "65536 512 479 bf16 bf16 fp32 N T 480 480 512 0 256 relu-bias-mask 1 42.75 000000000000001f" +
      std::string(6 * 16, '0') + "ffffffffffffffff 130101 NVIDIA H200\n";
  EXPECT_EQ(Text(), Sealed("tarn gemm algorithms 1\n" + line));
}

TEST_F(GemmAlgorithmsTest, LinesOfOtherGpusAreKept) {
  GemmAlgorithms other("NVIDIA A100-SXM4-80GB", 130101), older("NVIDIA H200", 120805), mine = Algorithms();
  other.Keep(Key(1), Choice(1));
  older.Keep(Key(1), Choice(2));
  mine.Keep(Key(1), Choice(3));
  ASSERT_TRUE(other.Save(path_));
  ASSERT_TRUE(older.Save(path_));
  ASSERT_TRUE(mine.Save(path_));
  GemmAlgorithms late = Algorithms();  // has not loaded the file, and adds to it
  late.Keep(Key(2), Choice(4));
  ASSERT_TRUE(late.Save(path_));
  const auto read = [&](GemmAlgorithms algorithms) {
    EXPECT_TRUE(algorithms.Load(path_));
    return algorithms;
  };
  EXPECT_EQ(*read({"NVIDIA A100-SXM4-80GB", 130101}).Find(Key(1)), Choice(1));
  EXPECT_EQ(*read({"NVIDIA H200", 120805}).Find(Key(1)), Choice(2));
  EXPECT_EQ(*read(Algorithms()).Find(Key(1)), Choice(3));
  EXPECT_EQ(*read(Algorithms()).Find(Key(2)), Choice(4));
  EXPECT_EQ(read({"NVIDIA H100", 130101}).size(), 0u);
}

// Each writer adds to the file as it has read it. Without a lock, the second of two would overwrite the lines of the
// first.
TEST_F(GemmAlgorithmsTest, ConcurrentWritersLoseNothing) {
  constexpr std::size_t kProcesses = 4, kEach = 8;
  std::vector<pid_t> writers;
  for (std::size_t p = 0; p < kProcesses; ++p) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid != 0) {
      writers.push_back(pid);
      continue;
    }
    bool written = true;
    for (std::size_t i = 0; i < kEach; ++i) {
      GemmAlgorithms fresh = Algorithms();
      fresh.Keep(Key(p * kEach + i), Choice(i));
      Status saved = fresh.Save(path_);
      while (!saved && saved.error().code == ErrorCode::kUnavailable) saved = fresh.Save(path_);  // a busy machine
      written &= saved.has_value();
    }
    ::_exit(written ? 0 : 1);
  }
  for (const pid_t pid : writers) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  GemmAlgorithms read = Algorithms();
  ASSERT_TRUE(read.Load(path_));
  EXPECT_EQ(read.size(), kProcesses * kEach);
}

TEST_F(GemmAlgorithmsTest, AFolderThatCannotBeMadeIsAnError) {
  std::filesystem::create_directories(folder_);
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/cache", "not a folder"));
  GemmAlgorithms algorithms = Algorithms();
  algorithms.Keep(Key(1), Choice(1));
  const Status status = algorithms.Save(path_);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(path_), std::string::npos) << status.error().message;
  EXPECT_TRUE(algorithms.changed());
}

TEST_F(GemmAlgorithmsTest, AMissingFileIsNotFound) {
  EXPECT_EQ(Algorithms().Load(path_).error().code, ErrorCode::kNotFound);
}

// For each damaged byte and each truncation.
TEST_F(GemmAlgorithmsTest, ADamagedFileIsRefusedAndThenReplaced) {
  GemmAlgorithms algorithms = Algorithms();
  algorithms.Keep(Key(1), Choice(3));
  ASSERT_TRUE(algorithms.Save(path_));
  const std::string whole = Text();
  const std::size_t title = whole.find('\n');
  for (std::size_t i = title + 1; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    Write(damaged);
    GemmAlgorithms read = Algorithms();
    const Status status = read.Load(path_);
    ASSERT_FALSE(status) << i;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(status.error().message.find(path_), std::string::npos);
    Write(whole.substr(0, i));
    EXPECT_EQ(read.Load(path_).error().code, ErrorCode::kCorrupt) << "cut off at " << i;
    EXPECT_EQ(read.size(), 0u);
  }
  ASSERT_TRUE(algorithms.Save(path_));
  EXPECT_EQ(Text(), whole);
}

TEST_F(GemmAlgorithmsTest, TheErrorNamesAnInvalidLine) {
  for (const char* line :
       {"", "1 2 3", "one 512 479 bf16 bf16 fp32 N T 480 480 512 0 256 bias 1 4 00 130101 NVIDIA H200",
        "1 512 479 fp8 bf16 fp32 N T 480 480 512 0 256 bias 1 4 00 130101 NVIDIA H200",
        "1 512 479 bf16 bf16 fp32 N T 480 480 512 2 256 bias 1 4 00 130101 NVIDIA H200",
        "1 512 479 bf16 bf16 fp32 N T 480 480 512 0 256 bias 1 4 00 130101 NVIDIA H200"}) {
    Write(Sealed("tarn gemm algorithms 1\n" + std::string(line) + "\n"));
    const Status status = Algorithms().Load(path_);
    ASSERT_FALSE(status) << line;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt) << line;
    EXPECT_NE(status.error().message.find("line 2"), std::string::npos) << status.error().message;
  }
}

TEST_F(GemmAlgorithmsTest, FilesOfAnotherKindOrVersionAreNotChanged) {
  for (const auto& [text, code] : {std::pair{"a letter\nto somebody\n", ErrorCode::kMalformed},
                                   {"", ErrorCode::kMalformed},
                                   {"tarn gemm algorithms 2\nwho knows\n", ErrorCode::kUnsupported}}) {
    Write(text);
    GemmAlgorithms algorithms = Algorithms();
    algorithms.Keep(Key(1), Choice(3));
    EXPECT_EQ(algorithms.Load(path_).error().code, code);
    EXPECT_EQ(algorithms.Save(path_).error().code, code);
    EXPECT_EQ(Text(), text);
    EXPECT_TRUE(algorithms.changed());
  }
}

TEST_F(GemmAlgorithmsTest, TheNumberOfChoicesIsBounded) {
  GemmAlgorithms algorithms = Algorithms();
  for (std::size_t m = 0; m <= GemmAlgorithms::kChoicesMax; ++m) algorithms.Keep(Key(m), Choice(1));
  EXPECT_EQ(algorithms.size(), GemmAlgorithms::kChoicesMax);
  EXPECT_EQ(algorithms.Find(Key(GemmAlgorithms::kChoicesMax)), nullptr);
  algorithms.Keep(Key(7), Choice(2));
  EXPECT_EQ(*algorithms.Find(Key(7)), Choice(2)) << "what is there may change";
}

}  // namespace
}  // namespace tarn::kernels
