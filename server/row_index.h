// The index of one sparse partition: from a key to the number of its row. An open-addressing hash table of buckets
// that fill one cache line each, so that a look-up touches one line almost always. One writer; not thread-safe.
//
// Buckets lie in the order of their keys' positions (core/position.h), of which the index takes the bits below the
// partition's: a bijection of the key, so equal keys are the only equal hashes. Load stays between 0.53 and 0.8
// once the index has grown, 16 to 24 bytes a key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/hash.h"
#include "core/types.h"

namespace tarn::server {

class RowIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // `salt` is the table's; the keys given agree in the top `partition_bits` bits of their positions.
  RowIndex(std::uint64_t salt, std::uint32_t partition_bits) : salt_(salt), partition_bits_(partition_bits) {}
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  std::uint64_t Hash(Key key) const { return Mix64(key ^ salt_) << partition_bits_; }

  // Brings the line of a key with this hash near.
  void Prefetch(std::uint64_t hash) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets_[Home(hash)]);
  }

  // The row of a key with its hash, or kNone.
  std::uint32_t Find(std::uint64_t hash, Key key) const {
    if (bucket_count_ == 0) return kNone;
    for (std::size_t b = Home(hash);; b = Next(b)) {
      const Bucket& bucket = buckets_[b];
      if (const std::uint32_t hits = Matches(bucket, key); hits != 0) return bucket.rows[__builtin_ctz(hits)];
      if (bucket.used < kBucketKeys) return kNone;
    }
  }

  // The row of a key with its hash; if it has none, `new_row` from now on.
  std::uint32_t FindOrInsert(std::uint64_t hash, Key key, std::uint32_t new_row);

  // Gives a key with its hash another row. False if it has none.
  bool Replace(std::uint64_t hash, Key key, std::uint32_t row);

  // Forgets a key with its hash; its row, or kNone if it had none.
  std::uint32_t Erase(std::uint64_t hash, Key key);

  // Calls visit(key, row) for all, in no particular order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::size_t b = 0; b < bucket_count_; ++b)
      for (std::uint32_t i = 0; i < buckets_[b].used; ++i) visit(buckets_[b].keys[i], buckets_[b].rows[i]);
  }

  // A walk over all keys in pieces, between which keys may come and go and the index may grow.
  struct Walk {
    std::uint64_t next_hash = 0;  // keys with lower ones are visited
    bool done = false;
  };
  // Goes on with about `keys` keys: calls visit(key, row) for each. In the end every key that was there all the
  // time has been visited once, and each that came or went meanwhile once or not at all.
  template <typename Visit>
  void Continue(Walk* walk, std::size_t keys, Visit visit) const {
    if (bucket_count_ == 0) walk->done = true;
    if (walk->done) return;
    const std::size_t first = Home(walk->next_hash);
    const std::size_t end = std::min(bucket_count_, first + std::max<std::size_t>(1, keys / kBucketKeys));
    const bool last = end == bucket_count_;
    const std::uint64_t from = walk->next_hash, to = last ? 0 : FirstHash(end);
    // A key of the last buckets can lie behind them, as long as they are full; one of earlier buckets has been there.
    std::size_t b = first;
    for (std::size_t n = 1; n <= bucket_count_; ++n, b = Next(b)) {
      const Bucket& bucket = buckets_[b];
      for (std::uint32_t i = 0; i < bucket.used; ++i) {
        const std::uint64_t hash = Hash(bucket.keys[i]);
        if (hash >= from && (last || hash < to)) visit(bucket.keys[i], bucket.rows[i]);
      }
      if (n >= end - first && bucket.used < kBucketKeys) break;
    }
    *walk = {to, last};
  }

  std::uint64_t salt() const { return salt_; }
  std::uint32_t partition_bits() const { return partition_bits_; }
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return bucket_count_ * sizeof(Bucket); }

 private:
  static constexpr std::uint32_t kBucketKeys = 5;
  struct alignas(64) Bucket {
    Key keys[kBucketKeys];
    std::uint32_t rows[kBucketKeys];
    std::uint32_t used;
  };
  static_assert(sizeof(Bucket) == 64);

  struct Place {
    std::size_t bucket;
    std::uint32_t i;  // in it; kBucketKeys: the key is not there
  };

  std::size_t Home(std::uint64_t hash) const {
    return static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * bucket_count_) >> 64);
  }
  // The lowest hash whose home is this bucket.
  std::uint64_t FirstHash(std::size_t b) const {
    const auto line = (static_cast<unsigned __int128>(b) << 64) + bucket_count_ - 1;
    return static_cast<std::uint64_t>(line / bucket_count_);
  }
  std::size_t Next(std::size_t b) const { return b + 1 == bucket_count_ ? 0 : b + 1; }
  static std::uint32_t Matches(const Bucket& bucket, Key key) {
    std::uint32_t hits = 0;
    for (std::uint32_t i = 0; i < kBucketKeys; ++i) hits |= std::uint32_t(bucket.keys[i] == key) << i;
    return hits & ((1u << bucket.used) - 1);
  }
  void Append(std::uint64_t hash, Key key, std::uint32_t row);
  Place PlaceOf(std::uint64_t hash, Key key) const;
  void Fill(Place hole);
  void Grow();

  Bucket* buckets_ = nullptr;
  std::size_t bucket_count_ = 0;
  std::size_t size_ = 0;
  std::uint64_t salt_;
  std::uint32_t partition_bits_;
};

}  // namespace tarn::server
