// A pseudo-random order of 0..n-1 that needs no memory: item i is a pure function of (n, seed, i), so all workers have
// the same order without communication.
#pragma once

#include <bit>
#include <cstdint>

#include "core/error.h"
#include "core/hash.h"

namespace tarn {

// A bijection of 0..n-1: a balanced Feistel network (Luby and Rackoff, SIAM J. Computing 17, 1988) with four rounds
// over the next power of four, repeated until the result is below n (cycle walking, Black and Rogaway, CT-RSA 2002):
// fewer than four repetitions on average.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed) : n_(n), seed_(seed) {
    TARN_CHECK(n > 0 && n <= std::uint64_t{1} << 62, "a permutation of 1 to 2^62 items");
    half_bits_ = (static_cast<std::uint32_t>(std::bit_width(n - 1)) + 1) / 2;
    mask_ = (std::uint64_t{1} << half_bits_) - 1;
  }

  // i < n.
  std::uint64_t operator()(std::uint64_t i) const {
    do i = ApplyNetwork(i);
    while (i >= n_);
    return i;
  }

 private:
  std::uint64_t ApplyNetwork(std::uint64_t i) const {
    std::uint64_t left = i >> half_bits_, right = i & mask_;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (HashCombine(seed_ + round, right) & mask_);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t n_, seed_, mask_ = 0;
  std::uint32_t half_bits_ = 0;
};

}  // namespace tarn
