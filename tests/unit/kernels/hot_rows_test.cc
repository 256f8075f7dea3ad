// Shows the contract of the hot-row cache, with the implementation in the host's memory: a row is found with its
// version or counts as missing, pinned rows keep their contents and slots, and which row is replaced when a bucket is
// full; also for random batches of which several are in flight.
#include "kernels/hot_rows.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "kernels/hot_rows_layout.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kDim = 5;
constexpr std::uint64_t kBucket = hot::kWays;

// A cache, and calls of it that return what they write.
class Cache {
 public:
  explicit Cache(const HotRowsOptions& options) : rows_(MakeHotRows(options)) {}

  std::vector<std::uint32_t> Find(const std::vector<Key>& keys, std::uint64_t least) {
    std::vector<std::uint32_t> slots(keys.size(), 0xabcdu), missing(keys.size());
    std::uint32_t count = 0xabcd;
    rows_->Find(keys.size(), keys.data(), Clock(least), slots.data(), missing.data(), &count);
    missing_.assign(missing.begin(), missing.begin() + count);
    return slots;
  }
  void Insert(const std::vector<Key>& keys, std::uint64_t least, std::vector<std::uint32_t>* slots) {
    rows_->Insert(keys.size(), keys.data(), Clock(least), slots->data());
  }
  // Fills row i with floats first + i.
  void Fill(const std::vector<std::uint32_t>& slots, float first, std::uint64_t version) {
    std::vector<float> rows(slots.size() * kDim);
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::fill_n(rows.begin() + std::ptrdiff_t(i * kDim), kDim, first + float(i));
    rows_->Fill(slots.size(), nullptr, slots.data(), rows.data(), Clock(version));
  }
  void Unpin(const std::vector<std::uint32_t>& slots) { rows_->Unpin(slots.size(), slots.data()); }
  void Evict(const std::vector<Key>& keys) { rows_->Evict(keys.size(), keys.data()); }

  // Runs a batch from its pull to its end; every row has `version`.
  std::vector<std::uint32_t> Keep(const std::vector<Key>& keys, std::uint64_t version, float first = 0) {
    std::vector<std::uint32_t> slots = Find(keys, version);
    Insert(keys, version, &slots);
    Fill(slots, first, version);
    Unpin(slots);
    return slots;
  }
  // Whether each key can be found, without leaving a pin.
  std::vector<bool> Has(const std::vector<Key>& keys, std::uint64_t least = 0) {
    const std::vector<std::uint32_t> slots = Find(keys, least);
    Unpin(slots);
    std::vector<bool> has(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) has[i] = slots[i] != kNoSlot;
    return has;
  }
  float At(std::uint32_t slot) const { return rows_->rows()[std::size_t{slot} * kDim + kDim - 1]; }

  HotRows& operator*() { return *rows_; }
  HotRows* operator->() { return rows_.get(); }
  const std::vector<std::uint32_t>& missing() const { return missing_; }

 private:
  std::unique_ptr<HotRows> rows_;
  std::vector<std::uint32_t> missing_;  // of the last Find
};

Cache OneBucket(HotScore score = HotScore::kLfu) {
  return Cache({.dim = kDim, .rows = kBucket, .batch_keys_max = 1000, .score = score});
}

std::vector<Key> Keys(Key first, std::size_t n) {
  std::vector<Key> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

std::size_t Count(const std::vector<bool>& values) {
  return std::size_t(std::count(values.begin(), values.end(), true));
}

TEST(HotRowsTest, FilledRowsAreFound) {
  Cache cache({.dim = kDim, .rows = 10 * kBucket, .batch_keys_max = 1000});
  const std::vector<Key> keys = {7, 0, ~Key{0}, 1 << 20};
  std::vector<std::uint32_t> slots = cache.Find(keys, 3);
  EXPECT_EQ(slots, std::vector<std::uint32_t>(4, kNoSlot));
  EXPECT_EQ(cache.missing(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  cache.Insert(keys, 3, &slots);
  EXPECT_EQ(std::set<std::uint32_t>(slots.begin(), slots.end()).size(), 4u);
  cache.Fill(slots, 10, 3);
  cache.Unpin(slots);

  const std::vector<Key> others = {5, ~Key{0}, 6, 7};
  const std::vector<std::uint32_t> found = cache.Find(others, 3);
  EXPECT_EQ(found, (std::vector<std::uint32_t>{kNoSlot, slots[2], kNoSlot, slots[0]}));
  EXPECT_EQ(cache.missing(), (std::vector<std::uint32_t>{0, 2}));
  std::vector<float> rows = Poisoned(4 * kDim);
  cache->Read(4, found.data(), rows.data());
  for (std::size_t j = 0; j < kDim; ++j) {
    EXPECT_TRUE(std::isnan(rows[j])) << "a row that is not there is left alone";
    EXPECT_EQ(rows[kDim + j], 12);
    EXPECT_EQ(rows[3 * kDim + j], 10);
  }
}

TEST(HotRowsTest, PartsOfABatchAreFilledByTheirPositions) {
  Cache cache = OneBucket();
  const std::vector<Key> keys = {1, 2, 3};
  std::vector<std::uint32_t> slots = cache.Find(keys, 0);
  cache.Insert(keys, 0, &slots);
  const std::vector<float> row(kDim, 33);
  const std::uint32_t position = 2;
  cache->Fill(1, &position, slots.data(), row.data(), Clock(4));
  EXPECT_EQ(cache.At(slots[2]), 33);
  EXPECT_EQ(cache.Find({3}, 4)[0], slots[2]);
  EXPECT_EQ(cache.Find({1}, 1)[0], kNoSlot) << "not filled: only what its pull will bring at least";
}

TEST(HotRowsTest, ARowOlderThanAllowedCountsAsMissing) {
  Cache cache = OneBucket();
  const std::vector<std::uint32_t> slots = cache.Keep({1}, 10, 5);
  EXPECT_EQ(cache.Has({1}, 10), std::vector<bool>{true});
  EXPECT_EQ(cache.Has({1}, 11), std::vector<bool>{false});
  EXPECT_EQ(cache.missing(), std::vector<std::uint32_t>{0});
  EXPECT_EQ(cache.Has({1}, 10), std::vector<bool>{true}) << "who may use it still does";
  EXPECT_EQ(cache.Keep({1}, 11, 6), slots) << "the newer row takes the place of the old one";
  EXPECT_EQ(cache.Has({1}, 11), std::vector<bool>{true});
  EXPECT_EQ(cache.At(slots[0]), 6);
}

TEST(HotRowsTest, APendingRowIsFoundByTheVersionThatItWillHave) {
  Cache cache = OneBucket();
  std::vector<std::uint32_t> first = cache.Find({1}, 10);
  cache.Insert({1}, 10, &first);
  EXPECT_EQ(cache.Find({1}, 10), first) << "the other batch waits for the Fill of the first";
  EXPECT_EQ(cache.Find({1}, 11)[0], kNoSlot);
  cache.Fill(first, 1, 12);
  EXPECT_EQ(cache.Find({1}, 12), first) << "it brought more than was asked for";
}

TEST(HotRowsTest, AFullBucketOfPinnedRowsAcceptsNoMore) {
  Cache cache = OneBucket();
  const std::vector<Key> keys = Keys(0, kBucket + 2);
  std::vector<std::uint32_t> slots = cache.Find(keys, 0);
  cache.Insert(keys, 0, &slots);
  EXPECT_EQ(std::count(slots.begin(), slots.end(), kNoSlot), 2);
  EXPECT_EQ(slots[kBucket], kNoSlot) << "the first ones of the batch come first";
  EXPECT_EQ(slots[kBucket + 1], kNoSlot);
  cache.Fill(slots, 0, 0);
  cache.Unpin({slots[9]});
  std::vector<std::uint32_t> late = cache.Find({1000}, 0);
  cache.Insert({1000}, 0, &late);
  EXPECT_EQ(late[0], slots[9]) << "the only one that is not pinned";
  EXPECT_EQ(cache.Find({9}, 0)[0], kNoSlot);
}

TEST(HotRowsTest, APinnedRowIsNotOverwrittenByANewerOne) {
  Cache cache = OneBucket();
  cache.Keep({1}, 10, 5);
  const std::vector<std::uint32_t> old = cache.Find({1}, 10);
  std::vector<std::uint32_t> fresh = cache.Find({1}, 11);
  cache.Insert({1}, 11, &fresh);
  ASSERT_NE(fresh[0], kNoSlot);
  EXPECT_NE(fresh[0], old[0]);
  cache.Fill(fresh, 6, 11);
  EXPECT_EQ(cache.At(old[0]), 5);
  EXPECT_EQ(cache.Find({1}, 0), fresh) << "the old one is detached";
  cache.Unpin(old);
  // The slot is detached and unpinned, so it is free and is used next.
  EXPECT_EQ(cache.Keep({2}, 11), old);
}

TEST(HotRowsTest, EvictedRowsStayForBatchesThatHavePinnedThem) {
  Cache cache = OneBucket();
  cache.Keep({1, 2}, 10, 5);
  const std::vector<std::uint32_t> mine = cache.Find({1}, 10);
  cache.Evict({1, 77});
  EXPECT_EQ(cache.Has({1, 2}), (std::vector<bool>{false, true}));
  const std::vector<Key> many = Keys(100, kBucket);
  std::vector<std::uint32_t> slots = cache.Find(many, 10);
  cache.Insert(many, 10, &slots);
  EXPECT_EQ(std::count(slots.begin(), slots.end(), mine[0]), 0);
  EXPECT_EQ(std::count(slots.begin(), slots.end(), kNoSlot), 1);
  EXPECT_EQ(cache.At(mine[0]), 5);
  cache->Clear();
  EXPECT_EQ(Count(cache.Has(many)), 0u);
  EXPECT_EQ(cache.At(mine[0]), 5);
}

TEST(HotRowsTest, TheLeastFrequentlyFoundRowIsReplacedFirst) {
  Cache cache = OneBucket(HotScore::kLfu);
  const std::vector<std::uint32_t> slots = cache.Keep(Keys(0, kBucket), 0);
  std::vector<Key> warm = Keys(0, kBucket);
  warm.erase(warm.begin() + 50);
  EXPECT_EQ(Count(cache.Has(warm)), kBucket - 1);
  EXPECT_EQ(cache.Keep({1000}, 0)[0], slots[50]);
  EXPECT_EQ(cache.Keep({1001}, 0)[0], slots[50]) << "a row that came once goes before those that were found again";
  EXPECT_EQ(Count(cache.Has({1001})), 1u);  // all have been found equally often, so the first slot is replaced
  EXPECT_EQ(cache.Keep({1002}, 0)[0], *std::min_element(slots.begin(), slots.end()));
}

TEST(HotRowsTest, AgingReducesOldScores) {
  Cache cache = OneBucket(HotScore::kLfu);
  const std::vector<std::uint32_t> slots = cache.Keep(Keys(0, kBucket), 0);
  for (int i = 0; i < 20; ++i) cache.Has({0});  // a score of 21, the others' is 1
  EXPECT_EQ(cache.Keep({1000}, 0)[0], slots[1]);
  for (int i = 0; i < 4; ++i) cache->Age();  // 1, and 0
  for (int i = 0; i < 2; ++i) cache.Has(Keys(2, kBucket - 2)), cache.Has({1000});
  EXPECT_EQ(cache.Keep({1001}, 0)[0], slots[0]);
}

TEST(HotRowsTest, TheLeastRecentlyFoundRowIsReplacedFirst) {
  Cache cache = OneBucket(HotScore::kLru);
  const std::vector<std::uint32_t> slots = cache.Keep(Keys(0, kBucket), 0);
  for (int i = 0; i < 100; ++i) cache.Has({7});
  std::vector<Key> others = Keys(0, kBucket);
  others.erase(others.begin() + 7);
  cache.Has(others);
  for (int i = 0; i < 40; ++i) cache->Age();  // times are not halved
  EXPECT_EQ(cache.Keep({1000}, 0)[0], slots[7]);
  EXPECT_EQ(cache.Keep({1001}, 0)[0], slots[0]) << "what came last goes last";
}

TEST(HotRowsTest, RowsTooOldForAnyPullAreReplacedFirst) {
  Cache cache = OneBucket();
  cache.Keep(Keys(0, kBucket - 1), 5);
  const std::vector<std::uint32_t> old = cache.Keep({500}, 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Count(cache.Has({500}, 3)), 1u);
  EXPECT_EQ(cache.Keep({1000}, 5), old);
}

TEST(HotRowsTest, ARowThatIsInsertedAgainKeepsItsScore) {
  Cache cache = OneBucket(HotScore::kLfu);
  const std::vector<std::uint32_t> slots = cache.Keep(Keys(0, kBucket), 0);
  for (int i = 0; i < 3; ++i) cache.Has({0, 1});  // a score of 4, the others' is 1
  const std::vector<std::uint32_t> pinned = cache.Find({1}, 0);
  std::vector<Key> batch = Keys(1000, kBucket - 1);  // more keys than the other rows have slots
  batch.insert(batch.end(), {0, 1});
  const std::vector<std::uint32_t> anew = cache.Keep(batch, 5);
  EXPECT_EQ(anew[kBucket - 1], slots[0]) << "nobody of its own batch takes its place";
  EXPECT_NE(anew[kBucket], kNoSlot);
  EXPECT_NE(anew[kBucket], slots[1]) << "who has it pinned keeps the old one";
  cache.Unpin(pinned);
  // Both are inserted again with their scores; of the others, each inserted once, the first are replaced.
  for (Key key = 2000; key < 2000 + kBucket; ++key) cache.Keep({key}, 5);
  EXPECT_EQ(Count(cache.Has({0, 1}, 5)), 2u);
}

TEST(HotRowsTest, OfTooOldRowsTheOneWithTheLowestScoreIsReplacedFirst) {
  Cache cache = OneBucket(HotScore::kLfu);
  const std::vector<std::uint32_t> slots = cache.Keep(Keys(0, kBucket), 0);
  std::vector<Key> warm = Keys(0, kBucket);
  warm.erase(warm.begin() + 50);
  cache.Has(warm);
  EXPECT_EQ(cache.Keep({1000}, 5)[0], slots[50]);
}

// A bucket full of keys with the same digest: only the keys differ.
TEST(HotRowsTest, KeysWithOneDigestAreDistinguished) {
  constexpr std::uint32_t kBuckets = 4;
  Cache cache({.dim = kDim, .rows = kBuckets * kBucket, .batch_keys_max = 1000});
  std::vector<Key> same;
  for (Key key = 0; same.size() < 100; ++key)
    if (hot::BucketOf(hot::HashOf(key), kBuckets) == 2 && hot::DigestOf(hot::HashOf(key)) == 77) same.push_back(key);
  const std::vector<Key> kept(same.begin(), same.begin() + 50);
  cache.Keep(kept, 1, 1000);
  const std::vector<bool> has = cache.Has(same);
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_EQ(has[i], i < 50) << i;
  const std::vector<std::uint32_t> slots = cache.Find(kept, 1);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(slots[i] / kBucket, 2u);
    EXPECT_EQ(cache.At(slots[i]), 1000 + float(i));
  }
}

TEST(HotRowsTest, CapacityIsWholeBuckets) {
  EXPECT_EQ(hot::BucketsFor(0), 1u);
  EXPECT_EQ(hot::BucketsFor(kBucket - 1), 1u);
  EXPECT_EQ(hot::BucketsFor(2 * kBucket - 1), 1u);
  EXPECT_EQ(hot::BucketsFor(2 * kBucket), 2u);
  const std::uint64_t most = hot::BucketsFor(~std::uint64_t{0});
  EXPECT_LE(most * kBucket, kNoSlot) << "every slot has a number";
  EXPECT_GT((most + 1) * kBucket, kNoSlot);
  EXPECT_EQ(Cache({.dim = 1, .rows = 300, .batch_keys_max = 1})->capacity(), 2 * kBucket);
}

TEST(HotRowsTest, HashesSpreadOverBucketsAndDigests) {
  constexpr std::uint32_t kBuckets = 10;
  std::vector<int> buckets(kBuckets), digests(256);
  for (Key key = 0; key < 100'000; ++key) {
    ++buckets[hot::BucketOf(hot::HashOf(key), kBuckets)];
    ++digests[hot::DigestOf(hot::HashOf(key))];
  }
  for (const int count : buckets) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_EQ(digests[hot::kNoDigest], 0);
  for (std::size_t d = 2; d < digests.size(); ++d) EXPECT_NEAR(digests[d], 391, 100);
}

TEST(HotRowsDeathTest, MisuseIsRefused) {
  Cache cache({.dim = kDim, .rows = kBucket, .batch_keys_max = 3});
  EXPECT_DEATH(cache.Find(Keys(0, 4), 0), "at most batch_keys_max keys");
  EXPECT_DEATH(cache.Unpin({5}), "an unpinned slot was pinned");
}

// Batches of a pipeline: each finds and inserts rows, is filled some batches later, computes and unpins. A row is right
// if it belongs to its key, has a version that the batch may use, and keeps its slot until the batch ends.
class Pipeline {
 public:
  explicit Pipeline(HotScore score)
      : cache_({.dim = kDim, .rows = 3 * kBucket, .batch_keys_max = 400, .score = score}) {}

  void Run(std::uint64_t seed) {
    SplitMix random(seed);
    for (clock_ = 0; clock_ < 300; ++clock_) {
      Start(random);
      if (random.Chance(0.1)) cache_->Age();
      if (random.Chance(0.02)) cache_->Clear(), versions_.clear();
      if (random.Chance(0.3)) Push(random);
      if (batches_.size() > 3) Finish();
    }
    while (!batches_.empty()) Finish();
    EXPECT_GT(hits_, 1000u);
    EXPECT_GT(unkept_, 0u) << "some batches were too many for the cache";
  }

 private:
  static constexpr std::uint64_t kStaleness = 20;

  struct Batch {
    std::uint64_t least = 0, version = 0;  // that it may use, and that its pull brings
    std::vector<Key> keys;
    std::vector<std::uint32_t> slots;
    std::vector<std::uint32_t> missing;
  };

  // The row of a key at a version, as the servers have it.
  static float Value(Key key, std::uint64_t version) { return float(key * 1000 + version); }

  void Start(SplitMix& random) {
    Batch batch{.least = clock_ < kStaleness ? 0 : clock_ - kStaleness};
    batch.version = batch.least + random.Below(clock_ - batch.least + 1);
    std::set<Key> keys;
    const std::size_t count = random.Chance(0.1) ? 390 : random.Below(60);
    while (keys.size() < count) keys.insert(random.Below(random.Chance(0.7) ? 60 : 1200));
    batch.keys.assign(keys.begin(), keys.end());
    batch.slots = cache_.Find(batch.keys, batch.least);
    batch.missing = cache_.missing();
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      const bool is_missing = std::count(batch.missing.begin(), batch.missing.end(), std::uint32_t(i)) != 0;
      ASSERT_EQ(is_missing, batch.slots[i] == kNoSlot);
      const auto kept = versions_.find(batch.keys[i]);
      if (!is_missing) {
        ASSERT_TRUE(kept != versions_.end()) << "nothing is found that was evicted or never came";
        ASSERT_GE(kept->second, batch.least);
      }
    }
    hits_ += batch.keys.size() - batch.missing.size();
    cache_.Insert(batch.keys, batch.least, &batch.slots);
    std::set<std::uint32_t> distinct;
    for (const std::uint32_t i : batch.missing) {
      if (batch.slots[i] == kNoSlot) {
        ++unkept_;
        versions_.erase(batch.keys[i]);
        continue;
      }
      EXPECT_TRUE(distinct.insert(batch.slots[i]).second);
      for (const Batch& other : batches_)
        EXPECT_EQ(std::count(other.slots.begin(), other.slots.end(), batch.slots[i]), 0)
            << "a pinned slot was given away";
      versions_[batch.keys[i]] = batch.least;
    }
    batches_.push_back(std::move(batch));
  }

  // The oldest batch gets its rows, in two parts, computes and ends.
  void Finish() {
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    const std::size_t half = batch.missing.size() / 2;
    Fill(batch, std::span(batch.missing).first(half));
    Fill(batch, std::span(batch.missing).subspan(half));
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      if (batch.slots[i] == kNoSlot) continue;
      const float value = cache_.At(batch.slots[i]);
      const auto key = std::uint64_t(value) / 1000, found = std::uint64_t(value) % 1000;
      EXPECT_EQ(key, batch.keys[i]);
      EXPECT_GE(found, batch.least) << "the staleness bound";
    }
    cache_.Unpin(batch.slots);
  }

  void Fill(const Batch& batch, std::span<const std::uint32_t> positions) {
    std::vector<float> rows;
    for (const std::uint32_t i : positions) rows.insert(rows.end(), kDim, Value(batch.keys[i], batch.version));
    cache_->Fill(positions.size(), positions.data(), batch.slots.data(), rows.data(), Clock(batch.version));
    // From now on this version is found, unless the row was evicted or inserted again since.
    for (const std::uint32_t i : positions)
      if (const auto kept = versions_.find(batch.keys[i]); kept != versions_.end())
        kept->second = std::max(kept->second, batch.version);
  }

  void Push(SplitMix& random) {
    std::vector<Key> keys;
    for (Key key = random.Below(20); key < 100; key += 1 + random.Below(20)) keys.push_back(key);
    cache_.Evict(keys);
    for (const Key key : keys) versions_.erase(key);
  }

  Cache cache_;
  std::uint64_t clock_ = 0;
  std::deque<Batch> batches_;
  std::map<Key, std::uint64_t> versions_;  // the largest with which a key may be found
  std::uint64_t hits_ = 0, unkept_ = 0;
};

TEST(HotRowsTest, APipelineOfRandomBatches) {
  for (const HotScore score : {HotScore::kLru, HotScore::kLfu})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) Pipeline(score).Run(seed);
}

}  // namespace
}  // namespace tarn::kernels
