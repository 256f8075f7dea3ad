// Shows how valid job files are read: defaults, every key, inherited settings, overrides, paths, and the examples.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/job/job.h"
#include "core/limits.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

Job Parsed(std::string_view text, std::vector<std::string> overrides = {}) {
  auto job = ParseJob(text, "job.toml", "/jobs", overrides);
  EXPECT_TRUE(job) << (job ? "" : job.error().message);
  return job ? *job : Job{};
}

TEST(JobFile, AnEmptyFileGivesTheDefaults) {
  EXPECT_EQ(Parsed(""), Job{});
  EXPECT_EQ(Parsed("[job]\n[fleet]\n[consistency]\n[storage]\n[model]\n[train]\n[optimizer]\n[tables]\n"), Job{});
}

TEST(JobFile, EveryKeyIsRead) {
  const Job job = Parsed(R"(
[job]
name = "try-1.x"
seed = 9223372036854775807
[fleet]
servers = 4
shards = 3
workers = 7
partition_bits = 8
lease_seconds = 5
heartbeat_seconds = 0.25
worker_restarts = 0
busy_poll_us = 50
lanes = 3
[consistency]
mode = "ssp"
staleness = 4
apply = "aggregated"
[storage]
durability = "none"
checkpoint_seconds = 60
checkpoint_clocks = 1000
checkpoint_final = false
checkpoints_kept = 5
checkpoint_chain = 4
memory = "8 GiB"
tier_dir = "/mnt/fast/tier"
[data]
dir = "data"
format = "libsvm"
train = "a"
valid = "b"
test = "c"
integer_columns = 2
categorical_columns = 3
bins = ["width:2.5", "identity"]
dense_integers = true
limit_rows = 100
malformed_max = 4294967295
split_rows = 64
shuffle = true
classes = 10
[model]
kind = "dlrm"
embedding_dim = 16
hidden = [128, 64, 32]
bottom = []
cross_layers = 2
cross_rank = 8
init_stddev = 0
[train]
batch_rows = 64
epochs = 3
patience = 2
clip_global_norm = 1
precision = "bf16"
prefetch = 0
key_caching = false
hot_rows = 1000
hot_score = "lru"
device = "gpu:3"
accumulate = 4
recompute = true
)");
  EXPECT_EQ(job.job, (JobSection{"try-1.x", 9223372036854775807u}));
  EXPECT_EQ(job.fleet, (FleetSection{4, 3, 7, 8, 5, 0.25, 0, 50, 3}));
  EXPECT_EQ(job.consistency, (ConsistencySpec{ConsistencyMode::kSsp, 4, ApplyMode::kAggregated}));
  EXPECT_EQ(job.storage,
            (StorageSection{Durability::kNone, 60, 1000, false, 5, 4, std::uint64_t{8} << 30, "/mnt/fast/tier"}));
  const DataSection data{"/jobs/data",
                         DataFormat::kLibsvm,
                         "a",
                         "b",
                         "c",
                         2,
                         3,
                         {{BinRule::Kind::kWidth, 2.5}, {BinRule::Kind::kIdentity, 1}},
                         true,
                         100,
                         4294967295u,
                         64,
                         true,
                         10};
  EXPECT_EQ(job.data, data);
  EXPECT_EQ(job.model, (ModelSection{ModelKind::kDlrm, 16, {128, 64, 32}, {}, 2, 8, 0}));
  EXPECT_EQ(job.train,
            (TrainSection{64, {}, 3, 2, 1, Precision::kBf16, 0, false, {1000, HotScore::kLru}, "gpu:3", 4, true}));
  EXPECT_EQ(GpuOf(job.train), 3);
}

TEST(JobFile, EveryOptimizerKeyIsRead) {
  const Job job = Parsed(R"(
[optimizer]
kind = "adamw"
learning_rate = 1
momentum = 0.1
rho = 0.2
beta1 = 0.3
beta2 = 0.4
epsilon = 1e-10
initial_accumulator = 0.5
weight_decay = 0.6
ftrl_beta = 0.7
ftrl_l1 = 0.8
ftrl_l2 = 0.9
l2 = 1.1
clip_value = 1.2
clip_norm = 1.3
schedule = "cosine"
warmup_clocks = 10
period_clocks = 20
schedule_factor = 0.05
)");
  const OptimizerSpec expected{
      .kind = "adamw",
      .learning_rate = 1,
      .options = {{"beta1", 0.3f}, {"beta2", 0.4f}, {"epsilon", 1e-10f}, {"weight_decay", 0.6f}},
      .l2 = 1.1f,
      .clip_value = 1.2f,
      .clip_norm = 1.3f,
      .schedule = {ScheduleKind::kCosine, 10, 20, 0.05f}};
  EXPECT_EQ(job.optimizer.linear, expected);
  EXPECT_EQ(job.optimizer.embedding, expected);
  EXPECT_EQ(job.optimizer.dense, expected);
}

// Options of other rules apply to the roles with these rules, and to later overrides.
TEST(JobFile, OptionsAreInheritedByName) {
  std::vector<std::string> notes;
  const auto job = ParseJob(R"(
[optimizer]
kind = "adam"
epsilon = 1e-4
ftrl_l1 = 0.5
momentum = 0.25
[optimizer.linear]
kind = "ftrl"
beta1 = 0.5
[optimizer.dense]
kind = "adagrad"
)",
                            "job.toml", "/", {}, &notes);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->optimizer.embedding, (OptimizerSpec{.kind = "adam", .options = {{"epsilon", 1e-4f}}}));
  EXPECT_EQ(job->optimizer.linear, (OptimizerSpec{.kind = "ftrl", .options = {{"ftrl_l1", 0.5f}}}));
  EXPECT_EQ(job->optimizer.dense, (OptimizerSpec{.kind = "adagrad", .options = {{"epsilon", 1e-4f}}}));
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "job.toml:9: optimizer.linear.beta1 = 0.5: without effect: \"ftrl\" does not have it; its "
                       "options: initial_accumulator, ftrl_beta, ftrl_l1, ftrl_l2",
                       "job.toml:6: optimizer.momentum = 0.25: without effect: no table's rule has this option"}));
  const auto again = ParseJob(ToToml(*job), "f", "/", std::vector<std::string>{"optimizer.dense.kind=momentum"});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->optimizer.dense, (OptimizerSpec{.kind = "momentum", .options = {{"momentum", 0.25f}}}));
}

TEST(JobFile, OptimizerRolesInherit) {
  const Job job = Parsed(R"(
[optimizer.dense]
learning_rate = 0.01
[optimizer]
kind = "adagrad"
learning_rate = 0.02
l2 = 0.5
[optimizer.linear]
kind = "ftrl"
)");
  EXPECT_EQ(job.optimizer.embedding.kind, "adagrad");
  EXPECT_EQ(job.optimizer.embedding.learning_rate, 0.02f);
  EXPECT_EQ(job.optimizer.linear.kind, "ftrl");
  EXPECT_EQ(job.optimizer.linear.learning_rate, 0.02f);
  EXPECT_EQ(job.optimizer.dense.kind, "adagrad");
  EXPECT_EQ(job.optimizer.dense.learning_rate, 0.01f);
  EXPECT_EQ(job.optimizer.dense.l2, 0.5f);
}

ConsistencySpec ConsistencyOf(std::string_view lines) {
  return Parsed("[consistency]\n" + std::string(lines)).consistency;
}

TEST(JobFile, ApplyFollowsTheModeUnlessGiven) {
  using enum ConsistencyMode;
  using enum ApplyMode;
  EXPECT_EQ(ConsistencyOf(""), (ConsistencySpec{kBsp, 0, kAggregated}));
  EXPECT_EQ(ConsistencyOf("mode = \"bsp\""), (ConsistencySpec{kBsp, 0, kAggregated}));
  EXPECT_EQ(ConsistencyOf("mode = \"asp\""), (ConsistencySpec{kAsp, 0, kImmediate}));
  EXPECT_EQ(ConsistencyOf("mode = \"ssp\"\nstaleness = 4"), (ConsistencySpec{kSsp, 4, kImmediate}));
  EXPECT_EQ(ConsistencyOf("mode = \"ssp\"\napply = \"aggregated\""), (ConsistencySpec{kSsp, 0, kAggregated}));
  EXPECT_EQ(ConsistencyOf("apply = \"immediate\""), (ConsistencySpec{kBsp, 0, kImmediate}));
}

TEST(JobFile, TablesOfDeltasHaveNoL2) {
  const auto parse = [](const std::string& method) {
    return ParseJob("[local]\nmethod = '" + method + "'\nl2 = 0.1\n[optimizer.embedding]\nl2 = 0.1", "f", "/");
  };
  EXPECT_TRUE(parse("accumulate")) << "a sum of gradients";
  for (const char* method : {"delta", "elastic"}) {
    const auto job = parse(method);
    ASSERT_FALSE(job);
    EXPECT_NE(job.error().message.find("expected optimizer.l2 = 0"), std::string::npos) << job.error().message;
  }
}

TEST(JobFile, BatchSharesDivideAClocksRows) {
  const auto parse = [](const std::string& lines) {
    return ParseJob("[fleet]\nworkers = 4\n[train]\nbatch_rows = 256\n" + lines, "f", "/");
  };
  const auto job = parse("batch_shares = [2, 2, 2, 1]");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(BatchRowsByRank(*job), (std::vector<std::uint64_t>{293, 293, 293, 146}));
  EXPECT_EQ(BatchRowsByRank(*parse("")), (std::vector<std::uint64_t>{}));
  EXPECT_EQ(BatchRowsByRank(*parse("batch_shares = [7, 7, 7, 7]")), (std::vector<std::uint64_t>(4, 256)));
  const auto refuses = [&](const std::string& lines, std::string_view why) {
    const auto wrong = parse(lines);
    EXPECT_FALSE(wrong) << lines;
    EXPECT_NE(wrong.error().message.find(why), std::string::npos) << wrong.error().message;
  };
  ASSERT_TRUE(parse("batch_shares = [1000000, 1000000, 1000000, 1000000]"));
  refuses("batch_shares = [5000, 1, 1, 1]", "rank 1 would have none of a clock's 1024 rows");
  refuses("batch_shares = [1, 1, 1]", "3 items, expected one for each of fleet.workers = 4");
  refuses("batch_shares = [1, 1, 1, 0]", "expected 1 to 1000000, found 0");
  refuses("batch_shares = [1, 1000, 1000, 1000]", "rank 0 would have none of a clock's 1024 rows");
  const auto large = [](const std::string& rows) {
    return ParseJob("[fleet]\nworkers = 2\n[train]\nbatch_shares = [3, 1]\nbatch_rows = " + rows, "f", "/");
  };
  EXPECT_EQ(BatchRowsByRank(large("699050").value()).front(), 1'048'575u);
  EXPECT_NE(large("699051").error().message.find("batches of 1048577 rows, expected at most 1048576"),
            std::string::npos);
  refuses("batch_shares = [1, 1, 1, 2]\n[consistency]\nmode = \"asp\"", "expected consistency.mode = \"bsp\"");
  refuses("batch_shares = [1, 1, 1, 2]\n[consistency]\nbackup_workers = 1", "no backup_workers");
  refuses("batch_shares = [1, 1, 1, 2]\n[local]\nmethod = \"delta\"\nsteps = 2", "not supported together");
}

TEST(JobFile, BackupWorkersPullNothingAhead) {
  const Job job = Parsed(R"(
[fleet]
workers = 4
[consistency]
backup_workers = 3
[tables.linear]
mode = "asp"
[tables.dense_0]
mode = "bsp"
)");
  EXPECT_EQ(job.consistency.backup_workers, 3u);
  EXPECT_EQ(job.train.prefetch, 0u);
  EXPECT_EQ(job.tables.at("linear").consistency.backup_workers, 0u);
  EXPECT_EQ(job.tables.at("dense_0").consistency.backup_workers, 3u);
  EXPECT_EQ(ParseJob(ToToml(job), "again", ".").value().tables.at("dense_0").consistency.backup_workers, 3u);
  const auto refuses = [](std::string_view lines, std::string_view why) {
    const auto refused = ParseJob("[fleet]\nworkers = 2\n" + std::string(lines), "f", "/");
    return !refused && refused.error().message.find(why) != std::string::npos;
  };
  EXPECT_TRUE(refuses("[consistency]\nbackup_workers = 2", "expected less than fleet.workers = 2"));
  EXPECT_TRUE(refuses("[consistency]\nbackup_workers = 1\n[train]\nprefetch = 2", "expected 0"));
  EXPECT_TRUE(refuses("[consistency]\nmode = \"asp\"\nbackup_workers = 1", "only with mode = \"bsp\""));
  for (const char* table : {"backup_workers = 0", "backup_workers = 2", "apply = \"immediate\"", "mode = \"ssp\"",
                            "mode = \"ssp\"\napply = \"aggregated\""})
    EXPECT_TRUE(refuses(std::string("[consistency]\nbackup_workers = 1\n[tables.linear]\n") + table,
                        "expected mode = \"asp\", or that of [consistency]"))
        << table;
}

TEST(JobFile, TablesInheritTheJobsConsistency) {
  using enum ConsistencyMode;
  using enum ApplyMode;
  const Job job = Parsed(R"(
[consistency]
mode = "ssp"
staleness = 4
[tables.linear]
staleness = 2
[tables.dense_0]
mode = "bsp"
[tables.factors]
mode = "asp"
[tables.plain]
pull_codec = "bf16"
push_codec = "fp16"
[tables.nothing]
)");
  EXPECT_EQ(job.tables.at("linear").consistency, (ConsistencySpec{kSsp, 2, kImmediate}));
  EXPECT_EQ(job.tables.at("dense_0").consistency, (ConsistencySpec{kBsp, 0, kAggregated}));
  EXPECT_EQ(job.tables.at("factors").consistency, (ConsistencySpec{kAsp, 0, kImmediate}));
  EXPECT_TRUE(job.tables.at("factors").has_consistency);
  const TableOverride& plain = job.tables.at("plain");
  EXPECT_FALSE(plain.has_consistency);
  EXPECT_TRUE(plain.has_pull_codec && plain.has_push_codec);
  EXPECT_EQ(plain.pull_codec, ValueCodec::kBf16);
  EXPECT_EQ(plain.push_codec, ValueCodec::kFp16);
  EXPECT_EQ(job.tables.at("nothing"), TableOverride{});
}

TEST(JobFile, TablesHaveALifeAndACodecOfRows) {
  const Job job = Parsed(R"(
[tables.counted]
life = true
[tables.young]
admit_count = 3
expire_clocks = 5000
rows_max = 1000000
[tables.small]
row_codec = "bf16"
)");
  EXPECT_EQ(job.tables.at("counted").life, LifeSpec{.on = true});
  EXPECT_EQ(job.tables.at("young").life,
            (LifeSpec{.on = true, .admit_count = 3, .expire_clocks = 5000, .rows_max = 1000000}));
  EXPECT_FALSE(job.tables.at("small").has_life);
  TableSpec spec{.pull_codec = ValueCodec::kFp16};
  ApplyOverride(job.tables.at("small"), &spec);
  EXPECT_EQ(spec.row_codec, ValueCodec::kBf16);
  EXPECT_EQ(spec.pull_codec, ValueCodec::kFp16);
  EXPECT_FALSE(spec.life.on);
  ApplyOverride(job.tables.at("young"), &spec);
  EXPECT_EQ(spec.life.admit_count, 3u);
}

TEST(JobFile, Int8IsForSentRowsOnly) {
  const Job job = Parsed("[tables.a]\npull_codec = \"int8\"\npush_codec = \"int8\"\n");
  EXPECT_EQ(job.tables.at("a").pull_codec, ValueCodec::kInt8);
  EXPECT_EQ(job.tables.at("a").push_codec, ValueCodec::kInt8);
  const auto refused = ParseJob("[tables.a]\nrow_codec = \"int8\"\n", "job.toml", "");
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("job.toml:2"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("row_codec"), std::string::npos) << refused.error().message;
}

TEST(JobFile, ADynamicBoundAndRefreshedRows) {
  const Job job = Parsed(R"(
[consistency]
mode = "ssp"
staleness = 3
staleness_range = 12
[tables.linear]
staleness_range = 2
[tables.embedding]
mode = "bsp"
[tables.dense_0]
staleness_range = 0
worker_cache = "1MiB"
refresh_rows = true
)");
  EXPECT_EQ(StalenessBound(job.consistency), 15u);
  EXPECT_EQ(StalenessBound(job.tables.at("linear").consistency), 5u);
  EXPECT_EQ(StalenessBound(job.tables.at("embedding").consistency), 0u);
  EXPECT_FALSE(job.tables.at("embedding").worker_cache.refresh_rows);
  EXPECT_TRUE(job.tables.at("dense_0").worker_cache.refresh_rows);
  EXPECT_EQ(Parsed(ToToml(job)), job);
  const Job cached = Parsed(R"(
[consistency]
mode = "ssp"
staleness = 3
worker_cache = "1MiB"
refresh_rows = true
[tables.linear]
worker_cache = 0
[tables.embedding]
mode = "bsp"
)");
  EXPECT_TRUE(cached.worker_cache.refresh_rows);
  EXPECT_FALSE(cached.tables.at("linear").worker_cache.refresh_rows);
  EXPECT_FALSE(cached.tables.at("embedding").worker_cache.refresh_rows);
  EXPECT_EQ(Parsed(ToToml(cached)), cached);
  EXPECT_NE(ToToml(Parsed("")).find("staleness_range = 0"), std::string::npos) << "all keys";
  const auto refuses = [](std::string_view lines, std::string_view why) {
    const auto parsed = ParseJob("[consistency]\n" + std::string(lines), "f", "/");
    return !parsed && parsed.error().message.find(why) != std::string::npos;
  };
  EXPECT_TRUE(refuses("staleness_range = 2", "only \"ssp\" has a bound"));
  EXPECT_TRUE(refuses("mode = \"ssp\"\nstaleness_range = 1025", "1024"));
  EXPECT_TRUE(refuses("mode = \"ssp\"\nrefresh_rows = true", "expected mode = \"ssp\" and worker_cache > 0"));
  EXPECT_TRUE(refuses("mode = \"ssp\"\nworker_cache = \"1MiB\"\nrefresh_rows = true\nstaleness_range = 2",
                      "expected staleness_range = 0"));
  EXPECT_TRUE(refuses("worker_cache = \"1MiB\"\nrefresh_rows = true", "expected mode = \"ssp\" and worker_cache > 0"));
}

TEST(JobFile, AStepOfSomeWorkersNeedsThem) {
  const std::string rule = "[optimizer]\nkind = \"k_async_sgd\"\nworkers_min = 3\n[fleet]\nworkers = ";
  EXPECT_TRUE(ParseJob(rule + "3", "f", "/"));
  const auto refused = ParseJob(rule + "2", "f", "/");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("f:5: fleet.workers: 2 with optimizer.workers_min = 3"), std::string::npos)
      << refused.error().message;
}

TEST(JobFile, PushesWithMomentumAndOfLowRank) {
  const Job job = Parsed(
      "[tables.a]\npush_codec = \"topk\"\npush_momentum = 0.9\npush_warmup_clocks = 50\n"
      "[tables.b]\npush_codec = \"low_rank\"\npush_rank = 4\n");
  EXPECT_EQ(job.tables.at("a").compression.momentum, 0.9f);
  EXPECT_EQ(job.tables.at("a").compression.warmup_clocks, 50u);
  EXPECT_EQ(job.tables.at("b").compression.rank, 4u);
  EXPECT_EQ(Parsed(ToToml(job)), job);
  const auto refusal = [](const char* table) {
    const auto refused = ParseJob(std::string("[tables.a]\n") + table, "job.toml", "");
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_EQ(refusal("push_codec = \"sign\"\npush_momentum = 0.9\n"),
            "job.toml:3: tables.a.push_momentum: has no effect without push_codec = \"topk\"; remove it");
  EXPECT_EQ(refusal("push_codec = \"topk\"\npush_rank = 2\n"),
            "job.toml:3: tables.a.push_rank: has no effect without push_codec = \"low_rank\"; remove it");
  EXPECT_EQ(refusal("push_codec = \"topk\"\npush_momentum = 1\n"),
            "job.toml:3: tables.a.push_momentum: expected a number >= 0 and < 1, found 1");
  EXPECT_EQ(refusal("push_codec = \"low_rank\"\npush_rank = 0\n"),
            "job.toml:3: tables.a.push_rank: expected 1 to 64, found 0");
}

TEST(JobFile, PushesOfTheLargestAlone) {
  const Job job = Parsed(
      "[tables.a]\npush_codec = \"topk\"\npush_topk = 0.05\nresidual_memory = \"8MiB\"\n"
      "[tables.b]\npush_codec = \"topk\"\n");
  TableSpec spec;
  ApplyOverride(job.tables.at("a"), &spec);
  EXPECT_EQ(spec.push_codec, ValueCodec::kTopK);
  EXPECT_EQ(spec.compression, (CompressionSpec{.share = 0.05f, .residual_bytes = 8 << 20}));
  EXPECT_FALSE(job.tables.at("b").has_compression);
  EXPECT_EQ(Parsed(ToToml(job)), job);
  const auto refusal = [](const char* table) {
    const auto refused = ParseJob(std::string("[tables.a]\n") + table, "job.toml", "");
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_EQ(
      refusal("pull_codec = \"topk\"\n"),
      "job.toml:2: tables.a.pull_codec: \"topk\": expected fp32, bf16, fp16 or int8 (the others are for push_codec)");
  EXPECT_EQ(refusal("push_topk = 0.05\n"),
            "job.toml:2: tables.a.push_topk: has no effect without push_codec = \"topk\"; remove it");
  EXPECT_EQ(refusal("push_codec = \"topk\"\npush_topk = 1.5\n"),
            "job.toml:3: tables.a.push_topk: expected a number > 0 and <= 1, found 1.5");
  EXPECT_EQ(refusal("push_codec = \"topk\"\nresidual_memory = 10\n"),
            "job.toml:3: tables.a.residual_memory: residual_memory = 10: expected 1KiB to 64GiB");
  EXPECT_EQ(refusal("push_codec = \"topk\"\nresidual_memry = 10\n"),
            "job.toml:3: tables.a: unknown key 'residual_memry'; the nearest known one is 'residual_memory'");
}

TEST(JobFile, PushesOfAFewBits) {
  const Job job = Parsed(
      "[tables.a]\npush_codec = \"sign\"\nresidual_memory = \"8MiB\"\n[tables.b]\npush_codec = \"qsgd\"\n"
      "[tables.c]\npush_codec = \"one_bit\"\n[tables.d]\npush_codec = \"ternary\"\n");
  EXPECT_EQ(job.tables.at("a").push_codec, ValueCodec::kSign);
  EXPECT_EQ(job.tables.at("a").compression.residual_bytes, 8u << 20);
  EXPECT_EQ(job.tables.at("b").push_codec, ValueCodec::kQsgd);
  EXPECT_EQ(job.tables.at("c").push_codec, ValueCodec::kOneBit);
  EXPECT_EQ(job.tables.at("d").push_codec, ValueCodec::kTernary);
  EXPECT_EQ(Parsed(ToToml(job)), job);
  const auto refusal = [](const char* table) {
    const auto refused = ParseJob(std::string("[tables.a]\n") + table, "job.toml", "");
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_EQ(refusal("push_codec = \"sign\"\npush_topk = 0.05\n"),
            "job.toml:3: tables.a.push_topk: has no effect without push_codec = \"topk\"; remove it");
  EXPECT_EQ(
      refusal("push_codec = \"qsgd\"\nresidual_memory = \"8MiB\"\n"),
      "job.toml:3: tables.a.residual_memory: has no effect without push_codec = \"topk\", \"sign\" or \"one_bit\"; "
      "remove it");
  EXPECT_EQ(refusal("pull_codec = \"qsgd\"\n"),
            "job.toml:2: tables.a.pull_codec: \"qsgd\": expected fp32, bf16, fp16 or int8 (the others are for "
            "push_codec)");
}

TEST(JobFile, Overrides) {
  const Job job = Parsed("[fleet]\nworkers = 2\n[optimizer]\nlearning_rate = 0.5\n",
                         {"fleet.workers=4", "consistency.mode=ssp", "consistency.staleness=8", "fleet.workers=5",
                          "optimizer.linear.learning_rate=1", "data.train=x.tsv", "data.dir=\"/a/../b/\"",
                          "tables.linear.pull_codec=bf16", "model.hidden=[8]"});
  EXPECT_EQ(job.fleet.workers, 5u);
  EXPECT_EQ(job.consistency, (ConsistencySpec{ConsistencyMode::kSsp, 8, ApplyMode::kImmediate}));
  EXPECT_EQ(job.optimizer.linear.learning_rate, 1.0f);
  EXPECT_EQ(job.optimizer.dense.learning_rate, 0.5f);
  EXPECT_EQ(job.data.dir, "/b");
  EXPECT_EQ(job.data.train, "x.tsv");
  EXPECT_TRUE(job.tables.at("linear").has_pull_codec);
  EXPECT_EQ(job.model.hidden, std::vector<std::uint32_t>{8});
}

TEST(JobFile, DirIsRelativeToTheJobFile) {
  const auto dir = [](std::string_view text) { return Parsed(text).data.dir; };
  EXPECT_EQ(dir("[data]\ntrain = \"x\"\ndir = \"../shared/data/\"\n"), "/shared/data");
  EXPECT_EQ(dir("[data]\ntrain = \"x\"\ndir = \"/usr/share\"\n"), "/usr/share");
  EXPECT_EQ(dir("[data]\ntrain = \"x\"\n"), "/jobs");
  EXPECT_EQ(dir("[data]\ntrain = \"x\"\ndir = \".\"\n"), "/jobs");
  EXPECT_EQ(dir("[data]\ntrain = \"x\"\ndir = \"/\"\n"), "/");
  const auto here = ParseJob("[data]\ntrain = \"x\"\n", "f", "", {});
  ASSERT_TRUE(here);
  EXPECT_EQ(here->data.dir, fs::current_path().string());
}

TEST(JobFile, PathsOfOverridesAreRelativeToTheCurrentFolder) {
  const std::string here = fs::current_path().string();
  const std::string text = "[data]\ntrain = \"x\"\ndir = \"d\"\n[storage]\ntier_dir = \"t\"\n";
  for (const char* said : {"data.dir=mine/", "data.dir=\"mine\"", "data={dir=\"mine\"}", "data.dir = ./x/../mine"})
    EXPECT_EQ(Parsed(text, {said}).data.dir, here + "/mine") << said;
  EXPECT_EQ(Parsed(text, {"data.dir=../a"}).data.dir, (fs::current_path().parent_path() / "a").string());
  EXPECT_EQ(Parsed(text, {"data.train=other"}).data.dir, "/jobs/d");
  EXPECT_EQ(Parsed(text, {"data.train=other"}).data.train, "other");  // relative to data.dir in overrides too
  EXPECT_EQ(Parsed(text).storage.tier_dir, "t");
  EXPECT_EQ(Parsed(text, {"storage.tier_dir=fast/tier/"}).storage.tier_dir, here + "/fast/tier");
  EXPECT_EQ(Parsed(text, {"storage.tier_dir=/fast"}).storage.tier_dir, "/fast");
  EXPECT_EQ(Parsed(text, {"storage.tier_dir="}).storage.tier_dir, "");
}

TEST(JobFile, LoadJobReadsAFile) {
  const fs::path folder = fs::temp_directory_path() / ("tarn-job-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "a.toml") << "[data]\ntrain = \"x\"\ndir = \"d\"\n[fleet]\nwrokers = 1\n";
  const auto bad = LoadJob((folder / "a.toml").string());
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            (folder / "a.toml").string() + ":5: fleet: unknown key 'wrokers'; the nearest known one is 'workers'");
  std::ofstream(folder / "a.toml") << "[data]\ntrain = \"x\"\ndir = \"d\"\n";
  const std::vector<std::string> overrides = {"fleet.workers=3"};
  const auto job = LoadJob((folder / "a.toml").string(), overrides);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->data.dir, (folder / "d").string());
  EXPECT_EQ(job->fleet.workers, 3u);
  std::ofstream(folder / "a.toml") << std::string(limits::kJobBytesMax + 1, '#');
  const auto large = LoadJob((folder / "a.toml").string());
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message, (folder / "a.toml").string() + ": more than 262144 bytes: expected a job file");
  fs::remove_all(folder);
  const auto missing = LoadJob((folder / "a.toml").string());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, (folder / "a.toml").string() + ": cannot open: No such file or directory");
}

TEST(JobFile, BinRules) {
  EXPECT_EQ(ParseBinRule("log2")->kind, BinRule::Kind::kLogSquared);
  EXPECT_EQ(ParseBinRule("none")->kind, BinRule::Kind::kNone);
  for (std::string text : {"log2", "identity", "none", "width:5", "width:0.25", "width:50000"})
    EXPECT_EQ(ToString(*ParseBinRule(text)), text);
  for (std::string text : {"width:", "width:0", "width:-1", "width:5x", "width:nan", "width:inf", "width:1e16"})
    EXPECT_EQ(ParseBinRule(text).error().message,
              "bin rule '" + text + "': expected a width > 0 and <= 1e15, such as 'width:5'");
  EXPECT_EQ(ParseBinRule("log").error().message,
            "unknown bin rule 'log': expected 'log2', 'width:W', 'identity' or 'none'");
}

// Every example is a valid job, named after its file, with comments that explain its keys.
TEST(JobFile, Examples) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TARN_SOURCE_DIR) / "examples")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    const auto job = LoadJob(entry.path().string());
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->job.name, entry.path().stem().string());
    EXPECT_TRUE(job->job.name.ends_with(Name(job->model.kind))) << entry.path();
    std::ifstream file(entry.path());
    std::string first;
    std::getline(file, first);
    EXPECT_EQ(first.substr(0, 2), "# ") << entry.path();
    for (std::string mode : {"bsp", "ssp", "asp"}) {
      const std::vector<std::string> overrides = {"consistency.mode=" + mode};
      EXPECT_TRUE(LoadJob(entry.path().string(), overrides)) << entry.path() << " " << mode;
    }
  }
  EXPECT_GE(count, 13);
}

}  // namespace
}  // namespace tarn
