// Shows that several writers share the file of metrics line by line, and that no writer waits for its disk.
#include "core/metrics/metrics_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/file.h"

namespace tarn {
namespace {

using nlohmann::json;

TEST(MetricsFile, ContainsTheLinesOfSeveralWriters) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-metrics-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&path, t] {
        auto file = MetricsFile::Open(path);
        ASSERT_TRUE(file);
        for (int i = 0; i < 100; ++i) ASSERT_TRUE(file->Append(R"({"writer":)" + std::to_string(t) + "}"));
      });
  }
  std::istringstream lines(*ReadFile(path, 1 << 20));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_NO_THROW({ auto parsed = json::parse(line); });
  EXPECT_EQ(count, 400);
  std::filesystem::remove(path);
}

// A pipe without a reader simulates a disk that stalls.
TEST(MetricsWriter, AWriterNeverWaitsForItsFile) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-pipe-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  std::size_t arrived = 0;
  {
    DiskPool pool;
    auto writer = MetricsWriter::Open(&pool, path);
    ASSERT_TRUE(writer);
    for (std::size_t i = 0; i < 4 * MetricsWriter::kWaitingMax; ++i) (*writer)->Append({std::string(65536, 'x')});
    std::jthread disk([&](const std::stop_token& over) {  // reads from the pipe, so that the writer can end
      std::string some(1 << 20, ' ');
      while (!over.stop_requested())
        if (const ssize_t n = ::read(reader, some.data(), some.size()); n > 0) arrived += std::size_t(n);
    });
    writer->reset();
  }
  EXPECT_GE(arrived, std::size_t{1}) << "and nothing of what waited was written";
  EXPECT_LE(arrived, (MetricsWriter::kWaitingMax + 1) * 65537) << "no more waits than may";
  ::close(reader);
  std::filesystem::remove(path);
}

TEST(MetricsFile, ErrorsNameThePath) {
  const auto missing = MetricsFile::Open("/nonexistent-folder/metrics.jsonl");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "/nonexistent-folder/metrics.jsonl: cannot open: No such file or directory");
  if (!std::filesystem::exists("/dev/full")) return;
  auto full = MetricsFile::Open("/dev/full");
  ASSERT_TRUE(full);
  const auto status = full->Append("{}");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "/dev/full: cannot write: No space left on device");
}

}  // namespace
}  // namespace tarn
