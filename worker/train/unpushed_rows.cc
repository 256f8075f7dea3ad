#include "worker/train/unpushed_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/hash.h"

namespace tarn::worker {

UnpushedRows::RowSet::RowSet(std::uint64_t batch, std::span<const std::uint32_t> hashes,
                             std::vector<std::uint64_t> memory)
    : batch_(batch), bits_(std::move(memory)) {
  bits_.assign(std::bit_ceil(std::max(kBitsMin, hashes.size() * kBitsPerRow) / 64), 0);
  for (const std::uint32_t hash : hashes) bits_[WordOf(hash)] |= std::uint64_t{1} << (hash & 63);
}

bool UnpushedRows::RowSet::Mark(std::span<const std::uint32_t> hashes, std::vector<std::uint8_t>* found) const {
  std::uint8_t any = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto bit = static_cast<std::uint8_t>(bits_[WordOf(hashes[i])] >> (hashes[i] & 63) & 1);
    (*found)[i] |= bit;
    any |= bit;
  }
  return any != 0;
}

void UnpushedRows::Split(std::uint64_t batch, std::uint64_t ended, const Plan& plan, std::vector<Part>* parts) {
  std::vector<std::uint64_t> memory;
  for (; !in_flight_.empty() && in_flight_.front().batch() <= ended; in_flight_.pop_front())
    memory = in_flight_.front().Take();
  const std::size_t n = plan.keys.size();
  hashes_.resize(n);
  for (std::size_t i = 0; i < n; ++i) hashes_[i] = static_cast<std::uint32_t>(Mix64(plan.keys[i]));
  waits_.assign(n, 0);
  std::uint64_t last = 0;
  for (const RowSet& rows : in_flight_)
    if (rows.Mark(hashes_, &waits_)) last = rows.batch();
  in_flight_.emplace_back(batch, hashes_, std::move(memory));
  const auto waiting = static_cast<std::size_t>(std::ranges::count(waits_, 1));
  if (waiting == 0 || n - waiting < std::max<std::size_t>(1, ahead_min_)) {
    parts->assign(1, {.after = last, .places = {}});
    return;
  }
  // Without branches, because which rows wait cannot be predicted: each place is written to both parts.
  std::vector<std::uint32_t> ahead(n - waiting + 1), later(waiting + 1);
  std::size_t n_ahead = 0, n_later = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    ahead[n_ahead] = later[n_later] = i;
    n_later += waits_[i];
    n_ahead += 1 - waits_[i];
  }
  ahead.pop_back();
  later.pop_back();
  parts->assign(2, {});
  (*parts)[0].places = std::move(ahead);
  (*parts)[1] = {.after = last, .places = std::move(later)};
}

}  // namespace tarn::worker
