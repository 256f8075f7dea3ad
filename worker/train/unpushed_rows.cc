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
  waits_.assign(n, false);
  std::uint64_t last = 0;
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t newest = newest_[Mix64(plan.keys[i]) & mask];
    if (newest <= ended) continue;
    waits_[i] = true;
    ++waiting;
    last = std::max(last, newest);
  }
  for (const Key key : plan.keys) newest_[Mix64(key) & mask] = batch;
  if (waiting == 0 || n - waiting < std::max<std::size_t>(1, ahead_min_)) {
    parts->assign(1, {.after = last, .places = {}});
    return;
  }
  parts->assign(2, {});
  (*parts)[1].after = last;
  for (std::uint32_t i = 0; i < n; ++i) (*parts)[waits_[i] ? 1 : 0].places.push_back(i);
}

}  // namespace tarn::worker
