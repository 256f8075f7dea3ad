// How the rows of one sparse fragment come and go, where the table has rules of life (docs/protocol.md, R1 to R5): the
// counts of keys that wait for admission, the standings of rows, and what the last boundaries decided. Nothing here
// touches a row. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/types.h"
#include "server/store/candidates.h"
#include "server/store/life.h"
#include "server/store/standings.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

class FragmentLife {
 public:
  FragmentLife(const Table& table, StoreContext* context) : table_(table), context_(context) {}

  // Rules R1 and R2: whether a key without a row gets one at this push. before_count() runs before a count changes.
  template <typename BeforeCount>
  bool Admit(Key key, Clock clock, BeforeCount before_count) {
    const std::uint32_t before = CountOf(key);
    const bool counted = before + 1 >= table_.spec().life.admit_count;
    const bool admitted = counted && IsDrawn(key, clock);
    ++(admitted ? context_->counters.admitted : context_->counters.refused);
    if (admitted ? before == 0 : counted) return admitted;
    before_count();
    if (admitted)
      candidates_->Erase(key);
    else
      Candidate().Set(key, before + 1);
    return admitted;
  }
  // Keys that wait, and how often each was pushed.
  std::vector<Seen> Waiting() const { return candidates_ ? candidates_->All() : std::vector<Seen>(); }
  void SetWaiting(Key key, std::uint32_t count) { Candidate().Set(key, count); }

  // A row's life begins or changes, or ends.
  void Add(RowLife life);
  void Drop(RowLife life);
  // Forgets the standings: the rules change, and every row is added anew.
  void ClearStandings() { standings_.Clear(); }

  bool has_verdicts() const { return !verdicts_.empty(); }
  bool IsExpired(RowLife life) const { return verdicts_.Expired(*table_.rules(), life); }
  const Verdicts& verdicts() const { return verdicts_; }
  // Rows that expired and were not taken away yet.
  std::uint64_t expired() const { return expired_; }
  // An expired row was taken away.
  void TakenAway();

  // A boundary was passed: decides which of `rows` rows expire, and whether a sweep is due.
  void Decide(std::uint64_t rows);
  bool sweep_due() const { return sweep_due_; }
  void BeginSweep() { decided_in_sweep_ = false; }
  // The sweep has been through. False: a boundary came meanwhile, and it is due once more.
  bool EndSweep();

  std::size_t memory_bytes() const {
    return standings_.memory_bytes() + (candidates_ ? candidates_->memory_bytes() : 0);
  }

 private:
  std::uint32_t CountOf(Key key) const;
  bool IsDrawn(Key key, Clock clock) const;
  Candidates& Candidate();

  const Table& table_;
  StoreContext* context_;
  std::unique_ptr<Candidates> candidates_;  // null: none yet
  Standings standings_;
  Verdicts verdicts_;          // to which rows may be subject that were not taken away yet
  std::uint64_t expired_ = 0;  // such rows; 0: no verdicts
  bool sweep_due_ = false;
  bool decided_in_sweep_ = false;  // a boundary came while the sweep was under way
};

}  // namespace tarn::server
