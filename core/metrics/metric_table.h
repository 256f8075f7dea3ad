// Every metric of the system, declared once. Heartbeats, metrics.jsonl, summary.json, /metrics and docs/run.md take its
// name and help text from here. A name that is not in the table does not compile:
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
  kEverywhere,  // metrics.jsonl, and /metrics of each process that reports it
  kSummed,      // as kEverywhere; also, the scheduler and summary.json show the sum over all processes
  kFile,        // only metrics.jsonl
  kHttp,        // only /metrics
};

// The processes that report a metric, combined with |.
inline constexpr unsigned kOfScheduler = 1, kOfShard = 2, kOfWorker = 4, kOfProcess = 8;
inline constexpr unsigned kOfAll = kOfScheduler | kOfShard | kOfWorker;

struct MetricSpec {
  std::string_view name;  // snake_case, unit last; /metrics appends "_total" to counters
  MetricKind kind = MetricKind::kGauge;
  unsigned of = 0;        // a process reports at most one metric of a name
  std::string_view help;  // one line
  MetricShown shown = MetricShown::kEverywhere;
  std::string_view label = {};  // label that distinguishes several values; empty: one value
};

namespace metrics {

using enum MetricKind;
using enum MetricShown;

inline constexpr MetricSpec kTable[] = {
    {"ready", kGauge, kOfAll, "1 if it takes part in the run, else 0", kHttp},
    {"updated_timestamp_seconds", kGauge, kOfAll, "Time of these values, in seconds since 1970", kHttp},

    {"state", kGauge, kOfScheduler, "1 for the current state of the run", kHttp, "state"},
    {"epoch", kGauge, kOfScheduler, "Epoch, from 1"},
    {"clock", kGauge, kOfScheduler, "Clock of the slowest worker"},
    {"progress", kGauge, kOfScheduler, "Trained share of all epochs, 0 to 1"},
    {"eta_seconds", kGauge, kOfScheduler, "Time until all epochs are trained"},
    {"samples", kCounter, kOfScheduler, "Rows trained and acknowledged in all epochs, including those before a resume"},
    {"samples_per_second", kGauge, kOfScheduler, "Rows trained per second, over the last seconds"},
    {"loss", kGauge, kOfScheduler, "Progressive log-loss of the current epoch"},
    {"auc", kGauge, kOfScheduler, "Progressive AUC of the current epoch"},
    {"valid_logloss", kGauge, kOfScheduler, "Log-loss of the last epoch's validation"},
    {"valid_auc", kGauge, kOfScheduler, "AUC of the last epoch's validation"},
    {"staleness_mean", kGauge, kOfScheduler, "Mean staleness of pulls, in clocks"},
    {"staleness_max", kGauge, kOfScheduler, "Maximum staleness of pulls, in clocks"},
    {"staleness_clocks", kHistogram, kOfScheduler | kOfWorker, "Staleness of pulls, in clocks", kHttp},
    {"gradient_delay_mean", kGauge, kOfScheduler, "Sections applied to a partition between a pull and its push, mean"},
    {"gradient_delay_max", kGauge, kOfScheduler,
     "Sections applied to a partition between a pull and its push, maximum"},
    {"gradient_delay_sections", kHistogram, kOfScheduler | kOfShard,
     "Sections applied to a partition between a pull and its push", kHttp},
    {"gradient_delay_sum", kCounter, kOfShard,
     "Sum of the gradient delays of a worker's sections; of the first 128 ranks", kSummed, "worker"},
    {"gradient_delay_count", kCounter, kOfShard, "Sections in gradient_delay_sum", kSummed, "worker"},
    {"workers_live", kGauge, kOfScheduler, "Live workers"},
    {"workers_died", kCounter, kOfScheduler, "Deaths of workers, including restarted ones"},

    {"clock", kGauge, kOfWorker, "Current clock of the worker"},
    {"acked_clock", kGauge, kOfWorker, "Newest clock whose tick every shard has acknowledged"},
    {"samples", kCounter, kOfWorker, "Rows trained"},
    {"samples_per_second", kGauge, kOfWorker, "Rows trained per second since the previous line", kFile},
    {"loss", kGauge, kOfWorker, "Log-loss of rows trained since the previous line", kFile},
    {"loss_sum", kCounter, kOfWorker, "Sum of the log-losses of rows trained, each scored before it is trained on"},
    {"loss_rows", kCounter, kOfWorker, "Rows in loss_sum"},
    {"staleness_mean", kGauge, kOfWorker, "Mean staleness of pulls since the previous line, in clocks", kFile},
    {"staleness_max", kGauge, kOfWorker, "Maximum staleness of pulls, in clocks", kFile},
    {"waiting_share", kGauge, kOfWorker,
     "Share of the time since the previous line spent waiting for rows and data, 0 to 1", kFile},
    {"batches", kCounter, kOfWorker, "Batches trained"},
    {"batches_passed_over", kCounter, kOfWorker, "Batches without a push, because their gradients overflow fp16",
     kSummed},
    {"malformed_lines", kCounter, kOfWorker, "Malformed lines skipped in training, counted again in every epoch",
     kSummed},
    {"stage_seconds", kCounter, kOfWorker, "Time spent in a stage of the pipeline", kSummed, "stage"},
    {"cpu_seconds", kCounter, kOfWorker, "CPU time spent in a stage of the training loop", kSummed, "stage"},
    {"pulls", kCounter, kOfWorker, "Pulls requested"},
    {"pushes", kCounter, kOfWorker, "Pushes requested; combined ones (push_every) count as one"},
    {"pull_bytes", kCounter, kOfWorker, "Encoded keys and values of pulls, without headers and repeats", kSummed},
    {"push_bytes", kCounter, kOfWorker, "Encoded keys and values of pushes, without headers and repeats", kSummed},
    {"repeats", kCounter, kOfWorker, "Messages sent again"},
    {"malformed", kCounter, kOfWorker, "Replies that do not match their request"},
    {"unknown_lists", kCounter, kOfWorker, "Key lists that a shard no longer stored"},
    {"cache_rows", kCounter, kOfWorker, "Rows pulled from tables with a worker_cache", kSummed},
    {"cache_hits", kCounter, kOfWorker, "Rows pulled that were in the worker_cache", kSummed},
    {"refreshed_rows", kCounter, kOfWorker, "Rows of the worker_cache that servers sent again (refresh_rows)", kSummed},
    {"hot_rows", kCounter, kOfWorker, "Rows looked up in the hot-row cache (train.hot_rows)", kSummed},
    {"hot_hits", kCounter, kOfWorker, "Rows found in the hot-row cache", kSummed},
    {"combined_pushes", kCounter, kOfWorker, "Pushes combined with the push of a later clock (push_every)", kSummed},
    {"residual_rows", kGauge, kOfWorker, "Rows of gradients not sent yet"},
    {"residuals_expired", kCounter, kOfWorker, "Rows of gradients dropped because their row expired"},
    {"residuals_crowded", kCounter, kOfWorker, "Rows of gradients sent because residual_memory was full"},
    {"skipped_clocks", kCounter, kOfWorker, "Clocks that closed without the worker (backup_workers)", kSummed},

    {"clock", kGauge, kOfShard, "Minimum clock"},
    {"rows", kGauge, kOfShard, "Rows of all tables"},
    {"row_bytes", kGauge, kOfShard, "Memory of the rows"},
    {"rows_admitted", kCounter, kOfShard, "Rows created in tables with admission or expiry"},
    {"rows_refused", kCounter, kOfShard, "Rows of pushes (gradients) dropped because their keys were not admitted"},
    {"rows_expired", kCounter, kOfShard, "Rows removed by age or score"},
    {"rows_not_finite", kCounter, kOfShard, "Rows of pushes (gradients) skipped because a value is infinite or NaN",
     kSummed},
    {"gradients_discarded", kCounter, kOfShard, "Rows of pushes (gradients) discarded because they came too late",
     kSummed},
    {"rows_not_finite_by_table", kCounter, kOfShard, "rows_not_finite of each table; only tables with such rows",
     kEverywhere, "table"},
    {"pulls", kCounter, kOfShard, "Pull messages answered"},
    {"pulls_parked", kCounter, kOfShard, "Pull messages that waited for their clock"},
    {"pull_rows", kCounter, kOfShard, "Rows sent in answers to pulls"},
    {"pushes", kCounter, kOfShard, "Sections of pushes accepted, one per message and partition"},
    {"push_rows", kCounter, kOfShard, "Rows in accepted sections of pushes"},
    {"pushes_repeated", kCounter, kOfShard, "Sections received again, acknowledged without being applied"},
    {"pushes_out_of_order", kCounter, kOfShard, "Sections received out of order, rejected without being applied"},
    {"refused_epoch", kCounter, kOfShard, "Requests rejected because their route epoch differs from that of the shard"},
    {"refused_fenced", kCounter, kOfShard,
     "Requests rejected because the scheduler has declared their worker dead (fenced it)"},
    {"refused_other", kCounter, kOfShard, "Requests, and sections of pushes, rejected for other reasons"},
    {"checkpoints", kCounter, kOfShard, "Parts of checkpoints written, one per checkpoint and shard"},
    {"cut_early_bytes", kCounter, kOfShard,
     "Bytes of rows copied early for a checkpoint, because a push was about to change them"},
    {"cut_held_bytes", kGauge, kOfShard, "Bytes of rows copied for a checkpoint and not written yet"},
    {"log_bytes", kGauge, kOfShard, "Bytes of the log on disk"},
    {"log_written_bytes", kCounter, kOfShard, "Bytes written to the log"},
    {"log_syncs", kCounter, kOfShard, "Syncs of the log"},
    {"memory_limit", kGauge, kOfShard, "Memory limit of the shard, with storage.memory"},
    {"memory_bytes", kGauge, kOfShard, "Memory used by the shard, with storage.memory"},
    {"process_bytes", kGauge, kOfShard, "Memory used by the process, with storage.memory"},
    {"resident_rows", kGauge, kOfShard, "Rows in memory, with storage.memory"},
    {"cold_rows", kGauge, kOfShard, "Rows on disk, with storage.memory"},
    {"tier_bytes", kGauge, kOfShard, "Bytes of rows on disk"},
    {"tier_uses", kCounter, kOfShard, "Rows accessed, with storage.memory"},
    {"tier_read_waiting", kCounter, kOfShard, "Rows read from disk while the shard waited"},
    {"tier_fetched", kCounter, kOfShard, "Rows read from disk in the background"},
    {"tier_evicted", kCounter, kOfShard, "Rows evicted from memory"},
    {"waited_for_rows", kCounter, kOfShard, "Messages that waited for rows on disk"},

    {"sent_messages", kCounter, kOfScheduler | kOfShard, "Messages sent"},
    {"sent_bytes", kCounter, kOfScheduler | kOfShard, "Bytes sent, with headers"},
    {"received_messages", kCounter, kOfScheduler | kOfShard, "Messages received"},
    {"received_bytes", kCounter, kOfScheduler | kOfShard, "Bytes received, with headers"},
    {"refused_malformed", kCounter, kOfScheduler | kOfShard, "Messages rejected as malformed"},
    {"refused_too_large", kCounter, kOfScheduler | kOfShard, "Messages rejected because of their size"},
    {"refused_version", kCounter, kOfScheduler | kOfShard, "Messages rejected because of their protocol version"},
    {"refused_handshakes", kCounter, kOfScheduler | kOfShard, "Connections rejected"},
    {"dropped_backlog", kCounter, kOfScheduler | kOfShard,
     "Messages dropped because the backlog of their peer was full"},
    {"dropped_unreachable", kCounter, kOfScheduler | kOfShard, "Messages dropped because their peer was unreachable"},
    {"dropped_unencodable", kCounter, kOfScheduler | kOfShard, "Messages dropped because they exceeded a limit"},
    {"backlog_bytes", kGauge, kOfScheduler | kOfShard, "Bytes of messages waiting to be sent"},
    {"accepted_peers", kGauge, kOfScheduler | kOfShard, "Connected peers"},
    {"shm_peers", kGauge, kOfScheduler | kOfShard, "Peers connected through shared memory"},

    // Under the names that Prometheus' own client libraries use.
    {"cpu_seconds", kCounter, kOfProcess, "User and system CPU time spent", kHttp},
    {"resident_memory_bytes", kGauge, kOfProcess, "Resident memory size", kHttp},
    {"virtual_memory_bytes", kGauge, kOfProcess, "Virtual memory size", kHttp},
    {"open_fds", kGauge, kOfProcess, "Open file descriptors", kHttp},
    {"max_fds", kGauge, kOfProcess, "Maximum number of open file descriptors", kHttp},
    {"start_time_seconds", kGauge, kOfProcess, "Start time of the process, in seconds since 1970", kHttp},
};

void NoSuchMetric();  // not constexpr, so a name that is not in the table does not compile

}  // namespace metrics

// Index in the table of the metric that all of `of` report; the table's size if there is none.
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

// The metric; does not compile if there is none. Compares indexes, because under UBSan GCC does not accept a comparison
// of addresses with null as a constant expression.
consteval const MetricSpec* MetricOf(unsigned of, std::string_view name) {
  const std::size_t i = MetricIndex(of, name);
  if (i == std::size(metrics::kTable)) metrics::NoSuchMetric();
  return &metrics::kTable[i];
}
consteval const MetricSpec* SchedulerMetric(std::string_view name) { return MetricOf(kOfScheduler, name); }
consteval const MetricSpec* ShardMetric(std::string_view name) { return MetricOf(kOfShard, name); }
consteval const MetricSpec* WorkerMetric(std::string_view name) { return MetricOf(kOfWorker, name); }
consteval const MetricSpec* ProcessMetric(std::string_view name) { return MetricOf(kOfProcess, name); }

// Binds a field of a struct of counters to its metric.
template <typename Struct>
struct MetricField {
  const MetricSpec* metric;
  std::uint64_t Struct::* field;
};

// Whether the struct has exactly n fields; each is a std::uint64_t.
template <typename Struct, std::size_t n>
constexpr bool BindsAll(const MetricField<Struct> (&)[n]) {
  return sizeof(Struct) == n * sizeof(std::uint64_t);
}

}  // namespace tarn
