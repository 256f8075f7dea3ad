// The planner on a GPU: makes the same plans as Planner (worker/client/plan.h) for large batches, by sorting positions.
// Equal keys are then neighbours, and so are the keys of a partition, which is given by the upper bits of a position.
//
//   planner->Bring(keys);                                            // once a batch
//   planner->Make(table, dim, positioner, keys.size(), &plan);       // for each sparse table
//   planner->TakeBack(&plan);                                        // before another planner makes this plan
//
// A planner has its own stream and waits for it: a plan's GPU memory is complete when Make returns, for any stream. The
// memory belongs to the planner, which must outlive its plans and all operations on them. One thread at a time. A plan
// may be made again or taken back only when it is not in use.
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

  // Copies the keys of a batch to the GPU: fewer than 2^31, duplicates included. The caller may reuse their memory at
  // once. Call Make before the next Bring, because Make waits for the copy.
  virtual Status Bring(std::span<const Key> keys) = 0;
  // Makes a plan of the first n keys of Bring, for a sparse table. After an error the plan is invalid.
  virtual Status Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::size_t n, Plan* plan) = 0;
  // Releases the plan's GPU memory, which must not be in use. Does nothing for a plan without any.
  virtual void TakeBack(Plan* plan) = 0;

  // Errors of these functions: kIo: not enough memory, the message names the purpose and the size; kInternal: the GPU
  // failed.
};

// Makes a planner on that GPU. kUnavailable: it cannot be used; the message gives the reason. Only in builds with CUDA.
Expected<std::unique_ptr<DevicePlanner>> MakeDevicePlanner(int gpu, std::uint32_t partition_bits);

}  // namespace tarn::worker
