// Shows the whole error text for every kind of invalid job file: place, key, what was expected, what was found, and the
// nearest known word. Numbers are tested at the limit and one past it.
#include <gtest/gtest.h>

#include "core/job/job.h"
#include "core/job/job_fields.h"

namespace tarn {
namespace {

std::string ErrorOf(std::string_view text, std::vector<std::string> overrides = {}) {
  const auto job = ParseJob(text, "job.toml", "/jobs", overrides);
  if (job) return "accepted";
  EXPECT_EQ(job.error().code, ErrorCode::kInvalidArgument);
  return job.error().message;
}

TEST(JobError, WhereAndHowAWorkerComputes) {
  for (const std::string_view device : {"", "cuda", "gpu:", "gpu:x", "gpu:-1", "gpu:1000", "GPU", "cpu:0"})
    EXPECT_EQ(ErrorOf("[train]\ndevice = \"" + std::string(device) + "\"\n"),
              "job.toml:2: train.device: expected \"cpu\", \"gpu\" or the number of a GPU as in \"gpu:1\", found '" +
                  std::string(device) + "'");
  EXPECT_EQ(ErrorOf("[train]\nbatch_rows = 8\naccumulate = 8\n"), "accepted");
  EXPECT_EQ(ErrorOf("[train]\nbatch_rows = 8\naccumulate = 9\n"),
            "job.toml:3: train.accumulate: 9 parts of 8 rows: expected at least one row per part");
  for (const auto& [device, number] : {std::pair{"gpu", 0}, {"gpu:0", 0}, {"gpu:999", 999}})
    EXPECT_EQ(GpuOf({.device = device}), number);
  EXPECT_EQ(GpuOf({}), std::nullopt);
}

TEST(JobError, UnknownNames) {
  EXPECT_EQ(ErrorOf("[job]\n\n[flet]\n"), "job.toml:3: unknown section 'flet'; the nearest known one is 'fleet'");
  EXPECT_EQ(ErrorOf("workers = 3\n"), "job.toml:1: unknown section 'workers'; it is a key of [fleet]");
  EXPECT_EQ(ErrorOf("[train]\nlearning_rate = 3\n"),
            "job.toml:2: train: unknown key 'learning_rate'; it is a key of [optimizer]");
  EXPECT_EQ(ErrorOf("kind = \"fm\"\n"),
            "job.toml:1: unknown section 'kind'; it is a key of [model] and of [optimizer]");
  EXPECT_EQ(ErrorOf("[consistency]\npush_codec = \"int8\"\n"),
            "job.toml:2: consistency: unknown key 'push_codec'; it is a key of [tables.NAME]");
  EXPECT_EQ(ErrorOf("[fleet]\nservers = 2\nwrokers = 3\n"),
            "job.toml:3: fleet: unknown key 'wrokers'; the nearest known one is 'workers'");
  EXPECT_EQ(ErrorOf("[optimizer]\nlearningrate = 1\n"),
            "job.toml:2: optimizer: unknown key 'learningrate'; the nearest known one is 'learning_rate'");
  EXPECT_TRUE(ErrorOf("[optimizer.sparse]\nl2 = 1\n")
                  .starts_with("job.toml:1: optimizer: unknown key 'sparse'; expected one of kind, learning_rate, "));
  EXPECT_EQ(ErrorOf("[model]\nlayers = 2\n").substr(0, 64),
            "job.toml:2: model: unknown key 'layers'; expected one of kind, e");
  EXPECT_EQ(ErrorOf("[optimizer.dense]\nlr = 1\n"),
            "job.toml:2: optimizer.dense: unknown key 'lr'; the nearest known one is 'l2'");
  EXPECT_EQ(ErrorOf("[tables.factors]\npullcodec = \"bf16\"\n"),
            "job.toml:2: tables.factors: unknown key 'pullcodec'; the nearest known one is 'pull_codec'");
  EXPECT_EQ(ErrorOf("[data]\ntrian = \"x\"\n"),
            "job.toml:2: data: unknown key 'trian'; the nearest known one is 'train'");
}

TEST(JobError, WrongTypes) {
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = \"4\"\n"), "job.toml:2: fleet.workers: expected an integer, found a string");
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = 4.0\n"), "job.toml:2: fleet.workers: expected an integer, found a float");
  EXPECT_EQ(ErrorOf("[fleet]\nlease_seconds = true\n"),
            "job.toml:2: fleet.lease_seconds: expected a number, found a boolean");
  EXPECT_EQ(ErrorOf("[job]\nname = 3\n"), "job.toml:2: job.name: expected a string, found an integer");
  EXPECT_EQ(ErrorOf("[data]\nshuffle = 1\n"),
            "job.toml:2: data.shuffle: expected a boolean (true or false), found an integer");
  EXPECT_EQ(ErrorOf("[consistency]\nmode = 1\n"), "job.toml:2: consistency.mode: expected a string, found an integer");
  EXPECT_EQ(ErrorOf("[model]\nhidden = 64\n"),
            "job.toml:2: model.hidden: expected an array of integers, found an integer");
  EXPECT_EQ(ErrorOf("[model]\nhidden = [64,\n32.5]\n"),
            "job.toml:3: model.hidden[1]: expected an integer, found a float");
  EXPECT_EQ(ErrorOf("[data]\nbins = \"log2\"\n"),
            "job.toml:2: data.bins: expected an array of strings, found a string");
  EXPECT_EQ(ErrorOf("[data]\nbins = [\"log2\", 5]\n"), "job.toml:2: data.bins[1]: expected a string, found an integer");
  EXPECT_EQ(ErrorOf("[storage]\ncheckpoint_seconds = 2024-01-31\n"),
            "job.toml:2: storage.checkpoint_seconds: expected a number, found a date or time");
  EXPECT_EQ(ErrorOf("fleet = 3\n"), "job.toml:1: fleet: expected a table, [fleet], found an integer");
  EXPECT_EQ(ErrorOf("[[fleet]]\nworkers = 1\n"), "job.toml:1: fleet: expected a table, [fleet], found an array");
  EXPECT_EQ(ErrorOf("tables = []\n"), "job.toml:1: tables: expected a table, [tables], found an array");
  EXPECT_EQ(ErrorOf("[tables]\nlinear = 3\n"),
            "job.toml:2: tables.linear: expected a table, [tables.linear], found an integer");
  EXPECT_EQ(ErrorOf("[optimizer]\ndense = 3\n"),
            "job.toml:2: optimizer.dense: expected a table, [optimizer.dense], found an integer");
}

TEST(JobError, UnknownValues) {
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"spp\"\n"),
            "job.toml:2: consistency.mode: unknown mode 'spp': expected one of bsp, ssp, asp; the nearest is 'ssp'");
  EXPECT_EQ(ErrorOf("[data]\nformat = \"csv\"\n"),
            "job.toml:2: data.format: unknown format 'csv': expected one of criteo, libsvm, idx; criteo is "
            "tab-separated text, and other formats are converted first (docs/job-file.md, Formats)");
  EXPECT_EQ(ErrorOf("[data]\nformat = \"libsv\"\n").find("the nearest is 'libsvm'") == std::string::npos, false);
  EXPECT_EQ(ErrorOf("[model]\nkind = \"deep_fm\"\n"),
            "job.toml:2: model.kind: unknown model 'deep_fm': expected one of logistic_regression, fm, wide_deep, "
            "deepfm, dlrm, dcn_v2, mlp; the nearest is 'deepfm'");
  EXPECT_EQ(ErrorOf("[storage]\ndurability = \"chian\"\n"),
            "job.toml:2: storage.durability: unknown durability 'chian': expected one of none, checkpoint, log");
  EXPECT_EQ(ErrorOf("[tables.t]\npull_codec = \"int4\"\n"),
            "job.toml:2: tables.t.pull_codec: unknown codec 'int4': expected one of fp32, bf16, fp16, int8, topk, "
            "qsgd, ternary, sign, one_bit, low_rank; the nearest is 'int8'");
  EXPECT_EQ(ErrorOf("[data]\nbins = [\"wide:5\"]\n"),
            "job.toml:2: data.bins[0]: unknown bin rule 'wide:5': expected 'log2', 'width:W', 'identity' or 'none'");
}

struct IntegerLimit {
  std::string section, key;
  std::uint64_t low, high;
  std::string also;  // further lines that make the limit itself fit
};

std::string With(const IntegerLimit& limit, std::uint64_t value) {
  return "[" + limit.section + "]\n" + limit.key + " = " + std::to_string(value) + "\n" + limit.also;
}

TEST(JobError, IntegersAtTheLimitAndOnePast) {
  const std::string train = "train = \"x\"\n", bits = "partition_bits = 12\n";
  const IntegerLimit limits[] = {
      {"fleet", "servers", 1, 4096, bits},
      {"fleet", "shards", 1, 4096, bits},
      {"fleet", "workers", 1, 16384, ""},
      {"fleet", "partition_bits", 0, 12, ""},
      {"fleet", "worker_restarts", 0, 1000000, ""},
      {"fleet", "busy_poll_us", 0, 1000000, ""},
      {"fleet", "lanes", 1, 16, ""},
      {"consistency", "staleness", 0, 1048576, "mode = \"ssp\"\n"},
      {"consistency", "push_every", 1, 1024, "mode = \"asp\"\nown_pushes = \"bounded\"\n"},
      {"storage", "checkpoints_kept", 1, 1000000, ""},
      {"storage", "checkpoint_chain", 0, 1000, ""},
      {"data", "integer_columns", 0, 4096, "format = \"libsvm\"\n" + train},
      {"data", "categorical_columns", 0, 4096, "format = \"libsvm\"\n" + train},
      {"data", "malformed_max", 0, 4294967295u, train},
      {"data", "classes", 2, 4096, train},
      {"model", "embedding_dim", 1, 4096, ""},
      {"train", "batch_rows", 1, 1048576, ""},
      {"train", "epochs", 1, 1000000, ""},
      {"train", "patience", 0, 1000000, ""},
      {"train", "prefetch", 0, 64, ""},
      {"train", "hot_rows", 0, 4294967294u, ""},
      {"optimizer", "warmup_clocks", 0, 1099511627776u, ""},
      {"optimizer", "period_clocks", 0, 1099511627776u, ""},
  };
  for (const IntegerLimit& limit : limits) {
    EXPECT_EQ(ErrorOf(With(limit, limit.low)), "accepted") << limit.key;
    EXPECT_EQ(ErrorOf(With(limit, limit.high)), "accepted") << limit.key;
    const std::string expected = "job.toml:2: " + limit.section + "." + limit.key + ": expected " +
                                 std::to_string(limit.low) + " to " + std::to_string(limit.high) + ", found ";
    EXPECT_EQ(ErrorOf(With(limit, limit.high + 1)), expected + std::to_string(limit.high + 1));
    if (limit.low > 0) {
      EXPECT_EQ(ErrorOf(With(limit, limit.low - 1)), expected + std::to_string(limit.low - 1));
    }
    EXPECT_EQ(ErrorOf("[" + limit.section + "]\n" + limit.key + " = -1\n" + limit.also), expected + "-1");
  }
  EXPECT_EQ(ErrorOf("[job]\nseed = -5\n"), "job.toml:2: job.seed: expected 0 to 9223372036854775807, found -5");
}

TEST(JobError, AmountsOfBytes) {
  EXPECT_EQ(ErrorOf("[storage]\nmemory = 0\n"), "accepted");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = 67108864\n"), "accepted");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = \"64MiB\"\n"), "accepted");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = 67108863\n"),
            "job.toml:2: storage.memory: 67108863: expected 0 (no limit) or at least 64MiB");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = \"8GB\"\n"),
            "job.toml:2: storage.memory: '8GB' is not a size in bytes: expected a whole number, alone or with KiB, "
            "MiB, GiB or TiB, such as '8GiB', below 2^63");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = true\n"),
            "job.toml:2: storage.memory: expected a number of bytes or a text such as '8GiB', found a boolean");
  EXPECT_EQ(ErrorOf("[storage]\nmemory = -1\n"),
            "job.toml:2: storage.memory: expected 0 to 9223372036854775807, found -1");
}

TEST(JobError, NumbersOutOfRange) {
  EXPECT_EQ(ErrorOf("[optimizer]\nbeta1 = 1\n"),
            "job.toml:2: optimizer.beta1: expected a number >= 0 and < 1, found 1");
  EXPECT_EQ(ErrorOf("[optimizer]\nbeta2 = 0.99999999999\n"),
            "job.toml:2: optimizer.beta2: expected a number >= 0 and < 1, found 0.99999999999");
  EXPECT_EQ(ErrorOf("[optimizer]\nepsilon = 0.0\n"),
            "job.toml:2: optimizer.epsilon: expected a number > 0 and <= 1000000, found 0");
  EXPECT_EQ(ErrorOf("[optimizer]\nepsilon = 1e-60\n"),
            "job.toml:2: optimizer.epsilon: expected a number > 0 and <= 1000000, found 1e-60");
  EXPECT_EQ(ErrorOf("[optimizer]\nlearning_rate = nan\n"),
            "job.toml:2: optimizer.learning_rate: expected a number >= 0 and <= 1000000, found nan");
  EXPECT_EQ(ErrorOf("[optimizer]\nlearning_rate = 1e300\n"),
            "job.toml:2: optimizer.learning_rate: expected a number >= 0 and <= 1000000, found 1e+300");
  EXPECT_EQ(ErrorOf("[optimizer]\nschedule_factor = 1.5\n"),
            "job.toml:2: optimizer.schedule_factor: expected a number >= 0 and <= 1, found 1.5");
  EXPECT_EQ(ErrorOf("[fleet]\nlease_seconds = 0\n"),
            "job.toml:2: fleet.lease_seconds: expected a number >= 0.01 and <= 10000000, found 0");
  EXPECT_EQ(ErrorOf("[model]\ninit_stddev = -0.01\n"),
            "job.toml:2: model.init_stddev: expected a number >= 0 and <= 1000, found -0.01");
  EXPECT_EQ(ErrorOf("[train]\nclip_global_norm = inf\n"),
            "job.toml:2: train.clip_global_norm: expected a number >= 0 and <= 1000000, found inf");
}

TEST(JobError, Texts) {
  const std::string expected =
      "job.toml:2: job.name: expected 1 to 128 letters, digits, '.', '_' or '-', a letter or digit first, found ";
  EXPECT_EQ(ErrorOf("[job]\nname = \"\"\n"), expected + "''");
  EXPECT_EQ(ErrorOf("[job]\nname = \"a/b\"\n"), expected + "'a/b'");
  EXPECT_EQ(ErrorOf("[job]\nname = \"..\"\n"), expected + "'..'");
  EXPECT_EQ(ErrorOf("[job]\nname = \"" + std::string(128, 'x') + "\"\n"), "accepted");
  EXPECT_EQ(ErrorOf("[job]\nname = \"" + std::string(129, 'x') + "\"\n"),
            expected + "'" + std::string(64, 'x') + "...'");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"a\\nb\"\n"),
            "job.toml:2: data.train: expected at most 4096 bytes without control characters, found 'a?b'");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"" + std::string(4096, 'x') + "\"\n"), "accepted");
  EXPECT_NE(ErrorOf("[data]\ntrain = \"" + std::string(4097, 'x') + "\"\n"), "accepted");
  EXPECT_EQ(ErrorOf("[tables.\"a b\"]\n"),
            "job.toml:1: tables: name 'a b': expected 1 to 128 letters, digits, '.', '_' or '-', a letter or digit "
            "first");
}

TEST(JobError, Arrays) {
  std::string layers = "1";
  for (int i = 1; i < 16; ++i) layers += ", 1";
  EXPECT_EQ(ErrorOf("[model]\nhidden = [" + layers + "]\n"), "accepted");
  EXPECT_EQ(ErrorOf("[model]\nhidden = [" + layers + ", 1]\n"),
            "job.toml:2: model.hidden: expected at most 16 items, found 17");
  EXPECT_EQ(ErrorOf("[model]\nbottom = [64, 0]\n"), "job.toml:2: model.bottom[1]: expected 1 to 4095, found 0");
}

// The next layer's rows have a value for each unit, and a bias: 4,096 is the widest row.
TEST(JobError, LayersMustFitARow) {
  for (const std::string key : {"hidden", "bottom"}) {
    EXPECT_EQ(ErrorOf("[model]\n" + key + " = [4095, 4095]\n"), "accepted");
    EXPECT_EQ(ErrorOf("[model]\n" + key + " = [4095, 4096]\n"),
              "job.toml:2: model." + key + "[1]: expected 1 to 4095, found 4096");
  }
}

TEST(JobError, FleetThatDoesNotFit) {
  EXPECT_EQ(ErrorOf("[fleet]\nservers = 64\nshards = 65\npartition_bits = 12\n"),
            "job.toml:3: fleet.shards: 64 servers x 65 shards = 4160: expected at most 4096 shards in all");
  EXPECT_EQ(ErrorOf("[fleet]\nservers = 64\nshards = 64\npartition_bits = 12\n"), "accepted");
  EXPECT_EQ(ErrorOf("[fleet]\npartition_bits = 2\nservers = 5\n"),
            "job.toml:2: fleet.partition_bits: 2^2 = 4 partitions cannot occupy 5 shards; raise partition_bits");
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = 16384\nlanes = 4\n"), "accepted");
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = 16384\nlanes = 5\n"),
            "job.toml:3: fleet.lanes: 16384 workers x 5 lanes = 81920: a shard remembers at most 65536 connections");
  EXPECT_EQ(ErrorOf("[fleet]\nlease_seconds = 1\nheartbeat_seconds = 0.6\n"),
            "job.toml:3: fleet.heartbeat_seconds: a lease of 1 s must outlast two heartbeats of 0.6 s");
  EXPECT_EQ(ErrorOf("[fleet]\nlease_seconds = 1.9\n"),
            "job.toml:2: fleet.lease_seconds: a lease of 1.9 s must outlast two heartbeats of 1 s");
  EXPECT_EQ(ErrorOf("[fleet]\nlease_seconds = 2\n"), "accepted");
}

TEST(JobError, ConsistencyThatDoesNotFit) {
  const std::string reason =
      "apply = \"aggregated\" with mode = \"asp\": a clock's pushes would wait for the whole cohort, for which asp "
      "never waits; use apply = \"immediate\", or mode = \"bsp\" or \"ssp\"";
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"asp\"\napply = \"aggregated\"\n"),
            "job.toml:3: consistency.apply: " + reason);
  EXPECT_EQ(ErrorOf("[consistency]\napply = \"aggregated\"\n[tables.linear]\nmode = \"asp\"\n"), "accepted");
  EXPECT_EQ(ErrorOf("[tables.linear]\nmode = \"asp\"\napply = \"aggregated\"\n"),
            "job.toml:3: tables.linear.apply: " + reason);
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"asp\"\n[tables.linear]\napply = \"aggregated\"\n"),
            "job.toml:4: tables.linear.apply: " + reason);
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"bsp\"\nstaleness = 4\n"),
            "job.toml:3: consistency.staleness: 4 with mode = \"bsp\": only \"ssp\" has a bound; leave staleness "
            "out or 0");
  EXPECT_EQ(ErrorOf("[tables.linear]\nstaleness = 1\n"),
            "job.toml:2: tables.linear.staleness: 1 with mode = \"bsp\": only \"ssp\" has a bound; leave staleness "
            "out or 0");
}

TEST(JobError, WorkerCacheThatDoesNotFit) {
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"asp\"\nworker_cache = \"1MiB\"\n"),
            "job.toml:3: consistency.worker_cache: worker_cache = 1MiB with mode = \"asp\": asp has no bound on the "
            "age of a cached row; expected mode = \"ssp\"");
  EXPECT_EQ(ErrorOf("[consistency]\nworker_cache = 1023\n"),
            "job.toml:2: consistency.worker_cache: 1023: expected 0 (no cache) or at least 1KiB");
  EXPECT_EQ(ErrorOf("[consistency]\nworker_cache = 1024\n"), "accepted");
  EXPECT_EQ(ErrorOf("[consistency]\nown_pushes = \"sean\"\n"),
            "job.toml:2: consistency.own_pushes: unknown own_pushes 'sean': expected one of seen, bounded; the nearest "
            "is 'seen'");
  // A setting that a table's mode does not support is off, unless the table sets it.
  const std::string ssp = "[consistency]\nmode = \"ssp\"\nstaleness = 4\nworker_cache = 4096\n";
  EXPECT_EQ(ErrorOf(ssp + "[tables.linear]\nmode = \"asp\"\n"), "accepted");
  EXPECT_NE(ErrorOf(ssp + "[tables.linear]\nmode = \"asp\"\nworker_cache = 4096\n"), "accepted");
}

TEST(JobError, HotRowsThatDoNotFit) {
  const std::string hot = "[train]\nhot_rows = 1000\n", asp = "[consistency]\nmode = \"asp\"\n";
  EXPECT_EQ(ErrorOf(hot), "accepted");
  EXPECT_EQ(ErrorOf("[train]\nhot_score = \"lfo\"\n"),
            "job.toml:2: train.hot_score: unknown hot_score 'lfo': expected one of lru, lfu; the nearest is 'lfu'");
  EXPECT_EQ(ErrorOf("[consistency]\nworker_cache = 4096\n" + hot),
            "job.toml:4: train.hot_rows: hot_rows = 1000 with consistency.worker_cache = 4KiB: rows of sparse tables "
            "would be cached twice; expected one of the two (for dense tables, set worker_cache in their "
            "[tables.NAME])");
  EXPECT_EQ(ErrorOf(hot + "[tables.layer]\nworker_cache = 4096\n"), "accepted") << "a dense one, for all we know";
  EXPECT_EQ(ErrorOf(asp + hot),
            "job.toml:4: train.hot_rows: hot_rows = 1000 with mode = \"asp\": asp has no bound on the age of a cached "
            "row; expected mode = \"ssp\"");
  EXPECT_EQ(ErrorOf(asp + hot + "[tables.embedding]\nmode = \"ssp\"\nstaleness = 4\n"), "accepted");
  EXPECT_NE(ErrorOf(asp + hot + "[tables.\"layer.0\"]\nmode = \"ssp\"\nstaleness = 4\n"), "accepted") << "dense";
  EXPECT_NE(ErrorOf(asp + hot + "[tables.embedding]\npull_codec = \"bf16\"\n"), "accepted");
  EXPECT_EQ(ErrorOf("[model]\nkind = \"mlp\"\n" + hot),
            "job.toml:4: train.hot_rows: hot_rows = 1000 with model.kind = \"mlp\": it has no sparse table, and only "
            "sparse tables have hot rows; expected 0");
}

TEST(JobError, PushEveryThatDoesNotFit) {
  const std::string bounded = "own_pushes = \"bounded\"\n", ssp = "[consistency]\nmode = \"ssp\"\nstaleness = 3\n";
  EXPECT_EQ(ErrorOf("[consistency]\npush_every = 2\n" + bounded),
            "job.toml:2: consistency.push_every: push_every = 2: not with mode = \"bsp\" and apply = \"aggregated\", "
            "where each clock is pushed separately; expected \"ssp\" or \"asp\", and \"immediate\"");
  EXPECT_NE(ErrorOf(ssp + "apply = \"aggregated\"\npush_every = 2\n" + bounded), "accepted");
  EXPECT_EQ(ErrorOf(ssp + "push_every = 2\n"),
            "job.toml:4: consistency.push_every: push_every = 2: pulls do not include pushes that the worker has not "
            "sent yet; expected own_pushes = \"bounded\"");
  EXPECT_EQ(ErrorOf(ssp + bounded + "push_every = 4\n"), "accepted");
  EXPECT_EQ(
      ErrorOf(ssp + bounded + "push_every = 4\n[tables.rows]\npush_codec = \"topk\"\n"),
      "job.toml:7: tables.rows.push_codec: \"topk\" with push_every = 4: what a push leaves out goes with the next "
      "one already; expected push_every = 1 for this table");
  EXPECT_EQ(ErrorOf(ssp + bounded + "push_every = 4\n[tables.rows]\npush_codec = \"topk\"\npush_every = 1\n"),
            "accepted");
  EXPECT_EQ(ErrorOf(ssp + bounded + "push_every = 5\n"),
            "job.toml:5: consistency.push_every: push_every = 5: a worker would wait for its own pushes; expected at "
            "most staleness + 1 = 4");
  EXPECT_EQ(ErrorOf("[consistency]\nmode = \"asp\"\npush_every = 1024\n" + bounded), "accepted");
  // A tick applies to all tables.
  EXPECT_EQ(ErrorOf(ssp + bounded + "push_every = 4\n[tables.layer]\nmode = \"bsp\"\n"),
            "job.toml:5: consistency.push_every: push_every = 4: pushes would arrive later than [tables.layer] allows, "
            "which lets a worker be 0 clocks behind; expected at most 1");
  EXPECT_EQ(ErrorOf(ssp + "[tables.rows]\nstaleness = 8\npush_every = 5\n" + bounded),
            "job.toml:2: consistency.mode: push_every = 5: pushes would arrive later than [consistency] allows, which "
            "lets a worker be 3 clocks behind; expected at most 4");
  EXPECT_EQ(ErrorOf(ssp + "[tables.rows]\nstaleness = 8\npush_every = 4\n" + bounded), "accepted");
}

TEST(JobError, DataThatDoesNotFit) {
  EXPECT_EQ(ErrorOf("[job]\n[data]\ndir = \"x\"\n"),
            "job.toml:2: data: no key 'train': expected the name of the training file");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"x\"\ninteger_columns = 0\ncategorical_columns = 0\n"),
            "job.toml:4: data.categorical_columns: 0 integer and 0 categorical columns: expected 1 to 4096 in all");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"x\"\ninteger_columns = 4071\n"),
            "job.toml:3: data.integer_columns: 4071 integer and 26 categorical columns: expected 1 to 4096 in all");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"x\"\ninteger_columns = 4070\n"), "accepted");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"x\"\ninteger_columns = 3\nbins = [\"log2\", \"none\"]\n"),
            "job.toml:4: data.bins: 2 rules for 3 integer columns: expected none, one for all, or one for each");
  EXPECT_EQ(ErrorOf("[data]\ntrain = \"x\"\ninteger_columns = 3\nbins = [\"none\"]\n"), "accepted");
}

TEST(JobError, OptimizerThatDoesNotFit) {
  EXPECT_EQ(ErrorOf("[optimizer]\nschedule = \"step\"\n"),
            "job.toml:2: optimizer.schedule: period_clocks = 0: schedule = \"step\" needs a period of at least 1 "
            "clock");
  EXPECT_EQ(ErrorOf("[optimizer.linear]\nkind = \"ftrl\"\nlearning_rate = 0\n"),
            "job.toml:2: optimizer.linear.kind: learning_rate = 0: ftrl divides by it, so it must be > 0");
  EXPECT_EQ(ErrorOf("[optimizer]\nkind = \"buffered_sgd\"\nbuffer = 1.5\n"),
            "job.toml:2: optimizer.kind: buffer = 1.5: expected a whole number");
  EXPECT_EQ(
      ErrorOf("[local]\nmethod = \"delta\"\nkind = \"ftrl\"\n"),
      "job.toml:3: local.kind: \"ftrl\" computes values from a worker's own past and would replace those that were "
      "pulled: expected a rule such as \"sgd\", \"momentum\" or \"adagrad\"");
}

TEST(JobError, OverridesAreNamed) {
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = 2\n", {"fleet.workers=many"}),
            "--set 'fleet.workers=many': fleet.workers: expected an integer, found a string");
  EXPECT_EQ(ErrorOf("", {"fleet.wokers=2"}),
            "--set 'fleet.wokers=2': fleet: unknown key 'wokers'; the nearest known one is 'workers'");
  EXPECT_EQ(ErrorOf("", {"workers=2"}), "--set 'workers=2': unknown section 'workers'; it is a key of [fleet]");
  EXPECT_EQ(ErrorOf("", {"train.epochs"}), "--set 'train.epochs': expected section.key=value on one line");
  EXPECT_EQ(ErrorOf("", {"consistency.mode=asp", "consistency.apply=aggregated"}).substr(0, 63),
            "--set 'consistency.apply=aggregated': consistency.apply: apply ");
}

TEST(JobError, SyntaxErrorsNameARemedy) {
  EXPECT_EQ(ErrorOf("[model]\nkind = fm  # small\n"), "job.toml:2: kind = fm: a string needs quotes: kind = \"fm\"");
  EXPECT_EQ(ErrorOf("[data]\r\ndir = ../data/criteo-1m\r\n"),
            "job.toml:2: dir = ../data/criteo-1m: a string needs quotes: dir = \"../data/criteo-1m\"");
  EXPECT_EQ(ErrorOf("[optimizer]\nlearning_rate = 0,05\n"),
            "job.toml:2: learning_rate = 0,05: expected a decimal point and no comma: 0.05");
  EXPECT_EQ(ErrorOf("[data]\nshuffle = True\n"), "job.toml:2: shuffle = True: expected true or false in lower case");
  // An ambiguous text gets no advice.
  EXPECT_EQ(ErrorOf("[fleet]\nworkers = 1,000,000\n").find("decimal"), std::string::npos);
  EXPECT_EQ(ErrorOf("[model]\nhidden = [8, x]\n").find("quotes"), std::string::npos);
}

TEST(JobError, ADecimalCommaInAnOverrideIsExplained) {
  EXPECT_EQ(ErrorOf("", {"optimizer.learning_rate=0,1"}),
            "--set 'optimizer.learning_rate=0,1': optimizer.learning_rate: expected a number, found a string; with a "
            "decimal point: 0.1");
}

TEST(JobError, TooManyTables) {
  std::string text;
  for (int i = 0; i < 1024; ++i) text += "[tables.t" + std::to_string(i) + "]\n";
  EXPECT_EQ(ErrorOf(text), "accepted");
  EXPECT_EQ(ErrorOf("[tables.x]\n" + text), "job.toml:1: tables: 1025 tables: expected at most 1024");
}

}  // namespace
}  // namespace tarn
