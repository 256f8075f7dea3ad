#include "tools/inspector/npz.h"

#include <fmt/format.h>

#include <functional>

#include "tools/inspector/npz_writer.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

// One array of a table: its name, its type, and the part of a row that it has.
struct Column {
  std::string name, dtype;
  std::uint32_t columns = 0;
  std::function<std::span<const std::byte>(const Key&, const DecodedRow&)> of;
};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::vector<Column> ColumnsOf(const TableSpec& table, bool slots) {
  const RowLayout layout = LayoutOf(table);
  std::vector<Column> columns;
  columns.push_back({"keys", "<u8", 0, [](const Key& key, const DecodedRow&) { return BytesOf(key); }});
  columns.push_back(
      {"values", "<f4", table.dim, [](const Key&, const DecodedRow& row) { return std::as_bytes(row.values); }});
  if (slots && layout.slot_words > 0)
    columns.push_back({"slots", "<f4", layout.slot_words,
                       [](const Key&, const DecodedRow& row) { return std::as_bytes(row.slots); }});
  if (layout.life_words > 0) {
    columns.push_back({"last", "<u4", 0, [](const Key&, const DecodedRow& row) { return BytesOf(*row.last); }});
    columns.push_back({"score", "<f4", 0, [](const Key&, const DecodedRow& row) { return BytesOf(*row.score); }});
  }
  return columns;
}

// An array must be contiguous in the file, so the table is read once per array.
Status WriteColumn(const Checkpoint& checkpoint, const TableSpec& table, const Column& column, NpzWriter* npz,
                   std::uint64_t* rows) {
  std::uint64_t entries = 0;
  for (const Generation& generation : checkpoint.manifest().generations)
    for (const CheckpointFile& file : generation.files) entries += file.rows;
  ProgressLine progress(fmt::format("{}.{}", table.name, column.name), entries);
  TARN_RETURN_IF_ERROR(npz->BeginArray(table.name + "." + column.name, column.dtype, column.columns));
  RowDecoder decoder(table);
  *rows = 0;
  auto take = [&](const server::StoredRow& row) -> Status {
    ++*rows;
    progress.Add(1);
    return npz->Append(column.of(row.key, decoder.Decode(row.words)));
  };
  TARN_RETURN_IF_ERROR(ForEachRow(checkpoint.rows.get(), table, take));
  return npz->EndArray();
}

}  // namespace

Expected<std::string> ConvertToNpz(const std::string& path, const std::string& out, const NpzOptions& options) {
  const auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  TARN_RETURN_IF_ERROR(CheckOutput(out));
  const auto tables = ChooseTables(checkpoint->manifest(), options.tables);
  if (!tables) return std::unexpected(tables.error());
  auto npz = NpzWriter::Create(out);
  if (!npz) return std::unexpected(npz.error());
  TARN_RETURN_IF_ERROR(VerifyAllFiles(*checkpoint, "verifying"));
  std::string arrays_text;
  for (const TableSpec& table : *tables) {
    std::uint64_t rows = 0;
    for (const Column& column : ColumnsOf(table, options.slots)) {
      TARN_RETURN_IF_ERROR(WriteColumn(*checkpoint, table, column, npz->get(), &rows));
      arrays_text += fmt::format("  {}.{}\n", table.name, column.name);
    }
    arrays_text += fmt::format("    {} rows\n", Count(rows));
  }
  const auto bytes = (*npz)->Finish();
  if (!bytes) return std::unexpected(bytes.error());
  return fmt::format("{}: {} of checkpoint {}\n{}", out, Bytes(*bytes), checkpoint->manifest().id.value, arrays_text);
}

}  // namespace tarn::inspector
