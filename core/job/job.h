// A job: one training run, described by one TOML file. Parsing is strict: an unknown key, a value of the wrong
// type or out of range is an error that names the file, the line and, for keys, known ones.
//
//   auto job = LoadJob("examples/flights-fm.toml", {"fleet.workers=4", "consistency.mode=\"ssp\""});
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/hot_score.h"
#include "core/job/distribution.h"
#include "core/precision.h"
#include "core/table/table_spec.h"

namespace tarn {

// [job]
struct JobSection {
  std::string name = "job";
  std::uint64_t seed = 1;
  friend bool operator==(const JobSection&, const JobSection&) = default;
};

// [fleet]
struct FleetSection {
  std::uint32_t servers = 1;
  std::uint32_t shards = 1;  // per server
  std::uint32_t workers = 1;
  std::uint32_t partition_bits = 6;  // 2^6 = 64 partitions
  double lease_seconds = 30;         // a node that is silent for so long is declared dead
  double heartbeat_seconds = 1;
  std::uint32_t worker_restarts = 3;  // per worker, by tools/launch
  std::uint32_t busy_poll_us = 0;     // how long servers and workers poll for messages before they sleep
  std::uint32_t lanes = 1;            // connections from a worker to each shard, unless they share memory
  friend bool operator==(const FleetSection&, const FleetSection&) = default;
};

// [consistency]: for the job; a [tables.NAME] section may override it for one table.
using ConsistencySection = ConsistencySpec;

// Whether a pull of an immediate table includes all earlier pushes of its own worker, or only those that the staleness
// bound requires, as for other workers.
enum class OwnPushes : std::uint8_t { kSeen, kBounded };

// The rest of [consistency], and of a [tables.NAME] section: the worker's cache and combined pushes (docs/protocol.md,
// "The worker's cache"). Servers do not use it.
struct WorkerCacheSpec {
  std::uint64_t bytes = 0;  // memory for pulled rows of the table; 0: no cache
  OwnPushes own_pushes = OwnPushes::kSeen;
  std::uint32_t push_every = 1;  // clocks whose pushes are summed and sent as one
  bool refresh_rows = false;     // servers send the cached rows again whenever a clock opens (rule H10)
  friend bool operator==(const WorkerCacheSpec&, const WorkerCacheSpec&) = default;
};

enum class Durability : std::uint8_t { kNone, kCheckpoint, kLog };

// [storage]
struct StorageSection {
  Durability durability = Durability::kCheckpoint;
  double checkpoint_seconds = 600;      // 0: no periodic checkpoints by time
  std::uint64_t checkpoint_clocks = 0;  // 0: no periodic checkpoints by clock
  bool checkpoint_final = true;
  std::uint32_t checkpoints_kept = 3;  // in addition to that of the best epoch
  std::uint32_t checkpoint_chain = 8;  // maximum number of incremental ones after a full one; 0: all are full
  std::uint64_t memory = 0;            // bytes per server; rows beyond it are on disk. 0: no limit
  std::string tier_dir;                // directory of these rows; empty: in the run directory
  friend bool operator==(const StorageSection&, const StorageSection&) = default;
};

enum class DataFormat : std::uint8_t { kCriteo, kLibsvm, kIdx };

// How one integer column becomes features.
struct BinRule {
  enum class Kind : std::uint8_t { kLogSquared, kWidth, kIdentity, kNone } kind = Kind::kLogSquared;
  double width = 1;  // kWidth: floor(v / width)
  friend bool operator==(const BinRule&, const BinRule&) = default;
};

// [data]
struct DataSection {
  std::string dir;  // base of relative paths of the files below; itself relative to the job file's directory
  DataFormat format = DataFormat::kCriteo;
  std::string train, valid, test;  // file names; valid and test may be empty. idx: prefix of the pair of files
  std::uint32_t integer_columns = 13;
  std::uint32_t categorical_columns = 26;
  // Criteo: integers as categories (keys), per column; default floor(ln(v)^2) above 2 for every column.
  std::vector<BinRule> bins;        // empty, one for all columns, or one per column
  bool dense_integers = false;      // Criteo: also log1p of the integers as dense floats (DLRM)
  std::uint64_t limit_rows = 0;     // 0: all rows of the training file
  std::uint32_t malformed_max = 0;  // malformed lines of a file that a worker skips; one more is an error
  std::uint64_t split_rows = 0;     // rows of a leased split; 0: chosen from the size of the set
  bool shuffle = false;             // train in a random order of rows, by seed and epoch; else in file order
  std::uint32_t classes = 2;        // idx, libsvm: number of classes
  friend bool operator==(const DataSection&, const DataSection&) = default;
};

enum class ModelKind : std::uint8_t { kLogisticRegression, kFm, kWideDeep, kDeepFm, kDlrm, kDcnV2, kMlp };

// [model]
struct ModelSection {
  ModelKind kind = ModelKind::kLogisticRegression;
  std::uint32_t embedding_dim = 8;               // FM factors, embeddings
  std::vector<std::uint32_t> hidden = {64, 32};  // units of each layer of the (top) MLP, without the output layer
  std::vector<std::uint32_t> bottom = {64, 32};  // DLRM, DCN v2: of the bottom MLP; a layer of embedding_dim follows
  std::uint32_t cross_layers = 3;                // DCN v2
  std::uint32_t cross_rank = 0;                  // DCN v2: rank of the cross layers' matrices; 0: full
  double init_stddev = 0.01;                     // of embeddings: N(0, init_stddev)
  friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

// Part of [train]: the cache of sparse rows in the memory of the compute device (docs/protocol.md, rule H9).
struct HotRowsSpec {
  std::uint64_t rows = 0;  // rows per table; 0: no cache
  HotScore score = HotScore::kLfu;
  friend bool operator==(const HotRowsSpec&, const HotRowsSpec&) = default;
};

// [train]
struct TrainSection {
  std::uint32_t batch_rows = 256;  // per worker and clock
  // Relative sizes of the workers' batches by rank, which add up to about batch_rows x workers; empty: equal ones.
  std::vector<std::uint32_t> batch_shares;
  std::uint32_t epochs = 1;
  std::uint32_t patience = 0;              // epochs without a better validation log-loss before stopping; 0: never stop
  double clip_global_norm = 0;             // worker side, over all gradients of a batch; 0: off
  Precision precision = Precision::kFp32;  // of matrix products
  std::uint32_t prefetch = 2;  // batches read and planned ahead; pulls run ahead as far as the staleness bound allows
  bool key_caching = true;     // shards store key lists, so that repeated keys are sent once
  HotRowsSpec hot_rows;
  std::string device = "cpu";    // where workers compute: "cpu", "gpu" (by rank) or "gpu:N"
  std::uint32_t accumulate = 1;  // parts of a batch, computed one after the other
  bool recompute = false;        // the backward pass recomputes the activations of layers instead of storing them
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

// What a worker pushes after its local steps (worker/train/local_arrays.h).
enum class LocalMethod : std::uint8_t { kNone, kAccumulate, kDelta, kElastic };

// [local]: steps that a worker takes on its own copy of the rows between a pull and its push.
struct LocalSection {
  LocalMethod method = LocalMethod::kNone;
  std::uint32_t steps = 1;       // batches between a pull and its push; 1 with kNone
  std::uint32_t from_epoch = 1;  // counted from 1; in earlier epochs a push follows each batch
  float prox = 0;                // kAccumulate, kDelta: weight of the distance from the pulled rows; 0: off
  float moving_rate = 0.1f;      // kElastic
  OptimizerSpec optimizer;       // the local rule
  friend bool operator==(const LocalSection&, const LocalSection&) = default;
};

// What the workers push.
inline PushedValues PushesOf(const LocalSection& local) {
  return local.method == LocalMethod::kDelta || local.method == LocalMethod::kElastic ? PushedValues::kDeltas
                                                                                      : PushedValues::kGradients;
}

// [delays]: how long the work of a fleet takes, for experiments. In simulated time (sim/trial) nothing else takes time.
// A real run waits after each batch until its time has passed, and delays messages (net/slow_transport.h).
struct DelaysSection {
  Distribution batch;                                         // seconds to compute a batch, drawn for each batch
  Distribution worker{Distribution::Kind::kConstant, 1};      // factor of `batch`, drawn once for each worker
  std::uint32_t stragglers = 0;                               // workers with the highest ranks, which are slower
  double straggler_factor = 1;                                // factor of the stragglers' batch times
  double pause_probability = 0;                               // of a pause before a batch
  Distribution pause;                                         // duration of a pause, in seconds
  Distribution latency{Distribution::Kind::kConstant, 5e-5};  // seconds of a message, one way
  double gbit_per_second = 0;                                 // of each node, in each direction; 0: no limit
  friend bool operator==(const DelaysSection&, const DelaysSection&) = default;
};

// [optimizer] gives the default; [optimizer.linear], [optimizer.embedding], [optimizer.dense] override it for a
// role of tables: the linear weights, the embeddings or factors, the dense layers.
struct OptimizerSection {
  OptimizerSpec linear;
  OptimizerSpec embedding;
  OptimizerSpec dense;
  friend bool operator==(const OptimizerSection&, const OptimizerSection&) = default;
};

// [tables.NAME]: settings of one table that replace those of the job and the model.
struct TableOverride {
  bool has_consistency = false, has_worker_cache = false;
  ConsistencySpec consistency;
  WorkerCacheSpec worker_cache;
  bool has_pull_codec = false, has_push_codec = false;
  ValueCodec pull_codec = ValueCodec::kFp32;
  ValueCodec push_codec = ValueCodec::kFp32;
  bool has_row_codec = false, has_life = false;
  ValueCodec row_codec = ValueCodec::kFp32;
  LifeSpec life;
  bool has_compression = false;
  CompressionSpec compression;
  friend bool operator==(const TableOverride&, const TableOverride&) = default;
};

// The keys that [consistency] and the inheriting sections ([optimizer.ROLE], [tables.NAME]) set themselves; ToToml does
// not write inherited ones, so that an override of the written job still applies to the sections that inherit the key.
// Also `worker_restarts` of [fleet]. Not part of the job's meaning: any two values compare equal.
struct ExplicitKeys {
  // [optimizer], from which the roles inherit. It may contain options of rules other than its own.
  OptimizerSpec optimizer;
  std::map<std::string, std::set<std::string>> by_section;  // such as "optimizer.dense" -> {"kind"}
  bool Has(const std::string& section, std::string_view key) const {
    const auto found = by_section.find(section);
    return found != by_section.end() && found->second.contains(std::string(key));
  }
  friend bool operator==(const ExplicitKeys&, const ExplicitKeys&) { return true; }
};

struct Job {
  JobSection job;
  FleetSection fleet;
  ConsistencySection consistency;
  WorkerCacheSpec worker_cache;
  StorageSection storage;
  DataSection data;
  ModelSection model;
  TrainSection train;
  LocalSection local;
  DelaysSection delays;
  OptimizerSection optimizer;
  std::map<std::string, TableOverride> tables;
  ExplicitKeys explicit_keys;
  friend bool operator==(const Job&, const Job&) = default;
};

// Whether workers train in lockstep and all their pushes are summed: bsp, or ssp with a bound of 0; aggregated; without
// backup workers. All repetitions of the job then have parameters with the same bits, unless rows expire by seconds.
bool IsLockstep(const ConsistencySpec& consistency);

// Rows of each rank's batch, rounded; empty without train.batch_shares. All are above 0 in a job from ParseJob.
std::vector<std::uint64_t> BatchRowsByRank(const Job& job);

// Rows that one worker trains between a pull and its push, without train.batch_shares: in `epoch`, counted from 0; and
// the maximum over all epochs.
inline std::uint64_t DataRowsPerPush(const Job& job, std::uint32_t epoch) {
  return std::uint64_t{job.train.batch_rows} * (epoch + 1 < job.local.from_epoch ? 1 : job.local.steps);
}
inline std::uint64_t DataRowsPerPushMax(const Job& job) {
  return std::uint64_t{job.train.batch_rows} * job.local.steps;
}

// Applies the job's settings for this table to `spec`.
void ApplyOverride(const TableOverride& own, TableSpec* spec);

// The spec as this job runs it: with the consistency of the job, then with the settings of [tables.NAME].
TableSpec AsRun(const Job& job, TableSpec spec);

// The GPU that `device` of [train] names, counted from 0; for "gpu" 0, because the GPU of a worker depends on its rank
// (worker/train/stepper.h). nullopt: the CPU.
std::optional<int> GpuOf(const TrainSection& train);

// The worker's cache settings for the table of this name.
const WorkerCacheSpec& WorkerCacheOf(const Job& job, const std::string& table);

// Reads the file, applies overrides ("section.key=value" with TOML values; a bare word is a string) and validates the
// result. data.dir is made absolute: it is relative to the job file's directory, in an override to the current
// directory. The same holds for storage.tier_dir in an override. `notes`, unless null, gets a sentence for each key
// without effect: a key of the file that an override of the mode resets (such as a staleness bound with mode = "asp"),
// an option that the update rule does not have, an override that some section does not inherit. An override of
// [optimizer] that no role inherits is an error.
Expected<Job> LoadJob(const std::string& path, std::span<const std::string> overrides = {},
                      std::vector<std::string>* notes = nullptr);

// [fleet] of the job that the scheduler has written to a run directory (RUN_DIR/job.toml); the defaults if it does not
// exist.
Expected<FleetSection> FleetOfRun(const std::string& run_dir);

// LoadJob from text; `origin` names it in errors ("job.toml"); its data.dir is relative to `base_dir`.
Expected<Job> ParseJob(std::string_view text, std::string_view origin, std::string_view base_dir,
                       std::span<const std::string> overrides = {}, std::vector<std::string>* notes = nullptr);

// The resolved job, as written to RUN_DIR/job.toml: every key, except that a section that inherits ([optimizer.ROLE],
// [tables.NAME]) has only the keys in which it differs or that the job sets there, and that `apply` is a comment if it
// follows from the mode, and `worker_restarts` if the job does not set it. ParseJob(ToToml(job)) == job.
std::string ToToml(const Job& job);

// Likewise, with every inherited key in every [optimizer.ROLE] and no [optimizer], to compare two jobs.
std::string ResolvedToml(const Job& job);

std::string_view Name(DataFormat v);
std::string_view Name(ModelKind v);
std::string_view Name(Durability v);
std::string_view Name(Precision v);
std::string_view Name(OwnPushes v);
std::string_view Name(HotScore v);
std::string_view Name(LocalMethod v);

// As ParseName of core/table/table_spec.h.
Status ParseName(std::string_view name, DataFormat& out);
Status ParseName(std::string_view name, ModelKind& out);
Status ParseName(std::string_view name, Durability& out);
Status ParseName(std::string_view name, Precision& out);
Status ParseName(std::string_view name, OwnPushes& out);
Status ParseName(std::string_view name, HotScore& out);
Status ParseName(std::string_view name, LocalMethod& out);

// "log2", "width:5", "identity" or "none".
std::string ToString(const BinRule& rule);
Expected<BinRule> ParseBinRule(std::string_view text);

// A 64-bit fingerprint of all settings on which the nodes of a fleet must agree; in every message but a Join
// (Message::job).
std::uint64_t Fingerprint(const Job& job);

}  // namespace tarn
