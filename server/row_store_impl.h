// The row store's inside; included by server/row_store*.cc only. row_store.cc reads and writes rows, row_store_cut.cc
// copies them for checkpoints.
#pragma once

#include <memory>
#include <vector>

#include "core/position.h"
#include "kernels/initialize.h"
#include "server/dense_range.h"
#include "server/row_index.h"
#include "server/row_slabs.h"
#include "server/row_store.h"

namespace tarn::server {

struct RowStore::SparsePartition {
  SparsePartition(std::uint64_t salt, std::uint32_t bits, std::uint32_t row_floats, Arena* arena)
      : index(salt, bits), slabs(arena, row_floats) {}
  RowIndex index;
  RowSlabs slabs;
};

struct RowStore::DensePartition {
  DenseRange range;
  float* values = nullptr;  // null: not born
  float* slots = nullptr;
};

// One partition in a cut. Rows have numbers: in the order of their birth, or their place in a dense range.
struct RowStore::PartitionCut {
  // Of a partition that the cut has touched and not finished.
  struct State {
    std::vector<bool> copied;          // by number
    std::vector<PartitionRows> early;  // rows that changed before the walk came to them, as they were
    PartitionRows chunk;               // of the walk, not yet full
    RowIndex::Walk walk;               // dense: `done` only
    std::uint64_t next = 0;            // dense: number
  };
  std::uint64_t rows = 0;  // that the cut has: those with lower numbers. 0 again once all are copied
  std::unique_ptr<State> state;

  State& Touched() {
    if (!state) {
      state = std::make_unique<State>();
      state->copied.resize(rows);
    }
    return *state;
  }
};

struct RowStore::Table {
  TableSpec spec;
  std::uint64_t salt = 0;
  Positioner position;
  std::uint32_t slot_floats = 0;
  std::vector<std::unique_ptr<SparsePartition>> sparse;  // by place; null: no row yet
  std::vector<DensePartition> dense;                     // by place
  std::vector<PartitionCut> cut;                         // by place; empty: the table is in no cut

  bool is_dense() const { return spec.kind == TableKind::kDense; }
  std::uint32_t row_floats() const { return spec.dim + slot_floats; }
  std::size_t row_bytes() const { return row_floats() * sizeof(float); }
  void Initialize(Key key, float* values) const {
    kernels::InitializeRow(spec.initializer, salt, key, {values, spec.dim});
  }
  // Born rows of the partition at a place.
  std::uint64_t RowCount(std::uint32_t place) const {
    if (is_dense()) return dense[place].values != nullptr ? dense[place].range.count : 0;
    return sparse[place] ? sparse[place]->slabs.size() : 0;
  }
};

}  // namespace tarn::server
