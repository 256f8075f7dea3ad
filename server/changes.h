// What changed in a partition since the base of its next cut: rows by number, and keys that were removed and have no
// row now. Not thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/bit_set.h"
#include "server/row_index.h"

namespace tarn::server {

struct Changes {
  BitSet rows;
  std::unique_ptr<RowIndex> removed;  // null: none

  void Remove(const RowIndex& index, Key key) {
    if (!removed) removed = std::make_unique<RowIndex>(index.salt(), index.partition_bits());
    removed->FindOrInsert(removed->Hash(key), key, 0);
  }
  // A key that was removed has a row again.
  void Restore(Key key) {
    if (removed) removed->Erase(removed->Hash(key), key);
  }
  // Adds what is of an earlier time: a key that has a row by now is not removed any more. The fewer are added to the
  // more, since an index that is filled in the order of another one has long detours.
  void MergeEarlier(Changes earlier, const RowIndex& index) {
    rows.Merge(earlier.rows);
    if (!earlier.removed) return;
    std::vector<Key> back;
    earlier.removed->ForEach([&](Key key, std::uint32_t) {
      if (index.Find(index.Hash(key), key) != RowIndex::kNone) back.push_back(key);
    });
    for (const Key key : back) earlier.Restore(key);
    if (!removed || removed->size() < earlier.removed->size()) std::swap(removed, earlier.removed);
    if (earlier.removed) earlier.removed->ForEach([&](Key key, std::uint32_t) { Remove(index, key); });
  }
  std::size_t removed_keys() const { return removed ? removed->size() : 0; }
  std::size_t memory_bytes() const { return rows.memory_bytes() + (removed ? removed->memory_bytes() : 0); }
};

}  // namespace tarn::server
