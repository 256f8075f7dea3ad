// Shows how reports are written in Prometheus' text format.
#include "net/http/prometheus_text.h"

#include <gtest/gtest.h>

namespace tarn::net {
namespace {

StatusReport Report(std::string rank, std::uint64_t pulls) {
  StatusReport report{.role = "shard", .rank = std::move(rank), .ready = true};
  report.metrics.Add(ShardMetric("pulls"), pulls);
  return report;
}

TEST(PrometheusTextTest, AFamilyIsWrittenOnceForAllReports) {
  const StatusReport first = Report("0", 12), second = Report("1", 13);
  const StatusReport* reports[] = {&first, &second};
  EXPECT_EQ(PrometheusText("mine", reports),
            "# HELP tarn_shard_pulls_total Pull messages answered\n"
            "# TYPE tarn_shard_pulls_total counter\n"
            "tarn_shard_pulls_total{run=\"mine\",role=\"shard\",rank=\"0\"} 12\n"
            "tarn_shard_pulls_total{run=\"mine\",role=\"shard\",rank=\"1\"} 13\n");
}

TEST(PrometheusTextTest, LabelsAreEscapedAndEmptyOnesLeftOut) {
  StatusReport report{.role = "shard"};
  report.metrics.AddBy(ShardMetric("rows_not_finite_by_table"), {{"a \"b\"\n\\", 3u}})
      .AddBy(WorkerMetric("stage_seconds"), {});
  const StatusReport* reports[] = {&report};
  EXPECT_EQ(
      PrometheusText("", reports),
      "# HELP tarn_shard_rows_not_finite_by_table_total rows_not_finite of each table; only tables with such rows\n"
      "# TYPE tarn_shard_rows_not_finite_by_table_total counter\n"
      "tarn_shard_rows_not_finite_by_table_total{role=\"shard\",table=\"a \\\"b\\\"\\n\\\\\"} 3\n");
}

TEST(PrometheusTextTest, NumbersAreReadBackExactly) {
  StatusReport report{.role = "scheduler"};
  report.metrics.Add(SchedulerMetric("auc"), 0.1)
      .Add(SchedulerMetric("eta_seconds"), 1767225600.123)
      .Add(SchedulerMetric("clock"), std::uint64_t{1} << 53);
  const StatusReport* reports[] = {&report};
  const std::string text = PrometheusText("", reports);
  EXPECT_NE(text.find("tarn_scheduler_auc{role=\"scheduler\"} 0.1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tarn_scheduler_eta_seconds{role=\"scheduler\"} 1767225600.123\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tarn_scheduler_clock{role=\"scheduler\"} 9007199254740992\n"), std::string::npos) << text;
}

TEST(PrometheusTextTest, AReportWithATimeHasTheTimeAndReadiness) {
  StatusReport report{.role = "shard", .ready = true, .unix_seconds = 2.5};
  const StatusReport* reports[] = {&report};
  const std::string text = PrometheusText("", reports);
  EXPECT_NE(text.find("tarn_shard_ready{role=\"shard\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tarn_shard_updated_timestamp_seconds{role=\"shard\"} 2.5\n"), std::string::npos) << text;
}

TEST(PrometheusTextTest, WritesTheMetricsOfTheProcessAndOfFilesAlone) {
  StatusReport report{.role = "worker"};
  report.metrics.Add(ProcessMetric("open_fds"), 9).Add(WorkerMetric("waiting_share"), 0.5);
  const StatusReport* reports[] = {&report};
  EXPECT_EQ(PrometheusText("", reports),
            "# HELP process_open_fds Open file descriptors\n"
            "# TYPE process_open_fds gauge\n"
            "process_open_fds{role=\"worker\"} 9\n");
}

TEST(PrometheusTextTest, AHistogramIsCumulative) {
  StatusReport report{.role = "worker"};
  std::vector<std::uint64_t> counts(1030);
  counts[0] = 5, counts[1] = 4, counts[5] = 3, counts[6] = 2, counts[1024] = 1, counts[1029] = 7;
  report.metrics.AddHistogram(WorkerMetric("staleness_clocks"), counts);
  const StatusReport* reports[] = {&report};
  const std::string text = PrometheusText("", reports);
  for (const char* line :
       {"# TYPE tarn_worker_staleness_clocks histogram\n", "tarn_worker_staleness_clocks_count{role=\"worker\"} 22\n",
        "tarn_worker_staleness_clocks_sum{role=\"worker\"} 8258\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"0\"} 5\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"1\"} 9\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"4\"} 9\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"6\"} 14\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"512\"} 14\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"1024\"} 15\n",
        "tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"+Inf\"} 22\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(PrometheusTextTest, AnEmptyHistogramHasItsBuckets) {
  StatusReport report{.role = "worker"};
  report.metrics.AddHistogram(WorkerMetric("staleness_clocks"), {});
  const StatusReport* reports[] = {&report};
  EXPECT_NE(PrometheusText("", reports).find("tarn_worker_staleness_clocks_bucket{role=\"worker\",le=\"+Inf\"} 0\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tarn::net
