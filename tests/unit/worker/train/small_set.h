// A data set of kRows rows of text, and a job and a model's tables for it, for tests of the reading side.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "worker/data/dataset.h"
#include "worker/train/batch_planner.h"

namespace tarn::worker {

inline constexpr std::uint64_t kRows = 50;

inline Job MakeJob() {
  Job job;
  job.data.integer_columns = 0;
  job.data.categorical_columns = 2;
  job.train.batch_rows = 8;
  job.train.prefetch = 2;
  return job;
}

// Row r has label r % 2 and the categories r and r / 10.
inline std::unique_ptr<Dataset> MakeSet(const Job& job, std::uint64_t broken_line = kRows) {
  std::string text;
  for (std::uint64_t r = 0; r < kRows; ++r)
    text += r == broken_line
                ? "broken\n"
                : std::to_string(r % 2) + "\tr" + std::to_string(r) + "\tg" + std::to_string(r / 10) + "\n";
  auto set = Dataset::FromText(job.data, "test", text);
  EXPECT_TRUE(set.has_value());
  return std::move(*set);
}

inline std::vector<TableUse> Tables() {
  TableUse linear{{}, RowsNeeded::kBatchKeysAndBias};
  linear.spec.name = "linear";
  TableUse embedding{{}, RowsNeeded::kBatchKeys};
  embedding.spec.id = TableId(1);
  embedding.spec.name = "embedding";
  embedding.spec.dim = 4;
  return {linear, embedding};
}

inline BatchPlanner PlannerOf(const Job& job, std::optional<int> gpu = {}) {
  return {job, Tables(), {.partition_bits = 4, .gpu = gpu, .device_keys_min = 0}};
}

}  // namespace tarn::worker
