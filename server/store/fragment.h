// A fragment: the rows of one table in one partition. Dense and sparse fragments share this interface, which
// checkpoints, loading, hashing and dropping use once per batch of rows. Look-ups and optimizer steps use the two
// classes directly (server/store/row_finder.h). Not thread-safe: the shard's thread owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/store/change_log.h"
#include "server/store/fragment_cut.h"
#include "server/store/snapshot.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

class Fragment {
 public:
  // Table and context outlive the fragment.
  Fragment(const Table& table, PartitionId partition, StoreContext* context);
  virtual ~Fragment();
  Fragment(const Fragment&) = delete;
  Fragment& operator=(const Fragment&) = delete;

  const Table& table() const { return table_; }
  PartitionId partition() const { return partition_; }

  // Returns the memory of the rows to the store. Only the destructor may be called after it.
  virtual void Release() = 0;

  // Number of sections applied so far.
  Version version() const { return version_; }
  // Must be called for each section with keys that is applied, before it. Returns its gradient delay: the number of
  // sections applied since the version at which its rows were pulled; nullopt: that is not known.
  std::optional<std::uint64_t> CountSection(Version pulled) {
    const std::uint64_t before = version_.value++;
    if (pulled == kNoVersion) return std::nullopt;
    return before - std::min(before, pulled.value);
  }
  // The rule's state in this partition (UpdateRule::partition_floats).
  std::span<float> rule_state() { return rule_state_; }
  // For checkpoints and hashes. `state` must have the words of the table's rule.
  FragmentState State() const;
  void SetState(const FragmentState& state);

  // Number of rows, without expired ones.
  virtual std::uint64_t row_count() const = 0;
  // Sum of RowHash (server/store/snapshot.h) over all rows, and of SeenHash over the keys that are counted but have no
  // row. Errors are those of the tier, here and below.
  virtual Expected<std::uint64_t> StateHash() const = 0;
  // Memory without that of the rows, which the context's arena and tier own.
  virtual std::size_t memory_bytes() const = 0;

  // Sets rows from records (core/row_layout.h) of keys that belong to the fragment, without marking them as changed.
  // Must not be called during a cut. kCorrupt: a record is invalid; the message names its key.
  virtual Status Load(std::span<const Key> keys, std::span<const std::uint32_t> records) = 0;

  // Whether a kChanged cut that begins now would list every key removed since its base.
  virtual bool KnowsChanges(bool base_is_previous) const = 0;
  // Begins the fragment's part of the cut that the context describes.
  virtual void BeginCut() = 0;
  // Copies about `bytes` more into `out` and returns the cost in copied bytes. The part is complete when !cut().open().
  virtual std::size_t ContinueCut(std::size_t bytes, std::vector<CutRows>* out) = 0;
  virtual void DropCut() { cut_.Drop(); }
  const FragmentCut& cut() const { return cut_; }

 protected:
  std::uint64_t HashOf(Key key, const RowParts& row) const;

  void BeginCutOf(std::uint64_t rows, Verdicts verdicts) { cut_.Begin(rows, std::move(verdicts), State()); }

  const Table& table_;
  const PartitionId partition_;
  StoreContext* const context_;
  ChangeMarks marks_;
  FragmentCut cut_;

 private:
  Version version_;
  std::vector<float> rule_state_;
};

}  // namespace tarn::server
