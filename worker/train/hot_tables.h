// The tables of a model that keep hot rows on its device (train.hot_rows), and the memory in which they keep them. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "worker/models/model.h"
#include "worker/train/hot_table.h"
#include "worker/train/row_place.h"

namespace tarn::worker {

class HotTables {
 public:
  // Makes a cache for each sparse table, except tables in `asp` and those whose update rule needs the rows as they were
  // pulled; none if train.hot_rows is 0. rank: of the worker, which determines its GPU. Errors: a table has both
  // caches, there is too little memory, or the GPU cannot be used.
  static Expected<HotTables> Make(const Job& job, std::span<const TableUse> uses, std::uint32_t rank);

  // By table of the model; null for a table without hot rows.
  HotTable* operator[](std::size_t table) const { return tables_[table].get(); }

  // The state of a batch, by table. Pass it to Recycle after HotTable::End: its memory is reused.
  std::vector<HotBatch> MakeBatch();
  void Recycle(std::vector<HotBatch> batch) { spare_.push_back(std::move(batch)); }
  // Sets `placed`, by table, to the rows of the batch (HotTable::Read). Later operations of `user` run after the rows
  // are in place; null: the CPU computes.
  Status Read(std::vector<HotBatch>* batch, std::vector<const float*>* placed, kernels::Stream* user);
  // Drops all rows.
  void Clear();

  // Rows, of all tables.
  std::uint64_t looked_for() const;
  std::uint64_t found() const;

 private:
  std::unique_ptr<RowPlace> place_;  // null if no table has hot rows
  std::vector<std::unique_ptr<HotTable>> tables_;
  std::vector<std::vector<HotBatch>> spare_;
};

}  // namespace tarn::worker
