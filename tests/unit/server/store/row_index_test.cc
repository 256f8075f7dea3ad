// Shows that the index of a sparse partition finds every inserted key, while it grows and for any kind of keys.
#include "server/store/row_index.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "core/hash.h"
#include "server/store/row_slabs.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::server {
namespace {

TEST(RowIndexTest, AnEmptyIndexHasNothing) {
  RowIndex index(1, 0);
  EXPECT_EQ(index.Find(index.Hash(5), 5), RowIndex::kNone);
  EXPECT_EQ(index.size(), 0u);
  EXPECT_LT(index.memory_bytes(), 64u);
}

// Groups of keys, on every instruction set: keys in their home bucket or a later one; absent keys; erased keys whose
// value is still in a bucket; and key 0, which equals an empty entry.
TEST(RowIndexTest, ProbingAGroupOfKeysAgreesWithFind) {
  RowIndex index(99, 6);
  constexpr std::uint32_t kKeys = 6'000;
  for (std::uint32_t i = 0; i < kKeys; ++i) index.FindOrInsert(index.Hash(i), i, i);
  for (std::uint32_t i = 0; i < kKeys; i += 3) index.Erase(index.Hash(i), i);
  Arena arena;
  RowSlabs slabs(&arena, 40);
  while (slabs.size() < kKeys) slabs.Add();
  std::vector<Key> keys;
  std::vector<const RowBucket*> homes;
  for (std::uint32_t i = 0; i < kKeys + 500; ++i) {
    keys.push_back(i);
    homes.push_back(index.HomeOf(index.Hash(i)));
  }
  kernels::ForEachTarget([&](const char* target) {
    std::vector<std::uint32_t> rows(keys.size());
    ProbeBuckets(keys.size(), keys.data(), homes.data(), rows.data());
    std::size_t further = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::uint32_t row = index.Find(index.Hash(keys[i]), keys[i]);
      if (rows[i] == kRowFurther) {
        ++further;
        EXPECT_EQ(homes[i]->used, RowBucket::kKeys);
      } else {
        ASSERT_EQ(rows[i], row) << target << ", key " << keys[i];
      }
    }
    EXPECT_GT(further, 0u) << target;
    EXPECT_LT(further, keys.size() / 2) << target;

    std::vector<std::uint32_t> numbers(keys.size()), more(keys.size());
    std::vector<float*> places(keys.size());
    more.resize(
        LocateRows(slabs, 40, keys.size(), keys.data(), homes.data(), numbers.data(), places.data(), more.data()));
    ASSERT_EQ(numbers, rows) << target;
    ASSERT_EQ(more.size(), further) << target;
    for (std::uint32_t i : more) ASSERT_EQ(numbers[i], kRowFurther) << target;
    for (std::size_t i = 0; i < keys.size(); ++i)
      ASSERT_EQ(places[i], numbers[i] < kRowFurther ? slabs.Row(numbers[i]) : nullptr) << target << ", key " << keys[i];
  });
  const RowBucket nothing{};
  const RowBucket* bucket = &nothing;
  const Key zero = 0;
  std::uint32_t row = 7;
  ProbeBuckets(1, &zero, &bucket, &row);
  EXPECT_EQ(row, kNoRow);
}

TEST(RowIndexTest, FindsAllThroughGrowth) {
  for (std::uint32_t bits : {0u, 6u, 12u}) {
    RowIndex index(99, bits);
    constexpr std::uint32_t kKeys = 20'000;
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      const Key key = std::uint64_t{i} << 40 | 3;
      ASSERT_EQ(index.FindOrInsert(index.Hash(key), key, i), i);
      ASSERT_EQ(index.FindOrInsert(index.Hash(key), key, kKeys), i);
    }
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      const Key key = std::uint64_t{i} << 40 | 3;
      ASSERT_EQ(index.Find(index.Hash(key), key), i);
      ASSERT_EQ(index.Find(index.Hash(key + 1), key + 1), RowIndex::kNone);
    }
    EXPECT_EQ(index.size(), kKeys);
    EXPECT_LE(index.memory_bytes(), kKeys * 21);
    std::set<Key> seen;
    index.ForEach([&](Key key, std::uint32_t row) {
      EXPECT_EQ(key, std::uint64_t{row} << 40 | 3);
      seen.insert(key);
    });
    EXPECT_EQ(seen.size(), kKeys);
  }
}

TEST(RowIndexTest, ErasesAndReplaces) {
  for (std::uint32_t bits : {0u, 7u}) {
    RowIndex index(3, bits);
    std::map<Key, std::uint32_t> model;
    SplitMix random(bits);
    for (std::uint32_t i = 0; i < 200'000; ++i) {
      const Key key = random.Below(i % 20'000 + 1);
      const std::uint64_t hash = index.Hash(key);
      const auto known = model.find(key);
      switch (random.Below(5)) {
        case 0:
        case 1:
          ASSERT_EQ(index.FindOrInsert(hash, key, i), known == model.end() ? i : known->second);
          model.try_emplace(key, i);
          break;
        case 2:
          ASSERT_EQ(index.Replace(hash, key, i), known != model.end());
          if (known != model.end()) known->second = i;
          break;
        default:
          ASSERT_EQ(index.Erase(hash, key), known == model.end() ? RowIndex::kNone : known->second);
          model.erase(key);
      }
      ASSERT_EQ(index.size(), model.size());
    }
    for (Key key = 0; key < 20'000; ++key)
      ASSERT_EQ(index.Find(index.Hash(key), key), model.contains(key) ? model[key] : RowIndex::kNone);
  }
}

TEST(RowIndexTest, KeysWithEqualHighHashBitsCostNoMore) {
  RowIndex index(0, 0);
  constexpr std::uint32_t kKeys = 3 * RowIndex::kSegmentKeys;
  for (std::uint32_t i = 0; i < kKeys; ++i) {
    const Key key = Unmix64(i);  // its hash begins with 32 zero bits
    index.FindOrInsert(index.Hash(key), key, i);
  }
  for (std::uint32_t i = 0; i < kKeys; ++i) ASSERT_EQ(index.Find(index.Hash(Unmix64(i)), Unmix64(i)), i);
  EXPECT_LE(index.memory_bytes(), kKeys * 30);
}

TEST(RowIndexTest, AWalkVisitsEachLastingKeyOnce) {
  RowIndex index(7, 2);
  SplitMix random(2);
  for (Key key = 0; key < 30'000; ++key) index.FindOrInsert(index.Hash(key), key, std::uint32_t(key));
  std::map<Key, int> visits;
  RowIndex::Walk walk;
  for (Key next = 30'000; !walk.done; ++next) {
    index.Continue(&walk, 1 + random.Below(300), [&](Key key, std::uint32_t) { ++visits[key]; });
    for (int i = 0; i < 30; ++i) index.FindOrInsert(index.Hash(next * 100 + i), next * 100 + i, 0);
    const Key gone = 2 * random.Below(15'000);  // odd keys are never erased
    index.Erase(index.Hash(gone), gone);
  }
  for (Key key = 1; key < 30'000; key += 2) ASSERT_EQ(visits[key], 1) << key;
  for (const auto& [key, count] : visits) ASSERT_EQ(count, 1) << key;
}

TEST(RowIndexTest, StoresTheExtremeKeys) {
  RowIndex index(5, 3);
  const Key keys[] = {0, 1, ~Key{0}, Key{1} << 63};
  for (std::uint32_t i = 0; i < 4; ++i) index.FindOrInsert(index.Hash(keys[i]), keys[i], i);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(index.Find(index.Hash(keys[i]), keys[i]), i);
}

TEST(RowSlabsTest, RowsNeverMoveNorOverlap) {
  for (std::uint32_t floats : {1u, 3u, 16u, 17u, 100u, 20'000u}) {
    Arena arena;
    RowSlabs slabs(&arena, floats);
    const std::uint32_t count = floats > 1000 ? 20 : 40'000;
    std::vector<float*> at;
    for (std::uint32_t i = 0; i < count; ++i) {
      float* row = slabs.Add();
      at.push_back(row);
      row[0] = static_cast<float>(i);
      row[floats - 1] = static_cast<float>(i);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(slabs.Row(i), at[i]);
      ASSERT_EQ(at[i][0], static_cast<float>(i));
      ASSERT_EQ(at[i][floats - 1], static_cast<float>(i));
    }
    EXPECT_EQ(slabs.size(), count);
  }
}

TEST(ArenaTest, PiecesAreAlignedAndCountedWithLittleWaste) {
  Arena arena;
  std::size_t used = 0;
  for (std::size_t bytes : {1u, 63u, 64u, 65u, 5000u, 100'000u, 3'000'000u}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.Allocate(bytes)) % Arena::kAlignment, 0u);
    used += bytes;
  }
  EXPECT_GE(arena.reserved_bytes(), used);
  EXPECT_LE(arena.reserved_bytes(), used + (64 << 10));
}

// Growth moves every bucket; a walk must not miss a key that was there, nor see one twice.
TEST(RowIndexTest, AWalkSurvivesGrowthAndSeesEveryKeyOnce) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SplitMix random(seed);
    RowIndex index(seed, 3);
    std::uint32_t rows = 0;
    const std::uint64_t salt = seed;
    // Keys of one partition of eight.
    auto add = [&](std::uint64_t count) {
      while (count > 0) {
        const Key key = random.Next();
        if (Mix64(key ^ salt) >> 61 != 5) continue;
        if (index.FindOrInsert(index.Hash(key), key, rows) == rows) ++rows;
        --count;
      }
    };
    add(random.Below(3000));
    const std::uint32_t at_begin = rows;
    std::vector<int> seen(at_begin, 0);
    RowIndex::Walk walk;
    std::size_t pieces = 0;
    for (; !walk.done; ++pieces) {
      index.Continue(&walk, random.Below(200), [&](Key key, std::uint32_t row) {
        EXPECT_EQ(index.Find(index.Hash(key), key), row);
        if (row < at_begin) ++seen[row];
      });
      if (random.Chance(0.5)) add(random.Below(300));
    }
    for (std::uint32_t row = 0; row < at_begin; ++row) ASSERT_EQ(seen[row], 1) << "seed " << seed << ", row " << row;
    if (at_begin > 1000) {
      EXPECT_GT(pieces, 5u);
    }
  }
}

}  // namespace
}  // namespace tarn::server
