// One fragment in a cut: the rows as they were when the cut began, copied in slices between pushes. The walk copies row
// after row. A row that a push changes before the walk reaches it is copied first (KeepFirst); with a memory budget
// such copies are written to disk when there are many. A row is copied at most once.
//
//   cut.Begin(rows, verdicts, state);
//   cut.KeepFirst(...) / cut.Keep(..., out);     // early, or by the walk
//   cut.HandOutRest(bytes, out);                 // after the walk, until !cut.open()
//
// Row numbers are those of the fragment. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/store/bit_set.h"
#include "server/store/change_log.h"
#include "server/store/row_index.h"
#include "server/store/snapshot.h"
#include "server/store/standings.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

class FragmentCut {
 public:
  // `marks`: the rows changed since the base. All arguments outlive the cut.
  FragmentCut(const Table& table, PartitionId partition, const ChangeMarks& marks, StoreContext* context)
      : table_(table), partition_(partition), marks_(marks), context_(context) {}

  // Begins a cut of the rows with numbers below `rows`, and of the fragment's `state`. Rows that have expired by
  // `verdicts` are not in the cut; a kChanged cut lists their keys as removed.
  void Begin(std::uint64_t rows, Verdicts verdicts, FragmentState state);
  // Drops the cut, if there is one.
  void Drop();
  // Whether rows of the cut have not been handed out yet.
  bool open() const { return open_; }
  // Rows of the cut have numbers below this.
  std::uint64_t rows() const { return rows_; }

  // For a row of the cut: whether it was neither copied nor left out yet.
  bool IsPending(std::uint64_t number) const { return !(state_ && state_->settled.Test(number)); }
  // Whether the cut needs the row's values, because it contains or hashes the row.
  bool NeedsValues(std::uint64_t number, const RowLife* life) const;
  // Whether the walk must visit the row.
  bool MustVisit(std::uint64_t number) const;
  // Copies a row that is about to change or to be removed, if it is in the cut and pending. cold() reads a row on disk.
  template <typename Cold>
  void KeepFirst(std::uint64_t number, Key key, const RowParts& row, Cold cold) {
    if (!open_ || number >= rows_) return;
    if (row.values != nullptr || !NeedsValues(number, row.life)) {
      Keep(number, key, row, nullptr);
    } else if (IsPending(number)) {
      Keep(number, key, cold(), nullptr);
    }
  }
  // Copies a row into the walk's chunk (`out` receives full chunks) or, if `out` is null, as a row copied early. False:
  // the cut does not need the row, or already has it.
  bool Keep(std::uint64_t number, Key key, const RowParts& row, std::vector<CutRows>* out);
  // Excludes a number from the cut, because it now belongs to a row inserted since the cut began. (An earlier row with
  // that number may have been in the cut.)
  void LeaveOut(std::uint64_t number);
  // Lists a key that was removed between the base and the beginning of the cut.
  void RecordRemoved(Key key);
  // Must be called when the rules change, after the rows that expired by earlier rules were listed.
  void ForgetVerdicts() { verdicts_.Clear(); }

  // After the walk: appends its last chunk, the state, and about `bytes` of the rows that were copied early. Returns
  // the cost in copied bytes. When nothing is left, the cut is no longer open.
  std::size_t HandOutRest(std::size_t bytes, std::vector<CutRows>* out);
  // Moves the rows copied early from memory to the tier's disk. An error is stored in the context.
  void SpillEarlyRows();

  std::size_t memory_bytes() const;

 private:
  // Rows that were copied early and then written to the tier's disk.
  struct SpilledRows {
    std::vector<ColdId> ids;
    std::size_t next = 0;      // index of the first row not handed out
    std::size_t fetching = 0;  // number of rows from `next` on that are being read
  };
  struct State {
    BitSet settled;                    // by number: copied, or not in this cut
    std::vector<PartitionRows> early;  // rows copied before the walk reached them, because they were about to change
    SpilledRows spilled;               // with a tier: earlier such rows, which were moved to disk
    PartitionRows chunk;               // of the walk, not yet full
    bool holds_early = false;          // this FragmentCut is in CutContext::holding_early
  };
  State& EnsureState() {
    if (!state_) state_ = std::make_unique<State>();
    return *state_;
  }
  bool IsExpired(const RowLife* life) const;
  bool IsWanted(std::uint64_t number) const;
  bool KeepExpired(std::uint64_t number, Key key, std::vector<CutRows>* out);
  void HandOutState(std::vector<CutRows>* out);
  void CopyRow(Key key, const RowParts& row, std::vector<CutRows>* out);
  std::size_t ChunkRowsMax(bool early) const;
  PartitionRows& ChunkOf(bool early);
  void CountEarly(std::size_t bytes);
  std::size_t HandOutSpilled(std::vector<CutRows>* out);
  void TakeSpilled(std::vector<CutRows>* out);
  void FetchSpilled();

  const Table& table_;
  PartitionId partition_;
  const ChangeMarks& marks_;
  StoreContext* context_;
  bool open_ = false;
  std::uint64_t rows_ = 0;
  Verdicts verdicts_;  // at the beginning of the cut
  FragmentState fragment_state_;
  std::unique_ptr<State> state_;
};

// Memory of the keys and rows of a chunk.
std::size_t HeldBytes(const PartitionRows& chunk);

// The cost of visiting a row, in bytes of copies.
inline constexpr std::size_t kCutLookCost = 16;
// Bytes of records on disk that a cut fetches together.
inline constexpr std::size_t kCutFetchBytes = std::size_t{256} << 10;

}  // namespace tarn::server
