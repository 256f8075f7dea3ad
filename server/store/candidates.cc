#include "server/store/candidates.h"

#include <algorithm>

namespace tarn::server {

std::uint32_t Candidates::Count(Key key) const {
  const std::uint32_t count = counts_->Find(counts_->Hash(key), key);
  return count == RowIndex::kNone ? 0 : count;
}

void Candidates::Set(Key key, std::uint32_t count) {
  const std::uint64_t hash = counts_->Hash(key);
  if (counts_->Replace(hash, key, count)) return;
  if (counts_->size() == keys_max_) DropLowest();
  counts_->FindOrInsert(hash, key, count);
}

std::vector<Seen> Candidates::All() const {
  std::vector<Seen> all;
  all.reserve(counts_->size());
  counts_->ForEach([&](Key key, std::uint32_t count) { all.emplace_back(key, count); });
  return all;
}

// The remaining keys are inserted into a new index with a stride: filled in the order of another index, it would have
// long probe sequences.
void Candidates::DropLowest() {
  constexpr std::size_t kStride = 64;
  std::vector<Seen> all = All();
  auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle, {}, &Seen::second);
  std::erase_if(all, [highest = middle->second](const Seen& seen) { return seen.second <= highest; });
  counts_.emplace(counts_->salt(), counts_->partition_bits());
  for (std::size_t first = 0; first < std::min(kStride, all.size()); ++first)
    for (std::size_t i = first; i < all.size(); i += kStride)
      counts_->FindOrInsert(counts_->Hash(all[i].first), all[i].first, all[i].second);
}

}  // namespace tarn::server
