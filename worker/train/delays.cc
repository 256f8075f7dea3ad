#include "worker/train/delays.h"

#include <algorithm>

#include "kernels/draw.h"

namespace tarn::worker {
namespace {

constexpr std::uint64_t kDelaysSalt = 0x64656c617973;

}  // namespace

BatchDelays::BatchDelays(const Job& job, std::uint32_t rank)
    : delays_(job.delays),
      rng_(HashCombine(HashCombine(job.job.seed, kDelaysSalt), rank)),
      batch_rows_(job.train.batch_rows) {
  factor_ = kernels::Draw(delays_.worker, &rng_);
  const std::uint32_t first_straggler = job.fleet.workers - std::min(delays_.stragglers, job.fleet.workers);
  if (rank >= first_straggler) factor_ *= delays_.straggler_factor;
  if (const auto by_rank = BatchRowsByRank(job); rank < by_rank.size()) {
    batch_rows_ = by_rank[rank];
    factor_ *= double(batch_rows_) / job.train.batch_rows;
  }
}

TimeUs BatchDelays::Next(std::uint64_t rows) {
  const std::uint64_t batches = (rows + batch_rows_ - 1) / batch_rows_;
  double seconds = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    seconds += factor_ * kernels::Draw(delays_.batch, &rng_);
    if (delays_.pause_probability > 0 && rng_.Chance(delays_.pause_probability))
      seconds += kernels::Draw(delays_.pause, &rng_);
  }
  return static_cast<TimeUs>(std::min(seconds, kernels::kDrawMax) * 1e6);
}

}  // namespace tarn::worker
