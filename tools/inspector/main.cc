// tarn-inspect: lists, describes, verifies, prints, converts and exports checkpoints. See --help.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>

#include "tools/inspector/describe.h"
#include "tools/inspector/export.h"
#include "tools/inspector/npz.h"
#include "tools/inspector/rows.h"
#include "tools/inspector/source.h"
#include "tools/inspector/verify.h"

namespace {

using namespace tarn;
using namespace tarn::inspector;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr const char* kAbout =
    "Examines checkpoints. CHECKPOINT is the directory of a checkpoint, or the folder of a run: then its newest one, "
    "or\n"
    "for export and npz its best one if the job validates. --newest, --best and --checkpoint N select another.\n"
    "Checkpoints are not changed. The job may be running.";

constexpr const char* kFooter =
    "Examples\n"
    "  tools/inspect list runs/mine                                  checkpoints of a run\n"
    "  tools/inspect show runs/mine                                  the newest: tables, rows, clock, scores\n"
    "  tools/inspect verify runs/mine/checkpoints/ckpt-7             verify every byte and every count\n"
    "  tools/inspect rows runs/mine --table users --key 42 --key 43  two rows\n"
    "  tools/inspect rows runs/mine --table users --largest 20       the largest by norm\n"
    "  tools/inspect npz runs/mine out.npz                           numpy.load(\"out.npz\")[\"users.values\"]\n"
    "  tools/inspect export runs/mine model.tarn --codec fp16        parameters for serving, of the best epoch\n"
    "  tools/inspect export runs/mine model.tarn --checkpoint 7      of checkpoint 7\n"
    "  tools/inspect export runs/mine delta.tarn --since 5           changes since checkpoint 5\n\n"
    "Exit status: 0 success, 1 failure (prints the error with the file's name), 2 bad usage.";

struct Flags {
  std::string path, out;
  bool newest = false, best = false;
  std::uint64_t number = 0;  // number of a checkpoint; 0: not given
  bool json = false;
  RowsQuestion rows;
  std::uint32_t largest = 0, oldest = 0;
  NpzOptions npz;
  bool no_slots = false;
  ExportOptions exported;
  std::string codec = "fp32";
};

constexpr const char* kBestOfRun = "that of its best epoch if the job validates, else the newest";

// A command; returns its output.
using Command = std::function<Expected<std::string>()>;

// `otherwise`: the default checkpoint of a run directory, for the help text.
void AddPath(CLI::App* command, Flags* flags, const std::string& otherwise = "its newest one") {
  command->add_option("CHECKPOINT", flags->path, "a checkpoint, or a run's folder: " + otherwise)->required();
  auto* newest = command->add_flag("--newest", flags->newest, "use the newest checkpoint of the run");
  auto* best = command->add_flag("--best", flags->best, "use the checkpoint of the run's best epoch");
  auto* number = command->add_option("--checkpoint", flags->number, "use checkpoint N of the run")
                     ->check(CLI::Range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()));
  newest->excludes(best)->excludes(number);
  best->excludes(number);
}

// Runs the command on the selected checkpoint. Appends a note to the output, unless it is JSON, if this checkpoint is
// the best one but not the newest.
Expected<std::string> WithChosen(const Flags& flags, CheckpointChoice::Which otherwise,
                                 const std::function<Expected<std::string>(const std::string& directory)>& command) {
  using Which = CheckpointChoice::Which;
  CheckpointChoice choice{.which = otherwise, .number = flags.number};
  if (flags.newest) choice.which = Which::kNewest;
  if (flags.best) choice.which = Which::kBest;
  if (flags.number != 0) choice.which = Which::kNumber;
  const auto chosen = ChooseCheckpoint(flags.path, choice);
  if (!chosen) return std::unexpected(chosen.error());
  auto answer = command(chosen->directory);
  if (answer && !chosen->note.empty() && !flags.json && !flags.rows.json) *answer += chosen->note + "\n";
  return answer;
}

// Checks the text of a key. Returns an error message; empty: it is valid.
std::string CheckKey(const std::string& text) {
  Key key = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, key);
  if (error == std::errc() && stopped == end) return {};
  return fmt::format("{} is not a key: expected a number from 0 to {}", text, std::numeric_limits<Key>::max());
}

Command AddRows(CLI::App* app, Flags* flags) {
  auto* command = app->add_subcommand("rows", "prints rows: the first ones, those of keys, the largest or the oldest");
  AddPath(command, flags);
  command->add_option("--table", flags->rows.table, "table; optional if there is only one");
  auto* keys = command->add_option("--key", flags->rows.keys, "row of this key; may be repeated")
                   ->check(CheckKey)
                   ->allow_extra_args(false);
  auto* largest =
      command->add_option("--largest", flags->largest, "the N rows with the largest norms; those with NaN first");
  auto* oldest = command->add_option("--oldest", flags->oldest, "the N rows whose last push is oldest");
  auto* first = command->add_option("--first", flags->rows.count, "the first N rows")->capture_default_str();
  for (auto* option : {largest, oldest, first}) option->check(CLI::Range(1u, 1'000'000u));
  keys->excludes(largest)->excludes(oldest)->excludes(first);
  largest->excludes(oldest)->excludes(first);
  oldest->excludes(first);
  command->add_flag("--slots", flags->rows.slots, "also print the optimizer's state");
  command->add_flag("--json", flags->rows.json, "JSON with all values");
  return [flags] {
    using Which = RowsQuestion::Which;
    RowsQuestion question = flags->rows;
    if (!question.keys.empty()) question.which = Which::kKeys;
    if (flags->largest != 0) question.which = Which::kLargest, question.count = flags->largest;
    if (flags->oldest != 0) question.which = Which::kOldest, question.count = flags->oldest;
    return WithChosen(*flags, CheckpointChoice::Which::kNewest,
                      [&](const std::string& directory) { return AnswerRows(directory, question); });
  };
}

Command AddNpz(CLI::App* app, Flags* flags) {
  auto* command = app->add_subcommand("npz", "converts to NumPy arrays: TABLE.keys, TABLE.values, TABLE.slots, ...");
  AddPath(command, flags, kBestOfRun);
  command->add_option("OUT", flags->out, ".npz file to write; it may be larger than memory")->required();
  command->add_option("--table", flags->npz.tables, "only this table; may be given several times")
      ->allow_extra_args(false);
  command->add_flag("--no-slots", flags->no_slots, "omit the optimizer's state");
  return [flags] {
    NpzOptions options = flags->npz;
    options.slots = !flags->no_slots;
    return WithChosen(*flags, CheckpointChoice::Which::kBestIfEvaluated,
                      [&](const std::string& directory) { return ConvertToNpz(directory, flags->out, options); });
  };
}

Command AddExport(CLI::App* app, Flags* flags) {
  auto* command = app->add_subcommand("export", "writes parameters for serving: all, or those changed");
  AddPath(command, flags, std::string(kBestOfRun) + "; with --since, the newest");
  command->add_option("OUT", flags->out, "file to write (serving/export_format.h, python/tarn/export.py)")->required();
  command->add_option(
      "--since", flags->exported.since,
      "only rows changed or removed since this checkpoint: its directory, or its number if the exported one "
      "builds on it");
  command->add_option("--codec", flags->codec, "format of the values: fp32, bf16 or fp16")->capture_default_str();
  command->add_option("--table", flags->exported.tables, "only this table; may be given several times")
      ->allow_extra_args(false);
  return [flags]() -> Expected<std::string> {
    ExportOptions options = flags->exported;
    TARN_RETURN_IF_ERROR(ParseName(flags->codec, options.codec));
    if (!IsPlain(options.codec))
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--codec {}: expected fp32, bf16 or fp16; other codecs are only for messages", flags->codec));
    // Deltas are for runs that continue, so their default is the newest.
    const auto otherwise =
        options.since.empty() ? CheckpointChoice::Which::kBestIfEvaluated : CheckpointChoice::Which::kNewest;
    return WithChosen(*flags, otherwise,
                      [&](const std::string& directory) { return ExportCheckpoint(directory, flags->out, options); });
  };
}

Command AddList(CLI::App* app, Flags* flags) {
  auto* command = app->add_subcommand("list", "lists the checkpoints of a run");
  command->add_option("RUN_DIR", flags->path, "folder of the run")->required();
  command->add_flag("--json", flags->json, "for programs");
  return [flags] { return ListRun(flags->path, flags->json); };
}

Command AddShow(CLI::App* app, Flags* flags) {
  auto* command =
      app->add_subcommand("show", "shows one checkpoint: tables, rows, bytes, generations, progress of training");
  AddPath(command, flags);
  command->add_flag("--json", flags->json, "for programs");
  return [flags] {
    return WithChosen(*flags, CheckpointChoice::Which::kNewest,
                      [&](const std::string& directory) { return ShowCheckpoint(directory, flags->json); });
  };
}

Command AddVerify(CLI::App* app, Flags* flags) {
  auto* command = app->add_subcommand("verify", "verifies a checkpoint: every byte, every count, the hash of all rows");
  AddPath(command, flags);
  return [flags] { return WithChosen(*flags, CheckpointChoice::Which::kNewest, VerifyCheckpoint); };
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit then is an error like a full disk
  Flags flags;
  CLI::App app{kAbout};
  app.footer(kFooter);
  app.require_subcommand(1);
  std::vector<std::pair<std::string, Command>> commands;
  commands.emplace_back("list", AddList(&app, &flags));
  commands.emplace_back("show", AddShow(&app, &flags));
  commands.emplace_back("verify", AddVerify(&app, &flags));
  commands.emplace_back("rows", AddRows(&app, &flags));
  commands.emplace_back("npz", AddNpz(&app, &flags));
  commands.emplace_back("export", AddExport(&app, &flags));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  for (const auto& [name, run] : commands) {
    if (!app.got_subcommand(name)) continue;
    const auto answer = run();
    if (!answer) {
      fmt::print(stderr, "tarn-inspect: {}\n", answer.error().message);
      return answer.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
    }
    std::fwrite(answer->data(), 1, answer->size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      fmt::print(stderr, "tarn-inspect: cannot write the output\n");
      return kExitFailure;
    }
  }
  return 0;
}
