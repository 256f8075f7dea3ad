// Shows that ToToml's text parses to the same job, also for random jobs, and that the fingerprint changes exactly with
// the settings on which nodes must agree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/job/job_fields.h"
#include "core/table/update_rule.h"

namespace tarn {
namespace {

// Fills each key with a value drawn from its range.
class RandomVisitor {
 public:
  explicit RandomVisitor(std::uint64_t seed) : words_(seed) {}

  template <typename T>
  void Integer(std::string_view, T& out, std::uint64_t low, std::uint64_t high) {
    out = T(low + words_.Below(high - low + 1));
  }
  template <typename T>
  void Number(std::string_view key, T& out, Range range) {
    T value;
    do value = T(range.low + std::pow(words_.Unit(), 8) * (range.high - range.low));
    while (!range.Holds(double(value)));
    if (key == "buffer" || key == "workers_min") value = std::floor(value);
    out = value;
  }
  template <typename E>
  void Name(std::string_view, E& out) {
    do out = E(words_.Below(16));
    while (tarn::Name(out) == "unknown");
  }
  void Name(std::string_view, RuleName& out) { out = UpdateRules()[words_.Below(UpdateRules().size())]->name; }
  void Bytes(std::string_view, std::uint64_t& out) {
    out = words_.Chance(0.5) ? 0 : (limits::kServerMemoryMin + words_.Below(1000)) << words_.Below(20);
  }
  void Boolean(std::string_view, bool& out) { out = words_.Chance(0.5); }
  void Text(std::string_view, std::string& out, TextRule rule) {
    if (rule == TextRule::kDevice) {
      out = words_.Chance(0.5) ? "gpu" : "gpu:12";
      return;
    }
    constexpr std::string_view kPathBytes = "ab \"\\'#=[]é./";
    out = rule == TextRule::kName ? "n" : "";
    for (std::uint64_t i = words_.Below(12); i > 0; --i)
      out += rule == TextRule::kName ? 'x' : kPathBytes[words_.Below(9)];
  }
  void Integers(std::string_view, std::vector<std::uint32_t>& out, std::uint64_t low, std::uint64_t high,
                std::size_t items_max) {
    out.resize(words_.Below(items_max + 1));
    for (auto& item : out) Integer("", item, low, high);
  }
  void Bins(std::string_view, std::vector<BinRule>& out) {
    out.assign(words_.Below(2), {BinRule::Kind::kWidth, words_.Unit() + 0.001});
  }

 private:
  SplitMix words_;
};

Job RandomJob(std::uint64_t seed) {
  RandomVisitor random(seed);
  Job job;
  VisitJobSection(random, job.job);
  random.Integer("", job.fleet.workers, 1, 16384);
  random.Integer("", job.fleet.servers, 1, 8);
  random.Integer("", job.fleet.shards, 1, 8);
  random.Integer("", job.fleet.lanes, 1, 4);
  random.Number("", job.fleet.lease_seconds, Range{2, 1e7});
  VisitStorage(random, job.storage);
  VisitData(random, job.data);
  job.data.integer_columns %= 2000;
  job.data.categorical_columns = 1 + job.data.categorical_columns % 2000;
  job.data.dir = "/data";
  VisitModel(random, job.model);
  VisitTrain(random, job.train);
  VisitTrainExecution(random, job.train);
  job.train.accumulate = 1 + job.train.accumulate % job.train.batch_rows;
  for (OptimizerSpec* spec : {&job.optimizer.linear, &job.optimizer.embedding, &job.optimizer.dense}) {
    VisitOptimizer(random, *spec);
    ++spec->schedule.period_clocks;
    spec->learning_rate += 0.001f;
  }
  if (seed % 2 == 0 && job.train.device == "cpu") {
    job.local = {.method = LocalMethod(1 + seed / 2 % 3),
                 .steps = 1 + std::uint32_t(seed % 3),
                 .from_epoch = 1 + std::uint32_t(seed % 5),
                 .prox = 0.25f};
    job.local.optimizer = {.kind = "adamw", .learning_rate = 0.3f, .options = {{"beta1", 0.5f}}};
    job.train.batch_rows = 1 + job.train.batch_rows % 1000;
    job.train.accumulate = 1;
    job.train.clip_global_norm = 0;
  }
  job.delays.batch = {Distribution::Kind(seed % 5), 0.5, seed % 5 == 0 || seed % 5 == 2 ? 0 : 1.5};
  job.delays.stragglers = std::uint32_t(seed % 2);
  job.delays.straggler_factor = 1 + double(seed);
  job.consistency = {ConsistencyMode::kSsp, std::uint32_t(seed % 9), ApplyMode(seed % 2)};
  job.train.batch_shares.clear();
  if (IsLockstep(job.consistency) && job.local.method == LocalMethod::kNone) {
    job.train.batch_rows = 1000;
    job.train.accumulate = 1;
    for (std::uint32_t rank = 0; rank < job.fleet.workers; ++rank) job.train.batch_shares.push_back(1 + rank % 3);
  }
  job.worker_cache = {(seed % 3) << 20, OwnPushes(seed % 2), 1};
  VisitHotRows(random, job.train.hot_rows);
  if (job.worker_cache.bytes != 0 || job.model.kind == ModelKind::kMlp || job.local.method != LocalMethod::kNone)
    job.train.hot_rows.rows = 0;
  TableOverride& factors = job.tables["factors"];
  factors.has_consistency = factors.has_worker_cache = factors.has_pull_codec = true;
  factors.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  factors.pull_codec = ValueCodec::kBf16;
  const std::uint32_t clocks = 1 + std::uint32_t(seed % 9);
  factors.worker_cache = {0, clocks > 1 ? OwnPushes::kBounded : OwnPushes::kSeen, clocks};
  job.tables["a.b"] = {};
  job.tables["old"].has_row_codec = job.tables["old"].has_life = true;
  job.tables["old"].row_codec = ValueCodec::kFp16;
  VisitLife(random, job.tables["old"].life);
  LifeSpec& life = job.tables["old"].life;
  life.on = true;
  life.expire_seconds = 0;
  life.score_decay = 0.5f;
  life.expire_clocks = 0;
  return job;
}

TEST(JobText, ADefaultJobIsReadBack) {
  const auto job = ParseJob(ToToml(Job{}), "f", "/jobs");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(*job, Job{});
}

TEST(JobText, RandomJobsAreReadBack) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Job job = RandomJob(seed);
    const std::string text = ToToml(job);
    const auto back = ParseJob(text, "f", "/elsewhere");
    ASSERT_TRUE(back) << back.error().message << "\n" << text;
    ASSERT_EQ(*back, job) << text;
    ASSERT_EQ(ToToml(*back), text);
  }
}

TEST(JobText, HostileStringsAreReadBack) {
  Job job;
  for (std::string text : {"\"", "\\", "a\"b\\c", "é€𝄞", "# not a comment", "]\n[fleet"}) {
    job.data.dir = "/" + text;
    const auto back = ParseJob(ToToml(job), "f", "");
    if (text.find('\n') == std::string::npos) {
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(back->data.dir, job.data.dir);
    } else {
      EXPECT_FALSE(back) << "a path with a line end is refused, not obeyed";
    }
  }
}

TEST(JobText, EverySectionIsWritten) {
  const std::string text = ToToml(Job{});
  for (std::string_view line :
       {"[job]", "[fleet]", "[consistency]", "[storage]", "[data]", "[model]", "[train]", "[optimizer.linear]",
        "[optimizer.embedding]", "[optimizer.dense]", "mode = \"bsp\"", "hidden = [64, 32]", "bins = []",
        "lease_seconds = 30.0", "learning_rate = 0.01", "checkpoint_final = true"})
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line;
}

// tools/launch restarts a program of the user only if the job sets the key.
TEST(JobText, WorkerRestartsAreAKeyOnlyIfTheJobSetsThem) {
  const auto written = [](std::string_view text, std::vector<std::string> overrides = {}) {
    const Expected<Job> job = ParseJob(text, "job.toml", "", overrides);
    EXPECT_TRUE(job.has_value());
    const std::string once = ToToml(*job);
    EXPECT_EQ(ToToml(*ParseJob(once, "job.toml", "")), once);
    return once;
  };
  EXPECT_NE(written("").find("\n# worker_restarts = 3\n"), std::string::npos);
  for (const std::string& set : {written("[fleet]\nworker_restarts = 3\n"), written("", {"fleet.worker_restarts=3"})})
    EXPECT_NE(set.find("\nworker_restarts = 3\n"), std::string::npos) << set;
  EXPECT_NE(written("[fleet]\nworker_restarts = 0\n").find("\nworker_restarts = 0\n"), std::string::npos);
}

// docs/job-file.md has a row for each key, with the default that the code has.
TEST(JobText, DocumentedDefaultsAreTheDefaults) {
  std::ifstream file(std::string(TARN_SOURCE_DIR) + "/docs/job-file.md");
  const std::string doc(std::istreambuf_iterator<char>(file), {});
  std::istringstream lines(ResolvedToml(Job{}));
  std::string section;
  int keys = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) section = line.starts_with("[optimizer") ? "[optimizer]" : line;
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::size_t begin = doc.find("\n## " + section);
    ASSERT_NE(begin, std::string::npos) << section;
    const std::string part = doc.substr(begin, doc.find("\n## ", begin + 1) - begin);
    const std::size_t row = part.find("\n| `" + line.substr(0, equals) + "` |");
    ASSERT_NE(row, std::string::npos) << section << " " << line;
    const std::string text = part.substr(row + 1, part.find('\n', row + 1) - row - 1);
    EXPECT_NE(text.find(" | `" + line.substr(equals + 3) + "` | "), std::string::npos) << line << "\n" << text;
    ++keys;
  }
  EXPECT_GT(keys, 50);
}

std::string OptionRow(const RuleOption& option, const std::string& rules) {
  std::string text = fmt::format("{}", option.by_default);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return fmt::format("| `{}` | `{}` | {} | {}: {} |\n", option.name, text, Describe(option.range), rules,
                     option.meaning);
}

std::string RuleRow(const UpdateRule& rule) {
  std::string slots;
  for (const RuleSlot& slot : rule.slots)
    slots += fmt::format("{}{}{}", slots.empty() ? "" : ", ", slot.name,
                         slot.size == SlotSize::kRow ? " (one for the row)" : "");
  return fmt::format("| `{}` | {} | {} |\n", rule.name, rule.meaning, slots);
}

// The tables of rules and of their options in docs/job-file.md, generated from the declarations. Rules with equal
// options share a row.
std::string DocumentedRules() {
  std::string rules = "| `kind` | what a step does | a row keeps |\n| --- | --- | --- |\n";
  std::string options = "| option | default | range | of |\n| --- | --- | --- | --- |\n";
  std::vector<const RuleOption*> rows;
  std::map<std::string, std::string> rules_of;  // by a row that names none
  for (const UpdateRule* rule : UpdateRules()) {
    rules += RuleRow(*rule);
    for (const RuleOption& option : rule->options) {
      std::string& names = rules_of[OptionRow(option, "")];
      if (names.empty()) rows.push_back(&option);
      names += fmt::format("{}{}", names.empty() ? "" : ", ", rule->name);
    }
  }
  for (const RuleOption* row : rows) options += OptionRow(*row, rules_of[OptionRow(*row, "")]);
  return rules + "\n" + options;
}

TEST(JobText, RulesAndTheirOptionsAreDocumented) {
  std::ifstream file(std::string(TARN_SOURCE_DIR) + "/docs/job-file.md");
  const std::string doc(std::istreambuf_iterator<char>(file), {});
  const std::string expected = DocumentedRules();
  EXPECT_NE(doc.find("\n" + expected), std::string::npos) << "docs/job-file.md, [optimizer], should have:\n"
                                                          << expected;
}

// A role inherits options of [optimizer], also those that are not set there.
TEST(JobText, RulesThatShareAnOptionShareItsDefault) {
  std::map<std::string_view, float> defaults;
  for (const UpdateRule* rule : UpdateRules())
    for (const RuleOption& option : rule->options) {
      const float first = defaults.try_emplace(option.name, option.by_default).first->second;
      EXPECT_EQ(option.by_default, first) << rule->name << ": " << option.name;
    }
}

TEST(Fingerprint, DependsOnlyOnSettingsThatNodesMustShare) {
  const Job job = RandomJob(1);
  EXPECT_EQ(Fingerprint(job), Fingerprint(*ParseJob(ToToml(job), "f", "")));
  Job elsewhere = job;
  elsewhere.data.dir = "/other/copy";
  elsewhere.fleet.worker_restarts += 1;
  elsewhere.fleet.lanes += 1;
  elsewhere.train.device = "cpu";
  EXPECT_EQ(Fingerprint(elsewhere), Fingerprint(job));
  Job seed = job, rate = job, mode = job, shape = job;
  seed.job.seed ^= 1;
  rate.optimizer.dense.learning_rate = std::nextafter(rate.optimizer.dense.learning_rate, 2.0f);
  mode.consistency.apply = ApplyMode(1 - int(mode.consistency.apply));
  shape.model.hidden.push_back(8);
  Job cache = job;
  cache.worker_cache.bytes += 4096;
  Job hot = job;
  hot.train.hot_rows.rows ^= 1;
  for (const Job& other : {seed, rate, mode, shape, cache, hot}) EXPECT_NE(Fingerprint(other), Fingerprint(job));
}

// Logs identify their job by the fingerprint: a new key with its default value must not change it.
TEST(Fingerprint, IsTheSameInEveryVersion) { EXPECT_EQ(Fingerprint(Job{}), 1689391393083902347u); }

TEST(JobNames, BothWays) {
  for (std::string_view name : {"criteo", "libsvm", "idx"}) {
    DataFormat format{};
    ASSERT_TRUE(ParseName(name, format));
    EXPECT_EQ(Name(format), name);
  }
  for (std::string_view name : {"logistic_regression", "fm", "wide_deep", "deepfm", "dlrm", "dcn_v2", "mlp"}) {
    ModelKind kind{};
    ASSERT_TRUE(ParseName(name, kind));
    EXPECT_EQ(Name(kind), name);
  }
  for (std::string_view name : {"fp32", "bf16", "tf32", "fp16"}) {
    Precision precision{};
    ASSERT_TRUE(ParseName(name, precision));
    EXPECT_EQ(Name(precision), name);
  }
  for (std::string_view name : {"seen", "bounded"}) {
    OwnPushes own{};
    ASSERT_TRUE(ParseName(name, own));
    EXPECT_EQ(Name(own), name);
  }
  for (std::string_view name : {"lru", "lfu"}) {
    HotScore score{};
    ASSERT_TRUE(ParseName(name, score));
    EXPECT_EQ(Name(score), name);
  }
  for (std::string_view name : {"none", "checkpoint", "log"}) {
    Durability durability{};
    ASSERT_TRUE(ParseName(name, durability));
    EXPECT_EQ(Name(durability), name);
  }
}

}  // namespace
}  // namespace tarn
