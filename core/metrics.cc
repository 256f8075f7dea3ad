#include "core/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace tarn {

void Metrics::SharedHistogram::Add(std::uint64_t value, std::uint64_t times) {
  const std::lock_guard lock(mutex_);
  histogram_.Add(value, times);
}

void Metrics::SharedHistogram::Merge(const Histogram& other) {
  const std::lock_guard lock(mutex_);
  histogram_.Merge(other);
}

Histogram Metrics::SharedHistogram::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return histogram_;
}

template <typename T>
T& Metrics::Get(ByName<T>& metrics, std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto found = metrics.find(name);
  if (found == metrics.end()) found = metrics.emplace(std::string(name), std::make_unique<T>()).first;
  return *found->second;
}

Metrics::Counter& Metrics::GetCounter(std::string_view name) { return Get(counters_, name); }
Metrics::Gauge& Metrics::GetGauge(std::string_view name) { return Get(gauges_, name); }
Metrics::SharedHistogram& Metrics::GetHistogram(std::string_view name) { return Get(histograms_, name); }

std::string Metrics::JsonLine(std::string_view role, TimeUs time) const {
  JsonWriter json;
  json.BeginObject().Member("time_us", time).Member("role", role);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, counter] : counters_) json.Member(name, counter->value());
  for (const auto& [name, gauge] : gauges_) json.Member(name, gauge->value());
  for (const auto& [name, histogram] : histograms_) {
    json.Key(name);
    histogram->Snapshot().WriteJson(json);
  }
  json.EndObject();
  return json.text();
}

Expected<MetricsFile> MetricsFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return std::unexpected(SystemError(path, "open", errno));
  return MetricsFile(fd, path);
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

MetricsFile& MetricsFile::operator=(MetricsFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status MetricsFile::Append(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  ssize_t written;
  do {
    written = ::write(fd_, bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return std::unexpected(SystemError(path_, "write", errno));
  // A second write could land inside another process's line.
  if (std::size_t(written) != bytes.size()) return Fail(ErrorCode::kIo, path_ + ": line cut short: disk full?");
  return {};
}

Expected<std::unique_ptr<MetricsWriter>> MetricsWriter::Open(const std::string& path) {
  auto file = MetricsFile::Open(path);
  if (!file) return std::unexpected(file.error());
  return std::make_unique<MetricsWriter>(*std::move(file));
}

void MetricsWriter::Append(std::vector<std::string> lines) {
  disk_.Do([this, lines = std::move(lines)] {
    for (const std::string& line : lines)
      if (const Status status = file_.Append(line); !status) LogWarning(limiter_, "{}", status.error().message);
  });
}

}  // namespace tarn
