// Shows how reports become Prometheus' text format.
#include "net/http/prometheus_text.h"

#include <gtest/gtest.h>

namespace tarn::net {
namespace {

StatusReport Report(std::string rank, std::uint64_t pulls) {
  StatusReport report{.prefix = "tarn_shard_", .role = "shard", .rank = std::move(rank), .ready = true};
  report.metrics.Counter("pulls", "Pulls answered", pulls);
  return report;
}

TEST(PrometheusTextTest, AFamilyIsWrittenOnceForAllReports) {
  const StatusReport first = Report("0", 12), second = Report("1", 13);
  const StatusReport* reports[] = {&first, &second};
  EXPECT_EQ(PrometheusText("mine", reports),
            "# HELP tarn_shard_pulls_total Pulls answered\n"
            "# TYPE tarn_shard_pulls_total counter\n"
            "tarn_shard_pulls_total{run=\"mine\",role=\"shard\",rank=\"0\"} 12\n"
            "tarn_shard_pulls_total{run=\"mine\",role=\"shard\",rank=\"1\"} 13\n");
}

TEST(PrometheusTextTest, LabelsAreEscapedAndEmptyOnesLeftOut) {
  StatusReport report{.prefix = "tarn_shard_"};
  report.metrics.GaugeBy("table", "rows_by_table", "Rows", {{"a \"b\"\n\\", 3u}})
      .CounterBy("table", "none", "None", {});
  const StatusReport* reports[] = {&report};
  EXPECT_EQ(PrometheusText("", reports),
            "# HELP tarn_shard_rows_by_table Rows\n"
            "# TYPE tarn_shard_rows_by_table gauge\n"
            "tarn_shard_rows_by_table{table=\"a \\\"b\\\"\\n\\\\\"} 3\n");
}

TEST(PrometheusTextTest, NumbersReadBackAsTheSame) {
  StatusReport report{.prefix = "x_"};
  report.metrics.Gauge("a", "A", 0.1).Gauge("b", "B", 1767225600.123).Gauge("c", "C", std::uint64_t{1} << 53);
  const StatusReport* reports[] = {&report};
  const std::string text = PrometheusText("", reports);
  EXPECT_NE(text.find("x_a 0.1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("x_b 1767225600.123\n"), std::string::npos) << text;
  EXPECT_NE(text.find("x_c 9007199254740992\n"), std::string::npos) << text;
}

TEST(PrometheusTextTest, AReportWithATimeHasItAndWhetherItIsReady) {
  StatusReport report{.prefix = "x_", .ready = true, .unix_seconds = 2.5};
  const StatusReport* reports[] = {&report};
  const std::string text = PrometheusText("", reports);
  EXPECT_NE(text.find("x_ready 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("x_updated_timestamp_seconds 2.5\n"), std::string::npos) << text;
}

TEST(PrometheusTextTest, AHistogramIsCumulative) {
  StatusReport report{.prefix = "tarn_worker_", .role = "worker"};
  std::vector<std::uint64_t> counts(1030);
  counts[0] = 5, counts[1] = 4, counts[5] = 3, counts[6] = 2, counts[1024] = 1, counts[1029] = 7;
  report.metrics.Histogram("staleness_clocks", "Staleness", counts);
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
  StatusReport report{.prefix = "x_"};
  report.metrics.Histogram("h", "H", {});
  const StatusReport* reports[] = {&report};
  EXPECT_NE(PrometheusText("", reports).find("x_h_bucket{le=\"+Inf\"} 0\n"), std::string::npos);
}

}  // namespace
}  // namespace tarn::net
