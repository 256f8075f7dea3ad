#include "core/job/job.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace tarn {

void ApplyOverride(const TableOverride& own, TableSpec* spec) {
  if (own.has_consistency) spec->consistency = own.consistency;
  if (own.has_pull_codec) spec->pull_codec = own.pull_codec;
  if (own.has_push_codec) spec->push_codec = own.push_codec;
  if (own.has_row_codec) spec->row_codec = own.row_codec;
  if (own.has_life) spec->life = own.life;
  if (own.has_compression) spec->compression = own.compression;
}

bool IsLockstep(const ConsistencySpec& consistency) {
  return consistency.mode != ConsistencyMode::kAsp && StalenessBound(consistency) == 0 &&
         consistency.apply == ApplyMode::kAggregated && consistency.backup_workers == 0;
}

std::vector<std::uint64_t> BatchRowsByRank(const Job& job) {
  const std::vector<std::uint32_t>& shares = job.train.batch_shares;
  if (shares.empty()) return {};
  const std::uint64_t all = std::uint64_t{job.train.batch_rows} * shares.size();
  const std::uint64_t sum = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  std::vector<std::uint64_t> rows;
  rows.reserve(shares.size());
  for (const std::uint32_t share : shares) rows.push_back((all * share + sum / 2) / sum);
  return rows;
}

TableSpec AsRun(const Job& job, TableSpec spec) {
  spec.consistency = job.consistency;
  if (const auto own = job.tables.find(spec.name); own != job.tables.end()) ApplyOverride(own->second, &spec);
  return spec;
}

const WorkerCacheSpec& WorkerCacheOf(const Job& job, const std::string& table) {
  const auto own = job.tables.find(table);
  return own != job.tables.end() && own->second.has_worker_cache ? own->second.worker_cache : job.worker_cache;
}

}  // namespace tarn
