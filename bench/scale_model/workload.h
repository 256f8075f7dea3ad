// The workload of the simulated workers: the tables of a job's model, and plans of batches of its data set, used in
// rotation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/job/job.h"
#include "worker/client/plan.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace tarn::scale {

struct WorkloadOptions {
  std::uint32_t batch_rows = 2048;
  std::uint32_t batches = 128;  // at most, of the data set
  // True: rows have one value and no optimizer slots, which saves memory; their bytes count as those of full rows.
  bool small_rows = true;
};

class Workload {
 public:
  static Expected<std::unique_ptr<Workload>> Make(const Job& job, const WorkloadOptions& options);

  const std::vector<worker::TableUse>& tables() const { return uses_; }  // as the simulated fleet has them
  bool dense(std::size_t table) const { return uses_[table].rows == worker::RowsNeeded::kAll; }
  // Values of a row on the wire of a real fleet.
  std::uint32_t wire_dim(TableId id) const { return wire_dims_[IndexOf(id)]; }
  bool dense(TableId id) const { return dense(IndexOf(id)); }
  // Work of `rows` rows of a table: a row of more than kRowValues values counts as several.
  static constexpr double kRowValues = 16;
  double WorkRows(TableId id, double rows) const { return rows * std::max(1.0, wire_dim(id) / kRowValues); }
  // Sets the id of a table after the scheduler has assigned it.
  void SetId(const TableSpec& spec);

  std::size_t batches() const { return plans_.size(); }
  const worker::Plan& plan(std::size_t batch, std::size_t table) const {
    return dense(table) ? dense_plans_[table] : plans_[batch % plans_.size()][table];
  }
  // The number of distinct rows in that many batches, as a share of all their rows.
  double DistinctShare(double batches) const;
  double mean_sparse_rows() const { return mean_rows_; }
  std::uint32_t batch_rows() const { return batch_rows_; }

 private:
  std::size_t IndexOf(TableId id) const;
  void MakePlans(const Job& job, const std::vector<worker::Batch>& batches);
  void CountDistinct();

  std::uint32_t batch_rows_ = 0;
  std::vector<worker::TableUse> uses_;
  std::vector<std::uint32_t> wire_dims_;
  std::vector<std::vector<worker::Plan>> plans_;  // by batch, table; empty where dense
  std::vector<worker::Plan> dense_plans_;
  std::vector<double> distinct_;  // DistinctShare of 2^i batches
  double mean_rows_ = 0;
};

}  // namespace tarn::scale
