// The planner's twin on a GPU: of a large batch it makes what Planner does (worker/client/plan.h), by sorting
// positions. Equal keys then are neighbours, and so are the keys of a partition, which are the upper bits of a
// position.
//
//   planner->Bring(keys);                                            // once a batch
//   planner->Make(table, dim, positioner, keys.size(), &plan);       // for each sparse table
//   planner->TakeBack(&plan);                                        // if it is to be another planner's
//
// A planner has a stream of its own and waits for it: what a plan has in the GPU's memory is complete when Make
// returns, whichever stream uses it then. That memory is the planner's, which outlives its plans and all work of other
// streams on them. One thread at a time; a plan is made anew or taken back when nobody uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "core/position.h"
#include "worker/client/plan.h"

namespace tarn::worker {

class DevicePlanner {
 public:
  virtual ~DevicePlanner() = default;

  // Duplicates are allowed, below 2^31 keys; free at once. Behind it Make is called before Bring is called again.
  virtual Status Bring(std::span<const Key> keys) = 0;
  // Of the first n keys that were brought, for a sparse table. After an error the plan is none.
  virtual Status Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::size_t n, Plan* plan) = 0;
  // Nobody uses what the plan has in the GPU's memory any more. No change to a plan that has nothing there.
  virtual void TakeBack(Plan* plan) = 0;

  // Errors of all of them: kIo: not enough memory, the message says for what and how much; kInternal: the GPU failed.
};

// On that GPU. kUnavailable: it cannot be used; the message says why. In builds with CUDA alone.
Expected<std::unique_ptr<DevicePlanner>> MakeDevicePlanner(int gpu, std::uint32_t partition_bits);

}  // namespace tarn::worker
