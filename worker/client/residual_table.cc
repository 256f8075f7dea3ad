#include "worker/client/residual_table.h"

#include <bit>
#include <cstring>

#include "core/error.h"

namespace tarn::worker {

const float* ResidualTable::Find(Key key) const {
  const auto it = places_.find(key);
  return it == places_.end() ? nullptr : values_.data() + std::size_t{it->second} * dim_;
}

void ResidualTable::Put(Key key, Clock clock, const float* row) {
  const auto [it, fresh] = places_.try_emplace(key, kNone);
  if (fresh) {
    it->second = TakePlace();
  } else {
    Unlink(it->second);
  }
  entries_[it->second].key = key;
  entries_[it->second].clock = clock;
  Link(it->second);
  std::memcpy(values_.data() + std::size_t{it->second} * dim_, row, dim_ * sizeof(float));
}

void ResidualTable::Erase(Key key) {
  const auto it = places_.find(key);
  if (it == places_.end()) return;
  Unlink(it->second);
  free_.push_back(it->second);
  places_.erase(it);
}

std::uint32_t ResidualTable::TakePlace() {
  if (!free_.empty()) {
    const std::uint32_t at = free_.back();
    free_.pop_back();
    return at;
  }
  TARN_CHECK(entries_.size() < kNone, "at most 2^32 - 1 residuals");
  entries_.emplace_back();
  values_.resize(values_.size() + dim_);
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

// Appends to the end of the list.
void ResidualTable::Link(std::uint32_t at) {
  entries_[at].previous = last_;
  entries_[at].next = kNone;
  (last_ == kNone ? first_ : entries_[last_].next) = at;
  last_ = at;
}

void ResidualTable::Unlink(std::uint32_t at) {
  const Entry& entry = entries_[at];
  (entry.previous == kNone ? first_ : entries_[entry.previous].next) = entry.next;
  (entry.next == kNone ? last_ : entries_[entry.next].previous) = entry.previous;
}

std::uint64_t ResidualTable::Hash() const {
  std::uint64_t hash = size();
  ForEach([&](Key key, Clock clock, const float* row) {
    hash = HashCombine(HashCombine(hash, key), clock.value);
    for (std::uint32_t i = 0; i < dim_; ++i) hash = HashCombine(hash, std::bit_cast<std::uint32_t>(row[i]));
  });
  return hash;
}

}  // namespace tarn::worker
