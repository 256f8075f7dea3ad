// Shows that cached rows are found unchanged and only if they are new enough, that memory is bounded, and which rows
// are replaced first.
#include "worker/client/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/hash.h"

namespace tarn::worker {
namespace {

constexpr std::uint64_t kMany = std::numeric_limits<std::uint64_t>::max();

struct Answer {
  std::vector<float> rows;
  std::vector<std::uint32_t> missing;
  RowCache::Found found;
};

Answer Read(RowCache* cache, const std::vector<Key>& keys, std::uint64_t least, std::uint32_t dim = 2) {
  Answer answer;
  answer.rows.assign(keys.size() * dim, -1);
  answer.found = cache->Read(keys, Clock(least), answer.rows.data(), &answer.missing);
  return answer;
}

void Insert(RowCache* cache, Key key, float value, std::uint64_t version, std::uint64_t least = 0) {
  const float row[] = {value, value + 0.5f};
  cache->Insert({&key, 1}, row, Clock(version), Clock(least));
}

TEST(RowCache, FindsRowsThatAreNewEnough) {
  RowCache cache(1 << 20, 2, kMany);
  Insert(&cache, 7, 1, 5);
  Insert(&cache, 0, 2, 6);
  Insert(&cache, ~Key{0}, 3, 0);
  const Answer all = Read(&cache, {0, 8, 7, ~Key{0}}, 0);
  EXPECT_EQ(all.rows, (std::vector<float>{2, 2.5, -1, -1, 1, 1.5, 3, 3.5}));
  EXPECT_EQ(all.missing, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(all.found.rows, 3u);
  EXPECT_EQ(all.found.oldest, Clock(0));
  EXPECT_TRUE(Read(&cache, {7}, 5).missing.empty());
  EXPECT_EQ(Read(&cache, {7}, 6).missing.size(), 1u);
  EXPECT_EQ(Read(&cache, {0, 7}, 5).found.oldest, Clock(5));
}

TEST(RowCache, TheNewerVersionStays) {
  RowCache cache(1 << 20, 2, kMany);
  Insert(&cache, 7, 1, 5);
  Insert(&cache, 7, 2, 4);
  EXPECT_EQ(Read(&cache, {7}, 5).rows[0], 1);
  Insert(&cache, 7, 3, 5);
  EXPECT_EQ(Read(&cache, {7}, 5).rows[0], 3);
  Insert(&cache, 7, 4, 9);
  EXPECT_EQ(Read(&cache, {7}, 9).rows[0], 4);
  Insert(&cache, 8, 4, 9, 10);  // older than any later request allows
  EXPECT_EQ(Read(&cache, {8}, 0).missing.size(), 1u);
}

TEST(RowCache, DroppedRowsAreNotFound) {
  RowCache cache(1 << 20, 2, kMany);
  for (Key key = 0; key < 100; ++key) Insert(&cache, key, float(key), 5);
  cache.Drop(std::vector<Key>{3, 4, 1000});
  EXPECT_EQ(Read(&cache, {2, 3, 4, 5}, 0).missing, (std::vector<std::uint32_t>{1, 2}));
  cache.Clear();
  EXPECT_EQ(Read(&cache, {2, 5}, 0).missing.size(), 2u);
}

TEST(RowCache, RenewsItsRows) {
  RowCache cache(1 << 20, 2, kMany);
  const auto keys_of = [&] {
    std::vector<Key> keys;
    cache.AppendKeys(&keys);
    std::ranges::sort(keys);
    return keys;
  };
  for (Key key = 0; key < 4; ++key) Insert(&cache, key, float(key), 5);
  const std::uint64_t version = cache.keys_version();
  cache.Drop(std::vector<Key>{2});
  EXPECT_EQ(keys_of(), (std::vector<Key>{0, 1, 2, 3})) << "dropped rows are asked for as well";
  const std::vector<Key> keys = {0, 2, 9};
  const std::vector<float> rows = {10, 10.5, 12, 12.5, 19, 19.5};
  EXPECT_EQ(cache.Renew(keys, rows.data(), Clock(4)), 1u) << "only the dropped one is older";
  EXPECT_EQ(Read(&cache, {0, 2}, 4).rows, (std::vector<float>{0, 0.5, 12, 12.5}));
  EXPECT_EQ(cache.Renew(keys, rows.data(), Clock(7)), 2u);
  EXPECT_EQ(Read(&cache, {0, 1, 2, 9}, 6).missing, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(cache.keys_version(), version);
  Insert(&cache, 9, 1, 7);
  EXPECT_NE(cache.keys_version(), version);
}

TEST(RowCache, MemoryIsBoundedAndMostOfItUsed) {
  for (std::size_t bytes : {1u << 10, 100'000u, 1u << 20}) {
    RowCache cache(bytes, 2, kMany);
    EXPECT_LE(cache.memory_bytes(), bytes);
    EXPECT_GE(cache.memory_bytes(), bytes - 192);
    const std::size_t n = cache.capacity() * 4;
    std::vector<Key> keys(n);
    std::vector<float> rows(2 * n);
    for (std::size_t i = 0; i < n; ++i) keys[i] = Mix64(i), rows[2 * i] = float(i);
    cache.Insert(keys, rows.data(), Clock(1), Clock(0));
    const Answer all = Read(&cache, keys, 0);
    EXPECT_LE(all.found.rows, cache.capacity());
    EXPECT_GE(all.found.rows, cache.capacity() * 8 / 10);
    std::vector<bool> missing(n);
    for (std::uint32_t i : all.missing) missing[i] = true;
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(all.rows[2 * i], missing[i] ? -1 : float(i));
  }
}

TEST(RowCache, AllRowsOfADenseTableFitIfThereIsRoom) {
  for (std::uint64_t rows : {1u, 8u, 1000u, 1001u}) {
    RowCache cache(1 << 20, 2, rows);
    EXPECT_LE(cache.capacity(), rows + 8) << "no larger than the table needs";
    std::vector<Key> keys(rows);
    for (Key key = 0; key < rows; ++key) Insert(&cache, keys[key] = key, float(key), 1);
    EXPECT_EQ(Read(&cache, keys, 0).found.rows, rows);
  }
  RowCache small(10'000, 2, 1000);
  std::vector<Key> keys(1000);
  for (Key key = 0; key < 1000; ++key) Insert(&small, keys[key] = key, float(key), 1);
  EXPECT_LE(small.memory_bytes(), 10'000u);
  EXPECT_GE(Read(&small, keys, 0).found.rows, small.capacity() * 8 / 10);
}

TEST(RowCache, RowsThatAreReadAgainStayLonger) {
  RowCache cache(100'000, 2, kMany);
  std::vector<Key> hot(cache.capacity() / 4);
  for (std::size_t i = 0; i < hot.size(); ++i) Insert(&cache, hot[i] = Mix64(i), 1, 1);
  const std::size_t here = Read(&cache, hot, 0).found.rows;
  for (std::size_t scan = 0; scan < 20; ++scan) {
    for (std::size_t i = 0; i < cache.capacity() / 2; ++i) Insert(&cache, Mix64((scan + 1) << 32 | i), 2, 1);
    Read(&cache, hot, 0);
  }
  EXPECT_GE(Read(&cache, hot, 0).found.rows, here * 9 / 10);
}

TEST(RowCache, RowsThatAreTooOldAreReplacedFirst) {
  RowCache cache(192, 2, kMany);  // one set
  ASSERT_EQ(cache.capacity(), 8u);
  std::vector<Key> old = {1, 2, 3}, young = {11, 12, 13, 14, 15};
  for (Key key : old) Insert(&cache, key, 1, 1);
  for (Key key : young) Insert(&cache, key, 2, 5);
  Read(&cache, old, 0);  // being read does not keep rows that are too old
  for (Key key : {21, 22, 23}) Insert(&cache, Key(key), 3, 5, 4);
  EXPECT_EQ(Read(&cache, young, 0).found.rows, 5u);
  EXPECT_EQ(Read(&cache, {21, 22, 23}, 0).found.rows, 3u);
  EXPECT_EQ(Read(&cache, old, 0).found.rows, 0u);
}

// Random insertions, drops and evictions: a row that is found is the one inserted last, and no other row is found.
TEST(RowCache, ReturnsOnlyRowsAsTheyWereInserted) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix rng(seed);
    RowCache cache(1'024 + rng.Below(8'000), 2, kMany);
    std::map<Key, std::pair<std::uint64_t, float>> newest;
    for (int step = 0; step < 3'000; ++step) {
      const Key key = Mix64(rng.Below(400));
      const std::uint64_t version = std::uint64_t(step) / 100 + rng.Below(5);
      if (rng.Chance(0.5)) {
        Insert(&cache, key, float(step), version, rng.Below(version + 1));
        auto& inserted = newest.try_emplace(key, version, float(step)).first->second;
        if (version >= inserted.first) inserted = {version, float(step)};
      } else if (rng.Chance(0.1)) {
        cache.Drop(std::vector<Key>{key});
        newest.erase(key);
      } else {
        const std::uint64_t least = rng.Below(version + 3);
        const Answer answer = Read(&cache, {key}, least);
        if (!answer.missing.empty()) continue;
        const auto it = newest.find(key);
        ASSERT_NE(it, newest.end());
        // An older one may have been inserted after the newest was evicted.
        ASSERT_GE(answer.found.oldest, Clock(least));
        if (answer.found.oldest == Clock(it->second.first)) {
          ASSERT_EQ(answer.rows[0], it->second.second);
        }
        ASSERT_EQ(answer.rows[1], answer.rows[0] + 0.5f);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::worker
