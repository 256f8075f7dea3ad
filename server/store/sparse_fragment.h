// The rows of a sparse table in one partition: any key may have one, from its first push on unless the table's life
// says otherwise. Delegates to SparseRows (where rows lie), FragmentLife (which rows come and go), ChangeMarks and
// RemovalLog (what the next checkpoint must hold) and FragmentCut (the checkpoint under way). Not thread-safe.
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
  SparseFragment(const Table& table, PartitionId partition, std::uint32_t place, StoreContext* context);

  const SparseRows& rows() const { return rows_; }
  std::uint32_t Find(Key key) const { return rows_.index().Find(rows_.index().Hash(key), key); }
  bool has_verdicts() const { return life_.has_verdicts(); }
  // Whether the row counts as gone though it was not taken away yet.
  bool IsExpired(std::uint32_t number) const { return life_.has_verdicts() && life_.IsExpired(*rows_.Life(number)); }
  // Brings near what marking a row as changed writes to.
  [[gnu::always_inline]] void PrefetchMark(std::uint32_t number) const { marks_.Prefetch(number); }

  // The row of a key that is about to be changed; inserts one if there is none, unless the key is not admitted: then
  // there are no values. `number` is the key's row, or RowIndex::kNone.
  RowParts RowForApply(Key key, std::uint32_t number, Clock clock);
  // The same where only the mark is needed: a row in memory, without life or tier, outside of cuts.
  void MarkChanged(std::uint32_t number) { marks_.Set(number); }

  // Removes the rows of keys, which need not have one, as a checkpoint is loaded. Not within a cut.
  void Remove(std::span<const Key> keys);
  // Sets how often keys without a row were pushed.
  void LoadSeen(std::span<const Seen> seen);

  // Takes away every row that has expired.
  void TakeExpired();
  // The table's rules have changed: counts the standings of all rows anew.
  void RecountLife();
  // What expired by earlier rules has been handed out.
  void ForgetCutVerdicts() { cut_.ForgetVerdicts(); }
  // The table's time has passed a boundary at which rows expire.
  void OnBoundary() { life_.Decide(rows_.index().size()); }
  // Takes away the expired ones of about `rows` rows; returns how many it looked at. `walk` is where the sweep is: it
  // is through when walk->done.
  bool sweep_due() const { return life_.sweep_due(); }
  std::size_t Sweep(RowIndex::Walk* walk, std::size_t rows);

  // The key of a row, for an error. Looks through the whole index.
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
  // Of a cut: the lists of keys without a row, and how far the walk has come.
  struct CutWalk {
    bool seen_kept = false;  // `seen` is as of the beginning of the cut
    bool lists_out = false;  // the lists were handed out
    std::vector<Seen> seen;
    RowIndex::Walk removed;  // over those removed before the cut
    RowIndex::Walk rows;
  };

  std::uint32_t InsertRow(std::uint64_t hash, Key key);
  Expected<RowParts> RowForLoad(Key key);
  RowParts ReadCold(std::uint32_t number) const;
  void KeepFirst(std::uint32_t number, Key key);
  void KeepSeen();
  void NoteReturn(Key key);
  void Take(std::uint32_t number, Key key);
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
