// Shows that a shard's metrics are written to the file and the feed once a second.
#include "server/shard_reporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/metrics/metric_table.h"

namespace tarn::server {
namespace {

TEST(ShardReporterTest, PublishesInTheFileAndTheFeed) {
  const auto path = (std::filesystem::path(testing::TempDir()) / ("tarn-report-" + std::to_string(getpid()))).string();
  const auto feed = std::make_shared<StatusFeed>();
  {
    DiskPool pool;
    auto file = MetricsWriter::Open(&pool, path);
    ASSERT_TRUE(file);
    ShardReporter reporter(ShardId(3), file->get(), feed);
    ASSERT_TRUE(reporter.IsDue(0));
    MetricList metrics;
    metrics.Add(ShardMetric("rows"), 12u);
    reporter.Publish(0, 1.5, true, std::move(metrics));
    EXPECT_FALSE(reporter.IsDue(999'999));
    EXPECT_TRUE(reporter.IsDue(1'000'000));
  }
  const StatusReport* report = feed->Latest();
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->role + report->rank, "shard3");
  EXPECT_TRUE(report->ready);
  const auto line = nlohmann::json::parse(*ReadFile(path, 1 << 10));
  EXPECT_EQ(line["time"], 1.5);
  EXPECT_EQ(line["role"], "shard");
  EXPECT_EQ(line["rank"], 3);
  EXPECT_EQ(line["rows"], 12);
  std::filesystem::remove(path);
}

TEST(ShardReporterTest, WorksWithoutAFileAndAFeed) {
  ShardReporter reporter(ShardId(3), nullptr, nullptr);
  reporter.Publish(5, 1.5, true, {});
  EXPECT_FALSE(reporter.IsDue(6));
}

}  // namespace
}  // namespace tarn::server
