#include "server/clock/clock_buckets.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/rows.h"

namespace tarn::server {

namespace {

// Sums are applied when they have about this size, while they are still in the cache.
constexpr std::size_t kFlushFloats = 128 << 10;

auto Order(const Contribution& c) { return std::tuple(c.table, c.partition, c.rank, c.incarnation, c.sequence); }

// Appends the keys of the contribution to `keys`.
void AppendKeys(const Contribution& c, std::vector<Key>* keys) {
  const std::size_t first = keys->size();
  if (c.key_codec == KeyCodec::kRange) {
    keys->resize(first + c.count);
    std::iota(keys->begin() + static_cast<std::ptrdiff_t>(first), keys->end(), c.first_key);
  } else {
    const std::span<const Key> all = c.keys.as<Key>().subspan(c.key_offset, c.count);
    keys->insert(keys->end(), all.begin(), all.end());
  }
}

}  // namespace

void SortForClosing(std::vector<Contribution>* contributions) {
  std::sort(contributions->begin(), contributions->end(),
            [](const Contribution& a, const Contribution& b) { return Order(a) < Order(b); });
}

void ClockBuckets::Add(Clock clock, Contribution contribution) {
  bytes_ += Cost(contribution);
  auto& [contributions, tables] = buckets_[clock];
  if (std::ranges::find(tables, contribution.table) == tables.end()) tables.push_back(contribution.table);
  contributions.push_back(std::move(contribution));
}

std::vector<Contribution> ClockBuckets::TakeAllBut(const std::vector<TableId>& kept, Buckets::iterator bucket) {
  auto& [all, tables] = bucket->second;
  std::vector<Contribution> taken;
  if (kept.empty()) {
    taken.swap(all);
  } else {
    const auto first = std::stable_partition(
        all.begin(), all.end(), [&](const Contribution& c) { return std::ranges::find(kept, c.table) != kept.end(); });
    taken.assign(std::make_move_iterator(first), std::make_move_iterator(all.end()));
    all.erase(first, all.end());
    tables = kept;
  }
  for (const Contribution& contribution : taken) bytes_ -= Cost(contribution);
  if (all.empty()) buckets_.erase(bucket);
  return taken;
}

std::vector<std::pair<Clock, Contribution>> ClockBuckets::Void(Incarnation incarnation, Clock from) {
  std::vector<std::pair<Clock, Contribution>> voided;
  for (auto it = buckets_.lower_bound(from); it != buckets_.end();) {
    auto& [all, tables] = it->second;
    const auto first = std::stable_partition(all.begin(), all.end(),
                                             [&](const Contribution& c) { return c.incarnation != incarnation; });
    for (auto c = first; c != all.end(); ++c) {
      bytes_ -= Cost(*c);
      voided.emplace_back(it->first, std::move(*c));
    }
    all.erase(first, all.end());
    it = all.empty() ? buckets_.erase(it) : std::next(it);
  }
  return voided;
}

Status BucketCloser::Close(Clock clock, std::span<const Contribution> contributions, std::uint32_t divisor,
                           Store* rows) {
  const auto is_step = [](const Contribution& c) { return c.action == PushAction::kStep; };
  if (std::ranges::all_of(contributions, is_step)) return CloseSteps(clock, contributions, divisor, rows);
  std::vector<Contribution> steps, changes;
  for (const Contribution& c : contributions) (is_step(c) ? steps : changes).push_back(c);
  TARN_RETURN_IF_ERROR(CloseSteps(clock, steps, divisor, rows));
  for (const Contribution& c : changes) TARN_RETURN_IF_ERROR(Change(clock, c, rows));
  return {};
}

Status BucketCloser::Change(Clock clock, const Contribution& c, Store* rows) {
  std::vector<Key> keys;
  AppendKeys(c, &keys);
  const Section section{.partition = c.partition, .count = c.count};
  return rows->Apply(c.table, {&section, 1}, keys,
                     {.gradients = c.values.data() + c.value_offset, .clock = clock, .action = c.action});
}

Status BucketCloser::CloseSteps(Clock clock, std::span<const Contribution> contributions, std::uint32_t divisor,
                                Store* rows) {
  if (contributions.empty()) return {};
  const TableSpec& spec = *rows->FindTable(contributions.front().table);
  const float scale = 1.0f / static_cast<float>(divisor);
  const bool by_section = FindUpdateRule(spec.optimizer.kind)->by_section;
  const Contribution* const end = contributions.data() + contributions.size();
  for (const Contribution* begin = contributions.data(); begin != end;) {
    const Contribution* next = begin;
    while (next != end && next->partition == begin->partition) ++next;
    const std::size_t first = keys_.size();
    SumPartition(begin, next, spec.dim, rows);
    AddSection(clock, begin, next, first);
    if (next == end || by_section || sums_.size() >= kFlushFloats)
      TARN_RETURN_IF_ERROR(Flush(spec, clock, scale, rows));
    begin = next;
  }
  return {};
}

void BucketCloser::SumPartition(const Contribution* begin, const Contribution* end, std::uint32_t dim, Store* rows) {
  const std::size_t first = keys_.size();
  if (end - begin == 1) AddOnly(dim, *begin);
  if (keys_.size() != first) return;
  std::size_t keys = 0;
  for (const Contribution* c = begin; c != end; ++c) keys += c->count;
  unique_.Clear(keys);
  for (const Contribution* c = begin; c != end; ++c) AddContribution(dim, *c, first, rows);
}

// Adds the section of the summed rows, whose keys begin at `first`. Its version is the oldest of the contributions.
void BucketCloser::AddSection(Clock clock, const Contribution* begin, const Contribution* end, std::size_t first) {
  Section section{.partition = begin->partition, .count = static_cast<std::uint32_t>(keys_.size() - first)};
  for (const Contribution* c = begin; c != end; ++c) {
    section.version = std::min(section.version, c->version);  // kNoVersion is the largest
    staleness_ = std::max(staleness_, clock.value - std::min(clock.value, c->pulled_clock.value));
  }
  sections_.push_back(section);
}

// Adds the only contribution to a partition, which needs no sums. Adds nothing if it contains a key twice (rule E6).
// Store::Apply finds gradients that are not finite.
void BucketCloser::AddOnly(std::uint32_t dim, const Contribution& c) {
  const std::size_t first = keys_.size();
  AppendKeys(c, &keys_);
  if (c.key_codec != KeyCodec::kRange && NamesAKeyTwice(std::span(keys_).subspan(first))) return keys_.resize(first);
  const std::size_t at = sums_.size();
  sums_.resize(at + std::size_t{c.count} * dim);
  kernels::DecodeRows(c.codec, dim, c.count, c.values.data() + c.value_offset, sums_.data() + at);
}

// A blocked Bloom filter, with three bits per key in one word, avoids the search for nearly all keys.
bool BucketCloser::NamesAKeyTwice(std::span<const Key> keys) {
  if (keys.size() < 2) return false;
  const std::size_t words = std::bit_ceil(keys.size());
  const int shift = 64 - std::countr_zero(words);
  filter_.assign(words, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t hash = keys[i] * 0x9e3779b97f4a7c15;
    const std::uint64_t low = hash >> 20;  // the lowest bits of a product depend only on the lowest bits of the key
    const std::uint64_t bits =
        std::uint64_t{1} << (low & 63) | std::uint64_t{1} << (low >> 6 & 63) | std::uint64_t{1} << (low >> 12 & 63);
    std::uint64_t& word = filter_[hash >> shift];
    if ((word & bits) == bits && std::ranges::find(keys.first(i), keys[i]) != keys.first(i).end()) return true;
    word |= bits;
  }
  return false;
}

// Adds the contribution to the sums of its partition, whose keys begin at `first`.
void BucketCloser::AddContribution(std::uint32_t dim, const Contribution& c, std::size_t first, Store* rows) {
  const std::byte* values = c.values.data() + c.value_offset;
  const float* gradients = reinterpret_cast<const float*>(values);
  std::size_t count = c.count;
  if (c.codec != ValueCodec::kFp32) {
    decoded_.resize(count * dim);
    kernels::DecodeRows(c.codec, dim, count, values, decoded_.data());
    gradients = decoded_.data();
  }
  const std::size_t summed = keys_.size();
  AppendKeys(c, &keys_);
  if (!kernels::AllFinite(count * dim, gradients)) [[unlikely]] {
    count = DropNotFinite(dim, gradients, summed, c.table, rows);
    gradients = decoded_.data();
  }
  places_.resize(count);
  keys_.resize(first + kernels::AddUniqueKeys(std::span(keys_).subspan(summed), summed - first, keys_.data() + first,
                                              places_.data(), unique_));
  // x + (-0) is x for every x, so the first contribution to a row is copied exactly.
  sums_.resize(keys_.size() * dim, -0.0f);
  targets_.resize(count);
  for (std::size_t i = 0; i < count; ++i) targets_[i] = sums_.data() + (first + places_[i]) * dim;
  kernels::AddRows(dim, count, gradients, targets_.data());
}

// Keeps only the finite rows, in decoded_, and their keys, from `begin` on in keys_; returns their number.
std::size_t BucketCloser::DropNotFinite(std::uint32_t dim, const float* gradients, std::size_t begin, TableId table,
                                        Store* rows) {
  std::vector<float> kept;
  std::size_t n = begin;
  for (std::size_t i = begin; i < keys_.size(); ++i) {
    const float* row = gradients + (i - begin) * dim;
    if (!kernels::AllFinite(dim, row)) {
      rows->SkipNotFinite(table, keys_[i]);
      continue;
    }
    kept.insert(kept.end(), row, row + dim);
    keys_[n++] = keys_[i];
  }
  keys_.resize(n);
  decoded_ = std::move(kept);
  return n - begin;
}

Status BucketCloser::Flush(const TableSpec& spec, Clock clock, float scale, Store* rows) {
  if (scale != 1.0f) kernels::Scale(sums_.size(), scale, sums_.data());
  const auto* gradients = reinterpret_cast<const std::byte*>(sums_.data());
  Status applied = rows->Apply(
      spec.id, sections_, keys_,
      {.codec = ValueCodec::kFp32, .gradients = gradients, .clock = clock, .staleness = std::exchange(staleness_, 0)});
  sections_.clear();
  keys_.clear();
  sums_.clear();
  return applied;
}

}  // namespace tarn::server
