// The numbers that a process shows: counters, gauges and histograms by name, for metrics.jsonl (one JSON object a
// second and role).
//
//   Metrics metrics;
//   Metrics::Counter& pulls = metrics.GetCounter("pulls");   // once; the reference stays valid
//   pulls.Add();                                             // from any thread, no lock
//   MetricsFile::Open(run_dir + "/metrics.jsonl")->Append(metrics.JsonLine("server-0", now));
//
// Names are those of the glossary, units last: "pull_bytes", "apply_seconds". GetX takes a lock: call it when the
// place that counts is made, not each time it counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/background.h"
#include "core/error.h"
#include "core/histogram.h"
#include "core/log.h"
#include "core/types.h"

namespace tarn {

class Metrics {
 public:
  // Only grows.
  class Counter {
   public:
    void Add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
    std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };

  // A level: the last value that was set.
  class Gauge {
   public:
    void Set(double value) { value_.store(value, std::memory_order_relaxed); }
    double value() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<double> value_{0};
  };

  // A histogram behind a lock of its own, which is uncontended but for the reader once a second.
  class SharedHistogram {
   public:
    void Add(std::uint64_t value, std::uint64_t times = 1);
    void Merge(const Histogram& other);
    Histogram Snapshot() const;

   private:
    mutable std::mutex mutex_;
    Histogram histogram_;
  };

  // The metric of that name, made at its first use. A name belongs to one kind.
  Counter& GetCounter(std::string_view name);
  Gauge& GetGauge(std::string_view name);
  SharedHistogram& GetHistogram(std::string_view name);

  // {"time_us":..,"role":"server-0","pulls":12,"rss_bytes":1e9,"staleness":{"count":..,"mean":..,...}} without a
  // line end; counters are totals since the start. Names in alphabetical order within a kind.
  std::string JsonLine(std::string_view role, TimeUs time) const;

 private:
  template <typename T>
  using ByName = std::map<std::string, std::unique_ptr<T>, std::less<>>;

  template <typename T>
  T& Get(ByName<T>& metrics, std::string_view name);

  mutable std::mutex mutex_;  // of the three maps, not of what they hold
  ByName<Counter> counters_;
  ByName<Gauge> gauges_;
  ByName<SharedHistogram> histograms_;
};

// A file of JSON lines to which several processes may append at once: every line is one write.
class MetricsFile {
 public:
  // Appends to the file, makes it if it is not there. kIo, naming the path.
  static Expected<MetricsFile> Open(const std::string& path);

  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;
  ~MetricsFile();

  // Writes the line and its end. kIo.
  Status Append(std::string_view line);

 private:
  MetricsFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// The same for those who must not wait for a disk: a thread of its own writes the lines. The run is worth more than its
// metrics: what cannot be written is logged, and what finds kWaitingMax calls before it is dropped. Any thread.
class MetricsWriter {
 public:
  static constexpr std::size_t kWaitingMax = 64;

  static Expected<std::unique_ptr<MetricsWriter>> Open(const std::string& path);
  explicit MetricsWriter(MetricsFile file) : file_(std::move(file)) {}

  // Returns at once.
  void Append(std::vector<std::string> lines);

 private:
  MetricsFile file_;
  LogLimiter limiter_;
  Background disk_{"metrics", kWaitingMax};
};

}  // namespace tarn
