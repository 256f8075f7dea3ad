#include "server/reply_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::server {

// Held by a reply's buffer.
struct ReplyBudget::Lease {
  Lease(std::shared_ptr<Count> of_all, std::shared_ptr<Count> of_peer, std::size_t size)
      : all(std::move(of_all)), peer(std::move(of_peer)), bytes(size) {
    *all += bytes;
    *peer += bytes;
  }
  ~Lease() {
    *all -= bytes;
    *peer -= bytes;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<Count> all, peer;
  std::size_t bytes;
};

Expected<Buffer> ReplyBudget::Allocate(Peer peer, std::size_t bytes) {
  if (peers_.size() >= sweep_at_ && !peers_.contains(peer)) {
    std::erase_if(peers_, [](const auto& entry) { return *entry.second == 0; });
    sweep_at_ = std::max<std::size_t>(64, 2 * peers_.size());
  }
  auto& mine = peers_[peer];
  if (!mine) mine = std::make_shared<Count>(0);
  if (*mine + bytes > peer_bytes_max_)
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} bytes of replies to this client are not taken yet: with {} more "
                            "they would be over {}",
                            mine->load(), bytes, peer_bytes_max_));
  if (*all_ + bytes > bytes_max_)
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} bytes of replies are not taken yet: with {} more they would be over {}", all_->load(),
                            bytes, bytes_max_));
  return Buffer::Allocate(bytes, std::make_shared<Lease>(all_, mine, bytes));
}

}  // namespace tarn::server
