#include "worker/train/unpushed_rows.h"

#include <algorithm>
#include <bit>

#include "core/hash.h"

namespace tarn::worker {

// After growing, the entries of earlier batches are not known: all rows wait for the last one.
void UnpushedRows::MakeRoom(std::uint64_t batch, std::size_t keys) {
  const std::size_t wanted = std::bit_ceil(std::max(kEntriesMin, keys * kEntriesPerKey));
  if (newest_.size() < wanted) newest_.assign(wanted, newest_.empty() ? 0 : batch - 1);
}

void UnpushedRows::Split(std::uint64_t batch, std::uint64_t ended, const Plan& plan, std::vector<Part>* parts) {
  const std::size_t n = plan.keys.size();
  MakeRoom(batch, n);
  const std::uint64_t mask = newest_.size() - 1;
  after_.resize(n);
  std::uint64_t least = ~std::uint64_t{0}, most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t newest = newest_[Mix64(plan.keys[i]) & mask];
    after_[i] = newest > ended ? newest : 0;
    least = std::min(least, after_[i]);
    most = std::max(most, after_[i]);
  }
  for (const Key key : plan.keys) newest_[Mix64(key) & mask] = batch;
  parts->clear();
  if (n == 0 || least == most || !divides_) {
    parts->push_back({.after = most, .places = {}});
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    auto part = std::ranges::find(*parts, after_[i], &Part::after);
    if (part == parts->end()) part = parts->insert(parts->end(), {.after = after_[i], .places = {}});
    part->places.push_back(i);
  }
}

}  // namespace tarn::worker
