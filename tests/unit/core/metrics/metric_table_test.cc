// Shows that names in the table of metrics are unique and well-formed, and that docs/run.md has exactly this table.
#include "core/metrics/metric_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <string>

namespace tarn {
namespace {

static_assert(ShardMetric("pulls") != WorkerMetric("pulls"));
static_assert(FindMetric(kOfShard, "batches") == nullptr, "of another role");
static_assert(MetricIndex(kOfAll, "ready") == 0);
static_assert(FindMetric(kOfAll, "sent_bytes") == nullptr, "not of all");

// The scheduler also reports sums over nodes.
unsigned ReportersOf(const MetricSpec& spec) {
  return spec.of | (spec.shown == MetricShown::kSummed ? kOfScheduler : 0);
}

TEST(MetricTable, NoReporterHasTwoMetricsOfOneName) {
  for (const MetricSpec& one : metrics::kTable)
    for (const MetricSpec& other : metrics::kTable)
      EXPECT_TRUE(&one == &other || one.name != other.name || (ReportersOf(one) & ReportersOf(other)) == 0) << one.name;
}

TEST(MetricTable, IsWellFormed) {
  for (const MetricSpec& spec : metrics::kTable) {
    EXPECT_TRUE(std::ranges::all_of(spec.name, [](unsigned char c) { return std::islower(c) || c == '_'; }))
        << spec.name;
    EXPECT_FALSE(spec.name.ends_with("_total")) << spec.name;
    EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(spec.help.front()))) << spec.name;
    EXPECT_EQ(spec.help.find_first_of("\n|\\`"), std::string_view::npos) << spec.name;
    EXPECT_NE(spec.help.back(), '.') << spec.name;
    EXPECT_NE(spec.of, 0u) << spec.name;
    EXPECT_TRUE(spec.kind != MetricKind::kHistogram || spec.shown == MetricShown::kHttp) << spec.name;
    EXPECT_TRUE(spec.shown != MetricShown::kSummed || spec.of == kOfWorker || spec.of == kOfShard) << spec.name;
  }
}

std::string KindOf(const MetricSpec& spec) {
  constexpr const char* kNames[] = {"counter", "gauge", "histogram"};
  const std::string kind = kNames[static_cast<std::size_t>(spec.kind)];
  return spec.label.empty() ? kind : kind + " by `" + std::string(spec.label) + "`";
}

std::string ReportersText(const MetricSpec& spec) {
  constexpr std::pair<unsigned, const char*> kNames[] = {
      {kOfScheduler, "scheduler"}, {kOfShard, "shard"}, {kOfWorker, "worker"}, {kOfProcess, "process"}};
  std::string text;
  for (const auto& [of, name] : kNames)
    if ((spec.of & of) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  switch (spec.shown) {
    case MetricShown::kEverywhere: return text;
    case MetricShown::kSummed: return text + "; sum";
    case MetricShown::kFile: return text + "; file";
    case MetricShown::kHttp: return text + "; HTTP";
  }
  return text;
}

TEST(MetricTable, EqualsTheTableInTheDocumentation) {
  std::string expected = "| metric | kind | of | meaning |\n| --- | --- | --- | --- |\n";
  for (const MetricSpec& spec : metrics::kTable)
    expected += "| `" + std::string(spec.name) + "` | " + KindOf(spec) + " | " + ReportersText(spec) + " | " +
                std::string(spec.help) + " |\n";
  std::ifstream file(std::string(TARN_SOURCE_DIR) + "/docs/run.md");
  const std::string doc{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(doc.find("\n" + expected + "\n"), std::string::npos) << "docs/run.md, Metrics, should have:\n" << expected;
}

}  // namespace
}  // namespace tarn
