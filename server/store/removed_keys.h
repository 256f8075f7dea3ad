// Keys of one partition that had a row after the base of its next cut began to count and have none now; each with the
// number of the cut before which its row went. One list for all cuts: when one begins nothing is moved or brought
// together, and no key is there twice, however many cuts were lost. Not thread-safe.
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
    kNever,       // it is not there
    kBeforeBase,  // of no use any more; Continue drops it
    kBeforeCut,   // after the base, before the last cut began
    kSinceCut,
  };

  // A key whose row went; it is not there yet. `index` is that of the rows.
  void Add(const RowIndex& index, Key key) {
    if (!keys_) keys_ = std::make_unique<RowIndex>(index.salt(), index.partition_bits());
    keys_->FindOrInsert(keys_->Hash(key), key, cuts_);
    ++since_cut_;
  }

  // A key has a row again. When its last one had gone.
  When Take(Key key) {
    if (!keys_) return When::kNever;
    const std::uint32_t cut = keys_->Erase(keys_->Hash(key), key);
    if (cut == RowIndex::kNone) return When::kNever;
    const When when = WhenOf(cut);
    if (when == When::kBeforeCut) --before_cut_;
    if (when == When::kSinceCut) --since_cut_;
    return when;
  }

  // A cut begins. `base_is_previous`: what it counts from is the one before.
  void BeginCut(bool base_is_previous) {
    if (base_is_previous) {
      base_ = cuts_;
      before_cut_ = 0;
    }
    before_cut_ += since_cut_;
    since_cut_ = 0;
    ++cuts_;
  }

  // Goes on with a walk over about `keys` keys (RowIndex::Continue): calls visit(key) for those that went between the
  // base and the cut that began last. Returns how many it has looked at.
  template <typename Visit>
  std::size_t Continue(RowIndex::Walk* walk, std::size_t keys, Visit visit) {
    walk->done |= !keys_;
    if (walk->done) return 0;
    std::size_t seen = 0;
    std::vector<Key> useless;
    keys_->Continue(walk, keys, [&](Key key, std::uint32_t cut) {
      ++seen;
      const When when = WhenOf(cut);
      if (when == When::kBeforeCut) visit(key);
      if (when == When::kBeforeBase) useless.push_back(key);
    });
    for (const Key key : useless) keys_->Erase(keys_->Hash(key), key);
    return seen;
  }
  // Whether a walk has come to this key.
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

  std::unique_ptr<RowIndex> keys_;  // with the cuts that had begun when the row went; null: none
  std::uint32_t cuts_ = 0;          // begun so far
  std::uint32_t base_ = 0;          // the lowest that is after the base
  std::size_t before_cut_ = 0, since_cut_ = 0;
};

}  // namespace tarn::server
