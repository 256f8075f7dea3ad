#include "server/store/row_finder.h"

#include "server/store/row_probe.h"
#include "server/tier/resident_rows.h"

namespace tarn::server {

// Takes the next keys and prefetches their home buckets.
void RowFinder::TakeKeys(KeyCursor* cursor, RowGroup* group) const {
  group->keys = cursor->keys();
  for (std::size_t i = 0; i < group->n;) {
    Fragment* fragment = nullptr;
    const std::size_t end = i + cursor->Next(group->n - i, &fragment);
    while (i < end) group->fragments[i++] = fragment;
  }
  if (!table_.is_dense()) FindBuckets(group);
}

void RowFinder::FindBuckets(RowGroup* group) const {
  static constexpr RowBucket kNoKeys{};
  group->generation = context_.insert_generation;
  for (std::size_t i = 0; i < group->n;) {
    const SparseFragment* fragment = group->sparse(i);
    for (; i < group->n && group->fragments[i] == fragment; ++i) {
      if (fragment == nullptr) {
        group->buckets[i] = &kNoKeys;
        continue;
      }
      const RowIndex& index = fragment->rows().index();
      group->buckets[i] = index.HomeOf(index.Hash(group->keys[i]));
      __builtin_prefetch(group->buckets[i]);
    }
  }
}

// Prefetches a row and returns its address. always_inline, like all functions that mainly prefetch: GCC considers such
// a function free of effects and drops calls to it.
[[gnu::always_inline]] inline float* RowFinder::PrefetchRow(Ahead ahead, const SparseFragment& fragment,
                                                            std::uint32_t number) const {
  const bool all = ahead == Ahead::kRows;
  float* row = fragment.rows().Row(number);
  PrefetchForWrite(row, table_.layout().value_words + (all ? table_.layout().slot_words : 0));
  if (all) fragment.PrefetchMark(number);
  if (table_.has_life() && (all || fragment.has_verdicts())) __builtin_prefetch(fragment.rows().Life(number), 1);
  return row;
}

// Finds and prefetches the rows of keys that are in their home buckets; prefetches the next bucket for the others.
void RowFinder::FindNear(Ahead ahead, RowGroup* group) const {
  group->n_further = 0;
  if (table_.is_dense()) return;
  if (group->generation != context_.insert_generation) FindBuckets(group);
  for (std::size_t i = 0, end = 0; i < group->n; i = end) {
    const SparseFragment* fragment = group->sparse(i);
    for (end = i + 1; end < group->n && group->fragments[end] == fragment;) ++end;
    if (fragment == nullptr || fragment->rows().NumberEnd() == 0) {
      std::fill(group->numbers + i, group->numbers + end, RowIndex::kNone);
      std::fill(group->rows + i, group->rows + end, nullptr);
    } else if (table_.resident() != nullptr) {
      FindNearInTier(*fragment, i, end, group);
    } else {
      FindNearInMemory(ahead, *fragment, i, end, group);
    }
  }
}

// Keys i to `end` - 1 of a group, all of one fragment.
void RowFinder::FindNearInMemory(Ahead ahead, const SparseFragment& fragment, std::size_t i, std::size_t end,
                                 RowGroup* group) const {
  const bool all = ahead == Ahead::kRows;
  const std::uint32_t floats = table_.layout().value_words + (all ? table_.layout().slot_words : 0);
  std::uint32_t* further = group->further + group->n_further;
  const std::size_t n = LocateRows(fragment.rows().slabs(), std::min(floats, kPrefetchedFloats), end - i,
                                   group->keys + i, group->buckets + i, group->numbers + i, group->rows + i, further);
  for (std::size_t j = 0; j < n; ++j) further[j] += static_cast<std::uint32_t>(i);
  group->n_further += n;
  const bool lives = table_.has_life() && (all || fragment.has_verdicts());
  if (!all && !lives) return;
  for (; i < end; ++i) {
    const std::uint32_t number = group->rows[i] != nullptr ? group->numbers[i] : 0;
    if (all) fragment.PrefetchMark(number);
    if (lives) __builtin_prefetch(fragment.rows().Life(number), 1);
  }
}

// Prefetches only the words that locate the rows.
void RowFinder::FindNearInTier(const SparseFragment& fragment, std::size_t i, std::size_t end, RowGroup* group) const {
  const RowIndex& index = fragment.rows().index();
  ProbeBuckets(end - i, group->keys + i, group->buckets + i, group->numbers + i);
  for (; i < end; ++i) {
    const std::uint32_t number = group->numbers[i];
    group->rows[i] = nullptr;
    if (number < kRowFurther) {
      table_.resident()->PrefetchWord(fragment.rows().place(), number);
    } else if (number == kRowFurther) {
      __builtin_prefetch(index.BehindHome(index.Hash(group->keys[i])));
      group->further[group->n_further++] = static_cast<std::uint32_t>(i);
    }
  }
}

// Finds and prefetches the rows of the other keys; with a tier, the words that locate them.
void RowFinder::FindFurther(Ahead ahead, RowGroup* group) const {
  const std::size_t n = group->n_further;
  Key keys[kGroupKeys];
  std::uint64_t hashes[kGroupKeys];
  const RowBucket* buckets[kGroupKeys];
  std::uint32_t numbers[kGroupKeys];
  for (std::size_t j = 0; j < n; ++j) {
    const RowIndex& index = group->sparse(group->further[j])->rows().index();
    keys[j] = group->keys[group->further[j]];
    hashes[j] = index.Hash(keys[j]);
    buckets[j] = index.BehindHome(hashes[j]);
  }
  ProbeBuckets(n, keys, buckets, numbers);
  for (std::size_t j = 0; j < n; ++j) {
    const std::uint32_t i = group->further[j];
    const SparseFragment& fragment = *group->sparse(i);
    group->numbers[i] = numbers[j] != kRowFurther ? numbers[j] : fragment.rows().index().Find(hashes[j], keys[j]);
    if (group->numbers[i] == RowIndex::kNone) continue;
    if (table_.resident() == nullptr)
      group->rows[i] = PrefetchRow(ahead, fragment, group->numbers[i]);
    else
      table_.resident()->PrefetchWord(fragment.rows().place(), group->numbers[i]);
  }
}

// Prefetches the rows of all keys, whose words have arrived. If rows may have been removed since their numbers were
// found, the callback looks them up again.
void RowFinder::LocateInTier(Ahead ahead, RowGroup* group) const {
  if (table_.has_life() && group->generation != context_.insert_generation) return;
  for (std::size_t i = 0; i < group->n; ++i)
    if (group->numbers[i] != RowIndex::kNone) group->rows[i] = PrefetchRow(ahead, *group->sparse(i), group->numbers[i]);
}

}  // namespace tarn::server
