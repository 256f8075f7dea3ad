#include "server/shard/reply_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::server {

// Counts the bytes of a reply until the reply's buffer, which owns this lease, is released.
struct ReplyBudget::Lease {
  Lease(std::shared_ptr<Count> of_all, std::shared_ptr<Count> of_worker, std::size_t size)
      : all(std::move(of_all)), worker(std::move(of_worker)), bytes(size) {
    *all += bytes;
    *worker += bytes;
  }
  ~Lease() {
    if (all == nullptr) return;  // moved from
    *all -= bytes;
    *worker -= bytes;
  }
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;

  std::shared_ptr<Count> all, worker;
  std::size_t bytes;
};

Expected<Buffer> ReplyBudget::Allocate(Incarnation worker, std::size_t bytes) {
  if (workers_.size() >= sweep_at_ && !workers_.contains(worker)) {
    std::erase_if(workers_, [](const auto& entry) { return *entry.second == 0; });
    sweep_at_ = std::max<std::size_t>(64, 2 * workers_.size());
  }
  auto& unsent = workers_[worker];
  if (!unsent) unsent = std::make_shared<Count>(0);
  if (*unsent + bytes > worker_bytes_max_)
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} bytes of replies to this worker are not sent yet: with {} more they would exceed {}",
                            unsent->load(), bytes, worker_bytes_max_));
  if (*all_ + bytes > bytes_max_)
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} bytes of replies are not sent yet: with {} more they would exceed {}", all_->load(),
                            bytes, bytes_max_));
  return Buffer::Allocate(bytes, Lease(all_, unsent, bytes));
}

}  // namespace tarn::server
