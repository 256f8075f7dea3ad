// Metrics: counts from several threads are exact, a line is one JSON object, processes share a file line by line.
#include "core/metrics.h"

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

TEST(Metrics, SameNameSameMetric) {
  Metrics metrics;
  EXPECT_EQ(&metrics.GetCounter("pulls"), &metrics.GetCounter("pulls"));
  EXPECT_NE(&metrics.GetCounter("pulls"), &metrics.GetCounter("pushes"));
}

TEST(Metrics, ThreadsCountExactly) {
  Metrics metrics;
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        auto& pulls = metrics.GetCounter("pulls");
        auto& staleness = metrics.GetHistogram("staleness");
        for (int i = 0; i < 10000; ++i) pulls.Add();
        for (int i = 0; i < 1000; ++i) staleness.Add(std::uint64_t(i % 5));
      });
  }
  EXPECT_EQ(metrics.GetCounter("pulls").value(), 40000u);
  EXPECT_EQ(metrics.GetHistogram("staleness").Snapshot().CountOf(4), 800u);
}

TEST(Metrics, JsonLine) {
  Metrics metrics;
  metrics.GetCounter("pulls").Add(12);
  metrics.GetGauge("samples_per_second").Set(1234.5);
  Histogram seen;
  seen.Add(3, 2);
  metrics.GetHistogram("staleness").Merge(seen);
  const auto line = json::parse(metrics.JsonLine("server-0", 1'500'000));
  EXPECT_EQ(line["time_us"], 1'500'000);
  EXPECT_EQ(line["role"], "server-0");
  EXPECT_EQ(line["pulls"], 12);
  EXPECT_EQ(line["samples_per_second"], 1234.5);
  EXPECT_EQ(line["staleness"]["mean"], 3.0);
  EXPECT_EQ(line["staleness"]["counts"]["3"], 2);
}

TEST(Metrics, FileTakesLinesFromSeveralWriters) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-metrics-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&path, t] {
        auto file = MetricsFile::Open(path);
        ASSERT_TRUE(file);
        Metrics metrics;
        metrics.GetCounter("n").Add(std::uint64_t(t));
        for (int i = 0; i < 100; ++i) ASSERT_TRUE(file->Append(metrics.JsonLine("worker-" + std::to_string(t), i)));
      });
  }
  std::istringstream lines(*ReadFile(path, 1 << 20));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_NO_THROW({ auto parsed = json::parse(line); });
  EXPECT_EQ(count, 400);
  std::filesystem::remove(path);
}

// A pipe that nobody reads stands in for a disk that stalls.
TEST(Metrics, AWriterNeverWaitsForItsFile) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-pipe-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  {
    auto writer = MetricsWriter::Open(path);
    ASSERT_TRUE(writer);
    for (std::size_t i = 0; i < 4 * MetricsWriter::kWaitingMax; ++i) (*writer)->Append({std::string(65536, 'x')});
    std::jthread disk([&](const std::stop_token& over) {  // it answers again: the writer may end
      std::string some(1 << 20, ' ');
      while (!over.stop_requested()) (void)!::read(reader, some.data(), some.size());
    });
    writer->reset();
  }
  ::close(reader);
  std::filesystem::remove(path);
}

TEST(Metrics, FileErrorsNameThePath) {
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
