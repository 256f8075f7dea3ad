#include "server/store/page_pool.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "server/store/arena.h"

namespace tarn::server {

namespace {

std::size_t PagesOf(std::size_t bytes) { return (bytes + PagePool::kPageBytes - 1) / PagePool::kPageBytes; }

}  // namespace

PagePool::~PagePool() {
  for (const Region& region : regions_) std::free(region.memory);
}

std::byte* PagePool::TakeFrom(Region* region, std::size_t pages) {
  std::size_t run = 0;
  for (std::size_t page = 0; page < kRegionPages; ++page) {
    run = region->taken[page] ? 0 : run + 1;
    if (run < pages) continue;
    const std::size_t first = page + 1 - pages;
    std::fill_n(region->taken.begin() + static_cast<std::ptrdiff_t>(first), pages, true);
    region->free -= pages;
    return region->memory + first * kPageBytes;
  }
  return nullptr;
}

void* PagePool::Allocate(std::size_t bytes) {
  TARN_CHECK(bytes <= kRunBytesMax, "a run is longer than kRunBytesMax");
  const std::size_t pages = std::max<std::size_t>(1, PagesOf(bytes));
  for (std::size_t r = hint_; r < regions_.size(); ++r) {
    if (regions_[r].free < pages) continue;
    if (std::byte* run = TakeFrom(&regions_[r], pages); run != nullptr) {
      hint_ = r;
      return run;
    }
  }
  Region fresh;
  fresh.memory = static_cast<std::byte*>(AllocateLarge(kRegionBytes));
  const auto at = std::ranges::lower_bound(regions_, fresh.memory, {}, &Region::memory);
  hint_ = static_cast<std::size_t>(at - regions_.begin());
  return TakeFrom(&*regions_.insert(at, fresh), pages);
}

void PagePool::Free(void* run, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(run);
  const auto region = std::ranges::upper_bound(regions_, at, {}, &Region::memory) - 1;
  const auto first = (at - region->memory) / static_cast<std::ptrdiff_t>(kPageBytes);
  const std::size_t pages = std::max<std::size_t>(1, PagesOf(bytes));
  std::fill_n(region->taken.begin() + first, pages, false);
  region->free += pages;
  hint_ = std::min(hint_, static_cast<std::size_t>(region - regions_.begin()));
}

}  // namespace tarn::server
