// The steps of a GPU that come again and again, as graphs (kernels/graph.h): a batch of the size of the one before is
// the same work over other contents.
//
// A step is told by all that its operations are given: what the model sees of each part of the batch, addresses
// included, and the version of the stream's memory. The first time it is given to the GPU as it is: memory grows,
// kernels are loaded. When the same comes again it is recorded, which takes the caller about as long as giving it does,
// and from then on it is one launch; where algorithms of its matrix products have yet to be measured, that is done
// first, and the next one is recorded. Steps that never come again, of data whose rows have different numbers of keys,
// are never recorded. What differs from batch to batch is kept out of a step: how many rows were pulled is rounded up
// (TableView::unique), and they are brought, and their gradients zeroed, clipped and fetched, beside it (StepArrays).
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

// What is known of a step once it has been given to the side that computes.
struct StepOutcome {
  std::size_t activation_bytes = 0;   // of the part that took most
  std::size_t rows_without_room = 0;  // of the part whose activations did not fit; 0: all did
};

// Belongs to the stream's thread.
class StepGraphs {
 public:
  // Those that were used last are kept: the full batch of training and of evaluation, the last ones of a set, each in
  // as many buffers as batches are in flight.
  static constexpr std::size_t kGraphsMax = 8;

  // The stream outlives it. Fewer steps than kGraphsMax are under way at a time.
  explicit StepGraphs(kernels::Stream* stream) : stream_(*stream) {}
  ~StepGraphs() { (void)stream_.Wait(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Has the step done over these parts: calls `step`, which gives all of it to the stream, or launches what it was
  // when it was recorded. Where CUDA cannot record it, it says so once and calls `step` from then on.
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
