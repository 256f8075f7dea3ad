#include "core/metrics/metric_list.h"

#include "core/json.h"

namespace tarn {

MetricList& MetricList::Counter(std::string_view name, std::string_view help, MetricValue value) {
  return CounterBy("", name, help, {{"", value}});
}

MetricList& MetricList::Gauge(std::string_view name, std::string_view help, MetricValue value) {
  return GaugeBy("", name, help, {{"", value}});
}

MetricList& MetricList::CounterBy(std::string_view label, std::string_view name, std::string_view help,
                                  std::vector<std::pair<std::string, MetricValue>> values) {
  metrics_.push_back(
      {MetricKind::kCounter, std::string(name), std::string(help), std::string(label), std::move(values), {}});
  return *this;
}

MetricList& MetricList::GaugeBy(std::string_view label, std::string_view name, std::string_view help,
                                std::vector<std::pair<std::string, MetricValue>> values) {
  metrics_.push_back(
      {MetricKind::kGauge, std::string(name), std::string(help), std::string(label), std::move(values), {}});
  return *this;
}

MetricList& MetricList::Histogram(std::string_view name, std::string_view help, std::vector<std::uint64_t> counts) {
  metrics_.push_back({MetricKind::kHistogram, std::string(name), std::string(help), {}, {}, std::move(counts)});
  return *this;
}

void MetricList::WriteTo(Json* object) const {
  const auto json_of = [](const MetricValue& value) {
    return std::visit([](auto number) { return Json(number); }, value.variant());
  };
  for (const Metric& metric : metrics_)
    for (const auto& [label, value] : metric.values)
      (metric.label.empty() ? (*object)[metric.name] : (*object)[metric.name][label]) = json_of(value);
}

}  // namespace tarn
