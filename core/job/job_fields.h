// The sections of a job in the order of docs/job-file.md, with their keys and ranges (those of update rules,
// compression and the life of rows: core/table/). The reader and the writer of job files share this list. A visitor has
// these functions, each for a key and a reference to its member (const or not):
//
//   Integer(key, uint32 or uint64, low, high)      Number(key, float or double, Range)
//   Boolean(key, bool)    Name(key, enumeration)    Text(key, string, TextRule)
//   Integers(key, vector<uint32>, low, high, items_max)    Bins(key, vector<BinRule>)
//   Bytes(key, uint64): a whole number, or a text such as "8GiB"
//   Draws(key, Distribution): a number, or a text such as "uniform(0.01, 0.02)"
#pragma once

#include <cstdint>
#include <limits>

#include "core/job/job.h"
#include "core/limits.h"
#include "core/table/life_fields.h"
#include "core/table/optimizer_fields.h"

namespace tarn {

enum class TextRule : std::uint8_t {
  kName,    // 1..limits::kNameBytesMax of letters, digits, '.', '_', '-'; a letter or digit first: fit for a file name
  kDevice,  // "cpu", "gpu" or "gpu:N", N of at most three digits
  kPath,    // no control characters, at most 4096 bytes; may be empty
};

inline constexpr std::uint64_t kJobInt64Max = std::numeric_limits<std::int64_t>::max();  // largest integer of TOML
inline constexpr std::uint64_t kHotRowsMax =
    std::numeric_limits<std::uint32_t>::max() - 1;  // below kNoSlot of kernels/hot_rows.h
inline constexpr double kJobSecondsMax = 1e7;       // about 16 weeks
inline constexpr std::uint32_t kJobLanesMax = 16;
inline constexpr std::uint32_t kBatchShareMax = 1'000'000;
// Units of a layer. A row of the next layer has one weight per unit, and a bias.
inline constexpr std::uint32_t kJobUnitsMax = limits::kRowDimMax - 1;

template <typename Visitor, typename Section>
void VisitJobSection(Visitor& visitor, Section& section) {
  visitor.Text("name", section.name, TextRule::kName);
  visitor.Integer("seed", section.seed, 0, kJobInt64Max);
}

template <typename Visitor, typename Section>
void VisitFleet(Visitor& visitor, Section& section) {
  visitor.Integer("servers", section.servers, 1, limits::kShardsMax);
  visitor.Integer("shards", section.shards, 1, limits::kShardsMax);
  visitor.Integer("workers", section.workers, 1, limits::kWorkersMax);
  visitor.Integer("partition_bits", section.partition_bits, 0, limits::kPartitionBitsMax);
  visitor.Number("lease_seconds", section.lease_seconds, Range{0.01, kJobSecondsMax});
  visitor.Number("heartbeat_seconds", section.heartbeat_seconds, Range{0.001, kJobSecondsMax});
  visitor.Integer("worker_restarts", section.worker_restarts, 0, 1'000'000);
  visitor.Integer("busy_poll_us", section.busy_poll_us, 0, 1'000'000);
}

// The rest of [fleet]: affects only the speed of messages.
template <typename Visitor, typename Section>
void VisitLanes(Visitor& visitor, Section& section) {
  visitor.Integer("lanes", section.lanes, 1, kJobLanesMax);
}

template <typename Visitor, typename Section>
void VisitConsistency(Visitor& visitor, Section& section) {
  visitor.Name("mode", section.mode);
  visitor.Integer("staleness", section.staleness, 0, limits::kStalenessMax);
  visitor.Name("apply", section.apply);
  visitor.Integer("backup_workers", section.backup_workers, 0, limits::kWorkersMax - 1);
  visitor.Integer("staleness_range", section.staleness_range, 0, limits::kStalenessRangeMax);
}

template <typename Visitor, typename Section>
void VisitWorkerCache(Visitor& visitor, Section& section) {
  visitor.Bytes("worker_cache", section.bytes);
  visitor.Name("own_pushes", section.own_pushes);
  visitor.Integer("push_every", section.push_every, 1, limits::kPushEveryMax);
  visitor.Boolean("refresh_rows", section.refresh_rows);
}

template <typename Visitor, typename Section>
void VisitStorage(Visitor& visitor, Section& section) {
  visitor.Name("durability", section.durability);
  visitor.Number("checkpoint_seconds", section.checkpoint_seconds, Range{0, kJobSecondsMax});
  visitor.Integer("checkpoint_clocks", section.checkpoint_clocks, 0, kJobInt64Max);
  visitor.Boolean("checkpoint_final", section.checkpoint_final);
  visitor.Integer("checkpoints_kept", section.checkpoints_kept, 1, 1'000'000);
  visitor.Integer("checkpoint_chain", section.checkpoint_chain, 0, limits::kCheckpointChainMax);
  visitor.Bytes("memory", section.memory);
  visitor.Text("tier_dir", section.tier_dir, TextRule::kPath);
}

template <typename Visitor, typename Section>
void VisitData(Visitor& visitor, Section& section) {
  visitor.Text("dir", section.dir, TextRule::kPath);
  visitor.Name("format", section.format);
  visitor.Text("train", section.train, TextRule::kPath);
  visitor.Text("valid", section.valid, TextRule::kPath);
  visitor.Text("test", section.test, TextRule::kPath);
  visitor.Integer("integer_columns", section.integer_columns, 0, limits::kColumnsMax);
  visitor.Integer("categorical_columns", section.categorical_columns, 0, limits::kColumnsMax);
  visitor.Bins("bins", section.bins);
  visitor.Boolean("dense_integers", section.dense_integers);
  visitor.Integer("limit_rows", section.limit_rows, 0, kJobInt64Max);
  visitor.Integer("malformed_max", section.malformed_max, 0, std::numeric_limits<std::uint32_t>::max());
  visitor.Integer("split_rows", section.split_rows, 0, kJobInt64Max);
  visitor.Boolean("shuffle", section.shuffle);
  visitor.Integer("classes", section.classes, 2, limits::kClassesMax);
}

template <typename Visitor, typename Section>
void VisitModel(Visitor& visitor, Section& section) {
  visitor.Name("kind", section.kind);
  visitor.Integer("embedding_dim", section.embedding_dim, 1, limits::kRowDimMax);
  visitor.Integers("hidden", section.hidden, 1, kJobUnitsMax, limits::kLayersMax);
  visitor.Integers("bottom", section.bottom, 1, kJobUnitsMax, limits::kLayersMax);
  visitor.Integer("cross_layers", section.cross_layers, 0, limits::kLayersMax);
  visitor.Integer("cross_rank", section.cross_rank, 0, kJobUnitsMax);
  visitor.Number("init_stddev", section.init_stddev, Range{0, 1000});
}

template <typename Visitor, typename Section>
void VisitTrain(Visitor& visitor, Section& section) {
  visitor.Integer("batch_rows", section.batch_rows, 1, limits::kBatchRowsMax);
  visitor.Integer("epochs", section.epochs, 1, limits::kEpochsMax);
  visitor.Integer("patience", section.patience, 0, limits::kEpochsMax);
  visitor.Number("clip_global_norm", section.clip_global_norm, Range{0, 1e6});
  visitor.Name("precision", section.precision);
  visitor.Integer("prefetch", section.prefetch, 0, limits::kPrefetchMax);
  visitor.Boolean("key_caching", section.key_caching);
}

template <typename Visitor, typename Section>
void VisitBatchShares(Visitor& visitor, Section& section) {
  visitor.Integers("batch_shares", section.batch_shares, 1, kBatchShareMax, limits::kWorkersMax);
}

template <typename Visitor, typename Section>
void VisitHotRows(Visitor& visitor, Section& section) {
  visitor.Integer("hot_rows", section.rows, 0, kHotRowsMax);
  visitor.Name("hot_score", section.score);
}

// The rest of [train]: how a worker computes its gradients; the results are the same up to rounding.
template <typename Visitor, typename Section>
void VisitTrainExecution(Visitor& visitor, Section& section) {
  visitor.Text("device", section.device, TextRule::kDevice);
  visitor.Integer("accumulate", section.accumulate, 1, limits::kBatchRowsMax);
  visitor.Boolean("recompute", section.recompute);
}

template <typename Visitor, typename Section>
void VisitLocal(Visitor& visitor, Section& section) {
  visitor.Name("method", section.method);
  visitor.Integer("steps", section.steps, 1, limits::kLocalStepsMax);
  visitor.Integer("from_epoch", section.from_epoch, 1, limits::kEpochsMax);
  visitor.Number("prox", section.prox, kNotNegative);
  visitor.Number("moving_rate", section.moving_rate, Range{0, 1});
  VisitOptimizer(visitor, section.optimizer);
}

template <typename Visitor, typename Section>
void VisitDelays(Visitor& visitor, Section& section) {
  visitor.Draws("batch", section.batch);
  visitor.Draws("worker", section.worker);
  visitor.Integer("stragglers", section.stragglers, 0, limits::kWorkersMax);
  visitor.Number("straggler_factor", section.straggler_factor, Range{1, 1e6});
  visitor.Number("pause_probability", section.pause_probability, Range{0, 1});
  visitor.Draws("pause", section.pause);
  visitor.Draws("latency", section.latency);
  visitor.Number("gbit_per_second", section.gbit_per_second, Range{0, 1e6});
}

template <typename Visitor, typename Override>
void VisitCodecs(Visitor& visitor, Override& table) {
  visitor.Name("pull_codec", table.pull_codec);
  visitor.Name("push_codec", table.push_codec);
  visitor.Name("row_codec", table.row_codec);
}

}  // namespace tarn
