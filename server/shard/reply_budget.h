// The memory of pull replies that the network has not taken yet: bounded for each worker, whichever of its connections
// they take, so that one that is slow or gone holds up nobody else for long, and for all of them. Bytes are counted
// until the last owner of a reply's buffer lets go of it, which may be a thread of the transport; the budget itself is
// the shard's thread's.
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

  // The buffer of a reply to `worker`. kOverloaded, and nothing counted, if it would take its replies or all replies
  // over their bound.
  Expected<Buffer> Allocate(Incarnation worker, std::size_t bytes);

  // Of all replies that somebody still holds.
  std::size_t bytes() const { return *all_; }

 private:
  using Count = std::atomic<std::size_t>;
  struct Lease;

  std::size_t bytes_max_;
  std::size_t worker_bytes_max_;
  // Shared with the leases: buffers may outlive the budget.
  std::shared_ptr<Count> all_ = std::make_shared<Count>(0);
  std::unordered_map<Incarnation, std::shared_ptr<Count>> workers_;
  std::size_t sweep_at_ = 64;  // workers; those that hold nothing are then forgotten
};

}  // namespace tarn::server
