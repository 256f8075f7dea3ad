// Figures that a program reports: its lines of metrics.jsonl. Internal to worker/; Client::Report of worker/tarn.h is
// the interface.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/metrics/metrics_file.h"
#include "core/types.h"

namespace tarn::worker {

using Figure = std::pair<std::string, double>;  // name and value

// Of one worker. Any thread.
class Reports {
 public:
  static constexpr double kLineSeconds = 1;  // least time between lines, as in the other processes of a fleet

  // run_dir: the folder of metrics.jsonl; empty: nothing is written.
  Reports(std::uint32_t rank, std::string run_dir) : rank_(rank), run_dir_(std::move(run_dir)) {}

  // Adds figures, and writes a line with the mean of each if the last line is a second old; null: it is not finite.
  // now: monotonic, in seconds. kInvalidArgument: a name is empty or that of a field of every line; then nothing is
  // added. Other errors: the file cannot be written.
  Status Add(Clock clock, std::span<const Figure> figures, double now);
  // Writes a line with the figures added since the last line, if any. Errors: the file cannot be written.
  Status Flush();

 private:
  struct Sum {
    std::string name;
    double sum = 0;
    std::uint64_t count = 0;
  };
  Status Write();

  const std::uint32_t rank_;
  const std::string run_dir_;
  std::mutex mutex_;
  std::optional<MetricsFile> file_;  // open from the first line on
  std::vector<Sum> sums_;            // since the last line, in the order in which they were reported first
  Clock clock_;
  std::optional<double> written_;  // time of the last line
};

}  // namespace tarn::worker
