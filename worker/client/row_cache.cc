#include "worker/client/row_cache.h"

#include <algorithm>
#include <cstring>

#include "core/hash.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kGroup = 16;  // number of keys whose sets, and then rows, are prefetched together

}  // namespace

RowCache::RowCache(std::size_t bytes, std::uint32_t dim, std::uint64_t rows_max) : dim_(dim) {
  const std::size_t set_bytes = sizeof(Set) + kWays * dim * sizeof(float);
  const std::uint64_t all = std::max<std::uint64_t>(1, rows_max / kWays + (rows_max % kWays != 0 ? 1 : 0));
  const std::size_t sets = std::max<std::size_t>(1, bytes / set_bytes);
  all_fit_ = all <= sets;
  sets_.resize(all_fit_ ? all : sets);
  rows_ = std::make_unique_for_overwrite<float[]>(sets_.size() * kWays * dim);
}

std::size_t RowCache::SetOf(Key key) const {
  if (all_fit_) return std::min<std::size_t>(key / kWays, sets_.size() - 1);
  return static_cast<std::size_t>((static_cast<unsigned __int128>(Mix64(key)) * sets_.size()) >> 64);
}

std::size_t RowCache::WayOf(const Set& set, Key key) {
  std::uint32_t hits = 0;
  for (std::size_t i = 0; i < kWays; ++i) hits |= std::uint32_t{set.keys[i] == key && set.stamps[i] != 0} << i;
  return hits == 0 ? kWays : static_cast<std::size_t>(__builtin_ctz(hits));
}

RowCache::Found RowCache::Read(std::span<const Key> keys, Clock oldest_version, float* rows,
                               std::vector<std::uint32_t>* missing) {
  Found found;
  std::uint64_t oldest = ~std::uint64_t{0};
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t count = std::min(kGroup, keys.size() - begin);
    std::size_t sets[kGroup], ways[kGroup];
    for (std::size_t i = 0; i < count; ++i) {
      sets[i] = SetOf(keys[begin + i]);
      __builtin_prefetch(sets_[sets[i]].keys);
      __builtin_prefetch(sets_[sets[i]].stamps, 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      ways[i] = WayOf(sets_[sets[i]], keys[begin + i]);
      if (ways[i] != kWays) __builtin_prefetch(RowAt(sets[i], ways[i]));
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t* stamp = ways[i] == kWays ? nullptr : &sets_[sets[i]].stamps[ways[i]];
      if (stamp == nullptr || (*stamp & ~kRead) <= oldest_version.value) {
        missing->push_back(static_cast<std::uint32_t>(begin + i));
        continue;
      }
      oldest = std::min(oldest, (*stamp & ~kRead) - 1);
      *stamp |= kRead;
      std::memcpy(rows + (begin + i) * dim_, RowAt(sets[i], ways[i]), dim_ * sizeof(float));
      ++found.rows;
    }
  }
  found.oldest = Clock(oldest);
  return found;
}

// A free way, or the one to replace.
std::size_t RowCache::Victim(Set* set, Clock oldest_version) {
  std::uint64_t ranks[kWays];
  for (std::size_t i = 0; i < kWays; ++i) {
    const std::uint64_t age = set->stamps[i] & ~kRead;
    ranks[i] = age <= oldest_version.value ? age : set->stamps[i];
  }
  const auto first = static_cast<std::size_t>(std::min_element(ranks, ranks + kWays) - ranks);
  if ((ranks[first] & kRead) != 0)  // all were read: clears the flags
    for (std::uint64_t& stamp : set->stamps) stamp &= ~kRead;
  return first;
}

// Where to store the row; null if a newer one is cached.
float* RowCache::PlaceFor(std::size_t s, Key key, Clock version, Clock oldest_version) {
  Set& set = sets_[s];
  std::size_t way = WayOf(set, key);
  const bool here = way != kWays;
  if (here && (set.stamps[way] & ~kRead) > version.value + 1) return nullptr;
  if (!here) {
    way = Victim(&set, oldest_version);
    ++keys_version_;
  }
  set.keys[way] = key;
  set.stamps[way] = (version.value + 1) | (here ? set.stamps[way] & kRead : 0);
  return RowAt(s, way);
}

void RowCache::Insert(std::span<const Key> keys, const float* rows, Clock version, Clock oldest_version) {
  if (version < oldest_version) return;
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t count = std::min(kGroup, keys.size() - begin);
    std::size_t sets[kGroup];
    float* places[kGroup];
    for (std::size_t i = 0; i < count; ++i) {
      sets[i] = SetOf(keys[begin + i]);
      __builtin_prefetch(sets_[sets[i]].keys, 1);
      __builtin_prefetch(sets_[sets[i]].stamps, 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      places[i] = PlaceFor(sets[i], keys[begin + i], version, oldest_version);
      if (places[i] != nullptr) __builtin_prefetch(places[i], 1);
    }
    // In order, because two rows may be assigned to the same way; the way's key is then that of the later row.
    for (std::size_t i = 0; i < count; ++i)
      if (places[i] != nullptr) std::memcpy(places[i], rows + (begin + i) * dim_, dim_ * sizeof(float));
  }
}

void RowCache::Drop(std::span<const Key> keys) {
  for (const Key key : keys) {
    Set& set = sets_[SetOf(key)];
    if (const std::size_t way = WayOf(set, key); way != kWays) set.stamps[way] = kRead;
  }
}

std::size_t RowCache::Renew(std::span<const Key> keys, const float* rows, Clock version) {
  std::size_t renewed = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t s = SetOf(keys[i]), way = WayOf(sets_[s], keys[i]);
    if (way == kWays || (sets_[s].stamps[way] & ~kRead) > version.value) continue;
    sets_[s].stamps[way] = (version.value + 1) | (sets_[s].stamps[way] & kRead);
    std::memcpy(RowAt(s, way), rows + i * dim_, dim_ * sizeof(float));
    ++renewed;
  }
  return renewed;
}

void RowCache::AppendKeys(std::vector<Key>* keys) const {
  for (const Set& set : sets_)
    for (std::size_t way = 0; way < kWays; ++way)
      if (set.stamps[way] != 0) keys->push_back(set.keys[way]);
}

void RowCache::Clear() {
  ++keys_version_;
  for (Set& set : sets_) set = Set();
}

}  // namespace tarn::worker
