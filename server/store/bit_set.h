// A bit for each row of a fragment, by the row's number. Grows when a bit is set; bits that were never set are 0. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarn::server {

class BitSet {
 public:
  bool Test(std::uint64_t i) const { return i / 64 < words_.size() && (words_[i / 64] >> (i % 64) & 1) != 0; }
  void Set(std::uint64_t i) {
    if (i / 64 >= words_.size()) [[unlikely]]
      words_.resize(i / 64 + 1);
    words_[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  [[gnu::always_inline]] void Prefetch(std::uint64_t i) const { __builtin_prefetch(words_.data() + i / 64, 1); }
  // Sets bits 0 .. count - 1.
  void SetFirst(std::uint64_t count) {
    if (words_.size() < (count + 63) / 64) words_.resize((count + 63) / 64);
    std::fill_n(words_.begin(), count / 64, ~std::uint64_t{0});
    if (count % 64 != 0) words_[count / 64] |= (std::uint64_t{1} << (count % 64)) - 1;
  }
  // Sets the bits that are set in `other`.
  void Merge(const BitSet& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  std::size_t memory_bytes() const { return words_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace tarn::server
