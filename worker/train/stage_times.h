// The wall time of a worker's pipeline by stage, from its first lease on. docs/run.md describes the report of it.
//
//   reader's thread   reads and plans, or waits for room because enough batches are ready
//   training loop     computes and pushes, or waits for rows or for data; the rest of its time is spent on messages.
//                     While a GPU or a separate thread computes, the loop handles messages: that time counts as compute
//   pulls             overlap with both
#pragma once

#include <chrono>
#include <optional>

#include "core/metrics/metric_list.h"

namespace tarn::worker {

class StageTimes {
 public:
  // Seconds of the training loop since Start: it computes, pushes, waits for messages with batches in flight
  // (await_rows) or waits without any (await_data).
  double compute = 0, push = 0, await_rows = 0, await_data = 0;

  // Starts the wall time. Later calls have no effect.
  void Start() {
    if (!begin_) begin_ = std::chrono::steady_clock::now();
  }
  bool started() const { return begin_.has_value(); }

  // What other threads and stages have measured, in seconds.
  struct Others {
    double read = 0, plan = 0, await_room = 0;  // of the reader's thread
    double pulls = 0;                           // with at least one pull in progress
  };
  // By stage, for the metric "stage_seconds".
  LabelledValues Seconds(const Others& others) const {
    std::chrono::duration<double> wall{0};
    if (begin_) wall = std::chrono::steady_clock::now() - *begin_;
    return {{"read", others.read},    {"plan", others.plan}, {"room", others.await_room},
            {"flight", others.pulls}, {"pull", await_rows},  {"compute", compute},
            {"push", push},           {"wait", await_data},  {"wall", wall.count()}};
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> begin_;
};

}  // namespace tarn::worker
