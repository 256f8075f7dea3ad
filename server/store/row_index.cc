#include "server/store/row_index.h"

#include <cstdlib>
#include <cstring>

#include "server/store/arena.h"

namespace tarn::server {

namespace {

// Average number of keys per bucket, times ten: the maximum, and that of a new segment.
constexpr std::size_t kLoadMax = 36;
constexpr std::size_t kLoadNew = 32;

}  // namespace

const RowIndex::Bucket RowIndex::kEmptyBucket{};

RowIndex::~RowIndex() {
  for (std::size_t s = 0; s < directory_.size(); s += CopiesOf(directory_[s])) Free(directory_[s]);
}

// An empty segment with room for `keys` keys and some more.
RowIndex::Segment RowIndex::NewSegment(std::size_t keys, std::uint32_t depth) const {
  Segment segment;
  segment.depth = depth;
  segment.bucket_count = static_cast<std::uint32_t>(keys * 10 / kLoadNew + 1);
  const std::size_t bytes = segment.bucket_count * sizeof(Bucket);
  segment.buckets = static_cast<Bucket*>(FromPages(bytes) ? pages_->Allocate(bytes) : AllocateLarge(bytes));
  std::memset(static_cast<void*>(segment.buckets), 0, bytes);
  return segment;
}

void RowIndex::Free(const Segment& segment) const {
  const std::size_t bytes = segment.bucket_count * sizeof(Bucket);
  if (segment.buckets == &kEmptyBucket) return;
  FromPages(bytes) ? pages_->Free(segment.buckets, bytes) : std::free(segment.buckets);
}

std::uint32_t RowIndex::FindOrInsert(std::uint64_t hash, Key key, std::uint32_t new_row) {
  if (const std::uint32_t row = Find(hash, key); row != kNone) return row;
  MakeRoom(hash);
  Segment& segment = directory_[FirstCopy(SegmentOf(hash))];
  Append(segment, hash, key, new_row);
  ++segment.size;
  ++size_;
  return new_row;
}

void RowIndex::Append(const Segment& segment, std::uint64_t hash, Key key, std::uint32_t row) {
  std::uint32_t b = segment.Home(hash);
  while (segment.buckets[b].used == kBucketKeys) b = segment.Next(b);
  Bucket& bucket = segment.buckets[b];
  bucket.keys[bucket.used] = key;
  bucket.rows[bucket.used] = row;
  ++bucket.used;
}

bool RowIndex::Replace(std::uint64_t hash, Key key, std::uint32_t row) {
  const Place at = PlaceOf(directory_[SegmentOf(hash)], hash, key);
  if (at.i == kBucketKeys) return false;
  at.bucket->rows[at.i] = row;
  return true;
}

std::uint32_t RowIndex::Erase(std::uint64_t hash, Key key) {
  const std::size_t s = FirstCopy(SegmentOf(hash));
  Segment& segment = directory_[s];
  const Place at = PlaceOf(segment, hash, key);
  if (at.i == kBucketKeys) return kNone;
  const std::uint32_t row = at.bucket->rows[at.i];
  RemoveAt(segment, at);
  --segment.size;
  --size_;
  if (std::size_t{segment.size} * 2 * 10 < (segment.bucket_count - 1) * kLoadNew) Resize(s, segment.size);
  return row;
}

// Removes the entry at `at`. Keys that did not fit into a full bucket are in later ones, and a look-up stops at a
// bucket that is not full. So if the bucket was full, the first of those keys moves back, which leaves a hole in turn.
void RowIndex::RemoveAt(const Segment& segment, Place at) const {
  Bucket* bucket = at.bucket;
  const bool was_full = bucket->used == kBucketKeys;
  const std::uint32_t last = --bucket->used;
  bucket->keys[at.i] = bucket->keys[last];
  bucket->rows[at.i] = bucket->rows[last];
  if (!was_full) return;
  auto b = static_cast<std::uint32_t>(bucket - segment.buckets);
  for (std::uint32_t away = 1; away < segment.bucket_count; ++away) {
    b = segment.Next(b);
    Bucket& next = segment.buckets[b];
    for (std::uint32_t i = 0; i < next.used; ++i) {
      const std::uint32_t home = segment.Home(Hash(next.keys[i]));
      const std::uint32_t from_home = b >= home ? b - home : b + segment.bucket_count - home;
      if (from_home < away) continue;
      bucket->keys[last] = next.keys[i];
      bucket->rows[last] = next.rows[i];
      ++bucket->used;
      return RemoveAt(segment, {&next, i});
    }
    if (next.used < kBucketKeys) return;
  }
}

// Ensures that one more key fits into the segment of this hash.
void RowIndex::MakeRoom(std::uint64_t hash) {
  for (;;) {
    const std::size_t s = FirstCopy(SegmentOf(hash));
    const Segment& segment = directory_[s];
    const std::size_t wanted = std::size_t{segment.size} + 1;
    if (segment.buckets != &kEmptyBucket && wanted * 10 <= segment.bucket_count * kLoadMax) return;
    if (wanted <= kSegmentKeys || !MaySplit(segment)) return Resize(s, wanted);
    Split(s);
  }
}

// False if splitting would make the directory too large: keys may be chosen so that their hashes have a common prefix.
// The segment then grows instead.
bool RowIndex::MaySplit(const Segment& segment) const {
  constexpr std::size_t kEntriesPerSegment = 16;
  return segment.depth < directory_bits_ ||
         directory_.size() * kSegmentKeys <= (size_ + kSegmentKeys) * kEntriesPerSegment;
}

// Resizes a segment, given by its first copy, to `keys` keys. Old and new segment have the same order, so both are
// accessed sequentially.
void RowIndex::Resize(std::size_t s, std::size_t keys) {
  const Segment old = directory_[s];
  Segment segment = NewSegment(keys, old.depth);
  for (std::uint32_t b = 0; b < old.bucket_count; ++b)
    for (std::uint32_t i = 0; i < old.buckets[b].used; ++i)
      Append(segment, Hash(old.buckets[b].keys[i]), old.buckets[b].keys[i], old.buckets[b].rows[i]);
  segment.size = old.size;
  Put(s, segment);
  Free(old);
}

void RowIndex::Split(std::size_t s) {
  if (directory_[s].depth == directory_bits_) {
    DoubleDirectory();
    s *= 2;
  }
  const Segment old = directory_[s];
  const std::uint64_t middle = std::uint64_t{1} << (63 - old.depth);
  auto is_high = [&](Key key) { return (Hash(key) & middle) != 0; };
  Segment halves[2];
  std::size_t keys[2] = {0, 0};
  for (std::uint32_t b = 0; b < old.bucket_count; ++b)
    for (std::uint32_t i = 0; i < old.buckets[b].used; ++i) ++keys[is_high(old.buckets[b].keys[i])];
  for (int half : {0, 1}) {
    halves[half] = NewSegment(keys[half], old.depth + 1);
    halves[half].size = static_cast<std::uint32_t>(keys[half]);
  }
  for (std::uint32_t b = 0; b < old.bucket_count; ++b)
    for (std::uint32_t i = 0; i < old.buckets[b].used; ++i) {
      const Key key = old.buckets[b].keys[i];
      Append(halves[is_high(key)], Hash(key), key, old.buckets[b].rows[i]);
    }
  const std::size_t copies = CopiesOf(old);
  Put(s, halves[0]);
  Put(s + copies / 2, halves[1]);
  Free(old);
}

// Sets all copies of a segment, the first of which is at `s`.
void RowIndex::Put(std::size_t s, const Segment& segment) {
  std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(s), CopiesOf(segment), segment);
}

void RowIndex::DoubleDirectory() {
  std::vector<Segment> doubled;
  doubled.reserve(directory_.size() * 2);
  for (const Segment& segment : directory_) doubled.insert(doubled.end(), 2, segment);
  directory_ = std::move(doubled);
  ++directory_bits_;
}

std::size_t RowIndex::memory_bytes() const {
  std::size_t bytes = directory_.capacity() * sizeof(Segment);
  for (std::size_t s = 0; s < directory_.size(); s += CopiesOf(directory_[s]))
    if (const std::size_t segment = directory_[s].bucket_count * sizeof(Bucket);
        directory_[s].buckets != &kEmptyBucket && !FromPages(segment))
      bytes += segment;
  return bytes;
}

}  // namespace tarn::server
