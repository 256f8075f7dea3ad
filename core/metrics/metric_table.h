// Every metric of the system, declared once: heartbeats, metrics.jsonl, summary.json, /metrics and docs/run.md take its
// name from here, and its help where they show one. A name that is not in the table does not compile:
//
//   list.Add(ShardMetric("pulls"), counters.pulls);
//
// A struct of counters is bound to the table beside its definition:
//
//   inline constexpr MetricField<ShardCounters> kShardMetrics[] = {{ShardMetric("pulls"), &ShardCounters::pulls}, ...};
//   static_assert(BindsAll(kShardMetrics));
//
// To add a metric: a line here, the binding, and the line of docs/run.md that metric_table_test prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tarn {

enum class MetricKind : std::uint8_t { kCounter, kGauge, kHistogram };

// Where a metric is shown.
enum class MetricShown : std::uint8_t {
  kEverywhere,  // in metrics.jsonl and on /metrics of each process that reports it
  kSummed,      // there; and the scheduler shows the sum of all processes' values, in summary.json too
  kFile,        // in metrics.jsonl alone
  kHttp,        // on /metrics alone
};

// Who reports a metric: a sum of these.
inline constexpr unsigned kOfScheduler = 1, kOfShard = 2, kOfWorker = 4, kOfProcess = 8;
inline constexpr unsigned kOfAll = kOfScheduler | kOfShard | kOfWorker;

struct MetricSpec {
  std::string_view name;  // snake_case, the unit last; /metrics appends "_total" to counters
  MetricKind kind = MetricKind::kGauge;
  unsigned of = 0;        // one that reports it has no other of this name
  std::string_view help;  // one line
  MetricShown shown = MetricShown::kEverywhere;
  std::string_view label = {};  // of several values that it has; empty: it has one
};

namespace metrics {

using enum MetricKind;
using enum MetricShown;

inline constexpr MetricSpec kTable[] = {
    {"ready", kGauge, kOfAll, "Whether it takes part in the run", kHttp},
    {"updated_timestamp_seconds", kGauge, kOfAll, "When these metrics were taken, in seconds since 1970", kHttp},

    {"state", kGauge, kOfScheduler, "1 for the state that the run is in", kHttp, "state"},
    {"epoch", kGauge, kOfScheduler, "Epoch, from 1"},
    {"clock", kGauge, kOfScheduler, "Clock of the slowest worker"},
    {"progress", kGauge, kOfScheduler, "Share of all epochs that is trained"},
    {"eta_seconds", kGauge, kOfScheduler, "Time until all epochs are trained"},
    {"samples", kCounter, kOfScheduler, "Rows trained and acknowledged, of all epochs; before a resume too"},
    {"samples_per_second", kGauge, kOfScheduler, "Rows trained a second, of the last seconds"},
    {"loss", kGauge, kOfScheduler, "Progressive log-loss of the epoch"},
    {"auc", kGauge, kOfScheduler, "Progressive AUC of the epoch"},
    {"valid_logloss", kGauge, kOfScheduler, "Log-loss of the last epoch's validation"},
    {"valid_auc", kGauge, kOfScheduler, "AUC of the last epoch's validation"},
    {"staleness_mean", kGauge, kOfScheduler, "Clocks by which pulls were behind, mean"},
    {"staleness_max", kGauge, kOfScheduler, "Clocks by which pulls were behind, maximum"},
    {"staleness_clocks", kHistogram, kOfScheduler | kOfWorker, "Clocks by which pulls were behind", kHttp},
    {"gradient_delay_mean", kGauge, kOfScheduler, "Sections applied to a partition between a pull and its push, mean"},
    {"gradient_delay_max", kGauge, kOfScheduler,
     "Sections applied to a partition between a pull and its push, maximum"},
    {"gradient_delay_sections", kHistogram, kOfScheduler | kOfShard,
     "Sections applied to a partition between a pull and its push", kHttp},
    {"workers_live", kGauge, kOfScheduler, "Workers that take part"},
    {"workers_died", kCounter, kOfScheduler, "Workers declared dead; each one that was started again counts anew"},

    {"clock", kGauge, kOfWorker, "Clock that the worker is in"},
    {"acked_clock", kGauge, kOfWorker, "Newest clock whose end every shard has acknowledged"},
    {"samples", kCounter, kOfWorker, "Rows trained"},
    {"samples_per_second", kGauge, kOfWorker, "Rows trained a second, since the line before", kFile},
    {"loss", kGauge, kOfWorker, "Log-loss of rows trained since the line before", kFile},
    {"loss_sum", kCounter, kOfWorker, "Sum of the log-losses of rows trained, each before it is learnt"},
    {"loss_rows", kCounter, kOfWorker, "Rows in loss_sum"},
    {"staleness_mean", kGauge, kOfWorker, "Clocks by which pulls were behind, mean since the line before", kFile},
    {"staleness_max", kGauge, kOfWorker, "Clocks by which pulls were behind, maximum", kFile},
    {"waiting_share", kGauge, kOfWorker,
     "Share of the time since the line before that was spent waiting for rows and data", kFile},
    {"batches", kCounter, kOfWorker, "Batches trained"},
    {"batches_passed_over", kCounter, kOfWorker, "Batches that pushed nothing, since their gradients do not fit fp16",
     kSummed},
    {"malformed_lines", kCounter, kOfWorker, "Malformed lines that training passed over, in every epoch anew", kSummed},
    {"stage_seconds", kCounter, kOfWorker, "Time in a stage of the pipeline", kSummed, "stage"},
    {"cpu_seconds", kCounter, kOfWorker, "CPU time in a stage of the training loop", kSummed, "stage"},
    {"pulls", kCounter, kOfWorker, "Pulls asked for"},
    {"pushes", kCounter, kOfWorker, "Pushes asked for"},
    {"pull_bytes", kCounter, kOfWorker, "Keys and values of pulls as they travel, without headers and repeats",
     kSummed},
    {"push_bytes", kCounter, kOfWorker, "Keys and values of pushes as they travel, without headers and repeats",
     kSummed},
    {"repeats", kCounter, kOfWorker, "Messages sent again"},
    {"malformed", kCounter, kOfWorker, "Replies that do not fit their request"},
    {"unknown_lists", kCounter, kOfWorker, "Lists of keys that a shard was to hold and did not"},
    {"cache_rows", kCounter, kOfWorker, "Rows pulled of tables with a worker_cache", kSummed},
    {"cache_hits", kCounter, kOfWorker, "Rows pulled that the worker_cache had", kSummed},
    {"hot_rows", kCounter, kOfWorker, "Rows looked for among the hot rows (train.hot_rows)", kSummed},
    {"hot_hits", kCounter, kOfWorker, "Rows found among the hot rows", kSummed},
    {"combined_pushes", kCounter, kOfWorker, "Pushes that went along with one of a later clock (push_every)", kSummed},
    {"residual_rows", kGauge, kOfWorker, "Rows of gradients kept and not sent yet (topk)"},
    {"residuals_expired", kCounter, kOfWorker, "Rows of gradients dropped with their row (topk)"},
    {"residuals_crowded", kCounter, kOfWorker, "Rows of gradients sent for want of room (topk)"},

    {"clock", kGauge, kOfShard, "Minimum clock"},
    {"rows", kGauge, kOfShard, "Rows of all tables"},
    {"row_bytes", kGauge, kOfShard, "Memory that the rows take"},
    {"rows_admitted", kCounter, kOfShard, "Rows created in tables with admission or expiry"},
    {"rows_refused", kCounter, kOfShard, "Gradients dropped because their keys were not admitted"},
    {"rows_expired", kCounter, kOfShard, "Rows removed by age or score"},
    {"rows_not_finite", kCounter, kOfShard, "Gradients with infinite or NaN values, whose rows were skipped", kSummed},
    {"rows_not_finite_by_table", kCounter, kOfShard,
     "Gradients of a table with infinite or NaN values; where there were some", kEverywhere, "table"},
    {"pulls", kCounter, kOfShard, "Pulls received"},
    {"pulls_parked", kCounter, kOfShard, "Pulls that waited for their clock"},
    {"pull_rows", kCounter, kOfShard, "Rows sent in answers to pulls"},
    {"pushes", kCounter, kOfShard, "Sections of pushes received: one a partition"},
    {"push_rows", kCounter, kOfShard, "Rows in pushes that were applied"},
    {"pushes_repeated", kCounter, kOfShard, "Sections received again and not applied"},
    {"pushes_out_of_order", kCounter, kOfShard, "Sections received too early and not applied"},
    {"refused_epoch", kCounter, kOfShard, "Requests refused for their epoch"},
    {"refused_fenced", kCounter, kOfShard, "Requests refused because their worker is fenced"},
    {"refused_other", kCounter, kOfShard, "Requests refused for another reason"},
    {"checkpoints", kCounter, kOfShard, "Parts of checkpoints written"},
    {"cut_early_bytes", kCounter, kOfShard, "Rows copied for a checkpoint because a push was about to change them"},
    {"cut_held_bytes", kGauge, kOfShard, "Rows copied for a checkpoint and not written yet"},
    {"log_bytes", kGauge, kOfShard, "Log on disk"},
    {"log_written_bytes", kCounter, kOfShard, "Bytes written into the log"},
    {"log_syncs", kCounter, kOfShard, "Syncs of the log"},
    {"memory_limit", kGauge, kOfShard, "Memory that the shard may take, in bytes, with storage.memory"},
    {"memory_bytes", kGauge, kOfShard, "Memory that the shard takes, with storage.memory"},
    {"process_bytes", kGauge, kOfShard, "Memory that the process takes, with storage.memory"},
    {"resident_rows", kGauge, kOfShard, "Rows in memory, with storage.memory"},
    {"cold_rows", kGauge, kOfShard, "Rows on disk, with storage.memory"},
    {"tier_bytes", kGauge, kOfShard, "Rows on disk, in bytes"},
    {"tier_uses", kCounter, kOfShard, "Rows asked for, with storage.memory"},
    {"tier_read_waiting", kCounter, kOfShard, "Rows read from disk while the shard waited"},
    {"tier_fetched", kCounter, kOfShard, "Rows read from disk beside the shard's work"},
    {"tier_evicted", kCounter, kOfShard, "Rows that left memory"},
    {"waited_for_rows", kCounter, kOfShard, "Messages that waited for rows on disk"},

    {"sent_messages", kCounter, kOfScheduler | kOfShard, "Messages sent"},
    {"sent_bytes", kCounter, kOfScheduler | kOfShard, "Bytes sent, with headers"},
    {"received_messages", kCounter, kOfScheduler | kOfShard, "Messages received"},
    {"received_bytes", kCounter, kOfScheduler | kOfShard, "Bytes received, with headers"},
    {"refused_malformed", kCounter, kOfScheduler | kOfShard, "Bytes refused that are no message"},
    {"refused_too_large", kCounter, kOfScheduler | kOfShard, "Messages refused for their size"},
    {"refused_version", kCounter, kOfScheduler | kOfShard, "Messages refused for their protocol version"},
    {"refused_handshakes", kCounter, kOfScheduler | kOfShard, "Connections refused"},
    {"dropped_backlog", kCounter, kOfScheduler | kOfShard, "Messages dropped because too much waited for their peer"},
    {"dropped_unreachable", kCounter, kOfScheduler | kOfShard, "Messages dropped because their peer cannot be reached"},
    {"dropped_unencodable", kCounter, kOfScheduler | kOfShard, "Messages dropped because they exceed a limit"},
    {"backlog_bytes", kGauge, kOfScheduler | kOfShard, "Messages that wait for their peer to take them"},
    {"accepted_peers", kGauge, kOfScheduler | kOfShard, "Peers that are connected to it"},
    {"shm_peers", kGauge, kOfScheduler | kOfShard, "Peers with which memory is shared"},

    // Under the names that Prometheus' own client libraries use.
    {"cpu_seconds", kCounter, kOfProcess, "User and system CPU time spent", kHttp},
    {"resident_memory_bytes", kGauge, kOfProcess, "Resident memory size", kHttp},
    {"virtual_memory_bytes", kGauge, kOfProcess, "Virtual memory size", kHttp},
    {"open_fds", kGauge, kOfProcess, "Open file descriptors", kHttp},
    {"max_fds", kGauge, kOfProcess, "File descriptors that may be open", kHttp},
    {"start_time_seconds", kGauge, kOfProcess, "Start time of the process, in seconds since 1970", kHttp},
};

void NoSuchMetric();  // not constexpr and not defined: a name that is not in the table does not compile

}  // namespace metrics

// The place in the table of the metric that all of `of` report; its length: there is none.
constexpr std::size_t MetricIndex(unsigned of, std::string_view name) {
  std::size_t i = 0;
  while (i < std::size(metrics::kTable) && ((metrics::kTable[i].of & of) != of || metrics::kTable[i].name != name)) ++i;
  return i;
}

// The metric, or null.
constexpr const MetricSpec* FindMetric(unsigned of, std::string_view name) {
  const std::size_t i = MetricIndex(of, name);
  return i < std::size(metrics::kTable) ? &metrics::kTable[i] : nullptr;
}

// Compares indexes: GCC's UBSan makes no constant expression of a comparison of addresses with null.
consteval const MetricSpec* MetricOf(unsigned of, std::string_view name) {
  const std::size_t i = MetricIndex(of, name);
  if (i == std::size(metrics::kTable)) metrics::NoSuchMetric();
  return &metrics::kTable[i];
}
consteval const MetricSpec* SchedulerMetric(std::string_view name) { return MetricOf(kOfScheduler, name); }
consteval const MetricSpec* ShardMetric(std::string_view name) { return MetricOf(kOfShard, name); }
consteval const MetricSpec* WorkerMetric(std::string_view name) { return MetricOf(kOfWorker, name); }
consteval const MetricSpec* ProcessMetric(std::string_view name) { return MetricOf(kOfProcess, name); }

// The metric that shows a field of a struct of counters.
template <typename Struct>
struct MetricField {
  const MetricSpec* metric;
  std::uint64_t Struct::* field;
};

// Whether so many fields are all that the struct has: each is a std::uint64_t.
template <typename Struct, std::size_t n>
constexpr bool BindsAll(const MetricField<Struct> (&)[n]) {
  return sizeof(Struct) == n * sizeof(std::uint64_t);
}

}  // namespace tarn
