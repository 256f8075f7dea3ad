// Shows how metrics become members of a line of metrics.jsonl.
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
  list.Counter("pulls", "help", std::uint64_t{18'000'000'000'000'000'001u}).Gauge("loss", "help", 0.25);
  EXPECT_EQ(TextOf(list), R"({"pulls":18000000000000000001,"loss":0.25})");
}

TEST(MetricList, ValuesByALabelAreAnObject) {
  MetricList list;
  list.CounterBy("table", "rows_by_table", "help", {{"a", 1u}, {"b", 2.5}}).GaugeBy("stage", "seconds", "help", {});
  EXPECT_EQ(TextOf(list), R"({"rows_by_table":{"a":1,"b":2.5}})");
}

TEST(MetricList, HistogramsAreLeftOut) {
  MetricList list;
  list.Histogram("staleness_clocks", "help", {1, 2});
  EXPECT_EQ(TextOf(list), "{}");
  ASSERT_EQ(list.metrics().size(), 1u);
  EXPECT_EQ(list.metrics()[0].counts, (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace tarn
