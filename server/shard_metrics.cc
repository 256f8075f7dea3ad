#include "server/shard_metrics.h"

#include <string>
#include <utility>
#include <vector>

#include "server/log/file_shard_log.h"
#include "server/memory_meter.h"
#include "server/store/store.h"

namespace tarn::server {
namespace {

void AddRows(const Store& store, MetricList* list) {
  const RowCounters& lives = store.counters();
  list->Gauge("rows", "Rows of all tables", store.row_count());
  list->Gauge("row_bytes", "Memory that the rows take", store.memory_bytes());
  list->Counter("rows_admitted", "Rows created in tables with admission", lives.admitted);
  list->Counter("rows_refused", "Gradients dropped because their keys were not admitted", lives.refused);
  list->Counter("rows_expired", "Rows removed by age or score", lives.expired);
  list->Counter("rows_not_finite", "Gradients skipped for infinite or NaN values", lives.not_finite);
  std::vector<std::pair<std::string, MetricValue>> tables;
  if (lives.not_finite != 0)
    for (const NotFiniteRows& of : store.not_finite()) tables.emplace_back(of.table, of.rows);
  list->CounterBy("table", "rows_not_finite_by_table", "Gradients of a table skipped for infinite or NaN values",
                  std::move(tables));
}

void AddRequests(const ShardCounters& shard, MetricList* list) {
  list->Counter("pulls", "Pulls received", shard.pulls);
  list->Counter("pulls_parked", "Pulls that waited for their clock", shard.pulls_parked);
  list->Counter("pull_rows", "Rows sent in answers to pulls", shard.pull_rows);
  list->Counter("pushes", "Sections of pushes received", shard.pushes);
  list->Counter("push_rows", "Rows in pushes that were applied", shard.push_rows);
  list->Counter("pushes_repeated", "Sections received again and not applied", shard.pushes_repeated);
  list->Counter("pushes_out_of_order", "Sections received too early and not applied", shard.pushes_out_of_order);
  list->Counter("refused_epoch", "Requests refused for their epoch", shard.refused_epoch);
  list->Counter("refused_fenced", "Requests refused because their worker is fenced", shard.refused_fenced);
  list->Counter("refused_other", "Requests refused for another reason", shard.refused_other);
}

void AddTier(const Shard& shard, const Residency& tier, MetricList* list) {
  const ResidencyCounters& counters = tier.counters();
  list->Gauge("memory_limit", "Memory that the shard may take, in bytes", tier.limit_bytes());
  list->Gauge("memory_bytes", "Memory that the shard takes", shard.memory_bytes());
  list->Gauge("process_bytes", "Memory that the process takes", ResidentBytes());
  list->Gauge("resident_rows", "Rows in memory", tier.resident_rows());
  list->Gauge("cold_rows", "Rows on disk", tier.cold_rows());
  list->Counter("tier_uses", "Rows asked for", counters.uses);
  list->Counter("tier_read_waiting", "Rows read from disk while the shard waited", counters.read_waiting);
  list->Counter("tier_fetched", "Rows read from disk beside the shard's work", counters.fetched);
  list->Counter("tier_evicted", "Rows that left memory", counters.evicted);
  list->Gauge("tier_bytes", "Rows on disk, in bytes", tier.disk_bytes());
  list->Counter("waited_for_rows", "Messages that waited for rows on disk", shard.counters().waited_for_rows);
}

}  // namespace

MetricList ShardMetrics(const Shard& shard, const net::TransportCounters& net, const FileShardLog* log) {
  const Store& store = shard.rows();
  MetricList list;
  list.Gauge("clock", "Minimum clock", shard.minimum_clock().value);
  AddRows(store, &list);
  AddRequests(shard.counters(), &list);
  list.Counter("refused_malformed", "Messages refused because they are malformed", net.refused_malformed);
  list.Counter("refused_too_large", "Messages refused for their size", net.refused_too_large);
  list.Counter("checkpoints", "Parts of checkpoints written", shard.counters().checkpoints);
  if (log != nullptr) {
    list.Gauge("log_bytes", "Log on disk, in bytes", log->bytes());
    list.Counter("log_written_bytes", "Bytes written into the log", log->written_bytes());
    list.Counter("log_syncs", "Syncs of the log", log->syncs());
  }
  list.Counter("cut_early_bytes", "Rows copied for a checkpoint because a push changed them",
               store.cut().early_bytes());
  list.Gauge("cut_held_bytes", "Rows copied for a checkpoint and not written yet, in bytes", store.cut().held_bytes());
  if (const Residency* tier = store.tier()) AddTier(shard, *tier, &list);
  list.Gauge("shm_peers", "Workers with whom memory is shared", net.shm_peers);
  list.Counter("sent_bytes", "Bytes sent, with headers", net.sent_bytes);
  list.Counter("received_bytes", "Bytes received, with headers", net.received_bytes);
  return list;
}

}  // namespace tarn::server
