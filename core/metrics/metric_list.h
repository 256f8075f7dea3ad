// What a process measures of itself, as values of the metrics that core/metrics/metric_table.h declares.
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

// The name of a metric in heartbeats: NAME, or NAME.VALUE for a value of its label.
std::string CounterName(const MetricSpec* spec, std::string_view label = {});

// A whole number stays one in JSON.
class MetricValue {
 public:
  template <std::integral T>
  MetricValue(T value) : value_(static_cast<std::uint64_t>(value)) {}  // not negative
  MetricValue(double value) : value_(value) {}
  // As heartbeats carry it: a double that is a whole number below 2^53 is one.
  static MetricValue OfCounter(double value);

  double AsDouble() const {
    return std::visit([](auto value) { return static_cast<double>(value); }, value_);
  }
  const std::variant<std::uint64_t, double>& variant() const { return value_; }

 private:
  std::variant<std::uint64_t, double> value_;
};

using LabelledValues = std::vector<std::pair<std::string, MetricValue>>;  // value of the label, and the metric's

struct Metric {
  const MetricSpec* spec;             // never null
  LabelledValues values;              // without a label: one, of the label ""
  std::vector<std::uint64_t> counts;  // histogram: counts[i] is how often i was observed
};

class MetricList {
 public:
  MetricList& Add(const MetricSpec* spec, MetricValue value) { return AddBy(spec, {{"", value}}); }
  // One value for each value of the metric's label.
  MetricList& AddBy(const MetricSpec* spec, LabelledValues values);
  MetricList& AddHistogram(const MetricSpec* spec, std::vector<std::uint64_t> counts);
  // Each field under its metric.
  template <typename Struct, std::size_t n>
  MetricList& AddFields(const MetricField<Struct> (&fields)[n], const Struct& values) {
    for (const MetricField<Struct>& each : fields) Add(each.metric, values.*each.field);
    return *this;
  }
  // What ToCounters has made of metrics of `of`, from a heartbeat. Names that are not in the table are left out.
  MetricList& AddCounters(unsigned of, std::span<const Counter> counters);
  MetricList& Append(const MetricList& more);

  // As heartbeats carry them, under their CounterName. Histograms are left out.
  std::vector<Counter> ToCounters() const;
  // Adds a member for each metric that metrics.jsonl shows; for metrics by a label that is an object with a member for
  // each of the label's values.
  void WriteTo(nlohmann::ordered_json* object) const;

  const std::vector<Metric>& metrics() const { return metrics_; }

 private:
  std::vector<Metric> metrics_;
};

}  // namespace tarn
