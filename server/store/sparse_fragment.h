// The rows of a sparse table in one partition: a key has a row from its first push on, unless the table has rules of
// life. Delegates to SparseRows (storage of rows), FragmentLife (admission and expiry), ChangeMarks and RemovalLog
// (changes since the last checkpoint) and FragmentCut (the current checkpoint). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/store/cold_walk.h"
#include "server/store/fragment.h"
#include "server/store/fragment_life.h"
#include "server/store/sparse_rows.h"

namespace tarn::server {

class SparseFragment final : public Fragment {
 public:
  // `place`: the partition's number in the tier.
  SparseFragment(const Table& table, PartitionId partition, std::uint32_t place, StoreContext* context);

  const SparseRows& rows() const { return rows_; }
  // The number of a key's row, or RowIndex::kNone. The row may have expired.
  std::uint32_t Find(Key key) const { return rows_.index().Find(rows_.index().Hash(key), key); }
  bool has_verdicts() const { return life_.has_verdicts(); }
  // Whether the row has expired but is not removed yet.
  bool IsExpired(std::uint32_t number) const { return life_.has_verdicts() && life_.IsExpired(*rows_.Life(number)); }
  // Prefetches the mark of a row.
  [[gnu::always_inline]] void PrefetchMark(std::uint32_t number) const { marks_.Prefetch(number); }

  // The row of a key, to be changed by the caller. Inserts a row if there is none and the key is admitted; if it is not
  // admitted, `values` is null. `number`: the key's row, or RowIndex::kNone.
  RowParts RowForApply(Key key, std::uint32_t number, Clock clock, Creation creation = Creation::kIfAdmitted);
  // Replaces RowForApply for a row in memory, without life, outside of cuts.
  void MarkChanged(std::uint32_t number) {
    marks_.Set(number);
    if (table_.resident() != nullptr) table_.resident()->MarkChanged(rows_.place(), number);
  }

  // Deletes the rows of the keys that have one, and the push counts of those that wait for admission.
  void Delete(std::span<const Key> keys);
  // Removes the rows of keys, which need not have one, during the load of a checkpoint. Must not be called during a
  // cut.
  void Remove(std::span<const Key> keys);
  // Sets the push counts of keys without a row.
  void LoadSeen(std::span<const Seen> seen);

  // Removes every expired row.
  void RemoveExpired();
  // Recomputes the standings of all rows after the table's rules changed.
  void RecountLife();
  // Must be called when the cut has listed all rows that expired by earlier rules.
  void ForgetCutVerdicts() { cut_.ForgetVerdicts(); }
  // Must be called when the table's time has passed a boundary at which rows expire.
  void OnBoundary() { life_.Decide(rows_.index().size()); }
  // Whether enough rows have expired that Sweep must be called.
  bool sweep_due() const { return life_.sweep_due(); }
  // Examines about `rows` further rows, removes the expired ones, and returns how many it examined. `walk`: the
  // position of the sweep, which is complete when walk->done.
  std::size_t Sweep(RowIndex::Walk* walk, std::size_t rows);

  // The key of a row, for an error message. Searches the whole index.
  std::optional<Key> KeyOf(std::uint32_t number) const;

  void Release() override;
  std::uint64_t row_count() const override { return rows_.index().size() - life_.expired(); }
  Expected<std::uint64_t> StateHash() const override;
  std::size_t memory_bytes() const override;
  Status Load(std::span<const Key> keys, std::span<const std::uint32_t> records) override;
  bool KnowsChanges(bool base_is_previous) const override { return removed_.IsComplete(base_is_previous); }
  void BeginCut() override;
  void DropCut() override;
  std::size_t ContinueCut(std::size_t bytes, std::vector<CutRows>* out) override;

 private:
  // State of the current cut.
  struct CutWalk {
    bool seen_kept = false;  // `seen` is a copy of the counts at the beginning of the cut
    bool lists_out = false;  // `seen` and the removed keys were added to the cut
    std::vector<Seen> seen;
    RowIndex::Walk removed;  // over the keys removed before the cut
    RowIndex::Walk rows;
  };

  std::uint32_t InsertRow(std::uint64_t hash, Key key);
  Expected<RowParts> RowForLoad(Key key);
  RowParts ReadCold(std::uint32_t number) const;
  void KeepFirst(std::uint32_t number, Key key);
  void KeepSeen();
  void OnInserted(Key key);
  void RemoveRow(std::uint32_t number, Key key);
  void RemoveExpiredRow(std::uint32_t number, Key key);
  Status HashCold(std::uint64_t* sum) const;
  std::size_t HandOutLists(std::size_t bytes, std::vector<CutRows>* out);
  std::size_t WalkRows(std::size_t rows, std::vector<CutRows>* out);

  SparseRows rows_;
  FragmentLife life_;
  RemovalLog removed_;
  CutWalk walk_;
  ColdWalk cold_;
};

}  // namespace tarn::server
