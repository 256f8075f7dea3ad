// tarn-generate: writes a Criteo-like data set with a planted teacher. See --help.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/json.h"
#include "tools/generate/write_set.h"

namespace {

using tarn::generate::SetOptions;
using tarn::generate::SetResult;

constexpr const char* kDescription =
    R"(Writes a click log in Criteo's format with the statistics of Criteo's own: train.tsv, valid.tsv, test.tsv.

Each line is a label, 13 integers and 26 categories of eight hexadecimal digits, separated by tabs; empty is
missing. Labels are drawn from a planted teacher, so that the best AUC and log-loss that any model can reach on
these rows are known: they are printed and stored in generate.json beside the files.

Row n is a pure function of the parameters and n: the same parameters give the same bytes on any machine and with
any number of threads, and valid.tsv and test.tsv do not change with --rows. If DIR already holds exactly this
set, nothing is done.)";

constexpr const char* kFooter = R"(
Profiles
  criteo       as hard as Criteo's data: after one pass over 1,000,000 rows the test AUC of logistic regression is
               about 0.776, that of a factorization machine about 0.786; the best possible is 0.825
  interaction  more of the signal in pairs of columns, where only models with interactions find it

Examples
  tarn-generate --out data/criteo                                a million rows to train on, about 0.3 GB
  tarn-generate --out data/hot --rows 4000000 --skew 1.5         fewer keys get more of the rows
  tarn-generate --out data/days --drift 0.02 --day-rows 50000    every 50,000 rows, 2% of the ranks get new weights)";

// Prints progress after two seconds: on a terminal one line that is overwritten, else a line every few seconds.
class ProgressLine {
 public:
  void Update(std::uint64_t done, std::uint64_t all) {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    if (seconds < 2 || (now < next_ && done < all)) return;
    next_ = now + std::chrono::milliseconds(terminal_ ? 250 : 5000);
    const double left = seconds * static_cast<double>(all - done) / static_cast<double>(done);
    fmt::print(stderr, "{}generating: {} of {} rows, {:.0f} s left{}", terminal_ ? "\r" : "", done, all, left,
               terminal_ ? "\033[K" : "\n");
    shown_ = true;
  }
  void End() const {
    if (shown_ && terminal_) fmt::print(stderr, "\n");
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point next_{};
  bool shown_ = false;
};

void AddOptions(CLI::App* app, SetOptions* options, bool* check) {
  options->threads = std::max(1u, std::thread::hardware_concurrency());
  app->add_option("--out", options->dir, "folder for the files; created if it does not exist")
      ->required()
      ->type_name("DIR");
  app->add_flag("--check", *check, "only check that DIR holds exactly this set; write nothing");
  app->add_option("--rows", options->train_rows, "rows of train.tsv")->capture_default_str();
  app->add_option("--valid", options->valid_rows, "rows of valid.tsv; 0: no file")->capture_default_str();
  app->add_option("--test", options->test_rows, "rows of test.tsv; 0: no file")->capture_default_str();
  app->add_option("--seed", options->generator.seed, "random seed of the teacher and the rows")->capture_default_str();
  app->add_option("--profile", options->profile, "criteo or interaction")->capture_default_str();
  app->add_option("--threads", options->threads, "threads; the files do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--skew", options->generator.skew,
                  "factor for the exponents of the columns' distributions; above 1: fewer keys get more of the rows")
      ->capture_default_str();
  app->add_option("--drift", options->generator.drift, "share of the ranks with new weights each day")
      ->capture_default_str();
  app->add_option("--day-rows", options->generator.day_rows, "rows per day, for --drift")->capture_default_str();
  app->add_option("--label-noise", options->generator.label_noise, "probability that a label is flipped")
      ->capture_default_str();
}

void PrintResult(const SetOptions& options, const SetResult& result, double seconds) {
  const auto report = tarn::Json::parse(result.report, nullptr, false);
  if (result.existed)
    fmt::print("{}: this set already exists\n", options.dir);
  else
    fmt::print("{}: written in {:.1f} s\n", options.dir, seconds);
  for (const auto& [name, file] : report["files"].items())
    fmt::print("  {:<10} {:>10} rows {:>12} bytes  {:5.2f}% positive  best possible AUC {:.4f}  log-loss {:.4f}\n",
               name, file["rows"].get<std::uint64_t>(), file["bytes"].get<std::uint64_t>(),
               100 * file["positive_share"].get<double>(), file["best_auc"].get<double>(),
               file["best_logloss"].get<double>());
}

int Fail(const tarn::Error& error) {
  fmt::print(stderr, "tarn-generate: {}\n", tarn::ToString(error));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  SetOptions options;
  CLI::App app(kDescription, "tarn-generate");
  app.footer(kFooter);
  bool check = false;
  AddOptions(&app, &options, &check);
  CLI11_PARSE(app, argc, argv);
  const auto teacher = tarn::generate::TeacherOfProfile(options.profile);
  if (!teacher) return Fail(teacher.error());
  options.generator.teacher = *teacher;
  ProgressLine progress;
  const auto on_rows = [&](std::uint64_t done, std::uint64_t all) { progress.Update(done, all); };
  const auto result = check ? CheckSet(options) : WriteSet(options, on_rows);
  progress.End();
  if (!result) return Fail(result.error());
  PrintResult(options, *result, progress.seconds());
  return 0;
}
