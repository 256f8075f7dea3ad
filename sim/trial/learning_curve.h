// The learning curve of a trial: the mean loss over simulated time, as the text of curve.csv. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace tarn::sim {

// Sums over all workers since the start.
struct CurvePoint {
  double simulated_seconds = 0;
  std::uint64_t samples = 0;  // trained, over all epochs
  std::uint64_t bytes = 0;    // sent by all nodes
  double loss_sum = 0;
  std::uint64_t loss_rows = 0;
};

class LearningCurve {
 public:
  // Whether the next point is due: about a two-hundredth of the job's samples were trained since the previous one.
  bool IsDue(std::uint64_t samples) const { return samples >= next_samples_; }
  // Adds a line: simulated seconds, samples, bytes, and the mean loss since the previous line. Without a loss since
  // then, adds none. `total`: the samples of the whole job.
  void Add(const CurvePoint& point, std::uint64_t total);
  const std::string& csv() const { return csv_; }

 private:
  std::uint64_t next_samples_ = 0;
  CurvePoint last_;  // of the last line
  std::string csv_ = "seconds,samples,bytes,loss\n";
};

}  // namespace tarn::sim
