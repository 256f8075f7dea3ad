#include "net/http/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace tarn::net {
namespace {

constexpr std::uint64_t kBounds[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024};

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter: return prometheus::MetricType::Counter;
    case MetricKind::kGauge: return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram ToHistogram(const std::vector<std::uint64_t>& counts) {
  prometheus::ClientMetric::Histogram histogram;
  std::size_t next = 0;
  const auto add_until = [&](std::uint64_t last) {
    for (; next < counts.size() && next <= last; ++next) {
      histogram.sample_count += counts[next];
      histogram.sample_sum += static_cast<double>(next) * static_cast<double>(counts[next]);
    }
  };
  for (const std::uint64_t bound : kBounds) {
    add_until(bound);
    histogram.bucket.push_back({histogram.sample_count, static_cast<double>(bound)});
  }
  add_until(counts.size());
  histogram.bucket.push_back({histogram.sample_count, std::numeric_limits<double>::infinity()});
  return histogram;
}

std::vector<prometheus::ClientMetric::Label> LabelsOf(const std::string& run, const StatusReport& report) {
  std::vector<prometheus::ClientMetric::Label> labels;
  if (!run.empty()) labels.push_back({"run", run});
  if (!report.role.empty()) labels.push_back({"role", report.role});
  if (!report.rank.empty()) labels.push_back({"rank", report.rank});
  return labels;
}

// Families by name, so that each is written once even if several reports have it.
class Families {
 public:
  explicit Families(std::string run) : run_(std::move(run)) {}

  void Add(const StatusReport& report) {
    if (report.unix_seconds != 0) {
      MetricList own;
      own.Add(MetricOf(kOfAll, "ready"), report.ready ? 1 : 0);
      own.Add(MetricOf(kOfAll, "updated_timestamp_seconds"), report.unix_seconds);
      for (const Metric& metric : own.metrics()) AddMetric(report, metric);
    }
    for (const Metric& metric : report.metrics.metrics()) AddMetric(report, metric);
  }

  std::string Text() const {
    std::vector<prometheus::MetricFamily> families;
    families.reserve(families_.size());
    for (const auto& [name, family] : families_) families.push_back(family);
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  void AddMetric(const StatusReport& report, const Metric& metric) {
    const MetricSpec& spec = *metric.spec;
    if (spec.shown == MetricShown::kFile) return;
    if (metric.values.empty() && spec.kind != MetricKind::kHistogram) return;
    std::string name = spec.of == kOfProcess ? "process_" : "tarn_" + report.role + "_";
    name += spec.name;
    if (spec.kind == MetricKind::kCounter) name += "_total";
    prometheus::MetricFamily& family = families_[name];
    family.name = name;
    family.help = spec.help;
    family.type = TypeOf(spec.kind);
    if (spec.kind == MetricKind::kHistogram) {
      prometheus::ClientMetric& sample = AddSample(report, &family);
      sample.histogram = ToHistogram(metric.counts);
    }
    for (const auto& [label, value] : metric.values) {
      prometheus::ClientMetric& sample = AddSample(report, &family);
      if (!spec.label.empty()) sample.label.push_back({std::string(spec.label), label});
      (spec.kind == MetricKind::kCounter ? sample.counter.value : sample.gauge.value) = value.AsDouble();
    }
  }

  prometheus::ClientMetric& AddSample(const StatusReport& report, prometheus::MetricFamily* family) const {
    family->metric.emplace_back().label = LabelsOf(run_, report);
    return family->metric.back();
  }

  const std::string run_;
  std::map<std::string, prometheus::MetricFamily> families_;
};

}  // namespace

std::string PrometheusText(const std::string& run, std::span<const StatusReport* const> reports) {
  Families families(run);
  for (const StatusReport* report : reports) families.Add(*report);
  return families.Text();
}

}  // namespace tarn::net
