// Bounds the memory of pull replies that the transport has not sent yet: for each worker, over all its connections, and
// for all workers. So a slow or dead worker cannot block the others for long. Bytes are counted until the last owner of
// a reply's buffer releases it, possibly on a thread of the transport. The budget itself belongs to the shard's
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <unordered_map>

#include "core/buffer.h"
#include "core/error.h"
#include "core/message.h"

namespace tarn::server {

class ReplyBudget {
 public:
  ReplyBudget(std::size_t bytes_max, std::size_t worker_bytes_max)
      : bytes_max_(bytes_max), worker_bytes_max_(worker_bytes_max) {}

  // Allocates the buffer of a reply to `worker`. kOverloaded: the worker's replies or all replies would exceed their
  // bound; nothing is counted.
  Expected<Buffer> Allocate(Incarnation worker, std::size_t bytes);

  // Bytes of all replies that are not released.
  std::size_t bytes() const { return *all_; }

 private:
  using Count = std::atomic<std::size_t>;
  struct Lease;

  std::size_t bytes_max_;
  std::size_t worker_bytes_max_;
  // Shared with the leases, because buffers may outlive the budget.
  std::shared_ptr<Count> all_ = std::make_shared<Count>(0);
  std::unordered_map<Incarnation, std::shared_ptr<Count>> workers_;
  std::size_t sweep_at_ = 64;  // number of entries at which those without bytes are removed
};

}  // namespace tarn::server
