// Repeated steps of a GPU, as CUDA graphs (kernels/graph.h): two batches of the same size need the same operations on
// different contents.
//
// A step is identified by all arguments of its operations: the model's view of each part of the batch, including
// addresses, and the version of the stream's memory. At its first occurrence the operations are submitted one by one:
// memory grows and kernels are loaded. At the second occurrence the step is recorded, which takes the caller about as
// long as submitting it; from then on it is a single launch. If the algorithms of its matrix products have not been
// measured yet, the second occurrence measures them and the third is recorded. Steps that occur only once, as with data
// whose rows have varying numbers of keys, are never recorded. A step excludes the operations that vary between
// batches: the number of pulled rows is rounded up (TableView::unique), and StepArrays copies the rows and zeroes,
// clips and copies back their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "kernels/graph.h"
#include "worker/models/model.h"

namespace tarn::worker {

// Result of submitting a step to the compute device.
struct StepOutcome {
  std::size_t activation_bytes = 0;   // of the largest part
  std::size_t rows_without_room = 0;  // of the part whose activations did not fit; 0: all did
};

// Belongs to the stream's thread.
class StepGraphs {
 public:
  // The most recently used graphs are kept. Typically needed: one for a full training batch, one for a full evaluation
  // batch and one for the last batch of a set, for each set of arrays (Stepper::kStepsOnGpu).
  static constexpr std::size_t kGraphsMax = 8;

  // The stream outlives this object. Fewer than kGraphsMax steps are in progress at a time.
  explicit StepGraphs(kernels::Stream* stream) : stream_(*stream) {}
  ~StepGraphs() { (void)stream_.Wait(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Executes the step over these parts: calls `step`, which submits all operations to the stream, or launches the
  // recorded graph. If CUDA cannot record a step, logs this once and calls `step` from then on.
  StepOutcome Run(std::span<const StepInput> parts, const std::function<StepOutcome()>& step);

  std::uint64_t launched() const { return launched_; }

 private:
  using Key = std::vector<std::uint64_t>;
  struct Known {
    explicit Known(kernels::Stream* stream) : graph(stream) {}
    Key key;
    kernels::Graph graph;
    bool recorded = false;
    StepOutcome outcome;
    std::uint64_t used = 0;
  };

  Key KeyOf(std::span<const StepInput> parts);
  Known* Find(const Key& key);
  void Remember(Key key);
  bool Record(const std::function<StepOutcome()>& step, Known* known);

  kernels::Stream& stream_;
  std::deque<Known> known_;
  std::uint64_t steps_ = 0, launched_ = 0;
  bool off_ = false;
};

}  // namespace tarn::worker
