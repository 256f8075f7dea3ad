// Shows that an override of an inherited key has the same effect on a job's file as on the resolved job that a run
// stores (job.toml, MANIFEST) and resumes from: for every such key, in every section that inherits it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/table/optimizer_fields.h"

namespace tarn {
namespace {

using Notes = std::vector<std::string>;

std::string Resolved(const std::string& text, const std::vector<std::string>& overrides = {}, Notes* notes = nullptr) {
  const auto job = ParseJob(text, "job.toml", "/jobs", overrides, notes);
  return job ? ResolvedToml(*job) : job.error().message;
}

// The resolved job as a run writes it; that run may itself have been resumed.
std::string Kept(const std::string& text) {
  const auto job = ParseJob(text, "job.toml", "/jobs");
  EXPECT_TRUE(job) << job.error().message;
  const auto again = job ? ParseJob(ToToml(*job), "job.toml", "/jobs") : job;
  return again ? ToToml(*again) : again.error().message;
}

// Overrides each key with a value that the jobs below do not have.
struct OtherValues {
  std::vector<std::string> overrides;
  void Number(std::string_view key, float, Range range) {
    overrides.push_back(std::string(key) + "=" + (range.high <= 1 ? "0.125" : "0.375"));
  }
  void Integer(std::string_view key, std::uint64_t, std::uint64_t, std::uint64_t) {
    overrides.push_back(std::string(key) + "=777");
  }
  void Name(std::string_view key, const RuleName&) { overrides.push_back(std::string(key) + "=momentum"); }
  void Name(std::string_view key, ScheduleKind) { overrides.push_back(std::string(key) + "=cosine"); }
};

constexpr const char* kOptimizers =
    "[optimizer]\nkind = \"adagrad\"\nlearning_rate = 0.02\nperiod_clocks = 9\n"
    "[optimizer.dense]\nkind = \"adam\"\nlearning_rate = 0.02\nl2 = 0.5\n";  // one key equal to its inherited value

TEST(JobInherits, EveryKeyOfTheOptimizerIsInherited) {
  OtherValues others;
  const OptimizerSpec spec;
  VisitOptimizer(others, spec);
  ASSERT_GE(others.overrides.size(), 9u);
  for (const std::string& text : {std::string(), std::string(kOptimizers)}) {
    if (!text.empty())  // the options of its rules
      for (const OptimizerSpec& rule : {OptimizerSpec{.kind = "adagrad"}, OptimizerSpec{.kind = "adam"}})
        VisitRuleOptions(others, rule);
    for (const std::string& other : others.overrides) {
      const std::string override = "optimizer." + other;
      const std::string at_once = Resolved(text, {override});
      if (text.empty() && other == "schedule=cosine") {
        EXPECT_NE(at_once.find("period_clocks = 0"), std::string::npos) << "it is refused for another reason";
      } else {
        EXPECT_NE(at_once, Resolved(text)) << override << " is ignored";
      }
      EXPECT_EQ(Resolved(Kept(text), {override}), at_once) << override << "\n" << Kept(text);
    }
  }
}

// Options in [optimizer] of another rule apply to tables that choose that rule.
TEST(JobInherits, OptionsOfOtherRulesAreInherited) {
  const std::string text = "[optimizer]\nkind = \"sgd\"\nmomentum = 0.25\n";
  const std::vector<std::string> other = {"optimizer.embedding.kind=nesterov"};
  const std::string at_once = Resolved(text, other);
  EXPECT_NE(at_once.find("momentum = 0.25\n"), std::string::npos) << at_once;
  EXPECT_EQ(Resolved(Kept(text), other), at_once) << Kept(text);
}

TEST(JobInherits, EveryKeyOfTheConsistencyIsInherited) {
  const std::string job =
      "[consistency]\nmode = \"ssp\"\nstaleness = 4\nown_pushes = \"bounded\"\n"
      "[tables.narrow]\nstaleness = 3\n[tables.gathered]\napply = \"aggregated\"\n[tables.bsp]\nmode = \"bsp\"\n"
      "[tables.cached]\nworker_cache = \"1MiB\"\n[tables.plain]\npull_codec = \"bf16\"\n[tables.same]\nstaleness = 4\n"
      "[tables.seen]\nown_pushes = \"seen\"\n";
  for (const char* override :
       {"consistency.mode=asp", "consistency.mode=bsp", "consistency.staleness=7", "consistency.apply=aggregated",
        "consistency.worker_cache=2MiB", "consistency.own_pushes=seen", "tables.narrow.mode=asp"}) {
    Notes before, after;
    const std::string at_once = Resolved(job, {override}, &before);
    EXPECT_TRUE(at_once.starts_with("[job]")) << at_once;
    EXPECT_NE(at_once, Resolved(job)) << override << " is ignored";
    EXPECT_EQ(Resolved(Kept(job), {override}, &after), at_once) << override << "\n" << Kept(job);
    EXPECT_EQ(before.size(), after.size()) << override;
  }
  const std::string combined =
      "[consistency]\nmode = \"ssp\"\nstaleness = 4\nown_pushes = \"bounded\"\n[tables.a]\npush_every = 2\n";
  for (const char* override : {"consistency.push_every=3", "consistency.mode=asp", "consistency.mode=bsp"}) {
    const std::string at_once = Resolved(combined, {override});
    EXPECT_NE(at_once, Resolved(combined)) << override;
    EXPECT_EQ(Resolved(Kept(combined), {override}), at_once) << override;
  }
}

// `apply` follows from the mode unless the job sets it, also after a resume; a set value is kept.
TEST(JobInherits, ApplyFollowsTheMode) {
  const std::string ssp = "consistency.mode=ssp";
  EXPECT_NE(Resolved(Kept(""), {ssp}).find("apply = \"immediate\""), std::string::npos);
  EXPECT_NE(Resolved(Kept("[consistency]\napply = \"aggregated\"\n"), {ssp}).find("apply = \"aggregated\""),
            std::string::npos);
}

TEST(JobInherits, AnotherModeResetsUnsupportedSettings) {
  const std::string job =
      "[consistency]\nmode = \"ssp\"\nstaleness = 4\napply = \"aggregated\"\nworker_cache = \"1MiB\"\n"
      "[tables.a]\nstaleness = 2\n";
  Notes notes;
  const auto asp = ParseJob(job, "job.toml", "/", std::vector<std::string>{"consistency.mode=asp"}, &notes);
  ASSERT_TRUE(asp) << asp.error().message;
  EXPECT_EQ(asp->consistency, (ConsistencySpec{ConsistencyMode::kAsp, 0, ApplyMode::kImmediate}));
  EXPECT_EQ(asp->worker_cache.bytes, 0u);
  EXPECT_EQ(asp->tables.at("a").consistency, asp->consistency);
  EXPECT_EQ(notes,
            (Notes{"job.toml:4: consistency.apply = 'aggregated': mode = \"asp\" does not support it; it is "
                   "immediate in this run",
                   "job.toml:3: consistency.staleness = 4: mode = \"asp\" does not support it; it is 0 in this run",
                   "job.toml:5: consistency.worker_cache = '1MiB': mode = \"asp\" does not support it; it is 0 in "
                   "this run",
                   "job.toml:7: tables.a.staleness = 2: mode = \"asp\" does not support it; it is 0 in this run"}));
  const std::string sums = "[consistency]\nmode = \"asp\"\nown_pushes = \"bounded\"\npush_every = 8\n";
  EXPECT_NE(Resolved(sums, {"consistency.mode=bsp"}).find("push_every = 1"), std::string::npos);
  const std::string hot = "[train]\nhot_rows = 1000\n[model]\nkind = \"fm\"\n";
  EXPECT_NE(Resolved(hot, {"consistency.mode=asp"}).find("hot_rows = 0"), std::string::npos);
  // A contradiction between two overrides, or within the file, is still an error.
  EXPECT_NE(Resolved(job, {"consistency.mode=asp", "consistency.staleness=4"}).find("only \"ssp\" has a bound"),
            std::string::npos);
  EXPECT_NE(Resolved("[consistency]\nmode = \"asp\"\nstaleness = 4\n").find("only \"ssp\" has a bound"),
            std::string::npos);
}

TEST(JobInherits, AnOverrideWithoutEffectIsNotedOrRefused) {
  Notes notes;
  Resolved(kOptimizers, {"optimizer.learning_rate=0.5"}, &notes);
  EXPECT_EQ(notes, Notes{"--set 'optimizer.learning_rate=0.5': optimizer.learning_rate = 0.5: without effect on "
                         "[optimizer.dense], which sets it"});
  const std::string all = "[optimizer.linear]\nl2 = 1\n[optimizer.embedding]\nl2 = 1\n[optimizer.dense]\nl2 = 1\n";
  EXPECT_EQ(Resolved(all, {"optimizer.l2=2"}),
            "--set 'optimizer.l2=2': optimizer.l2: without effect: [optimizer.linear], [optimizer.embedding], "
            "[optimizer.dense] set it themselves; override theirs, such as "
            "optimizer.dense.l2");
  notes.clear();
  Resolved("[tables.a]\nmode = \"asp\"\n", {"consistency.mode=ssp"}, &notes);
  EXPECT_EQ(notes, Notes{"--set 'consistency.mode=ssp': consistency.mode = 'ssp': without effect on [tables.a], "
                         "which sets it"});
  notes.clear();
  Resolved("[consistency]\nmode = \"ssp\"\nstaleness = 4\n[tables.a]\nstaleness_range = 1\n",
           {"consistency.staleness_range=2"}, &notes);
  EXPECT_EQ(notes, Notes{"--set 'consistency.staleness_range=2': consistency.staleness_range = 2: without effect on "
                         "[tables.a], which sets it"});
}

}  // namespace
}  // namespace tarn
