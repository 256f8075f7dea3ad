// Shows under which names a worker's counters are published, and as what.
#include "worker/train/worker_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/client/client.h"
#include "worker/train/stage_times.h"
#include "worker/train/training_counts.h"

namespace tarn::worker {
namespace {

const Metric* Find(const MetricList& list, std::string_view name) {
  const auto found = std::ranges::find(list.metrics(), name, &Metric::name);
  return found == list.metrics().end() ? nullptr : &*found;
}

TEST(WorkerMetrics, StagesAreOneMetric) {
  const std::vector<Counter> counters = {{"stage.pull_seconds", 1.5}, {"batches", 7}, {"stage.push_seconds", 2}};
  const MetricList list = WorkerMetrics(counters, Clock(9), {4, 5});
  const Metric* stages = Find(list, "stage_seconds");
  ASSERT_NE(stages, nullptr);
  EXPECT_EQ(stages->label, "stage");
  ASSERT_EQ(stages->values.size(), 2u);
  EXPECT_EQ(stages->values[0].first, "pull");
  EXPECT_EQ(stages->values[1].second.AsDouble(), 2);
  ASSERT_NE(Find(list, "batches"), nullptr);
  EXPECT_EQ(Find(list, "batches")->kind, MetricKind::kCounter);
  EXPECT_EQ(Find(list, "clock")->values[0].second.AsDouble(), 9);
  EXPECT_EQ(Find(list, "staleness_clocks")->counts, (std::vector<std::uint64_t>{4, 5}));
}

TEST(WorkerMetrics, EveryCounterOfAWorkerHasAHelpOfItsOwn) {
  std::vector<Counter> counters = MetricsOf(ClientCounters());
  for (const auto& more : {TrainingCounts().Metrics(0), StageTimes().Metrics({})})
    counters.insert(counters.end(), more.begin(), more.end());
  const MetricList list = WorkerMetrics(counters, Clock(0), {});
  for (const Metric& metric : list.metrics()) EXPECT_NE(metric.help, "A counter of heartbeats") << metric.name;
  EXPECT_EQ(Find(list, "residual_rows")->kind, MetricKind::kGauge);
  EXPECT_EQ(Find(list, "cpu_seconds")->values.size(), 3u);
}

}  // namespace
}  // namespace tarn::worker
