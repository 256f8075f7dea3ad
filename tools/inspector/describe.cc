#include "tools/inspector/describe.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/job/job.h"
#include "core/json.h"
#include "core/table/table_shape.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

namespace fs = std::filesystem;

std::string TimeOf(const std::string& directory) {
  struct stat status{};
  if (::stat((directory + "/" + kManifestName).c_str(), &status) != 0) return "";
  std::tm utc{};
  ::gmtime_r(&status.st_mtime, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  return text;
}

// Columns of text, the first aligned left, the others right; two blanks between them.
class TextTable {
 public:
  void Add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  std::string Text(std::string_view indent) const {
    std::vector<std::size_t> widths;
    for (const auto& line : lines_) {
      widths.resize(std::max(widths.size(), line.size()));
      for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    }
    std::string text;
    for (const auto& line : lines_) {
      std::string out(indent);
      for (std::size_t i = 0; i < line.size(); ++i)
        out += i == 0 ? fmt::format("{:<{}}", line[i], widths[i]) : fmt::format("  {:>{}}", line[i], widths[i]);
      out.erase(out.find_last_not_of(' ') + 1);
      text += out + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

struct Totals {
  std::uint64_t bytes = 0, own_bytes = 0;
  std::optional<std::uint64_t> rows;  // at the cut, if known
};

Totals TotalsOf(const Manifest& manifest) {
  Totals totals;
  for (const Generation& generation : manifest.generations) totals.bytes += generation.bytes();
  const Generation& own = manifest.generations.back();
  totals.own_bytes = own.bytes();
  if (!own.tables.empty()) {
    totals.rows = 0;
    for (const CheckpointTable& table : own.tables) *totals.rows += table.state_rows;
  } else if (manifest.generations.size() == 1) {
    totals.rows = 0;
    for (const CheckpointFile& file : own.files) *totals.rows += file.rows;
  }
  return totals;
}

std::string TextOf(const Scores& scores) {
  const std::string auc = scores.auc ? fmt::format(" (AUC {:.5f})", *scores.auc) : "";
  return fmt::format("{:.5f}{}", scores.log_loss, auc);
}

std::string Kind(const Manifest& manifest) {
  return manifest.generations.size() == 1
             ? "full"
             : fmt::format("changes since {}", manifest.generations[manifest.generations.size() - 2].id.value);
}

std::string Phase(const Manifest& manifest) {
  const DataState& data = manifest.data;
  std::uint64_t trained = 0;
  for (std::uint64_t rows : data.trained) trained += rows;
  if (data.rows[0] == 0) return "data not known yet";
  return fmt::format("epoch {}, {} of {} rows", EpochNumber(data.epoch), Count(trained), Count(data.rows[0]));
}

bool IsBest(const Manifest& manifest, const std::string& directory) {
  return !manifest.best_checkpoint.empty() &&
         fs::path(manifest.best_checkpoint).filename() == fs::path(directory).lexically_normal().filename();
}

std::string OptimizerOf(const TableSpec& table) { return std::string(Name(table.optimizer.kind)); }

const CheckpointTable* Find(const Generation& generation, TableId id) {
  const auto it = std::ranges::find(generation.tables, id, &CheckpointTable::table);
  return it == generation.tables.end() ? nullptr : &*it;
}

std::string ShowText(const Checkpoint& checkpoint) {
  const Manifest& m = checkpoint.manifest();
  const Totals totals = TotalsOf(m);
  std::string text = fmt::format("checkpoint {} ({})  {}\n", m.id.value, Kind(m), checkpoint.directory);
  text += fmt::format("  job         {} (fingerprint {:016x}), seed {}\n", checkpoint.job_name, m.fingerprint,
                      checkpoint.job_seed);
  text += fmt::format("  written     {} UTC, {:.0f} s into the run\n", TimeOf(checkpoint.directory), m.seconds);
  text += fmt::format("  training    clock {}, {}, {} samples\n", m.resume_clock.value, Phase(m), Count(m.samples));
  if (m.batches_behind > 0)
    text += fmt::format("  repeated    {} batches after the cut are trained again by a resume\n", m.batches_behind);
  for (const EpochResult& epoch : m.epochs) {
    text += fmt::format("  epoch {:<5} train log-loss {:.5f}", EpochNumber(epoch.epoch), epoch.train.log_loss);
    if (epoch.valid) text += ", validation " + TextOf(*epoch.valid);
    if (epoch.test) text += ", test " + TextOf(*epoch.test);
    text += epoch.best ? ", the best so far\n" : "\n";
  }
  text += fmt::format("  size        {}{}, in {} partitions\n", Bytes(totals.bytes),
                      m.generations.size() == 1 ? "" : fmt::format(", of which {} new", Bytes(totals.own_bytes)),
                      1u << m.partition_bits);
  if (m.state_hash) text += fmt::format("  state hash  {:016x}\n", *m.state_hash);
  TextTable tables;
  tables.Add({"table", "rows", "values", "optimizer", "waiting"});
  for (const TableSpec& spec : m.tables) {
    const CheckpointTable* counts = Find(m.generations.back(), spec.id);
    tables.Add({spec.name, counts == nullptr ? "?" : Count(counts->state_rows),
                fmt::format("{} x {}", spec.dim, Name(spec.row_codec)), OptimizerOf(spec),
                counts == nullptr || counts->seen == 0 ? "" : Count(counts->seen)});
  }
  text += "\n" + tables.Text("  ");
  TextTable generations;
  generations.Add({"generation", "clock", "rows", "removed", "files", "bytes"});
  for (const Generation& generation : m.generations) {
    std::uint64_t rows = 0, removed = 0;
    for (const CheckpointFile& file : generation.files) rows += file.rows, removed += file.removed;
    generations.Add({std::to_string(generation.id.value), std::to_string(generation.clock.value), Count(rows),
                     removed == 0 ? "" : Count(removed), std::to_string(generation.files.size()),
                     Bytes(generation.bytes())});
  }
  text += "\n" + generations.Text("  ");
  if (m.blobs.empty()) return text;
  TextTable blobs;
  blobs.Add({"worker's state", "rank", "bytes", "of its program"});
  for (const WorkerBlob& blob : m.blobs)
    blobs.Add(
        {blob.file.name, std::to_string(blob.rank.value), Bytes(blob.file.bytes), blob.program_state ? "yes" : ""});
  return text + "\n" + blobs.Text("  ");
}

Json GenerationJson(const Generation& generation) {
  Json files = Json::array();
  for (const CheckpointFile& file : generation.files)
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"crc32c", fmt::format("{:08x}", file.crc32c)},
                     {"rows", file.rows},
                     {"removed", file.removed},
                     {"seen", file.seen}});
  return {{"checkpoint", generation.id.value},
          {"clock", generation.clock.value},
          {"state_hash", fmt::format("{:016x}", generation.state_hash)},
          {"bytes", generation.bytes()},
          {"files", std::move(files)}};
}

Json TablesJson(const Manifest& m) {
  Json tables = Json::array();
  for (const TableSpec& spec : m.tables) {
    const CheckpointTable* counts = Find(m.generations.back(), spec.id);
    tables.push_back({{"name", spec.name},
                      {"kind", Name(spec.kind)},
                      {"dim", spec.dim},
                      {"optimizer", OptimizerOf(spec)},
                      {"initializer", Describe(spec.initializer)},
                      {"row_codec", Name(spec.row_codec)},
                      {"life", spec.life.on},
                      {"rows", counts == nullptr ? Json() : Json(counts->state_rows)},
                      {"waiting", counts == nullptr ? 0 : counts->seen}});
  }
  return tables;
}

std::string ShowJson(const Checkpoint& checkpoint) {
  const Manifest& m = checkpoint.manifest();
  const Totals totals = TotalsOf(m);
  Json generations = Json::array(), blobs = Json::array();
  for (const Generation& generation : m.generations) generations.push_back(GenerationJson(generation));
  for (const WorkerBlob& blob : m.blobs)
    blobs.push_back({{"name", blob.file.name},
                     {"rank", blob.rank.value},
                     {"bytes", blob.file.bytes},
                     {"crc32c", fmt::format("{:08x}", blob.file.crc32c)},
                     {"program_state", blob.program_state}});
  const Json json = {{"checkpoint", m.id.value},
                     {"directory", checkpoint.directory},
                     {"job", checkpoint.job_name},
                     {"fingerprint", fmt::format("{:016x}", m.fingerprint)},
                     {"seed", checkpoint.job_seed},
                     {"clock", m.resume_clock.value},
                     {"epoch", EpochNumber(m.data.epoch)},
                     {"samples", m.samples},
                     {"seconds", m.seconds},
                     {"written", TimeOf(checkpoint.directory)},
                     {"best", IsBest(m, checkpoint.directory)},
                     {"best_checkpoint", m.best_checkpoint},
                     {"partition_bits", m.partition_bits},
                     {"bytes", totals.bytes},
                     {"new_bytes", totals.own_bytes},
                     {"state_hash", m.state_hash ? Json(fmt::format("{:016x}", *m.state_hash)) : Json()},
                     {"tables", TablesJson(m)},
                     {"generations", std::move(generations)},
                     {"blobs", std::move(blobs)}};
  return JsonText(json, 2) + "\n";
}

// The line of `list` for one directory.
struct Listed {
  CheckpointDirectory directory;
  std::optional<Manifest> manifest;
  std::string problem;
  bool best = false;
};

Expected<std::vector<Listed>> ReadRun(const std::string& run_dir) {
  const auto found = ListCheckpoints(run_dir);
  if (!found)
    return Fail(found.error().code,
                fmt::format("{}; expected the folder of a run, such as runs/JOB-TIME", found.error().message));
  std::vector<Listed> all;
  std::string best;
  for (const CheckpointDirectory& directory : *found) {
    Listed& listed = all.emplace_back(Listed{directory, {}, {}, false});
    if (!directory.has_manifest) {
      listed.problem = "incomplete: being written, or abandoned";
      continue;
    }
    auto manifest = ReadManifest(directory.path);
    if (!manifest) {
      listed.problem = manifest.error().message;
      continue;
    }
    best = fs::path(manifest->best_checkpoint).filename().string();
    listed.manifest = std::move(*manifest);
  }
  for (Listed& listed : all) listed.best = !best.empty() && fs::path(listed.directory.path).filename() == best;
  return all;
}

std::string ListText(const std::string& run_dir, const std::vector<Listed>& all) {
  if (all.empty()) return fmt::format("{}: no checkpoint yet\n", run_dir);
  TextTable table;
  table.Add({"checkpoint", "written (UTC)", "clock", "epoch", "rows", "new", "in all", "kind", ""});
  std::string problems;
  for (const Listed& listed : all) {
    const std::string name = fs::path(listed.directory.path).filename().string();
    if (!listed.manifest) {
      table.Add({name, "", "", "", "", "", "", "-", ""});
      problems += fmt::format("{}: {}\n", name, listed.problem);
      continue;
    }
    const Totals totals = TotalsOf(*listed.manifest);
    table.Add({name, TimeOf(listed.directory.path), std::to_string(listed.manifest->resume_clock.value),
               std::to_string(EpochNumber(listed.manifest->data.epoch)), totals.rows ? Count(*totals.rows) : "?",
               Bytes(totals.own_bytes), Bytes(totals.bytes), Kind(*listed.manifest), listed.best ? "best" : ""});
  }
  return table.Text("") + (problems.empty() ? "" : "\n" + problems);
}

Json ListedJson(const Listed& listed) {
  Json json = {{"checkpoint", listed.directory.id.value},
               {"directory", listed.directory.path},
               {"whole", listed.manifest.has_value()},
               {"best", listed.best}};
  if (!listed.manifest) {
    json["problem"] = listed.problem;
    return json;
  }
  const Totals totals = TotalsOf(*listed.manifest);
  Json generations = Json::array();
  for (const Generation& generation : listed.manifest->generations) generations.push_back(generation.id.value);
  json.update({{"written", TimeOf(listed.directory.path)},
               {"clock", listed.manifest->resume_clock.value},
               {"epoch", EpochNumber(listed.manifest->data.epoch)},
               {"bytes", totals.bytes},
               {"new_bytes", totals.own_bytes},
               {"rows", totals.rows ? Json(*totals.rows) : Json()},
               {"generations", std::move(generations)}});
  return json;
}

std::string ListJson(const std::vector<Listed>& all) {
  Json json = Json::array();
  for (const Listed& listed : all) json.push_back(ListedJson(listed));
  return JsonText(json, 2) + "\n";
}

}  // namespace

Expected<std::string> ListRun(const std::string& run_dir, bool json) {
  const auto all = ReadRun(run_dir);
  if (!all) return std::unexpected(all.error());
  return json ? ListJson(*all) : ListText(run_dir, *all);
}

Expected<std::string> ShowCheckpoint(const std::string& path, bool json) {
  const auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  return json ? ShowJson(*checkpoint) : ShowText(*checkpoint);
}

}  // namespace tarn::inspector
