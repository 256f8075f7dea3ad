// Changes of one fragment since the base of its next checkpoint: a mark for each changed row, by number, and for sparse
// fragments the keys of removed rows. Plain values; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "server/store/bit_set.h"
#include "server/store/removed_keys.h"

namespace tarn::server {

class ChangeMarks {
 public:
  void Set(std::uint64_t number) { since_cut_.Set(number); }
  void SetFirst(std::uint64_t count) { since_cut_.SetFirst(count); }
  [[gnu::always_inline]] void Prefetch(std::uint64_t number) const { since_cut_.Prefetch(number); }

  // A cut begins. `base_is_previous`: the cut before it has become the base.
  void BeginCut(bool base_is_previous) {
    if (!base_is_previous) since_cut_.Merge(in_cut_);
    in_cut_ = std::exchange(since_cut_, {});
  }
  // Whether the row changed between the base and the beginning of the last cut.
  bool InCut(std::uint64_t number) const { return in_cut_.Test(number); }
  std::size_t memory_bytes() const { return since_cut_.memory_bytes() + in_cut_.memory_bytes(); }

 private:
  BitSet since_cut_;  // rows changed since the last cut began
  BitSet in_cut_;     // rows changed between the base and the beginning of the last cut
};

// The removed keys of one fragment, at most `keys_max` since a cut. If there are more, the next cut must be full.
class RemovalLog {
 public:
  explicit RemovalLog(std::size_t keys_max) : keys_max_(keys_max) {}

  // Records that the row of `key` was removed. `index`: the index of the rows.
  void Add(const RowIndex& index, Key key) {
    if (!complete_) return;
    complete_ = keys_.since_cut() < keys_max_;
    if (complete_) keys_.Add(index, key);
  }
  RemovedKeys::When Take(Key key) { return keys_.Take(key); }

  // Whether a cut that begins now can list every key that was removed since its base.
  bool IsComplete(bool base_is_previous) const {
    if (!complete_) return false;
    return base_is_previous || (complete_in_cut_ && keys_.since_base() <= keys_max_);
  }
  void BeginCut(bool base_is_previous) {
    complete_in_cut_ = IsComplete(base_is_previous);
    complete_ = true;
    if (!complete_in_cut_) keys_.Clear();
    keys_.BeginCut(base_is_previous);
  }
  RemovedKeys& keys() { return keys_; }
  std::size_t memory_bytes() const { return keys_.memory_bytes(); }

 private:
  std::size_t keys_max_;
  RemovedKeys keys_;
  bool complete_ = true;         // no key was left out since the last cut
  bool complete_in_cut_ = true;  // the same from the base to the last cut
};

}  // namespace tarn::server
