// The row store's inside; included by server/row_store*.cc only. row_store.cc reads and writes rows, row_store_load.cc
// fills the store from a checkpoint, row_store_cut.cc copies rows for checkpoints.
#pragma once

#include <memory>
#include <vector>

#include "core/position.h"
#include "core/row_layout.h"
#include "kernels/initialize.h"
#include "server/candidates.h"
#include "server/changes.h"
#include "server/dense_range.h"
#include "server/row_index.h"
#include "server/row_slabs.h"
#include "server/row_store.h"

namespace tarn::server {

// Of a row of a table with a life, as its record ends (core/row_layout.h).
struct RowLife {
  std::uint32_t last = 0;
  float score = 0;
};

// Rows have numbers from birth to removal; those of removed rows are used again.
struct RowStore::SparsePartition {
  SparsePartition(std::uint64_t salt, std::uint32_t bits, const RowLayout& layout, Arena* arena)
      : index(salt, bits), slabs(arena, layout.value_words + layout.slot_words), lives(arena, kLifeWords) {}

  // The number that the next row will have.
  std::uint32_t NextNumber() const { return free.empty() ? slabs.size() : free.back(); }
  // Takes it.
  void TakeNumber(bool with_life);
  // The one place that knows where a row lies.
  float* Row(std::uint32_t number) const { return slabs.Row(number); }
  RowLife* Life(std::uint32_t number) const { return reinterpret_cast<RowLife*>(lives.Row(number)); }
  std::uint64_t memory_bytes() const;

  static constexpr std::uint32_t kLifeWords = sizeof(RowLife) / sizeof(float);
  RowIndex index;
  RowSlabs slabs;                          // values and slots, by number
  RowSlabs lives;                          // by number; empty if the table has none
  std::vector<std::uint32_t> free;         // numbers of removed rows
  Changes changed;                         // since the last cut
  Changes aside;                           // until the last cut, since its base
  std::unique_ptr<Candidates> candidates;  // null: none yet
};

struct RowStore::DensePartition {
  DenseRange range;
  float* values = nullptr;  // null: not born
  float* slots = nullptr;
  BitSet changed, aside;  // as above, by place in the range
};

// One partition in a cut. Rows have numbers, or their place in a dense range.
struct RowStore::PartitionCut {
  // Of a partition that the cut has touched and not finished.
  struct State {
    BitSet settled;                    // by number: copied, or not of this cut
    std::vector<PartitionRows> early;  // rows that changed before the walk came to them, as they were
    PartitionRows chunk;               // of the walk, not yet full
    RowIndex::Walk walk;               // dense: `done` only
    std::uint64_t next = 0;            // dense: number
    bool lists_kept = false;           // `seen` below has been copied
    bool lists_out = false;            // and handed out, with the keys removed
    std::vector<Seen> seen;
  };
  bool open = false;       // it has something that was not handed out yet
  std::uint64_t rows = 0;  // those of the cut have lower numbers
  std::unique_ptr<State> state;

  State& Touched() {
    if (!state) state = std::make_unique<State>();
    return *state;
  }
};

struct RowStore::Table {
  TableSpec spec;
  std::uint64_t salt = 0;
  Positioner position;
  RowLayout layout;
  std::vector<std::unique_ptr<SparsePartition>> sparse;  // by place; null: no row yet
  std::vector<DensePartition> dense;                     // by place
  std::vector<PartitionCut> cut;                         // by place; empty: the table is in no cut

  bool is_dense() const { return spec.kind == TableKind::kDense; }
  bool has_life() const { return layout.life_words != 0; }
  std::uint32_t row_words() const { return layout.words(); }
  std::size_t row_bytes() const { return row_words() * sizeof(std::uint32_t); }
  void Initialize(Key key, float* values) const {
    kernels::InitializeRow(spec.initializer, salt, key, {values, spec.dim});
  }
  // Born rows of the partition at a place.
  std::uint64_t RowCount(std::uint32_t place) const {
    if (is_dense()) return dense[place].values != nullptr ? dense[place].range.count : 0;
    return sparse[place] ? sparse[place]->index.size() : 0;
  }
  // One past the highest number of a row there.
  std::uint64_t NumberEnd(std::uint32_t place) const {
    return is_dense() ? RowCount(place) : sparse[place] ? sparse[place]->slabs.size() : 0;
  }
  RowParts DenseRow(const DensePartition& partition, std::uint64_t number) const {
    return {partition.values + number * spec.dim, partition.slots + number * layout.slot_words, nullptr};
  }
  RowParts SparseRow(const SparsePartition& partition, std::uint32_t number) const {
    float* row = partition.Row(number);
    return {row, row + layout.value_words, has_life() ? partition.Life(number) : nullptr};
  }
};

}  // namespace tarn::server
