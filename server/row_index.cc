#include "server/row_index.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "server/arena.h"

namespace tarn::server {

namespace {

// Of the five keys that a bucket can hold, on average.
constexpr std::size_t kKeysPerBucketMax = 4;

}  // namespace

RowIndex::~RowIndex() { std::free(buckets_); }

std::uint32_t RowIndex::FindOrInsert(std::uint64_t hash, Key key, std::uint32_t new_row) {
  if (const std::uint32_t row = Find(hash, key); row != kNone) return row;
  if (size_ + 1 > bucket_count_ * kKeysPerBucketMax) Grow();
  Append(hash, key, new_row);
  ++size_;
  return new_row;
}

RowIndex::Place RowIndex::PlaceOf(std::uint64_t hash, Key key) const {
  if (bucket_count_ == 0) return {0, kBucketKeys};
  for (std::size_t b = Home(hash);; b = Next(b)) {
    if (const std::uint32_t hits = Matches(buckets_[b], key); hits != 0)
      return {b, static_cast<std::uint32_t>(__builtin_ctz(hits))};
    if (buckets_[b].used < kBucketKeys) return {b, kBucketKeys};
  }
}

bool RowIndex::Replace(std::uint64_t hash, Key key, std::uint32_t row) {
  const Place at = PlaceOf(hash, key);
  if (at.i == kBucketKeys) return false;
  buckets_[at.bucket].rows[at.i] = row;
  return true;
}

std::uint32_t RowIndex::Erase(std::uint64_t hash, Key key) {
  const Place at = PlaceOf(hash, key);
  if (at.i == kBucketKeys) return kNone;
  const std::uint32_t row = buckets_[at.bucket].rows[at.i];
  Fill(at);
  --size_;
  return row;
}

// Closes a hole. A bucket that was full may have sent keys on to those behind it, where they would not be found behind
// one that is not full: the first of them comes back, and leaves a hole in turn.
void RowIndex::Fill(Place hole) {
  Bucket* bucket = &buckets_[hole.bucket];
  const bool was_full = bucket->used == kBucketKeys;
  const std::uint32_t last = --bucket->used;
  bucket->keys[hole.i] = bucket->keys[last];
  bucket->rows[hole.i] = bucket->rows[last];
  if (!was_full) return;
  for (std::size_t b = Next(hole.bucket), away = 1;; b = Next(b), ++away) {
    Bucket& next = buckets_[b];
    for (std::uint32_t i = 0; i < next.used; ++i) {
      const std::size_t home = Home(Hash(next.keys[i]));
      const std::size_t from_home = b >= home ? b - home : b + bucket_count_ - home;
      if (from_home < away) continue;
      bucket->keys[bucket->used] = next.keys[i];
      bucket->rows[bucket->used] = next.rows[i];
      ++bucket->used;
      return Fill({b, i});
    }
    if (next.used < kBucketKeys || b == hole.bucket) return;
  }
}

void RowIndex::Append(std::uint64_t hash, Key key, std::uint32_t row) {
  std::size_t b = Home(hash);
  while (buckets_[b].used == kBucketKeys) b = Next(b);
  Bucket& bucket = buckets_[b];
  bucket.keys[bucket.used] = key;
  bucket.rows[bucket.used] = row;
  ++bucket.used;
}

void RowIndex::Grow() {
  Bucket* old = buckets_;
  const std::size_t old_count = bucket_count_;
  const std::size_t new_count = std::max(old_count + 1, old_count + old_count / 2);
  buckets_ = static_cast<Bucket*>(AllocateLarge(new_count * sizeof(Bucket)));
  bucket_count_ = new_count;
  std::memset(static_cast<void*>(buckets_), 0, new_count * sizeof(Bucket));
  // Old and new lie in the same order, so this streams through both.
  for (std::size_t b = 0; b < old_count; ++b)
    for (std::uint32_t i = 0; i < old[b].used; ++i) Append(Hash(old[b].keys[i]), old[b].keys[i], old[b].rows[i]);
  std::free(old);
}

}  // namespace tarn::server
