// The removed keys of one fragment: keys without a row that had one at some time since the base of the next cut. Each
// is stored once, with the number of cuts begun before its removal. So no key must be moved when a cut begins, or when
// a cut does not become a base. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/store/row_index.h"

namespace tarn::server {

class RemovedKeys {
 public:
  enum class When : std::uint8_t {
    kNever,       // not removed
    kBeforeBase,  // no longer needed; Continue drops it
    kBeforeCut,   // after the base, before the last cut began
    kSinceCut,    // after the last cut began
  };

  // Adds a key whose row was removed and that is not in the list. `index`: the index of the rows.
  void Add(const RowIndex& index, Key key) {
    if (!keys_) keys_ = std::make_unique<RowIndex>(index.salt(), index.partition_bits());
    keys_->FindOrInsert(keys_->Hash(key), key, cuts_);
    ++since_cut_;
  }

  // Removes a key that has a row again. Returns when its last row was removed.
  When Take(Key key) {
    if (!keys_) return When::kNever;
    const std::uint32_t cut = keys_->Erase(keys_->Hash(key), key);
    if (cut == RowIndex::kNone) return When::kNever;
    const When when = WhenOf(cut);
    if (when == When::kBeforeCut) --before_cut_;
    if (when == When::kSinceCut) --since_cut_;
    return when;
  }

  // Begins a cut. `base_is_previous`: the previous cut is its base.
  void BeginCut(bool base_is_previous) {
    if (base_is_previous) {
      base_ = cuts_;
      before_cut_ = 0;
    }
    before_cut_ += since_cut_;
    since_cut_ = 0;
    ++cuts_;
  }

  // Continues a walk with about `keys` keys (RowIndex::Continue): calls visit(key) for those removed between the base
  // and the last cut. Returns how many keys it examined.
  template <typename Visit>
  std::size_t Continue(RowIndex::Walk* walk, std::size_t keys, Visit visit) {
    walk->done |= !keys_;
    if (walk->done) return 0;
    std::size_t examined = 0;
    std::vector<Key> obsolete;
    keys_->Continue(walk, keys, [&](Key key, std::uint32_t cut) {
      ++examined;
      const When when = WhenOf(cut);
      if (when == When::kBeforeCut) visit(key);
      if (when == When::kBeforeBase) obsolete.push_back(key);
    });
    for (const Key key : obsolete) keys_->Erase(keys_->Hash(key), key);
    return examined;
  }
  // Whether the walk has passed this key.
  bool IsBehind(const RowIndex::Walk& walk, Key key) const { return walk.done || keys_->Hash(key) < walk.next_hash; }

  void Clear() {
    keys_.reset();
    before_cut_ = since_cut_ = 0;
  }
  std::size_t since_cut() const { return since_cut_; }
  std::size_t since_base() const { return before_cut_ + since_cut_; }
  std::size_t memory_bytes() const { return keys_ ? keys_->memory_bytes() : 0; }

 private:
  When WhenOf(std::uint32_t cut) const {
    return cut == cuts_ ? When::kSinceCut : cut < base_ ? When::kBeforeBase : When::kBeforeCut;
  }

  std::unique_ptr<RowIndex> keys_;  // key -> number of cuts begun before the removal; null: empty
  std::uint32_t cuts_ = 0;          // number of cuts begun
  std::uint32_t base_ = 0;          // keys with a lower number were removed before the base
  std::size_t before_cut_ = 0, since_cut_ = 0;
};

}  // namespace tarn::server
