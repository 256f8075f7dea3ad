// What a process measures of itself, as values: each metric is named here once, and metrics.jsonl and /metrics of the
// process's HTTP server (net/http/) show it under that name.
//
//   MetricList list;
//   list.Counter("pulls", "Pulls answered", counters.pulls).Gauge("rows", "Rows now", store.row_count());
//   list.WriteTo(&json);                          // "pulls": 12, "rows": 3
//
// Names are snake_case with the unit last, without "total": /metrics appends it to counters.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tarn {

enum class MetricKind : std::uint8_t { kCounter, kGauge, kHistogram };

// A whole number stays one in JSON.
class MetricValue {
 public:
  template <std::integral T>
  MetricValue(T value) : value_(static_cast<std::uint64_t>(value)) {}  // not negative
  MetricValue(double value) : value_(value) {}

  double AsDouble() const {
    return std::visit([](auto value) { return static_cast<double>(value); }, value_);
  }
  const std::variant<std::uint64_t, double>& variant() const { return value_; }

 private:
  std::variant<std::uint64_t, double> value_;
};

struct Metric {
  MetricKind kind = MetricKind::kGauge;
  std::string name;
  std::string help;                                         // one line
  std::string label;                                        // that tells `values` apart; empty: there is one value
  std::vector<std::pair<std::string, MetricValue>> values;  // value of the label, and the metric's
  std::vector<std::uint64_t> counts;                        // histogram: counts[i] is how often i was observed
};

class MetricList {
 public:
  // Grows only, from the start of the process.
  MetricList& Counter(std::string_view name, std::string_view help, MetricValue value);
  MetricList& Gauge(std::string_view name, std::string_view help, MetricValue value);
  // One value for each value of `label`.
  MetricList& CounterBy(std::string_view label, std::string_view name, std::string_view help,
                        std::vector<std::pair<std::string, MetricValue>> values);
  MetricList& GaugeBy(std::string_view label, std::string_view name, std::string_view help,
                      std::vector<std::pair<std::string, MetricValue>> values);
  // counts[i]: how often i was observed.
  MetricList& Histogram(std::string_view name, std::string_view help, std::vector<std::uint64_t> counts);

  // Adds a member for each metric; for metrics by a label that is an object with a member for each of the label's
  // values. Histograms and metrics by a label that has no values are left out.
  void WriteTo(nlohmann::ordered_json* object) const;

  const std::vector<Metric>& metrics() const { return metrics_; }

 private:
  std::vector<Metric> metrics_;
};

}  // namespace tarn
