// The residuals of one table, which pushes have not sent yet: one row of floats per key, ordered by the time of the
// key's last gradient. Not thread-safe. Internal to worker/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/codec/worker_blob.h"
#include "core/hash.h"
#include "core/types.h"

namespace tarn::worker {

class ResidualTable {
 public:
  explicit ResidualTable(std::uint32_t dim) : dim_(dim) {}

  std::size_t size() const { return places_.size(); }
  std::uint32_t dim() const { return dim_; }
  // The residual of the key; null: none.
  const float* Find(Key key) const;
  // Sets the residual of the key to `row` at this clock, as the newest. Clocks do not decrease.
  void Put(Key key, Clock clock, const float* row);
  void Erase(Key key);

  // The key with the oldest gradient. Requires size() > 0.
  Key oldest() const { return entries_[first_].key; }
  Clock oldest_clock() const { return entries_[first_].clock; }

  // Calls visit(key, clock, row) for each residual, oldest first.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::uint32_t at = first_; at != kNone; at = entries_[at].next)
      visit(entries_[at].key, entries_[at].clock, values_.data() + std::size_t{at} * dim_);
  }
  std::uint64_t Hash() const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Mix {
    std::size_t operator()(Key key) const { return Mix64(key); }
  };
  struct Entry {
    Key key = 0;
    Clock clock;
    std::uint32_t previous = kNone, next = kNone;
  };

  std::uint32_t TakePlace();
  void Link(std::uint32_t at);
  void Unlink(std::uint32_t at);

  std::uint32_t dim_;
  std::unordered_map<Key, std::uint32_t, Mix> places_;  // never iterated, because its order is undefined
  std::vector<Entry> entries_;
  std::vector<float> values_;  // by place
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = kNone, last_ = kNone;
};

}  // namespace tarn::worker
