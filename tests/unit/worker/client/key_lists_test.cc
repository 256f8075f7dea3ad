// Shows that a list of keys keeps its number, that a number is never reused, that the bound drops the least recently
// used lists, and what is sent for a list that its shard holds or does not hold (rules W2 to W4).
#include "worker/client/key_lists.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>

#include "core/hash.h"

namespace tarn::worker {
namespace {

constexpr ShardId kShard{1};
constexpr TimeUs kNow = 1'000;

Buffer Hashed(std::size_t n, std::uint64_t salt) {
  Buffer keys = Buffer::Allocate(n * sizeof(Key));
  for (std::size_t i = 0; i < n; ++i) keys.as_mutable<Key>()[i] = Mix64(i + 1 + (salt << 32));
  return keys;
}

KeyList ListOf(const Buffer& keys, std::uint64_t number) {
  KeyList list;
  list.count = static_cast<std::uint32_t>(keys.size() / sizeof(Key));
  list.list = number;
  list.frame = keys;
  return list;
}

TEST(KeyListsTest, EqualKeysHaveOneNumberAndOtherKeysAnother) {
  KeyLists lists(32, 1 << 20);
  std::set<std::uint64_t> numbers;
  for (std::uint64_t salt = 0; salt < 20; ++salt) numbers.insert(lists.NumberOf(kShard, Hashed(50, salt), kNow));
  EXPECT_EQ(numbers.size(), 20u);
  EXPECT_FALSE(numbers.contains(0));
  for (std::uint64_t salt = 0; salt < 20; ++salt)
    EXPECT_TRUE(numbers.contains(lists.NumberOf(kShard, Hashed(50, salt), kNow)));
  // Another shard, another length, one different key, or another order makes another list.
  Buffer one = Hashed(50, 0), turned = Hashed(50, 0);
  one.as_mutable<Key>()[49] ^= 1;
  std::swap(turned.as_mutable<Key>()[7], turned.as_mutable<Key>()[11]);
  EXPECT_TRUE(numbers.insert(lists.NumberOf(ShardId(0), Hashed(50, 0), kNow)).second);
  EXPECT_TRUE(numbers.insert(lists.NumberOf(kShard, Hashed(49, 0), kNow)).second);
  EXPECT_TRUE(numbers.insert(lists.NumberOf(kShard, one, kNow)).second);
  EXPECT_TRUE(numbers.insert(lists.NumberOf(kShard, turned, kNow)).second);
}

// The keys are chosen so that the fingerprints are equal: the second key of a lane compensates for the first.
TEST(KeyListsTest, KeysAreComparedAndNotOnlyTheirFingerprints) {
  KeyLists lists(1, 1 << 20);
  const auto after = [](Key key) { return std::rotl(1 ^ key, 27) * 0x9e3779b97f4a7c15ULL; };
  Buffer a = Hashed(8, 0), b = Hashed(8, 0);
  b.as_mutable<Key>()[0] += 1;
  b.as_mutable<Key>()[4] ^= after(a.as<Key>()[0]) ^ after(b.as<Key>()[0]);
  EXPECT_NE(lists.NumberOf(kShard, a, kNow), lists.NumberOf(kShard, b, kNow));
}

TEST(KeyListsTest, ShortListsAndTooLongOnesHaveNoNumber) {
  KeyLists lists(32, 100 * sizeof(Key));
  EXPECT_EQ(lists.NumberOf(kShard, Buffer(), kNow), 0u);
  EXPECT_EQ(lists.NumberOf(kShard, Hashed(31, 0), kNow), 0u);
  EXPECT_NE(lists.NumberOf(kShard, Hashed(32, 0), kNow), 0u);
  EXPECT_NE(lists.NumberOf(kShard, Hashed(100, 0), kNow), 0u);
  EXPECT_EQ(lists.NumberOf(kShard, Hashed(101, 0), kNow), 0u);
  lists.SwitchOff();
  EXPECT_EQ(lists.NumberOf(kShard, Hashed(50, 0), kNow), 0u);
}

TEST(KeyListsTest, TheLeastRecentlyUsedListIsForgotten) {
  KeyLists lists(1, 3 * 40 * sizeof(Key));
  std::uint64_t numbers[4];
  for (std::uint64_t i = 0; i < 3; ++i) numbers[i] = lists.NumberOf(kShard, Hashed(40, i), kNow);
  EXPECT_EQ(lists.NumberOf(kShard, Hashed(40, 0), kNow), numbers[0]);
  numbers[3] = lists.NumberOf(kShard, Hashed(40, 3), kNow);
  for (const int i : {3, 2, 0}) EXPECT_EQ(lists.NumberOf(kShard, Hashed(40, i), kNow), numbers[i]);
  EXPECT_GT(lists.NumberOf(kShard, Hashed(40, 1), kNow), numbers[3]);
}

TEST(KeyListsTest, AListIsNamedOnceItsShardHoldsIt) {
  KeyLists lists(1, 1 << 20);
  const Buffer keys = Hashed(40, 0);
  const std::uint64_t number = lists.NumberOf(kShard, keys, kNow);
  const auto sent = [&] {
    KeyList list = ListOf(keys, number);
    lists.Encode(kShard, &list);
    return list;
  };
  EXPECT_EQ(sent().codec, KeyCodec::kRaw);
  EXPECT_EQ(sent().list, number);
  EXPECT_EQ(sent().frame.size(), keys.size());
  lists.OnHeld(ShardId(0), number);
  lists.OnHeld(kShard, number + 1);
  EXPECT_EQ(sent().codec, KeyCodec::kRaw);
  lists.OnHeld(kShard, number);
  EXPECT_EQ(sent().codec, KeyCodec::kHeld);
  EXPECT_EQ(sent().list, number);
  EXPECT_TRUE(sent().frame.empty());
  lists.Clear();
  EXPECT_EQ(sent().codec, KeyCodec::kRaw);
  EXPECT_EQ(sent().list, 0u);
  lists.OnHeld(kShard, number);  // late
  EXPECT_EQ(sent().codec, KeyCodec::kRaw);
  EXPECT_GT(lists.NumberOf(kShard, keys, kNow), number);
}

TEST(KeyListsTest, AfterAnUnknownListNoneIsNamedForAWhile) {
  KeyLists lists(1, 1 << 20);
  const Buffer keys = Hashed(40, 0);
  const std::uint64_t number = lists.NumberOf(kShard, keys, kNow);
  lists.OnHeld(kShard, number);
  lists.OnUnknown(kShard, kNow + 10);
  KeyList list = ListOf(keys, number);
  lists.Encode(kShard, &list);
  EXPECT_EQ(list.codec, KeyCodec::kRaw);
  EXPECT_EQ(list.list, 0u);
  EXPECT_EQ(lists.NumberOf(kShard, keys, kNow + 9), 0u);
  EXPECT_NE(lists.NumberOf(ShardId(0), keys, kNow + 9), 0u);
  EXPECT_GT(lists.NumberOf(kShard, keys, kNow + 10), number);
}

TEST(KeyListsTest, NearKeysAreDeltaCoded) {
  KeyLists lists(1, 1 << 20);
  Buffer keys = Hashed(100, 0);
  for (Key& key : keys.as_mutable<Key>()) key = 5'000'000 + key % 10'000;
  KeyList list = ListOf(keys, 0);
  lists.Encode(kShard, &list);
  EXPECT_EQ(list.codec, KeyCodec::kDelta);
  EXPECT_EQ(list.frame.size(), 4 * 9 + 100 * 2 + 8);
}

}  // namespace
}  // namespace tarn::worker
