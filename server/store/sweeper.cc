#include "server/store/sweeper.h"

namespace tarn::server {

namespace {

// Cost of a fragment in a slice, in rows.
constexpr std::size_t kFragmentCost = 16;

}  // namespace

// The current fragment of the sweep, or the next that has one due. There must be one.
SparseFragment* Sweeper::Next(const Tables& tables, const Partitions& partitions) {
  for (;;) {
    if (table_ >= tables.size()) table_ = partition_ = 0;
    const Table* table = tables[table_].get();
    if (table == nullptr || table->is_dense() || partition_ >= partitions.size()) {
      ++table_;
      partition_ = 0;
      continue;
    }
    if (partitions[partition_]) {
      SparseFragment* fragment = partitions[partition_]->FindSparse(table->id());
      if (fragment != nullptr && fragment->sweep_due()) return fragment;
    }
    ++partition_;
    walk_ = {};
  }
}

void Sweeper::Continue(std::size_t rows, const Tables& tables, const Partitions& partitions, const std::size_t& due) {
  for (std::size_t spent = 0; spent < rows && due != 0;) {
    spent += kFragmentCost + Next(tables, partitions)->Sweep(&walk_, rows - spent);
    if (!walk_.done) continue;
    walk_ = {};
    ++partition_;
  }
}

}  // namespace tarn::server
