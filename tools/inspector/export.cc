#include "tools/inspector/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/hash.h"
#include "core/table/table_shape.h"
#include "serving/export_writer.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

// The checkpoint that a delta refers to.
struct Base {
  CheckpointId id;
  std::uint64_t content = 0;
  std::size_t generations = 0;           // number of our generations up to the base; 0: the base is not one of ours
  std::optional<Checkpoint> checkpoint;  // the base, if `generations` is 0
};

std::optional<std::uint64_t> NumberIn(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// `tables`: our exported tables.
Expected<Base> BaseByNumber(const Manifest& ours, const std::vector<TableSpec>& tables, std::uint64_t number) {
  std::string known;
  for (std::size_t i = 0; i + 1 < ours.generations.size(); ++i) {
    if (ours.generations[i].id.value == number)
      return Base{CheckpointId(number), ContentOf(ours, i + 1, tables), i + 1, std::nullopt};
    known += fmt::format("{}{}", known.empty() ? "" : ", ", ours.generations[i].id.value);
  }
  return Fail(ErrorCode::kNotFound,
              fmt::format("checkpoint {} is based on {}, not on {}: give the directory of that checkpoint instead",
                          ours.id.value, known.empty() ? "no other" : known, number));
}

// The specs of `tables` in the other checkpoint, without those that it lacks. kInvalidArgument: a shape differs.
Expected<std::vector<TableSpec>> SameTables(const Checkpoint& ours, const std::vector<TableSpec>& tables,
                                            const Checkpoint& other) {
  std::vector<TableSpec> same;
  for (const TableSpec& table : tables) {
    const auto& theirs = other.manifest().tables;
    const auto it = std::ranges::find(theirs, table.name, &TableSpec::name);
    if (it == theirs.end()) continue;
    const std::string difference = ShapeDifference(*it, "in " + other.directory, table, "in " + ours.directory);
    if (!difference.empty())
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("table '{}': {}: the other checkpoint cannot be the base", table.name, difference));
    same.push_back(*it);
  }
  return same;
}

Expected<Base> BaseByPath(const Checkpoint& ours, const std::vector<TableSpec>& tables, const std::string& path) {
  auto other = OpenCheckpoint(path);
  if (!other) return std::unexpected(other.error());
  const Manifest& m = ours.manifest();
  const Manifest& base = other->manifest();
  if (other->job_seed != ours.job_seed || other->job_name != ours.job_name)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: is of job '{}' with seed {}, but {} is of '{}' with seed {}", other->directory,
                            other->job_name, other->job_seed, ours.directory, ours.job_name, ours.job_seed));
  if (base.id >= m.id)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("checkpoint {} is not newer than {}: --since needs an older one", m.id.value, base.id.value));
  const auto same = SameTables(ours, tables, *other);
  if (!same) return std::unexpected(same.error());
  const std::size_t length = base.generations.size();
  const std::uint64_t content = ContentOf(base, length, *same);
  if (length < m.generations.size() && ContentOf(m, length, tables) == content)
    return Base{base.id, content, length, std::nullopt};
  if (base.partition_bits != m.partition_bits)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} partitions, but {} has {}: make a full export", other->directory,
                            1u << base.partition_bits, ours.directory, 1u << m.partition_bits));
  const CheckpointId id = base.id;
  return Base{id, content, 0, std::move(*other)};
}

class Exporter {
 public:
  Exporter(const Checkpoint* ours, const ExportOptions* options, serving::ExportWriter* writer)
      : ours_(*ours), options_(*options), writer_(*writer) {}

  Status BeginTable(const TableSpec& table) {
    decoder_.emplace(table);
    return writer_.BeginTable(table, ours_.SaltOf(table), options_.codec);
  }

  // Exports every entry that `ours` reads: all rows, or the changes in the generations after the base.
  Status Whole(const TableSpec& table, ProgressLine* progress) {
    return ForEachRow(ours_.rows.get(), table, [&](const server::StoredRow& row) {
      progress->Add(1);
      return Put(row);
    });
  }

  // Exports the differences from the other checkpoint; reads both in the same order.
  Status Difference(const TableSpec& table, const Checkpoint& base, ProgressLine* progress) {
    const auto& tables = base.manifest().tables;
    const auto before = std::ranges::find(tables, table.name, &TableSpec::name);
    if (before == tables.end()) return Whole(table, progress);
    for (const server::PartitionRun run : PartitionRuns(ours_.manifest())) {
      Side mine{ours_.rows.get(), {}, false}, old{base.rows.get(), {}, false};
      TARN_RETURN_IF_ERROR(mine.Begin(table, run));
      TARN_RETURN_IF_ERROR(old.Begin(*before, run));
      while (mine.has_row || old.has_row) {
        const int order = Compare(mine, old);
        if (order > 0)
          TARN_RETURN_IF_ERROR(writer_.AddRemoved(old.row.partition, old.row.key));
        else if (order < 0 || !SameValues(table, mine.row, old.row))
          TARN_RETURN_IF_ERROR(Put(mine.row));
        if (order <= 0) {
          progress->Add(1);
          TARN_RETURN_IF_ERROR(mine.Next());
        }
        if (order >= 0) TARN_RETURN_IF_ERROR(old.Next());
      }
    }
    return {};
  }

 private:
  struct Side {
    server::CheckpointRows* rows;
    server::StoredRow row;
    bool has_row = false;
    Status Begin(const TableSpec& table, server::PartitionRun run) {
      TARN_RETURN_IF_ERROR(rows->Seek(table, run));
      return Next();
    }
    Status Next() {
      const auto more = rows->Next(&row);
      if (!more) return std::unexpected(more.error());
      has_row = *more;
      return {};
    }
  };

  static int Compare(const Side& mine, const Side& old) {
    if (!mine.has_row || !old.has_row) return mine.has_row ? -1 : 1;
    const std::pair a(mine.row.partition, mine.row.key), b(old.row.partition, old.row.key);
    return a < b ? -1 : b < a ? 1 : 0;
  }

  static bool SameValues(const TableSpec& table, const server::StoredRow& a, const server::StoredRow& b) {
    return std::memcmp(a.words.data(), b.words.data(), LayoutOf(table).value_words * sizeof(std::uint32_t)) == 0;
  }

  Status Put(const server::StoredRow& row) {
    if (row.words.empty()) return writer_.AddRemoved(row.partition, row.key);
    return writer_.Add(row.partition, row.key, decoder_->Decode(row.words).values);
  }

  const Checkpoint& ours_;
  const ExportOptions& options_;
  serving::ExportWriter& writer_;
  std::optional<RowDecoder> decoder_;
};

}  // namespace

std::uint64_t ContentOf(const Manifest& manifest, std::size_t generations, const std::vector<TableSpec>& tables) {
  std::uint64_t hash = manifest.partition_bits;
  const auto& known = manifest.generations[generations - 1].tables;
  for (const TableSpec& table : tables)
    if (known.empty() || std::ranges::find(known, table.id, &CheckpointTable::table) != known.end())
      hash = HashBytes(table.name, hash);
  for (std::size_t i = 0; i < generations; ++i) {
    const Generation& generation = manifest.generations[i];
    hash = HashCombine(hash, generation.id.value);
    for (const CheckpointFile& file : generation.files)
      if (file.seen == 0) hash = HashBytes(fmt::format("{} {} {}", file.name, file.bytes, file.crc32c), hash);
  }
  return hash;
}

Expected<std::string> ExportCheckpoint(const std::string& path, const std::string& out, const ExportOptions& options) {
  auto ours = OpenCheckpoint(path);
  if (!ours) return std::unexpected(ours.error());
  TARN_RETURN_IF_ERROR(CheckOutput(out));
  const auto tables = ChooseTables(ours->manifest(), options.tables);
  if (!tables) return std::unexpected(tables.error());
  std::optional<Base> base;
  if (!options.since.empty()) {
    const auto number = NumberIn(options.since);
    auto found = number ? BaseByNumber(ours->manifest(), *tables, *number) : BaseByPath(*ours, *tables, options.since);
    if (!found) return std::unexpected(found.error());
    base.emplace(std::move(*found));
    if (base->generations > 0) {
      ours = OpenCheckpoint(ours->directory, {.first_generation = base->generations});
      if (!ours) return std::unexpected(ours.error());
    }
  }
  const Manifest& manifest = ours->manifest();
  auto writer =
      serving::ExportWriter::Create(out, {.job = ours->job_name,
                                          .checkpoint = manifest.id,
                                          .clock = manifest.resume_clock,
                                          .content = ContentOf(manifest, manifest.generations.size(), *tables),
                                          .base_checkpoint = base ? base->id : CheckpointId(0),
                                          .base_content = base ? base->content : 0,
                                          .partition_bits = manifest.partition_bits});
  if (!writer) return std::unexpected(writer.error());
  TARN_RETURN_IF_ERROR(VerifyAllFiles(*ours, "verifying"));
  if (base && base->checkpoint) TARN_RETURN_IF_ERROR(VerifyAllFiles(*base->checkpoint, "verifying the base"));
  std::uint64_t entries = 0;
  for (std::size_t g = base ? base->generations : 0; g < manifest.generations.size(); ++g)
    for (const CheckpointFile& file : manifest.generations[g].files) entries += file.rows + file.removed;
  ProgressLine progress("exporting", entries);
  Exporter exporter(&*ours, &options, writer->get());
  for (const TableSpec& table : *tables) {
    TARN_RETURN_IF_ERROR(exporter.BeginTable(table));
    TARN_RETURN_IF_ERROR(base && base->checkpoint ? exporter.Difference(table, *base->checkpoint, &progress)
                                                  : exporter.Whole(table, &progress));
  }
  const auto totals = (*writer)->Finish();
  if (!totals) return std::unexpected(totals.error());
  return fmt::format("{}: {} of checkpoint {}{}: {} rows{}, {}\n", out, Name(options.codec), manifest.id.value,
                     base ? fmt::format(", changes since {}", base->id.value) : "", Count(totals->rows),
                     totals->removed == 0 ? "" : fmt::format(", {} removed", Count(totals->removed)),
                     Bytes(totals->bytes));
}

}  // namespace tarn::inspector
