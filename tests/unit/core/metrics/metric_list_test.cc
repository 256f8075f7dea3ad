// Shows how metrics are written as members of a line of metrics.jsonl, and are sent as counters of a heartbeat.
#include "core/metrics/metric_list.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace tarn {
namespace {

std::string TextOf(const MetricList& list) {
  Json json = Json::object();
  list.WriteTo(&json);
  return JsonText(json);
}

TEST(MetricList, WholeNumbersStayWhole) {
  MetricList list;
  list.Add(ShardMetric("pulls"), std::uint64_t{18'000'000'000'000'000'001u}).Add(SchedulerMetric("loss"), 0.25);
  EXPECT_EQ(TextOf(list), R"({"pulls":18000000000000000001,"loss":0.25})");
}

TEST(MetricList, ValuesByALabelAreAnObject) {
  MetricList list;
  list.AddBy(ShardMetric("rows_not_finite_by_table"), {{"a", 1u}, {"b", 2.5}}).AddBy(WorkerMetric("cpu_seconds"), {});
  EXPECT_EQ(TextOf(list), R"({"rows_not_finite_by_table":{"a":1,"b":2.5},"cpu_seconds":{}})");
}

TEST(MetricList, MetricsOnlyForHttpAreLeftOut) {
  MetricList list;
  list.AddHistogram(WorkerMetric("staleness_clocks"), {1, 2}).AddBy(SchedulerMetric("state"), {{"train", 1}});
  EXPECT_EQ(TextOf(list), "{}");
  ASSERT_EQ(list.metrics().size(), 2u);
  EXPECT_EQ(list.metrics()[0].counts, (std::vector<std::uint64_t>{1, 2}));
}

TEST(MetricList, FieldsAreWrittenUnderTheirMetrics) {
  struct Counts {
    std::uint64_t pulls = 3, pushes = 4;
  };
  constexpr MetricField<Counts> kFields[] = {{ShardMetric("pushes"), &Counts::pushes},
                                             {ShardMetric("pulls"), &Counts::pulls}};
  static_assert(BindsAll(kFields));
  EXPECT_EQ(TextOf(MetricList().AddFields(kFields, Counts())), R"({"pushes":4,"pulls":3})");
}

TEST(MetricList, ReadsTheCountersOfHeartbeats) {
  MetricList list;
  list.Add(WorkerMetric("batches"), 7)
      .AddBy(WorkerMetric("stage_seconds"), {{"pull", 1.5}, {"push", 2}})
      .AddHistogram(WorkerMetric("staleness_clocks"), {1})
      .Add(WorkerMetric("loss_sum"), 0.5);
  std::vector<Counter> counters = list.ToCounters();
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[1].name, "stage_seconds.pull");
  EXPECT_EQ(TextOf(MetricList().AddCounters(kOfWorker, counters)),
            R"({"batches":7,"stage_seconds":{"pull":1.5,"push":2},"loss_sum":0.5})");
}

TEST(MetricList, CountersOfOneMetricNeedNotBeAdjacent) {
  const std::vector<Counter> counters = {{"cpu_seconds.push", 1}, {"batches", 7}, {"cpu_seconds.loop", 2}};
  EXPECT_EQ(TextOf(MetricList().AddCounters(kOfWorker, counters)),
            R"({"cpu_seconds":{"push":1,"loop":2},"batches":7})");
}

TEST(MetricList, IgnoresUnknownCounters) {
  const std::vector<Counter> counters = {
      {"pulls_parked", 1}, {"batches.x", 2}, {"stage_seconds", 3}, {"", 4}, {".", 5}};
  EXPECT_EQ(TextOf(MetricList().AddCounters(kOfWorker, counters)), "{}");
}

TEST(MetricValue, OfACounterIsAnIntegerIfWholeAndBelow2To53) {
  for (const auto& [value, text] : {std::pair{3.0, "3"}, {0.5, "0.5"}, {-1.0, "-1.0"}, {1e18, "1e+18"}})
    EXPECT_EQ(TextOf(MetricList().Add(WorkerMetric("loss_sum"), MetricValue::OfCounter(value))),
              std::string(R"({"loss_sum":)") + text + "}");
}

}  // namespace
}  // namespace tarn
