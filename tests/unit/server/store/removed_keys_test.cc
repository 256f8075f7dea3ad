// Compares the list of removed keys with a model: each key is named by the cuts that must name it and by no others.
// Cuts become the base of the next or are lost, keys come back, and lists are walked in pieces.
#include "server/store/removed_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/hash.h"

namespace tarn::server {
namespace {

using When = RemovedKeys::When;

struct Model {
  std::map<Key, int> removed;  // the next cut after the removal
  int cuts = 0, base = 0;

  When WhenOf(Key key) const {
    const auto found = removed.find(key);
    if (found == removed.end()) return When::kNever;
    return found->second == cuts ? When::kSinceCut : found->second < base ? When::kBeforeBase : When::kBeforeCut;
  }
  std::size_t Count(When when) const {
    std::size_t count = 0;
    for (const auto& [key, cut] : removed) count += WhenOf(key) == when ? 1 : 0;
    return count;
  }
};

TEST(RemovedKeyListTest, AreNamedByExactlyTheRightCuts) {
  const RowIndex index(17, 3);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RemovedKeys keys;
    Model model;
    SplitMix random(seed);
    for (int step = 0; step < 400; ++step) {
      for (int i = 0; i < 40; ++i) {
        const Key key = random.Below(3000);
        const When when = model.WhenOf(key);
        if (when == When::kNever) {
          keys.Add(index, key);
          model.removed[key] = model.cuts;
        } else {
          const When taken = keys.Take(key);
          ASSERT_TRUE(taken == when || (when == When::kBeforeBase && taken == When::kNever)) << "it may be dropped";
          model.removed.erase(key);
        }
      }
      if (random.Chance(0.1)) {
        const bool base = random.Chance(0.5);
        if (base) model.base = model.cuts;
        ++model.cuts;
        keys.BeginCut(base);
        std::set<Key> named;
        RowIndex::Walk walk;
        while (!walk.done) keys.Continue(&walk, 1 + random.Below(200), [&](Key key) { named.insert(key); });
        std::set<Key> expected;
        for (const auto& [key, cut] : model.removed)
          if (model.WhenOf(key) == When::kBeforeCut) expected.insert(key);
        ASSERT_EQ(named, expected) << "seed " << seed << ", cut " << model.cuts;
      }
      ASSERT_EQ(keys.since_cut(), model.Count(When::kSinceCut));
      ASSERT_EQ(keys.since_base(), model.Count(When::kSinceCut) + model.Count(When::kBeforeCut));
    }
    keys.Clear();
    EXPECT_EQ(keys.since_base(), 0u);
    EXPECT_EQ(keys.memory_bytes(), 0u);
  }
}

}  // namespace
}  // namespace tarn::server
