#include "server/candidates.h"

#include <algorithm>

namespace tarn::server {

std::uint32_t Candidates::Count(Key key) const {
  const std::uint32_t count = counts_.Find(counts_.Hash(key), key);
  return count == RowIndex::kNone ? 0 : count;
}

void Candidates::Set(Key key, std::uint32_t count) {
  const std::uint64_t hash = counts_.Hash(key);
  if (counts_.Replace(hash, key, count)) return;
  if (counts_.size() == keys_max_) ForgetLeast();
  counts_.FindOrInsert(hash, key, count);
}

std::vector<Seen> Candidates::All() const {
  std::vector<Seen> all;
  all.reserve(counts_.size());
  counts_.ForEach([&](Key key, std::uint32_t count) { all.emplace_back(key, count); });
  return all;
}

void Candidates::ForgetLeast() {
  std::vector<Seen> all = All();
  auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle, {}, &Seen::second);
  const std::uint32_t most = middle->second;
  for (const Seen& seen : all)
    if (seen.second <= most) Erase(seen.first);
}

}  // namespace tarn::server
