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
