// Admission and expiry of the rows of one sparse fragment (docs/protocol.md, R1 to R5): the counts of keys that wait
// for admission, the standings of rows, and the decisions of the last boundaries. Accesses no row. Not thread-safe.
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

// Whether a key without a row gets one at a push.
enum class Creation : std::uint8_t { kIfAdmitted, kAlways };

class FragmentLife {
 public:
  FragmentLife(const Table& table, StoreContext* context) : table_(table), context_(context) {}

  // Whether a key without a row gets one at this push (rules R1 and R2; kAlways: it does). Calls before_count() before
  // a count changes.
  template <typename BeforeCount>
  bool Admit(Key key, Clock clock, Creation creation, BeforeCount before_count) {
    const std::uint32_t before = CountOf(key);
    const bool always = creation == Creation::kAlways;
    const bool counted = always || before + 1 >= table_.spec().life.admit_count;
    const bool admitted = always || (counted && IsDrawn(key, clock));
    ++(admitted ? context_->counters.admitted : context_->counters.refused);
    if (admitted ? before == 0 : counted) return admitted;
    before_count();
    if (admitted)
      candidates_->Erase(key);
    else
      EnsureCandidates().Set(key, before + 1);
    return admitted;
  }
  // Drops the count of a key that waits for admission. Calls before_count() before the count changes.
  template <typename BeforeCount>
  void Forget(Key key, BeforeCount before_count) {
    if (CountOf(key) == 0) return;
    before_count();
    candidates_->Erase(key);
  }
  // Keys that wait for admission, and the number of pushes of each.
  std::vector<Seen> Waiting() const { return candidates_ ? candidates_->All() : std::vector<Seen>(); }
  void SetWaiting(Key key, std::uint32_t count) { EnsureCandidates().Set(key, count); }

  // Must be called when a row's life begins (Add), changes (Drop, then Add), or ends before the row expires (Drop).
  // Decide drops the rows that expire.
  void Add(RowLife life);
  void Drop(RowLife life);
  // Clears the standings when the rules change. The caller then adds every row again.
  void ClearStandings() { standings_.Clear(); }

  bool has_verdicts() const { return !verdicts_.empty(); }
  bool IsExpired(RowLife life) const { return verdicts_.Expired(*table_.rules(), life); }
  const Verdicts& verdicts() const { return verdicts_; }
  // Number of expired rows that are not removed yet.
  std::uint64_t expired() const { return expired_; }
  // Must be called when an expired row is removed.
  void OnExpiredRemoved();

  // At a boundary: decides which of `rows` rows expire, and whether a sweep is due.
  void Decide(std::uint64_t rows);
  bool sweep_due() const { return sweep_due_; }
  void BeginSweep() { decided_in_sweep_ = false; }
  // Ends a sweep of all rows. False: more rows expired at a boundary during the sweep, so another sweep is due.
  bool EndSweep();

  std::size_t memory_bytes() const {
    return standings_.memory_bytes() + (candidates_ ? candidates_->memory_bytes() : 0);
  }

 private:
  std::uint32_t CountOf(Key key) const;
  bool IsDrawn(Key key, Clock clock) const;
  Candidates& EnsureCandidates();

  const Table& table_;
  StoreContext* context_;
  std::unique_ptr<Candidates> candidates_;  // null: empty
  Standings standings_;
  Verdicts verdicts_;          // that may apply to rows which are not removed yet
  std::uint64_t expired_ = 0;  // expired rows that are not removed yet; 0: no verdicts
  bool sweep_due_ = false;
  bool decided_in_sweep_ = false;  // a boundary was passed during the sweep
};

}  // namespace tarn::server
