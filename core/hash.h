// Invertible 64-bit mixing, and reproducible pseudo-random numbers: for positions, initial values, generated data and
// simulated faults.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tarn {

// SplitMix64's finalizer (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014):
// a bijection of 64-bit words in which every input bit changes about half of the output bits.
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// The inverse of Mix64.
constexpr std::uint64_t Unmix64(std::uint64_t x) {
  x ^= (x >> 31) ^ (x >> 62);
  x *= 0x319642b2d24d8ec3ULL;
  x ^= (x >> 27) ^ (x >> 54);
  x *= 0x96de1b173f119089ULL;
  x ^= (x >> 30) ^ (x >> 60);
  return x;
}

// Combines a state with another word; not symmetric.
constexpr std::uint64_t HashCombine(std::uint64_t state, std::uint64_t word) {
  return Mix64(state + 0x9e3779b97f4a7c15ULL + Mix64(word + 0x9e3779b97f4a7c15ULL));
}

// 64-bit hash of a byte string; equal in all builds and on all machines (salts of tables and hashed categories use it).
constexpr std::uint64_t HashBytes(std::string_view bytes, std::uint64_t seed = 0) {
  std::uint64_t state = Mix64(seed ^ (bytes.size() * 0x9e3779b97f4a7c15ULL));
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < 8; ++j) word |= std::uint64_t(static_cast<unsigned char>(bytes[i + j])) << (8 * j);
    state = HashCombine(state, word);
  }
  std::uint64_t tail = 0;
  for (std::size_t j = 0; i + j < bytes.size(); ++j)
    tail |= std::uint64_t(static_cast<unsigned char>(bytes[i + j])) << (8 * j);
  return HashCombine(state, tail);
}

// Uniform double in [0, 1) from a mixed word, 53 bits.
constexpr double UnitDouble(std::uint64_t word) { return double(word >> 11) * 0x1.0p-53; }

// A counter-based stream of words: word i is a pure function of (seed, i).
class SplitMix {
 public:
  constexpr explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  // Uniform in [0, n), n > 0; the bias is below n / 2^64.
  constexpr std::uint64_t Below(std::uint64_t n) {
    return std::uint64_t((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  constexpr double Unit() { return UnitDouble(Next()); }
  constexpr bool Chance(double p) { return Unit() < p; }

 private:
  std::uint64_t state_;
};

}  // namespace tarn
