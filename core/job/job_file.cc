// Reads and checks a job. core/job/job_fields.h lists the keys, core/job/section_reader.h reads one; this file has the
// checks of several keys together.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "core/byte_size.h"
#include "core/file.h"
#include "core/job/config_tree.h"
#include "core/job/job.h"
#include "core/job/job_fields.h"
#include "core/job/job_inherits.h"
#include "core/job/key_finder.h"
#include "core/job/optimizer_section.h"
#include "core/job/section_reader.h"
#include "core/limits.h"
#include "core/names.h"
#include "core/table/compression_fields.h"

namespace tarn {
namespace {

Status ReadJobSection(SectionReader in, JobSection& out) {
  VisitJobSection(in, out);
  return in.Finish();
}

Status ReadFleet(SectionReader in, FleetSection& out) {
  VisitFleet(in, out);
  VisitLanes(in, out);
  TARN_RETURN_IF_ERROR(in.Finish());
  const std::uint64_t shards = std::uint64_t{out.servers} * out.shards;
  if (shards > limits::kShardsMax)
    return in.Refusal({"shards", "servers"},
                      fmt::format("{} servers x {} shards = {}: expected at most {} shards in all", out.servers,
                                  out.shards, shards, limits::kShardsMax));
  if (shards > std::uint64_t{1} << out.partition_bits)
    return in.Refusal({"partition_bits", "shards", "servers"},
                      fmt::format("2^{} = {} partitions cannot occupy {} shards; raise partition_bits",
                                  out.partition_bits, 1u << out.partition_bits, shards));
  const std::uint64_t connections = std::uint64_t{out.workers} * out.lanes;
  if (connections > limits::kAcceptedPeersMax)
    return in.Refusal({"lanes", "workers"},
                      fmt::format("{} workers x {} lanes = {}: a shard remembers at most {} connections", out.workers,
                                  out.lanes, connections, limits::kAcceptedPeersMax));
  if (out.heartbeat_seconds * 2 > out.lease_seconds)
    return in.Refusal(
        {"heartbeat_seconds", "lease_seconds"},
        fmt::format("a lease of {} s must outlast two heartbeats of {} s", out.lease_seconds, out.heartbeat_seconds));
  return {};
}

// The settings of [consistency], which a table inherits for keys that it does not set.
struct TableSettings {
  ConsistencySpec consistency;
  WorkerCacheSpec worker_cache;
  bool mode_is_new = false;  // an override sets the mode, so keys of the file may belong to another mode
};

void NoteConsistencyKeys(const SectionReader& in, ExplicitKeys* keys, const std::string& section) {
  KeyFinder finder(in, &keys->by_section[section]);
  const ConsistencySpec consistency;
  const WorkerCacheSpec worker_cache;
  VisitConsistency(finder, consistency);
  VisitWorkerCache(finder, worker_cache);
}

// The maximum number of clocks by which a worker's tick may be late without blocking the worker's own pulls of a table.
// A worker that combines the pushes of k clocks ticks up to k - 1 clocks late for all tables (rule H6).
std::uint64_t TickDelayMax(const ConsistencySpec& spec) {
  switch (spec.mode) {
    case ConsistencyMode::kBsp: return 0;
    case ConsistencyMode::kSsp: return spec.staleness;
    case ConsistencyMode::kAsp: break;
  }
  return limits::kPushEveryMax;
}

Status CheckPushEvery(const SectionReader& in, const TableSettings& settings) {
  const std::uint32_t clocks = settings.worker_cache.push_every;
  if (clocks == 1) return {};
  const auto refuse = [&](std::string_view key, const std::string& why) {
    return in.Refusal({"push_every", key}, fmt::format("push_every = {}: {}", clocks, why));
  };
  if (!MayCombine(settings.consistency))
    return refuse("mode", fmt::format("not with mode = \"{}\" and apply = \"{}\", where each clock is pushed "
                                      "separately; expected \"ssp\" or \"asp\", and \"immediate\"",
                                      Name(settings.consistency.mode), Name(settings.consistency.apply)));
  if (settings.worker_cache.own_pushes == OwnPushes::kSeen)
    return refuse("own_pushes",
                  "pulls do not include pushes that the worker has not sent yet; expected own_pushes = \"bounded\"");
  if (const std::uint64_t bound = TickDelayMax(settings.consistency); clocks > bound + 1)
    return refuse(
        "staleness",
        fmt::format("a worker would wait for its own pushes; expected at most staleness + 1 = {}", bound + 1));
  return {};
}

Status CheckWorkerCache(const SectionReader& in, const TableSettings& settings) {
  const std::uint64_t bytes = settings.worker_cache.bytes;
  if (bytes != 0 && settings.consistency.mode == ConsistencyMode::kAsp)
    return in.Refusal({"worker_cache", "mode"},
                      fmt::format("worker_cache = {} with mode = \"asp\": asp has no bound on the age of a cached row; "
                                  "expected mode = \"ssp\"",
                                  ToByteSize(bytes)));
  if (bytes != 0 && bytes < limits::kWorkerCacheBytesMin)
    return in.Refusal({"worker_cache"}, fmt::format("{}: expected 0 (no cache) or at least {}", ToByteSize(bytes),
                                                    ToByteSize(limits::kWorkerCacheBytesMin)));
  if (settings.worker_cache.refresh_rows && (bytes == 0 || settings.consistency.mode != ConsistencyMode::kSsp))
    return in.Refusal(
        {"refresh_rows", "worker_cache", "mode"},
        fmt::format("refresh_rows = true with mode = \"{}\" and worker_cache = {}: servers refresh the "
                    "rows of a cache, within the bound of ssp; expected mode = \"ssp\" and worker_cache > 0",
                    Name(settings.consistency.mode), ToByteSize(bytes)));
  if (settings.worker_cache.refresh_rows && settings.consistency.staleness_range != 0)
    return in.Refusal(
        {"refresh_rows", "staleness_range"},
        fmt::format("refresh_rows = true with staleness_range = {}: servers may hold rows back by up to as "
                    "many clocks; expected staleness_range = 0",
                    settings.consistency.staleness_range));
  return CheckPushEvery(in, settings);
}

// Reads the keys into `settings`, which has the inherited values. A key that is not set keeps the inherited value if
// the mode is the inherited one; otherwise it has the default of the new mode. Settings that the mode does not support
// are off. If an override changed the mode, keys of the file for the previous mode are reset, with a note.
Status ReadConsistency(SectionReader& in, TableSettings& settings, Notes* notes) {
  ConsistencySpec& out = settings.consistency;
  const ConsistencySpec above = out;
  const WorkerCacheSpec cache_above = settings.worker_cache;
  VisitConsistency(in, out);
  VisitWorkerCache(in, settings.worker_cache);
  TARN_RETURN_IF_ERROR(in.Finish());
  if (in.Has("mode")) settings.mode_is_new = in.IsOverride("mode");
  const auto resets = [&](std::string_view key, const auto& value, const auto& instead) {
    if (!settings.mode_is_new || !in.Has(key) || in.IsOverride(key) || value == instead) return false;
    notes->push_back(
        in.Note(key, fmt::format("mode = \"{}\" does not support it; it is {} in this run", Name(out.mode), instead)));
    return true;
  };
  const ConsistencySpec inherited = InheritedConsistency(above, out.mode);
  if (!in.Has("apply")) out.apply = inherited.apply;
  if (!in.Has("staleness")) out.staleness = inherited.staleness;
  const bool may_close_early = out.mode == ConsistencyMode::kBsp && out.apply == ApplyMode::kAggregated;
  if (!in.Has("backup_workers")) out.backup_workers = may_close_early ? inherited.backup_workers : 0;
  if (!in.Has("staleness_range")) out.staleness_range = inherited.staleness_range;
  if (out.mode == ConsistencyMode::kAsp && resets("apply", Name(out.apply), Name(ApplyMode::kImmediate)))
    out.apply = ApplyMode::kImmediate;
  if (out.mode != ConsistencyMode::kSsp && resets("staleness", out.staleness, 0u)) out.staleness = 0;
  if (out.mode != ConsistencyMode::kSsp && out.staleness != 0)
    return in.Refusal({"staleness", "mode"},
                      fmt::format("{} with mode = \"{}\": only \"ssp\" has a bound; leave staleness out or 0",
                                  out.staleness, Name(out.mode)));
  if (!may_close_early && resets("backup_workers", out.backup_workers, std::uint16_t{0})) out.backup_workers = 0;
  if (out.mode != ConsistencyMode::kSsp && resets("staleness_range", out.staleness_range, std::uint16_t{0}))
    out.staleness_range = 0;
  if (Status fits = Validate(out); !fits)
    return in.Refusal({"staleness_range", "backup_workers", "apply", "mode"}, fits.error().message);
  const WorkerCacheSpec kept = InheritedWorkerCache(cache_above, out);
  if (!in.Has("worker_cache")) settings.worker_cache.bytes = kept.bytes;
  if (!in.Has("push_every")) settings.worker_cache.push_every = kept.push_every;
  if (!in.Has("refresh_rows"))
    settings.worker_cache.refresh_rows = kept.refresh_rows && settings.worker_cache.bytes != 0;
  if (out.mode == ConsistencyMode::kAsp && resets("worker_cache", settings.worker_cache.bytes, std::uint64_t{0}))
    settings.worker_cache.bytes = 0;
  if (!MayCombine(out) && resets("push_every", settings.worker_cache.push_every, 1u))
    settings.worker_cache.push_every = 1;
  if (out.mode != ConsistencyMode::kSsp && resets("refresh_rows", settings.worker_cache.refresh_rows, false))
    settings.worker_cache.refresh_rows = false;
  if (in.IsOverride("worker_cache") && settings.worker_cache.bytes == 0 && !in.IsOverride("refresh_rows"))
    settings.worker_cache.refresh_rows = false;
  return CheckWorkerCache(in, settings);
}

// Makes `path` absolute; relative paths start at `base_dir`.
std::string Resolve(const std::string& path, std::string_view base_dir) {
  std::error_code ignored;
  auto base = std::filesystem::absolute(std::filesystem::path(base_dir), ignored);
  if (ignored || base.empty()) base = std::filesystem::current_path(ignored);
  std::filesystem::path resolved = (base / path).lexically_normal();
  if (!resolved.has_filename() && resolved.has_relative_path()) resolved = resolved.parent_path();  // no final slash
  return resolved.string();
}

constexpr std::string_view kCurrentDir = "";  // base of paths on a command line

Status ReadStorage(SectionReader in, StorageSection& out) {
  VisitStorage(in, out);
  TARN_RETURN_IF_ERROR(in.Finish());
  if (in.IsOverride("tier_dir") && !out.tier_dir.empty()) out.tier_dir = Resolve(out.tier_dir, kCurrentDir);
  if (out.memory != 0 && out.memory < limits::kServerMemoryMin)
    return in.Refusal({"memory"}, fmt::format("{}: expected 0 (no limit) or at least {}", ToByteSize(out.memory),
                                              ToByteSize(limits::kServerMemoryMin)));
  return {};
}

Status CheckColumns(const SectionReader& in, const DataSection& data) {
  const std::uint64_t columns = std::uint64_t{data.integer_columns} + data.categorical_columns;
  if (columns < 1 || columns > limits::kColumnsMax)
    return in.Refusal({"categorical_columns", "integer_columns"},
                      fmt::format("{} integer and {} categorical columns: expected 1 to {} in all",
                                  data.integer_columns, data.categorical_columns, limits::kColumnsMax));
  if (data.bins.size() > 1 && data.bins.size() != data.integer_columns)
    return in.Refusal({"bins"}, fmt::format("{} rules for {} integer columns: expected none, one for all, or one "
                                            "for each",
                                            data.bins.size(), data.integer_columns));
  return {};
}

Status ReadData(SectionReader in, bool in_file, std::string_view base_dir, DataSection& out) {
  VisitData(in, out);
  if (Status read = in.Finish(); !read) {
    if (read.error().message.find(": data.format: unknown format") == std::string::npos) return read;
    return Fail(read.error().code, read.error().message +
                                       "; criteo is tab-separated text, and other formats are converted first "
                                       "(docs/job-file.md, Formats)");
  }
  if (in_file && !in.Has("train")) return in.Refusal({}, "no key 'train': expected the name of the training file");
  if (out.format == DataFormat::kCriteo) TARN_RETURN_IF_ERROR(CheckColumns(in, out));
  const bool is_explicitly_empty = in.Has("dir") && out.dir.empty();
  if (in_file && !is_explicitly_empty) out.dir = Resolve(out.dir, in.IsOverride("dir") ? kCurrentDir : base_dir);
  return {};
}

Status ReadModel(SectionReader in, ModelSection& out) {
  VisitModel(in, out);
  return in.Finish();
}

Status ReadTrain(SectionReader& in, TrainSection& out) {
  VisitTrain(in, out);
  VisitBatchShares(in, out);
  VisitHotRows(in, out.hot_rows);
  VisitTrainExecution(in, out);
  TARN_RETURN_IF_ERROR(in.Finish());
  if (out.accumulate > out.batch_rows)
    return in.Refusal(
        {"accumulate", "batch_rows"},
        fmt::format("{} parts of {} rows: expected at least one row per part", out.accumulate, out.batch_rows));
  return {};
}

// Any key of LifeSpec turns life on, unless the table sets `life` itself.
void ReadLife(SectionReader& in, TableOverride& out) {
  struct Finder {
    const SectionReader& in;
    bool any = false;
    void Boolean(std::string_view key, bool) { any |= in.Has(key); }
    void Number(std::string_view key, double, Range) { any |= in.Has(key); }
    void Integer(std::string_view key, std::uint64_t, std::uint64_t, std::uint64_t) { any |= in.Has(key); }
  } finder{in};
  VisitLife(finder, out.life);
  out.has_life = finder.any;
  if (out.has_life && !in.Has("life")) out.life.on = true;
  VisitLife(in, out.life);
}

// Reads the settings of push codecs. Rejects a push codec for pulls, and settings without effect.
Status ReadResiduals(SectionReader& in, TableOverride& out) {
  constexpr std::string_view kKeys[] = {"push_topk", "push_momentum", "push_warmup_clocks", "push_rank",
                                        "residual_memory"};
  out.has_compression = std::ranges::any_of(kKeys, [&](std::string_view key) { return in.Has(key); });
  VisitCompression(in, out.compression);
  if (!IsForPulls(out.pull_codec))
    return in.Refusal(
        {"pull_codec"},
        fmt::format("\"{}\": expected fp32, bf16, fp16 or int8 (the others are for push_codec)", Name(out.pull_codec)));
  for (const std::string_view key : {"push_topk", "push_momentum", "push_warmup_clocks"})
    if (in.Has(key) && out.push_codec != ValueCodec::kTopK)
      return in.Refusal({key}, "has no effect without push_codec = \"topk\"; remove it");
  if (in.Has("push_rank") && out.push_codec != ValueCodec::kLowRank)
    return in.Refusal({"push_rank"}, "has no effect without push_codec = \"low_rank\"; remove it");
  if (in.Has("residual_memory") && (!KeepsResiduals(out.push_codec) || out.push_codec == ValueCodec::kLowRank))
    return in.Refusal({"residual_memory"},
                      "has no effect without push_codec = \"topk\", \"sign\" or \"one_bit\"; remove it");
  if (Status fits = Validate(out.compression); !fits)
    return in.Refusal({"residual_memory", "push_topk", "push_momentum", "push_warmup_clocks", "push_rank"},
                      fits.error().message);
  return {};
}

Status ReadTable(SectionReader in, const Job& job, const TableSettings& inherited, TableOverride& out, Notes* notes) {
  out.has_pull_codec = in.Has("pull_codec");
  out.has_push_codec = in.Has("push_codec");
  out.has_row_codec = in.Has("row_codec");
  out.has_consistency = in.Has("mode") || in.Has("staleness") || in.Has("apply") || in.Has("staleness_range");
  VisitCodecs(in, out);
  ReadLife(in, out);
  TARN_RETURN_IF_ERROR(ReadResiduals(in, out));
  if (!IsPlain(out.row_codec))
    return in.Refusal({"row_codec"}, fmt::format("\"{}\": expected fp32, bf16 or fp16 (the others are only for "
                                                 "messages)",
                                                 Name(out.row_codec)));
  TableSettings settings = inherited;
  TARN_RETURN_IF_ERROR(ReadConsistency(in, settings, notes));
  // Workers have one clock for all tables, so every table must allow the same number of late workers, or never wait.
  const std::uint32_t backups = settings.consistency.backup_workers, of_job = job.consistency.backup_workers;
  if (backups != of_job && settings.consistency.mode != ConsistencyMode::kAsp)
    return in.Refusal({"backup_workers", "mode", "apply"},
                      fmt::format("mode = \"{}\", apply = \"{}\" and backup_workers = {} in a job with "
                                  "consistency.backup_workers = {}: this table would wait for workers for which other "
                                  "tables do not wait; expected mode = \"asp\", or that of [consistency]",
                                  Name(settings.consistency.mode), Name(settings.consistency.apply), backups, of_job));
  if (out.has_consistency) out.consistency = settings.consistency;
  out.has_worker_cache = settings.worker_cache != job.worker_cache || in.Has("worker_cache") || in.Has("own_pushes") ||
                         in.Has("push_every") || in.Has("refresh_rows");
  if (out.has_worker_cache) out.worker_cache = settings.worker_cache;
  if (KeepsResiduals(out.push_codec) && settings.worker_cache.push_every > 1)
    return in.Refusal({"push_codec"}, fmt::format("\"{}\" with push_every = {}: what a push leaves out goes with the "
                                                  "next one already; expected push_every = 1 for this table",
                                                  Name(out.push_codec), settings.worker_cache.push_every));
  if (Status fits = Validate(out.life); !fits)
    return in.Refusal({"min_score", "score_decay", "expire_seconds", "expire_clocks", "life"}, fits.error().message);
  return {};
}

Status ReadTables(const ConfigNode* node, std::string_view origin, const TableSettings& inherited, Job& job,
                  Notes* notes) {
  if (node == nullptr) return {};
  SectionReader tables(node, "tables", origin);
  if (node->members.size() > limits::kTablesMax)
    return tables.Refusal({}, fmt::format("{} tables: expected at most {}", node->members.size(), limits::kTablesMax));
  for (const ConfigMember& member : node->members) {
    const ConfigNode* table = tables.Section(member.key);
    if (!FitsRule(member.key, TextRule::kName))
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: tables: name {}: expected {}", table->place,
                                                           Quoted(member.key), DescribeRule(TextRule::kName)));
    const std::string section = "tables." + member.key;
    NoteConsistencyKeys({table, section, origin}, &job.explicit_keys, section);
    TARN_RETURN_IF_ERROR(ReadTable({table, section, origin}, job, inherited, job.tables[member.key], notes));
  }
  return tables.Finish();
}

// An override of [consistency] affects only tables that do not set the key. Adds a note for each table that sets it.
void NoteReach(const SectionReader& in, const Job& job, Notes* notes) {
  for (const std::string_view key :
       {"mode", "staleness", "staleness_range", "apply", "worker_cache", "refresh_rows", "own_pushes", "push_every"}) {
    if (!in.IsOverride(key)) continue;
    for (const auto& [name, own] : job.tables)
      if (job.explicit_keys.Has("tables." + name, key))
        notes->push_back(in.Note(key, fmt::format("without effect on [tables.{}], which sets it", name)));
  }
}

// Ticks apply to all tables, so pushes may be combined over only as many clocks as the strictest table allows.
Status CheckCombining(const SectionReader& in, const Job& job) {
  std::uint32_t clocks = job.worker_cache.push_every;
  std::uint64_t bound = TickDelayMax(job.consistency);
  std::string strictest = "[consistency]";
  for (const auto& [name, own] : job.tables) {
    if (own.has_worker_cache) clocks = std::max(clocks, own.worker_cache.push_every);
    if (!own.has_consistency || TickDelayMax(own.consistency) >= bound) continue;
    bound = TickDelayMax(own.consistency);
    strictest = fmt::format("[tables.{}]", name);
  }
  if (clocks <= bound + 1) return {};
  return in.Refusal({"push_every", "mode"},
                    fmt::format("push_every = {}: pushes would arrive later than {} allows, which lets a worker be "
                                "{} clocks behind; expected at most {}",
                                clocks, strictest, bound, bound + 1));
}

// Rejects hot_rows if it is invalid for every sparse table; which tables are sparse depends on the model.
Status CheckHotRows(const SectionReader& in, const TableSettings& settings, Job& job, Notes* notes) {
  const std::uint64_t rows = job.train.hot_rows.rows;
  if (rows == 0) return {};
  if (job.worker_cache.bytes != 0)
    return in.Refusal({"hot_rows"},
                      fmt::format("hot_rows = {} with consistency.worker_cache = {}: rows of sparse tables would be "
                                  "cached twice; expected one of the two (for dense tables, set worker_cache in "
                                  "their [tables.NAME])",
                                  rows, ToByteSize(job.worker_cache.bytes)));
  if (job.model.kind == ModelKind::kMlp)
    return in.Refusal({"hot_rows"}, fmt::format("hot_rows = {} with model.kind = \"mlp\": it has no sparse table, and "
                                                "only sparse tables have hot rows; expected 0",
                                                rows));
  const auto has_bound = [](const auto& table) {
    const bool sparse = table.first == "linear" || table.first == "embedding";  // tables of the built-in models
    return sparse && table.second.has_consistency && table.second.consistency.mode != ConsistencyMode::kAsp;
  };
  const bool unbounded = job.consistency.mode == ConsistencyMode::kAsp && std::ranges::none_of(job.tables, has_bound);
  if (unbounded && settings.mode_is_new && !in.IsOverride("hot_rows")) {
    notes->push_back(in.Note("hot_rows", "mode = \"asp\" does not support it; it is 0 in this run"));
    job.train.hot_rows.rows = 0;
    return {};
  }
  if (unbounded)
    return in.Refusal({"hot_rows"},
                      fmt::format("hot_rows = {} with mode = \"asp\": asp has no bound on the age of a cached "
                                  "row; expected mode = \"ssp\"",
                                  rows));
  return {};
}

// Rejects settings that local steps do not support: the steps run in host memory, on copies of the pulled rows.
Status CheckLocalTraining(const SectionReader& in, const TrainSection& train, const LocalSection& local) {
  if (local.method == LocalMethod::kNone) return {};
  const auto refuse = [&](std::string_view what) {
    return in.Refusal({"method"}, fmt::format("\"{}\" with {}: not supported together", Name(local.method), what));
  };
  if (const std::uint64_t rows = std::uint64_t{train.batch_rows} * local.steps; rows > limits::kBatchRowsMax)
    return in.Refusal({"steps"}, fmt::format("{} x train.batch_rows = {} rows between a pull and its push: expected at "
                                             "most {}",
                                             local.steps, rows, limits::kBatchRowsMax));
  if (train.device != "cpu") return refuse("train.device = \"gpu\"");
  if (train.hot_rows.rows != 0) return refuse("train.hot_rows");
  if (train.accumulate != 1) return refuse("train.accumulate above 1");
  if (train.clip_global_norm != 0) return refuse("train.clip_global_norm");
  return {};
}

// Rejects l2 on servers if workers push deltas, which already contain the l2 of the local steps.
Status CheckPushedValues(const SectionReader& in, const LocalSection& local, const OptimizerSection& optimizer) {
  const bool has_l2 = optimizer.linear.l2 != 0 || optimizer.embedding.l2 != 0 || optimizer.dense.l2 != 0;
  if (PushesOf(local) == PushedValues::kGradients || !has_l2) return {};
  return in.Refusal({"method"},
                    fmt::format("\"{}\" with optimizer.l2: workers push deltas, not gradients, so servers cannot add "
                                "l2 to them; expected optimizer.l2 = 0, and local.l2 for the local steps",
                                Name(local.method)));
}

// If workers_min exceeds the number of workers, no step would ever be taken.
Status CheckWorkersMin(const SectionReader& fleet, const Job& job) {
  for (const OptimizerSpec* spec : {&job.optimizer.linear, &job.optimizer.embedding, &job.optimizer.dense}) {
    const float needed = OptionOf(*spec, "workers_min");
    if (needed > static_cast<float>(job.fleet.workers))
      return fleet.Refusal({"workers"}, fmt::format("{} with optimizer.workers_min = {:g}: {} takes a step after so "
                                                    "many different workers have pushed; expected at least as many",
                                                    job.fleet.workers, needed, spec->kind.value));
  }
  return {};
}

// A late worker jumps to the open clock at which its rows arrive (rule C8), so rows pulled ahead would be too old.
Status CheckBackupWorkers(const SectionReader& consistency, const SectionReader& train, Job* job) {
  const std::uint32_t backups = job->consistency.backup_workers;
  if (backups == 0) return {};
  if (backups >= job->fleet.workers)
    return consistency.Refusal({"backup_workers"},
                               fmt::format("{}: expected less than fleet.workers = {}", backups, job->fleet.workers));
  if (!train.Has("prefetch")) job->train.prefetch = 0;
  if (job->train.prefetch != 0)
    return train.Refusal({"prefetch"}, fmt::format("{} with consistency.backup_workers = {}: a worker that was late "
                                                   "would compute with rows that it pulled too early; expected 0",
                                                   job->train.prefetch, backups));
  return {};
}

// Batch shares require that splits belong to ranks (docs/protocol.md, D2).
Status CheckBatchShares(const SectionReader& train, const Job& job) {
  const std::vector<std::uint32_t>& shares = job.train.batch_shares;
  if (shares.empty()) return {};
  const auto refuse = [&](const std::string& what) { return train.Refusal({"batch_shares"}, what); };
  if (shares.size() != job.fleet.workers)
    return refuse(
        fmt::format("{} items, expected one for each of fleet.workers = {}", shares.size(), job.fleet.workers));
  if (!IsLockstep(job.consistency))
    return refuse(
        "expected consistency.mode = \"bsp\" with apply = \"aggregated\" and no backup_workers; otherwise each "
        "worker trains as many batches as it can");
  if (job.local.method != LocalMethod::kNone)
    return refuse(fmt::format("local.method = \"{}\": not supported together", Name(job.local.method)));
  const std::vector<std::uint64_t> rows = BatchRowsByRank(job);
  const auto [least, most] = std::ranges::minmax_element(rows);
  if (*least == 0)
    return refuse(
        fmt::format("rank {} would have none of a clock's {} rows, expected shares that give every rank a row",
                    least - rows.begin(), std::uint64_t{job.train.batch_rows} * rows.size()));
  if (*most > limits::kBatchRowsMax)
    return refuse(fmt::format("rank {} would have batches of {} rows, expected at most {}", most - rows.begin(), *most,
                              limits::kBatchRowsMax));
  return {};
}

Status ReadDelays(SectionReader in, const FleetSection& fleet, DelaysSection& out) {
  VisitDelays(in, out);
  TARN_RETURN_IF_ERROR(in.Finish());
  if (out.stragglers > fleet.workers)
    return in.Refusal({"stragglers"},
                      fmt::format("{}: expected at most fleet.workers = {}", out.stragglers, fleet.workers));
  return {};
}

Expected<Job> ReadJob(const ConfigNode& root, std::string_view origin, std::string_view base_dir, Notes* notes) {
  SectionReader top(&root, "", origin);
  const auto section = [&](std::string name) {
    const ConfigNode* node = top.Section(name);
    return SectionReader(node, std::move(name), origin);
  };
  SectionReader job_section = section("job"), fleet = section("fleet"), consistency = section("consistency"),
                storage = section("storage"), data = section("data"), model = section("model"),
                train = section("train"), local = section("local"), delays = section("delays"),
                optimizer = section("optimizer");
  const ConfigNode* tables = top.Section("tables");
  TARN_RETURN_IF_ERROR(top.Finish());

  Job job;
  TARN_RETURN_IF_ERROR(ReadJobSection(std::move(job_section), job.job));
  TARN_RETURN_IF_ERROR(ReadFleet(fleet, job.fleet));
  if (fleet.Has("worker_restarts")) job.explicit_keys.by_section["fleet"].insert("worker_restarts");
  TableSettings settings;
  TARN_RETURN_IF_ERROR(ReadConsistency(consistency, settings, notes));
  NoteConsistencyKeys(consistency, &job.explicit_keys, "consistency");
  job.consistency = settings.consistency;
  job.worker_cache = settings.worker_cache;
  TARN_RETURN_IF_ERROR(ReadStorage(std::move(storage), job.storage));
  TARN_RETURN_IF_ERROR(ReadData(std::move(data), top.Has("data"), base_dir, job.data));
  TARN_RETURN_IF_ERROR(ReadModel(std::move(model), job.model));
  TARN_RETURN_IF_ERROR(ReadTrain(train, job.train));
  TARN_RETURN_IF_ERROR(CheckBackupWorkers(consistency, train, &job));
  TARN_RETURN_IF_ERROR(ReadLocal(local, job.local));
  TARN_RETURN_IF_ERROR(CheckLocalTraining(local, job.train, job.local));
  TARN_RETURN_IF_ERROR(CheckBatchShares(train, job));
  TARN_RETURN_IF_ERROR(ReadDelays(std::move(delays), job.fleet, job.delays));
  TARN_RETURN_IF_ERROR(ReadOptimizer(std::move(optimizer), job.optimizer, job.explicit_keys, notes));
  TARN_RETURN_IF_ERROR(CheckPushedValues(local, job.local, job.optimizer));
  TARN_RETURN_IF_ERROR(CheckWorkersMin(fleet, job));
  TARN_RETURN_IF_ERROR(ReadTables(tables, origin, settings, job, notes));
  TARN_RETURN_IF_ERROR(CheckCombining(consistency, job));
  TARN_RETURN_IF_ERROR(CheckHotRows(train, settings, job, notes));
  NoteReach(consistency, job, notes);
  return job;
}

}  // namespace

std::optional<int> GpuOf(const TrainSection& train) {
  constexpr std::string_view kGpu = "gpu";
  const std::string_view device = train.device;
  if (!device.starts_with(kGpu)) return std::nullopt;
  int number = 0;
  if (device.size() > kGpu.size())
    std::from_chars(device.data() + kGpu.size() + 1, device.data() + device.size(), number);
  return number;
}

Expected<BinRule> ParseBinRule(std::string_view text) {
  constexpr std::string_view kWidth = "width:";
  if (text == "log2") return BinRule{BinRule::Kind::kLogSquared};
  if (text == "identity") return BinRule{BinRule::Kind::kIdentity};
  if (text == "none") return BinRule{BinRule::Kind::kNone};
  if (text.starts_with(kWidth)) {
    BinRule rule{BinRule::Kind::kWidth, 0};
    const std::string_view digits = text.substr(kWidth.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rule.width);
    constexpr double kWidthMax = 1e15;
    if (error == std::errc{} && end == digits.data() + digits.size() && rule.width > 0 && rule.width <= kWidthMax)
      return rule;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("bin rule {}: expected a width > 0 and <= 1e15, such as 'width:5'", Quoted(text)));
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown bin rule {}: expected 'log2', 'width:W', 'identity' or 'none'", Quoted(text)));
}

Expected<Job> ParseJob(std::string_view text, std::string_view origin, std::string_view base_dir,
                       std::span<const std::string> overrides, std::vector<std::string>* notes) {
  auto root = ParseConfig(text, origin);
  if (!root) return std::unexpected(root.error());
  for (const std::string& assignment : overrides) TARN_RETURN_IF_ERROR(ApplyOverride(*root, assignment));
  std::vector<std::string> ignored;
  return ReadJob(*root, origin, base_dir, notes != nullptr ? notes : &ignored);
}

Expected<Job> LoadJob(const std::string& path, std::span<const std::string> overrides,
                      std::vector<std::string>* notes) {
  auto text = ReadFile(path, limits::kJobBytesMax);
  if (!text && text.error().code == ErrorCode::kTooLarge)
    return Fail(ErrorCode::kTooLarge, text.error().message + ": expected a job file");
  if (!text) return std::unexpected(text.error());
  return ParseJob(*text, path, std::filesystem::path(path).parent_path().string(), overrides, notes);
}

Expected<FleetSection> FleetOfRun(const std::string& run_dir) {
  const std::string path = run_dir + "/job.toml";
  std::error_code ignored;
  if (run_dir.empty() || !std::filesystem::exists(path, ignored)) return FleetSection();
  const auto job = LoadJob(path);
  return job ? Expected<FleetSection>(job->fleet) : std::unexpected(job.error());
}

}  // namespace tarn
