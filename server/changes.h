// What changed in a partition since the base of its next cut: rows by number, and keys that were removed and have no
// row now. Not thread-safe.
#pragma once

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "server/bit_set.h"
#include "server/row_index.h"

namespace tarn::server {

struct Changes {
  BitSet rows;
  std::unique_ptr<RowIndex> removed;               // null: none
  std::vector<std::unique_ptr<RowIndex>> earlier;  // removed before, and perhaps back since

  void Remove(const RowIndex& index, Key key) {
    if (!removed) removed = std::make_unique<RowIndex>(index.salt(), index.partition_bits());
    removed->FindOrInsert(removed->Hash(key), key, 0);
  }
  // A key that was removed has a row again.
  void Restore(Key key) {
    if (removed) removed->Erase(removed->Hash(key), key);
  }
  // Adds what is of an earlier time. Its keys are only put aside: to bring many together takes long, and where the next
  // cut is full nobody asks for them.
  void AddEarlier(Changes other) {
    rows.Merge(other.rows);
    if (other.removed && other.removed->size() != 0) other.earlier.push_back(std::move(other.removed));
    earlier.insert(earlier.end(), std::make_move_iterator(other.earlier.begin()),
                   std::make_move_iterator(other.earlier.end()));
  }
  // Brings all keys together in `removed`: a key that has a row by now is not removed any more.
  void MergeEarlier(const RowIndex& index) {
    for (auto& keys : std::exchange(earlier, {})) Merge(std::move(keys), index);
  }
  void ForgetRemoved() {
    removed.reset();
    earlier.clear();
  }
  // A key that was removed several times may count as often.
  std::size_t removed_keys() const {
    std::size_t keys = removed ? removed->size() : 0;
    for (const auto& some : earlier) keys += some->size();
    return keys;
  }
  std::size_t memory_bytes() const {
    std::size_t bytes = rows.memory_bytes() + (removed ? removed->memory_bytes() : 0);
    for (const auto& some : earlier) bytes += some->memory_bytes();
    return bytes;
  }

 private:
  // The fewer are added to the more, since an index that is filled in the order of another one has long detours.
  void Merge(std::unique_ptr<RowIndex> keys, const RowIndex& index) {
    std::vector<Key> back;
    keys->ForEach([&](Key key, std::uint32_t) {
      if (index.Find(index.Hash(key), key) != RowIndex::kNone) back.push_back(key);
    });
    for (const Key key : back) keys->Erase(keys->Hash(key), key);
    if (!removed || removed->size() < keys->size()) std::swap(removed, keys);
    if (keys) keys->ForEach([&](Key key, std::uint32_t) { Remove(index, key); });
  }
};

}  // namespace tarn::server
