// The sizes of a job's data sets and how a pass over one is cut into splits (rules D1, D2). The first worker that asks
// for data reports the sizes; all others must report the same.
#pragma once

#include <cstdint>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/leases/splits.h"

namespace tarn::scheduler {

class DataSets {
 public:
  explicit DataSets(const Job& job);
  // Restores the sizes of the sets and of the epoch's splits from a checkpoint.
  void Resume(const DataState& state);
  void Fill(DataState* state) const;  // stores the sizes in `state`

  bool known() const { return known_; }
  std::uint64_t rows(LeasePurpose set) const { return rows_[static_cast<std::size_t>(set)]; }  // 0 while unknown
  std::uint64_t split_rows() const { return split_rows_; }  // per training split; the last may be shorter
  // Whether the splits of the training set belong to ranks (rule D2).
  bool by_rank() const { return by_rank_; }

  // The first call fixes the sizes; later ones must agree. A worker that does not read data reports zeros, which change
  // nothing.
  Status Set(const SetRows& rows);
  // Chooses the size of training splits by the job, which may have other workers and another data.split_rows than when
  // the checkpoint was written. Not while an epoch is partly trained. Without effect until the sizes are known.
  void ChooseSplitRows();

  // trained[i]: already trained rows of split i; empty: none.
  Splits MakeTraining(std::uint32_t epoch, const std::vector<std::uint64_t>& trained) const;
  Splits MakeEvaluation(LeasePurpose set, std::uint32_t epoch) const;

 private:
  Job job_;
  bool by_rank_;
  std::uint64_t split_rows_;
  bool known_ = false;
  std::uint64_t rows_[3] = {0, 0, 0};
};

}  // namespace tarn::scheduler
