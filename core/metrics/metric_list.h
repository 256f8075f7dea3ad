// The metrics of a process: values of the metrics declared in core/metrics/metric_table.h.
//
//   MetricList list;
//   list.Add(ShardMetric("rows"), store.row_count()).AddFields(kShardMetrics, counters);
//   list.WriteTo(&json);                          // "rows": 3, "pulls": 12
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/message.h"
#include "core/metrics/metric_table.h"

namespace tarn {

// The name of a metric in heartbeats: NAME, or NAME.LABEL for one value of its label.
std::string CounterName(const MetricSpec* spec, std::string_view label = {});

// The value of a metric. Integers remain integers in JSON.
class MetricValue {
 public:
  template <std::integral T>
  MetricValue(T value) : value_(static_cast<std::uint64_t>(value)) {}  // not negative
  MetricValue(double value) : value_(value) {}
  // From a heartbeat: a double that is a whole number below 2^53 becomes an integer.
  static MetricValue OfCounter(double value);

  double AsDouble() const {
    return std::visit([](auto value) { return static_cast<double>(value); }, value_);
  }
  const std::variant<std::uint64_t, double>& variant() const { return value_; }

 private:
  std::variant<std::uint64_t, double> value_;
};

using LabelledValues =
    std::vector<std::pair<std::string, MetricValue>>;  // the value of the label, and the metric's value

struct Metric {
  const MetricSpec* spec;             // never null
  LabelledValues values;              // without a label: one entry with the label ""
  std::vector<std::uint64_t> counts;  // histogram: counts[i] is the number of observations of i
};

class MetricList {
 public:
  MetricList& Add(const MetricSpec* spec, MetricValue value) { return AddBy(spec, {{"", value}}); }
  // One value per value of the metric's label.
  MetricList& AddBy(const MetricSpec* spec, LabelledValues values);
  MetricList& AddHistogram(const MetricSpec* spec, std::vector<std::uint64_t> counts);
  // Adds each field as its metric.
  template <typename Struct, std::size_t n>
  MetricList& AddFields(const MetricField<Struct> (&fields)[n], const Struct& values) {
    for (const MetricField<Struct>& each : fields) Add(each.metric, values.*each.field);
    return *this;
  }
  // The inverse of ToCounters, for the metrics of the reporters `of`. Ignores names that are not in the table.
  MetricList& AddCounters(unsigned of, std::span<const Counter> counters);
  MetricList& Append(const MetricList& more);

  // The metrics for a heartbeat, by CounterName, without histograms.
  std::vector<Counter> ToCounters() const;
  // Adds a member for each metric of metrics.jsonl. A metric with a label becomes an object with a member per label
  // value.
  void WriteTo(nlohmann::ordered_json* object) const;

  const std::vector<Metric>& metrics() const { return metrics_; }

 private:
  std::vector<Metric> metrics_;
};

}  // namespace tarn
