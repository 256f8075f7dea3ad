// Finds the rows of a message's keys in groups. Several groups are in progress at once, so that the cache lines that
// one stage prefetches have arrived by the next. The stages of a group of sparse keys:
//
//   1. prefetch the home buckets of the keys in the index
//   2. find the keys that are there and prefetch their rows; prefetch the next buckets of the other keys
//   3. find the other keys and prefetch their rows
//   4. with a tier only: stages 2 and 3 prefetch the words that locate the rows, and this stage prefetches the rows
//
//   for (KeyCursor cursor(partitions, table, sections, keys, Missing::kCreate); cursor.left() > 0;)
//     finder.ForEachGroup(Ahead::kRows, rows, &cursor, [&](const RowGroup& group) { ... });
//
// The callback for one group may insert rows, and in a table with a life also remove rows, after the rows of the next
// groups were found. The `generation` of these groups then differs from the context's insert_generation, and their
// callback looks the keys up again. In a table without a life, an address in RowGroup::rows that is not null is valid
// in any case, because nothing is removed or evicted before the callback. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "server/store/partition.h"
#include "server/store/row_index.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

inline constexpr std::size_t kGroupKeys = 32;

// Some keys of a message, and their rows.
struct RowGroup {
  std::size_t n = 0;
  const Key* keys = nullptr;
  // The fragment of each key. Null: the sparse table has no fragment there.
  Fragment* fragments[kGroupKeys];
  // For sparse tables: the bucket of the index, the row's number (RowIndex::kNone: no row), and its address (null:
  // there is no row, it is on disk, or it must be looked up again).
  const RowBucket* buckets[kGroupKeys];
  std::uint32_t numbers[kGroupKeys];
  float* rows[kGroupKeys];
  std::uint32_t further[kGroupKeys];  // indices of the keys that are not in their home bucket but may be in the next
  std::size_t n_further = 0;
  std::uint64_t generation = 0;  // insert_generation when the buckets were found

  SparseFragment* sparse(std::size_t i) const { return static_cast<SparseFragment*>(fragments[i]); }
  DenseFragment* dense(std::size_t i) const { return static_cast<DenseFragment*>(fragments[i]); }
};

// What is prefetched for a group: the values of its rows, whole rows for writing, or (with a tier) the words that
// locate the rows.
enum class Ahead { kValues, kRows, kWords };

// What to do for keys whose fragment does not exist: leave it null, or create it.
enum class Missing { kLeaveOut, kCreate };

// Iterates over the keys of a message in order. The store has all partitions of the sections.
class KeyCursor {
 public:
  KeyCursor(const std::vector<std::unique_ptr<Partition>>& partitions, const Table& table,
            std::span<const Section> sections, std::span<const Key> keys, Missing missing)
      : partitions_(partitions), table_(table), sections_(sections), keys_(keys), missing_(missing) {}

  std::size_t left() const { return keys_.size() - key_; }
  // The next key.
  const Key* keys() const { return keys_.data() + key_; }
  // Skips the next 1 to `keys_max` keys, all of one fragment. Returns their number and the fragment.
  std::size_t Next(std::size_t keys_max, Fragment** fragment) {
    if (in_section_ == section_count_) EnterSection();
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(section_count_ - in_section_, keys_max));
    *fragment = fragment_;
    in_section_ += n;
    key_ += n;
    return n;
  }

 private:
  void EnterSection() {
    while (sections_[section_].count == 0) ++section_;
    const Section& section = sections_[section_++];
    Partition& partition = *partitions_[section.partition.value];
    fragment_ = missing_ == Missing::kCreate ? &partition.Obtain(table_) : partition.Find(table_.id());
    in_section_ = 0;
    section_count_ = section.count;
  }

  const std::vector<std::unique_ptr<Partition>>& partitions_;
  const Table& table_;
  std::span<const Section> sections_;
  std::span<const Key> keys_;
  Missing missing_;
  Fragment* fragment_ = nullptr;
  std::size_t section_ = 0;                           // index of the next section
  std::size_t key_ = 0;                               // index of the next key
  std::uint32_t in_section_ = 0, section_count_ = 0;  // keys of the current section: passed, and in total
};

class RowFinder {
 public:
  RowFinder(const Table& table, const StoreContext& context) : table_(table), context_(context) {}

  // Calls work(group) for the next `rows` keys, group by group.
  template <typename Work>
  void ForEachGroup(Ahead ahead, std::size_t rows, KeyCursor* cursor, Work work) const {
    constexpr std::size_t kStages = 5;
    RowGroup groups[kStages];
    const std::size_t n = (rows + kGroupKeys - 1) / kGroupKeys;
    const bool locates = table_.resident() != nullptr && ahead != Ahead::kWords;
    const std::size_t last = locates ? 4 : 3;
    for (std::size_t step = 0; step < n + last; ++step) {
      if (locates && step >= 3 && step - 3 < n) LocateInTier(ahead, &groups[(step - 3) % kStages]);
      if (step >= 2 && step - 2 < n) FindFurther(ahead, &groups[(step - 2) % kStages]);
      if (step < n) {
        RowGroup* group = &groups[step % kStages];
        group->n = std::min(kGroupKeys, rows - step * kGroupKeys);
        TakeKeys(cursor, group);
      }
      if (step >= 1 && step - 1 < n) FindNear(ahead, &groups[(step - 1) % kStages]);
      if (step >= last) work(groups[(step - last) % kStages]);
    }
  }

 private:
  void TakeKeys(KeyCursor* cursor, RowGroup* group) const;
  void FindBuckets(RowGroup* group) const;
  void FindNear(Ahead ahead, RowGroup* group) const;
  void FindNearInMemory(Ahead ahead, const SparseFragment& fragment, std::size_t i, std::size_t end,
                        RowGroup* group) const;
  void FindNearInTier(const SparseFragment& fragment, std::size_t i, std::size_t end, RowGroup* group) const;
  void FindFurther(Ahead ahead, RowGroup* group) const;
  void LocateInTier(Ahead ahead, RowGroup* group) const;
  float* PrefetchRow(Ahead ahead, const SparseFragment& fragment, std::uint32_t number) const;

  const Table& table_;
  const StoreContext& context_;
};

// Prefetches the first floats of a row that will be written. The kernels prefetch the rest of long rows.
inline constexpr std::uint32_t kPrefetchedFloats = 64;
[[gnu::always_inline]] inline void PrefetchForWrite(const float* row, std::uint32_t floats) {
  for (std::uint32_t i = 0; i < std::min(floats, kPrefetchedFloats); i += 16) __builtin_prefetch(row + i, 1);
}

}  // namespace tarn::server
