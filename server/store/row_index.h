// The index of one sparse fragment, from keys to row numbers: an open-addressing hash table in segments. Each segment
// has the keys of one range of hashes, in buckets of one cache line, so that most look-ups access one line. One writer;
// not thread-safe.
//
// Segments and buckets are ordered by their keys' positions (core/position.h). The hash of a key is its position
// without the partition's bits: a bijection of the key, so different keys have different hashes. A segment grows by an
// eighth and is split in two when it holds kSegmentKeys, as in extendible hashing (Fagin, Nievergelt, Pippenger,
// Strong, TODS 1979): an insertion copies at most one segment, which takes some tens of microseconds. While keys are
// only inserted, the load of large segments is between 0.64 and 0.72, 18 to 20 bytes per key. A higher load slows
// look-ups down, because more buckets overflow into the next one: at a load of 0.85 every second one, at 0.68 every
// fifth. A segment that has lost half of its keys shrinks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/hash.h"
#include "core/types.h"
#include "server/store/page_pool.h"
#include "server/store/row_probe.h"

namespace tarn::server {

class RowIndex {
 public:
  static constexpr std::uint32_t kNone = kNoRow;
  static constexpr std::uint32_t kSegmentKeys = 4096;

  // `salt`: of the table. All keys agree in the top `partition_bits` bits of their positions. Segments of kPageBytes to
  // kRunBytesMax bytes are allocated from `pages`, if not null, which outlives the index.
  RowIndex(std::uint64_t salt, std::uint32_t partition_bits, PagePool* pages = nullptr)
      : salt_(salt), partition_bits_(partition_bits), pages_(pages) {}
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  std::uint64_t Hash(Key key) const { return Mix64(key ^ salt_) << partition_bits_; }

  // The home bucket of a hash (server/store/row_probe.h); valid until the next change of the index.
  [[gnu::always_inline]] const RowBucket* HomeOf(std::uint64_t hash) const {
    const Segment& segment = directory_[SegmentOf(hash)];
    return segment.buckets + segment.Home(hash);
  }

  // The bucket after a home, for keys that did not fit into it.
  const RowBucket* BehindHome(std::uint64_t hash) const {
    const Segment& segment = directory_[SegmentOf(hash)];
    return segment.buckets + segment.Next(segment.Home(hash));
  }

  // The row of a key with its hash, or kNone.
  std::uint32_t Find(std::uint64_t hash, Key key) const {
    const Place at = PlaceOf(directory_[SegmentOf(hash)], hash, key);
    return at.i == kBucketKeys ? kNone : at.bucket->rows[at.i];
  }

  // The row of a key with its hash; if the key has none, inserts it with `new_row`.
  std::uint32_t FindOrInsert(std::uint64_t hash, Key key, std::uint32_t new_row);

  // Changes the row of a key with its hash. False if the key has none.
  bool Replace(std::uint64_t hash, Key key, std::uint32_t row);

  // Removes a key with its hash. Returns its row, or kNone.
  std::uint32_t Erase(std::uint64_t hash, Key key);

  // Calls visit(key, row) for all keys, in no particular order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::size_t s = 0; s < directory_.size(); s += CopiesOf(directory_[s]))
      for (std::uint32_t b = 0; b < directory_[s].bucket_count; ++b) {
        const Bucket& bucket = directory_[s].buckets[b];
        for (std::uint32_t i = 0; i < bucket.used; ++i) visit(bucket.keys[i], bucket.rows[i]);
      }
  }

  // An iteration over all keys in steps, between which keys may be inserted and removed and the index may grow.
  struct Walk {
    std::uint64_t next_hash = 0;  // keys with lower hashes have been visited
    bool done = false;
  };
  // Continues with about `keys` keys, of one segment at most: calls visit(key, row) for each, which must not change the
  // index. Every key that is present during the whole iteration is visited once; keys inserted or removed meanwhile are
  // visited at most once.
  template <typename Visit>
  void Continue(Walk* walk, std::size_t keys, Visit visit) const {
    if (size_ == 0) walk->done = true;
    if (walk->done) return;
    const std::size_t s = SegmentOf(walk->next_hash);
    const Segment& segment = directory_[s];
    const std::uint32_t first = segment.Home(walk->next_hash);
    const std::size_t wanted = first + std::max<std::size_t>(1, keys / kBucketKeys);
    const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(segment.bucket_count, wanted));
    const bool last = end == segment.bucket_count;
    const std::uint64_t from = walk->next_hash, to = last ? LastHash(s) : segment.FirstHash(FirstHash(s), end) - 1;
    // Keys that do not fit into a full bucket are in later ones, so the loop continues after `end` up to a bucket with
    // room. The range of hashes excludes keys with other home buckets.
    std::uint32_t b = first;
    for (std::uint32_t n = 1; n <= segment.bucket_count; ++n, b = segment.Next(b)) {
      const Bucket& bucket = segment.buckets[b];
      for (std::uint32_t i = 0; i < bucket.used; ++i) {
        const std::uint64_t hash = Hash(bucket.keys[i]);
        if (hash >= from && hash <= to) visit(bucket.keys[i], bucket.rows[i]);
      }
      if (n >= end - first && bucket.used < kBucketKeys) break;
    }
    *walk = {to + 1, to == ~std::uint64_t{0}};
  }

  std::uint64_t salt() const { return salt_; }
  std::uint32_t partition_bits() const { return partition_bits_; }
  std::size_t size() const { return size_; }
  // Without the memory allocated from `pages`.
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kBucketKeys = RowBucket::kKeys;
  using Bucket = RowBucket;
  static const Bucket kEmptyBucket;  // the bucket of an index without keys

  // The keys whose hashes start with the same `depth` bits. Each directory entry with these bits has a copy.
  struct Segment {
    Bucket* buckets = const_cast<Bucket*>(&kEmptyBucket);  // never written to
    std::uint32_t bucket_count = 1;
    std::uint32_t size = 0;  // valid only in the first copy
    std::uint32_t depth = 0;

    std::uint32_t Home(std::uint64_t hash) const {
      return static_cast<std::uint32_t>((static_cast<unsigned __int128>(hash << depth) * bucket_count) >> 64);
    }
    // The lowest hash whose home is bucket `b`. `first`: the segment's lowest hash.
    std::uint64_t FirstHash(std::uint64_t first, std::uint32_t b) const {
      const auto line = (static_cast<unsigned __int128>(b) << 64) + bucket_count - 1;
      return first + (static_cast<std::uint64_t>(line / bucket_count) >> depth) +
             ((static_cast<std::uint64_t>(line / bucket_count) & ((std::uint64_t{1} << depth) - 1)) != 0 ? 1 : 0);
    }
    std::uint32_t Next(std::uint32_t b) const { return b + 1 == bucket_count ? 0 : b + 1; }
  };
  struct Place {
    Bucket* bucket;
    std::uint32_t i;  // index in the bucket; kBucketKeys: the segment does not contain the key
  };

  std::size_t SegmentOf(std::uint64_t hash) const {
    return static_cast<std::size_t>((hash >> 1) >> (63 - directory_bits_));
  }
  std::size_t CopiesOf(const Segment& segment) const { return std::size_t{1} << (directory_bits_ - segment.depth); }
  std::size_t FirstCopy(std::size_t s) const { return s & ~(CopiesOf(directory_[s]) - 1); }
  // The lowest and the highest hash of the segment in directory entry `s`.
  std::uint64_t FirstHash(std::size_t s) const {
    return directory_bits_ == 0 ? 0 : static_cast<std::uint64_t>(FirstCopy(s)) << (64 - directory_bits_);
  }
  std::uint64_t LastHash(std::size_t s) const { return FirstHash(s) + (~std::uint64_t{0} >> directory_[s].depth); }

  static Place PlaceOf(const Segment& segment, std::uint64_t hash, Key key) {
    for (std::uint32_t b = segment.Home(hash);; b = segment.Next(b)) {
      Bucket& bucket = segment.buckets[b];
      if (const std::uint32_t hits = Matches(bucket, key); hits != 0)
        return {&bucket, static_cast<std::uint32_t>(__builtin_ctz(hits))};
      if (bucket.used < kBucketKeys) return {&bucket, kBucketKeys};
    }
  }
  static std::uint32_t Matches(const Bucket& bucket, Key key) {
    std::uint32_t hits = 0;
    for (std::uint32_t i = 0; i < kBucketKeys; ++i) hits |= std::uint32_t(bucket.keys[i] == key) << i;
    return hits & ((1u << bucket.used) - 1);
  }

  bool FromPages(std::size_t bytes) const {
    return pages_ != nullptr && bytes >= PagePool::kPageBytes && bytes <= PagePool::kRunBytesMax;
  }
  Segment NewSegment(std::size_t keys, std::uint32_t depth) const;
  void Free(const Segment& segment) const;
  static void Append(const Segment& segment, std::uint64_t hash, Key key, std::uint32_t row);
  void RemoveAt(const Segment& segment, Place at) const;
  void Put(std::size_t s, const Segment& segment);
  void MakeRoom(std::uint64_t hash);
  bool MaySplit(const Segment& segment) const;
  void Resize(std::size_t s, std::size_t keys);
  void Split(std::size_t s);
  void DoubleDirectory();

  std::vector<Segment> directory_{1};  // by the first directory_bits_ bits of a hash
  std::uint32_t directory_bits_ = 0;
  std::size_t size_ = 0;
  std::uint64_t salt_;
  std::uint32_t partition_bits_;
  PagePool* pages_;
};

}  // namespace tarn::server
