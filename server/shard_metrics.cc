#include "server/shard_metrics.h"

#include <utility>

#include "server/log/file_shard_log.h"
#include "server/memory_meter.h"
#include "server/store/store.h"

namespace tarn::server {
namespace {

void AddRows(const Store& store, MetricList* list) {
  list->Add(ShardMetric("rows"), store.row_count());
  list->Add(ShardMetric("row_bytes"), store.memory_bytes());
  list->AddFields(kRowMetrics, store.counters());
  list->AddHistogram(ShardMetric("gradient_delay_sections"), store.delays().histogram());
  list->Append(store.delays().ByWorker());
  if (store.counters().not_finite == 0) return;
  LabelledValues tables;
  for (const NotFiniteRows& skipped : store.not_finite()) tables.emplace_back(skipped.table, skipped.rows);
  list->AddBy(ShardMetric("rows_not_finite_by_table"), std::move(tables));
}

void AddTier(const Shard& shard, const Residency& tier, MetricList* list) {
  list->Add(ShardMetric("memory_limit"), tier.limit_bytes());
  list->Add(ShardMetric("memory_bytes"), shard.memory_bytes());
  list->Add(ShardMetric("process_bytes"), ResidentBytes());
  list->Add(ShardMetric("resident_rows"), tier.resident_rows());
  list->Add(ShardMetric("cold_rows"), tier.cold_rows());
  list->Add(ShardMetric("tier_bytes"), tier.disk_bytes());
  list->AddFields(kResidencyMetrics, tier.counters());
}

}  // namespace

MetricList ShardMetrics(const Shard& shard, const net::TransportCounters& net, const FileShardLog* log) {
  const Store& store = shard.rows();
  MetricList list;
  list.Add(ShardMetric("clock"), shard.minimum_clock().value);
  AddRows(store, &list);
  list.AddFields(kShardMetrics, shard.counters());
  list.Add(ShardMetric("cut_early_bytes"), store.cut().early_bytes());
  list.Add(ShardMetric("cut_held_bytes"), store.cut().held_bytes());
  if (log != nullptr) {
    list.Add(ShardMetric("log_bytes"), log->bytes());
    list.Add(ShardMetric("log_written_bytes"), log->written_bytes());
    list.Add(ShardMetric("log_syncs"), log->syncs());
  }
  if (const Residency* tier = store.tier()) AddTier(shard, *tier, &list);
  list.AddFields(net::kTransportMetrics, net);
  return list;
}

}  // namespace tarn::server
