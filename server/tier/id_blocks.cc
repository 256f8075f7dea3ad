#include "server/tier/id_blocks.h"

#include <algorithm>

namespace tarn::server {
namespace {

// Free blocks are searched for only if more than one in so many blocks is free.
constexpr std::size_t kFreeShare = 8;

}  // namespace

// Adds blocks while few are free, because a search takes time.
IdBlocks::Run IdBlocks::Find() const {
  const std::size_t end = owners_.size();
  if (end + wanted_ <= blocks_max_ && free_ * kFreeShare <= end) return {end, wanted_};
  Run longest = NextFree(next_, end);
  if (longest.count < wanted_)
    if (const Run before = NextFree(0, end); before.count > longest.count) longest = before;
  if (longest.count < wanted_ && blocks_max_ - end > longest.count) return {end, std::min(wanted_, blocks_max_ - end)};
  return longest;
}

// The first run of free blocks that is long enough for a segment, otherwise the longest run.
IdBlocks::Run IdBlocks::NextFree(std::size_t from, std::size_t to) const {
  Run longest, run;
  for (std::size_t block = from; block < to && longest.count < wanted_; ++block) {
    if (owners_[block] != kNone) {
      run = {};
      continue;
    }
    if (run.count++ == 0) run.first = block;
    if (run.count > longest.count) longest = run;
  }
  return longest;
}

IdBlocks::Run IdBlocks::Take(std::uint32_t owner) {
  const Run run = Find();
  if (run.count == 0) return run;
  const std::size_t end = run.first + run.count, before = owners_.size();
  if (end > before) {
    owners_.resize(end, kNone);
    free_ += end - before;
  }
  std::fill_n(owners_.begin() + static_cast<std::ptrdiff_t>(run.first), run.count, owner);
  free_ -= run.count;
  next_ = end;
  return run;
}

void IdBlocks::Give(std::size_t first, std::size_t end) {
  std::fill(owners_.begin() + static_cast<std::ptrdiff_t>(first), owners_.begin() + static_cast<std::ptrdiff_t>(end),
            kNone);
  free_ += end - first;
}

}  // namespace tarn::server
