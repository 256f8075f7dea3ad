// Shows that any keys are decoded as they were encoded, that keys close to each other take few bytes, that hashed keys
// are not encoded, and that invalid bytes are refused and never read beyond their end.
#include "kernels/key_delta.h"

#include <algorithm>
#include <memory>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::vector<std::byte> Encoded(const std::vector<Key>& keys) {
  std::vector<std::byte> bytes(DeltaBytesMax(keys.size()));
  bytes.resize(EncodeKeys(keys, bytes.data()));
  return bytes;
}

// Decodes from memory of exactly that size, so that sanitizers detect reads beyond it.
bool Decodes(std::size_t n, const std::vector<std::byte>& bytes, std::vector<Key>* keys) {
  const auto exact = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), exact.get());
  keys->assign(n, 0);
  return DecodeKeys(n, {exact.get(), bytes.size()}, keys->data());
}

std::vector<Key> KeysOfWidth(std::size_t n, std::size_t width, SplitMix& random) {
  const Key mask = width == 8 ? ~Key{0} : (Key{1} << (8 * width)) - 1;
  const Key least = random.Next() & ~mask;
  std::vector<Key> keys(n);
  for (Key& key : keys) key = least + (random.Next() & mask);
  return keys;
}

TEST(KeyDeltaTest, IsDecodedAtEveryWidthAndLength) {
  SplitMix random(1);
  ForEachTarget([&](const char* name) {
    for (std::size_t width = 0; width <= 5; ++width)
      for (const std::size_t n : {8, 31, 32, 33, 64, 1000}) {
        const std::vector<Key> keys = KeysOfWidth(n, width, random);
        const auto bytes = Encoded(keys);
        if (bytes.empty()) {
          EXPECT_TRUE(width == 5 || n == 8) << name << " " << width << " " << n;
          continue;
        }
        EXPECT_LE(bytes.size(), DeltaBytesMin(n) + n * width);
        EXPECT_LE(bytes.size(), n * sizeof(Key) * 3 / 4);
        std::vector<Key> back;
        ASSERT_TRUE(Decodes(n, bytes, &back)) << name << " " << width << " " << n;
        EXPECT_EQ(back, keys);
      }
  });
}

TEST(KeyDeltaTest, EachBlockHasItsOwnWidthUpToAWholeKey) {
  std::vector<Key> keys(320, 7);
  keys[300] = ~Key{0};  // its block is as wide as a key
  keys[100] = 70'000;
  const auto bytes = Encoded(keys);
  EXPECT_EQ(bytes.size(), 10 * 9 + kKeySlack + 32 * 8 + 32 * 3);
  std::vector<Key> back;
  ASSERT_TRUE(Decodes(keys.size(), bytes, &back));
  EXPECT_EQ(back, keys);
}

TEST(KeyDeltaTest, HashedKeysAreNotEncoded) {
  SplitMix random(2);
  for (const std::size_t n : {1, 32, 128, 129, 10'000}) EXPECT_TRUE(Encoded(KeysOfWidth(n, 8, random)).empty()) << n;
  EXPECT_TRUE(Encoded({}).empty());
}

TEST(KeyDeltaTest, TheSizeMustBeExact) {
  std::vector<Key> keys(100);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = 7 * i;
  auto bytes = Encoded(keys);
  std::vector<Key> back;
  EXPECT_FALSE(Decodes(101, bytes, &back));
  EXPECT_FALSE(Decodes(129, bytes, &back));
  EXPECT_FALSE(Decodes(96, bytes, &back));
  EXPECT_FALSE(Decodes(0, bytes, &back));
  for (const int more : {-9, -1, 1, 9}) {
    std::vector<std::byte> other(bytes.size() + static_cast<std::size_t>(more));
    std::copy_n(bytes.begin(), std::min(bytes.size(), other.size()), other.begin());
    EXPECT_FALSE(Decodes(100, other, &back)) << more;
  }
  bytes.back() = std::byte{1};
  EXPECT_FALSE(Decodes(100, bytes, &back));
}

TEST(KeyDeltaTest, AWidthBeyondAKeyAndAKeyBeyond64BitsAreRefused) {
  std::vector<Key> keys(32), back;
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = ~Key{0} - 31 + i;
  auto bytes = Encoded(keys);
  ASSERT_TRUE(Decodes(32, bytes, &back));
  bytes[9 + 31] = std::byte{32};  // one past the last key
  EXPECT_FALSE(Decodes(32, bytes, &back));
  bytes[9 + 31] = std::byte{31};
  bytes[0] = std::byte{9};
  EXPECT_FALSE(Decodes(32, bytes, &back));
}

TEST(KeyDeltaTest, DamagedAndRandomBytesAreReadWithinBounds) {
  SplitMix random(3);
  std::vector<Key> back;
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t n = 1 + random.Below(100);
    auto bytes = Encoded(KeysOfWidth(std::max<std::size_t>(n, 40), random.Below(5), random));
    if (random.Chance(0.3)) bytes.resize(random.Below(300));
    for (std::uint64_t i = random.Below(4); i > 0 && !bytes.empty(); --i)
      bytes[random.Below(bytes.size())] = static_cast<std::byte>(random.Next());
    accepted += Decodes(n, bytes, &back) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);  // a damaged difference gives another key
}

}  // namespace
}  // namespace tarn::kernels
