#include "server/clock_buckets.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "core/hash.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/rows.h"

namespace tarn::server {

namespace {

// Sums are applied whenever they have grown to about this: so they are still in the cache then.
constexpr std::size_t kFlushFloats = 128 << 10;

auto Order(const Contribution& c) { return std::tuple(c.table, c.partition, c.rank, c.incarnation, c.sequence); }

// Calls visit(key) for each key in order.
template <typename Visit>
void ForEachKey(const Contribution& c, Visit visit) {
  if (c.key_codec == KeyCodec::kRange) {
    for (std::size_t i = 0; i < c.count; ++i) visit(c.first_key + i);
  } else {
    for (Key key : c.keys.as<Key>().subspan(c.key_offset, c.count)) visit(key);
  }
}

}  // namespace

void ClockBuckets::Add(Clock clock, Contribution contribution) {
  bytes_ += Cost(contribution);
  buckets_[clock].push_back(std::move(contribution));
}

std::pair<Clock, std::vector<Contribution>> ClockBuckets::TakeLowest() {
  auto node = buckets_.extract(buckets_.begin());
  for (const Contribution& contribution : node.mapped()) bytes_ -= Cost(contribution);
  return {node.key(), std::move(node.mapped())};
}

std::vector<std::pair<Clock, Contribution>> ClockBuckets::Void(Incarnation incarnation, Clock from) {
  std::vector<std::pair<Clock, Contribution>> voided;
  for (auto it = buckets_.lower_bound(from); it != buckets_.end();) {
    auto& bucket = it->second;
    const auto mine = std::stable_partition(bucket.begin(), bucket.end(),
                                            [&](const Contribution& c) { return c.incarnation != incarnation; });
    for (auto c = mine; c != bucket.end(); ++c) {
      bytes_ -= Cost(*c);
      voided.emplace_back(it->first, std::move(*c));
    }
    bucket.erase(mine, bucket.end());
    it = bucket.empty() ? buckets_.erase(it) : std::next(it);
  }
  return voided;
}

void BucketCloser::Close(Clock clock, std::vector<Contribution> contributions, std::uint32_t cohort_size,
                         Store* rows) {
  std::sort(contributions.begin(), contributions.end(),
            [](const Contribution& a, const Contribution& b) { return Order(a) < Order(b); });
  const float scale = 1.0f / static_cast<float>(std::max(cohort_size, 1u));
  const Contribution* const end = contributions.data() + contributions.size();
  for (const Contribution* begin = contributions.data(); begin != end;) {
    const Contribution* next = begin;
    while (next != end && next->table == begin->table && next->partition == begin->partition) ++next;
    const TableSpec& spec = *rows->FindTable(begin->table);
    SumPartition(spec.dim, begin, next);
    if (next == end || next->table != begin->table || sums_.size() >= kFlushFloats) Flush(spec, clock, scale, rows);
    begin = next;
  }
}

void BucketCloser::SumPartition(std::uint32_t dim, const Contribution* begin, const Contribution* end) {
  const std::size_t first = keys_.size();
  const bool only = end - begin == 1;
  if (!only) ClearPlaces(begin, end);
  for (const Contribution* c = begin; c != end; ++c) AddContribution(dim, *c, only);
  sections_.push_back({begin->partition, static_cast<std::uint32_t>(keys_.size() - first), {}});
}

// Makes room for all keys of these contributions, and forgets those of the partition before.
void BucketCloser::ClearPlaces(const Contribution* begin, const Contribution* end) {
  std::size_t keys = 0;
  for (const Contribution* c = begin; c != end; ++c) keys += c->count;
  const std::size_t wanted = std::max(slots_.size(), std::bit_ceil(std::max<std::size_t>(keys * 2, 64)));
  ++stamp_;
  if (wanted > slots_.size() || stamp_ == 0) {
    slots_.assign(wanted, {0, 0, 0});
    stamp_ = 1;
  }
}

void BucketCloser::AddContribution(std::uint32_t dim, const Contribution& c, bool only) {
  const std::byte* values = c.values.data() + c.value_offset;
  const std::size_t floats = std::size_t{c.count} * dim;
  if (only) {
    ForEachKey(c, [&](Key key) { keys_.push_back(key); });
    const std::size_t at = sums_.size();
    sums_.resize(at + floats);
    kernels::DecodeRows(c.codec, dim, c.count, values, sums_.data() + at);
    return;
  }
  places_.clear();
  ForEachKey(c, [&](Key key) { places_.push_back(PlaceOf(key)); });
  // x + (-0) is x for every x: so the first contribution to a row stays as it is.
  sums_.resize(keys_.size() * dim, -0.0f);
  targets_.resize(c.count);
  for (std::size_t i = 0; i < c.count; ++i) targets_[i] = sums_.data() + std::size_t{places_[i]} * dim;
  const float* gradients = reinterpret_cast<const float*>(values);
  if (c.codec != ValueCodec::kFp32) {
    decoded_.resize(floats);
    kernels::DecodeRows(c.codec, dim, c.count, values, decoded_.data());
    gradients = decoded_.data();
  }
  kernels::AddRows(dim, c.count, gradients, targets_.data());
}

std::uint32_t BucketCloser::PlaceOf(Key key) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t s = Mix64(key) & mask;; s = (s + 1) & mask) {
    Slot& slot = slots_[s];
    if (slot.stamp != stamp_) {
      slot = {key, static_cast<std::uint32_t>(keys_.size()), stamp_};
      keys_.push_back(key);
      return slot.place;
    }
    if (slot.key == key) return slot.place;
  }
}

void BucketCloser::Flush(const TableSpec& spec, Clock clock, float scale, Store* rows) {
  if (scale != 1.0f) kernels::Scale(sums_.size(), scale, sums_.data());
  rows->Apply(spec.id, sections_, keys_, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(sums_.data()), clock);
  sections_.clear();
  keys_.clear();
  sums_.clear();
}

}  // namespace tarn::server
