// Shows that positions equal those of the Positioner of a sparse table, and that the inverse gives the keys, on every
// instruction set and in place.
#include "kernels/positions.h"

#include "core/position.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

TEST(PositionsTest, EqualThePositionersAndAreInverted) {
  ForEachTarget([](const char*) {
    SplitMix random(1);
    for (const std::uint64_t salt : {std::uint64_t{0}, ~std::uint64_t{0}, random.Next()})
      for (const std::size_t n : {0, 1, 7, 64, 1001}) {
        std::vector<Key> keys(n);
        for (Key& key : keys) key = random.Chance(0.5) ? random.Next() : random.Below(3) - 1;
        std::vector<Position> positions(n, 0xdead);
        PositionsOf(n, keys.data(), salt, positions.data());
        const Positioner positioner(TableSpec{.kind = TableKind::kSparse}, salt);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(positions[i], positioner(keys[i]));
        std::vector<Key> back(n, 0xdead);
        KeysAt(n, positions.data(), salt, back.data());
        EXPECT_EQ(back, keys);
        KeysAt(n, positions.data(), salt, positions.data());
        EXPECT_EQ(positions, keys);
        PositionsOf(n, keys.data(), salt, keys.data());
        PositionsOf(n, back.data(), salt, positions.data());
        EXPECT_EQ(keys, positions);
      }
  });
}

}  // namespace
}  // namespace tarn::kernels
