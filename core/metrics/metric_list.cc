#include "core/metrics/metric_list.h"

#include <cmath>

#include "core/json.h"

namespace tarn {
namespace {

constexpr char kLabelMark = '.';                  // separates name and label value in heartbeats
constexpr double kWholeMax = 9007199254740992.0;  // 2^53

}  // namespace

std::string CounterName(const MetricSpec* spec, std::string_view label) {
  std::string name(spec->name);
  if (!spec->label.empty()) (name += kLabelMark) += label;
  return name;
}

MetricValue MetricValue::OfCounter(double value) {
  if (value >= 0 && value < kWholeMax && value == std::floor(value)) return static_cast<std::uint64_t>(value);
  return value;
}

MetricList& MetricList::AddBy(const MetricSpec* spec, LabelledValues values) {
  metrics_.push_back({spec, std::move(values), {}});
  return *this;
}

MetricList& MetricList::AddHistogram(const MetricSpec* spec, std::vector<std::uint64_t> counts) {
  metrics_.push_back({spec, {}, std::move(counts)});
  return *this;
}

MetricList& MetricList::AddCounters(unsigned of, std::span<const Counter> counters) {
  for (const Counter& counter : counters) {
    const std::string_view text = counter.name;
    const std::size_t mark = text.find(kLabelMark);
    const MetricSpec* spec = FindMetric(of, text.substr(0, mark));
    if (spec == nullptr || spec->label.empty() != (mark == text.npos)) continue;
    if (mark == text.npos || metrics_.empty() || metrics_.back().spec != spec) AddBy(spec, {});
    metrics_.back().values.emplace_back(mark == text.npos ? "" : text.substr(mark + 1),
                                        MetricValue::OfCounter(counter.value));
  }
  return *this;
}

MetricList& MetricList::Append(const MetricList& more) {
  metrics_.insert(metrics_.end(), more.metrics_.begin(), more.metrics_.end());
  return *this;
}

std::vector<Counter> MetricList::ToCounters() const {
  std::vector<Counter> counters;
  for (const Metric& metric : metrics_)
    for (const auto& [label, value] : metric.values)
      counters.push_back({CounterName(metric.spec, label), value.AsDouble()});
  return counters;
}

void MetricList::WriteTo(Json* object) const {
  const auto json_of = [](const MetricValue& value) {
    return std::visit([](auto number) { return Json(number); }, value.variant());
  };
  for (const Metric& metric : metrics_) {
    if (metric.spec->shown == MetricShown::kHttp) continue;
    Json& member = (*object)[std::string(metric.spec->name)];
    if (!metric.spec->label.empty() && member.is_null()) member = Json::object();
    for (const auto& [label, value] : metric.values)
      (metric.spec->label.empty() ? member : member[label]) = json_of(value);
  }
}

}  // namespace tarn
