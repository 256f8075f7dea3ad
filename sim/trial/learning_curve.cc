#include "sim/trial/learning_curve.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::sim {
namespace {

constexpr std::uint64_t kPoints = 200;  // of a whole job

}  // namespace

// A point is also due at the last sample.
void LearningCurve::Add(const CurvePoint& point, std::uint64_t total) {
  next_samples_ =
      std::min(point.samples + std::max<std::uint64_t>(1, total / kPoints), std::max(point.samples + 1, total));
  const std::uint64_t rows = point.loss_rows - last_.loss_rows;
  if (rows == 0) return;
  csv_ += fmt::format("{:.6f},{},{},{:.9g}\n", point.simulated_seconds, point.samples, point.bytes,
                      (point.loss_sum - last_.loss_sum) / double(rows));
  last_ = point;
}

}  // namespace tarn::sim
