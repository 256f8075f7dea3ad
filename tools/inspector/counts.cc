#include "tools/inspector/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/row_layout.h"
#include "core/table/update_rule.h"
#include "server/store/snapshot.h"

namespace tarn::inspector {

namespace {

std::unexpected<Error> Corrupt(const std::string& origin, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
}

// Whether keys of this table may ever have waited for admission. Tests only life.on, because the admission threshold
// may have changed since.
bool MayWait(const TableSpec& table) { return table.life.on; }

bool HasStates(const TableSpec& table) { return FindUpdateRule(table.optimizer.kind)->partition_floats != 0; }

}  // namespace

void Counts::BeginTable(const TableSpec& table, std::uint64_t salt) {
  table_ = table.id;
  salt_ = salt;
  row_words_ = RowWords(table);
  key_.reset();
}

Status Counts::Add(const server::StoredEntry& entry) {
  const CheckpointFile& file = *entry.file;
  if (!server::MayHold(file, {entry.partition, entry.partition}))
    return Corrupt(file.name, fmt::format("key {}: partition {}, expected a partition in {} to {}", entry.key,
                                          entry.partition.value, file.first.value, file.last.value));
  OfGeneration& generation = generations_[entry.generation];
  Tally& of_file = files_[entry.file];
  Tally& of_table = generation.tables[table_];
  if (file.seen != 0) {
    ++of_file.waiting;
    ++of_table.waiting;
    const std::uint64_t hash = server::SeenHash(salt_, {entry.key, entry.words[0]});
    generation.hash += hash;
    hash_ += hash;
    return {};
  }
  ++(entry.words.empty() ? of_file.removed : of_file.rows);
  ++(entry.words.empty() ? of_table.removed : of_table.rows);
  if (!entry.words.empty() && entry.words.size() != row_words_)
    return Corrupt(file.name,
                   fmt::format("key {}: a row of {} words, expected {}", entry.key, entry.words.size(), row_words_));
  if (!entry.words.empty()) generation.hash += server::RowHash(salt_, entry.key, entry.words);
  AddToStates(entry);
  return {};
}

void Counts::AddState(std::uint64_t salt, PartitionId partition, const server::FragmentState& state) {
  const std::uint64_t hash = server::FragmentHash(salt, partition, state.words);
  generations_.back().hash += hash;
  hash_ += hash;
}

// A row belongs to its generation and to later ones, up to the generation that replaces it.
void Counts::AddToStates(const server::StoredEntry& entry) {
  const bool newest = key_ != entry.key || partition_ != entry.partition;
  const std::size_t end = newest ? generations_.size() : replaced_by_;
  key_ = entry.key;
  partition_ = entry.partition;
  replaced_by_ = entry.generation;
  if (entry.words.empty()) return;
  ++generations_[entry.generation].tables[table_].state_rows;
  if (end < generations_.size()) --generations_[end].tables[table_].state_rows;
  if (!newest) return;
  ++rows_;
  hash_ += server::RowHash(salt_, entry.key, entry.words);
}

Status Counts::Compare(const Manifest& manifest, const std::string& origin) const {
  for (std::size_t g = 0; g < manifest.generations.size(); ++g) {
    const Generation& generation = manifest.generations[g];
    for (const CheckpointFile& file : generation.files) {
      const auto it = files_.find(&file);
      const Tally found = it == files_.end() ? Tally{} : it->second;
      if (found.rows != file.rows || found.removed != file.removed || found.waiting != file.seen)
        return Corrupt(
            origin,
            fmt::format("file {}: manifest: {} rows, {} removed, {} waiting; file: {} rows, {} removed, {} waiting",
                        file.name, file.rows, file.removed, file.seen, found.rows, found.removed, found.waiting));
    }
    if (!generation.tables.empty()) TARN_RETURN_IF_ERROR(CompareTables(manifest, g, origin));
    const bool hash_is_complete =
        g + 1 == manifest.generations.size() || std::ranges::none_of(manifest.tables, [](const TableSpec& table) {
          return MayWait(table) || HasStates(table);
        });
    if (hash_is_complete && generation.state_hash != generations_[g].hash)
      return Corrupt(origin, fmt::format("the hash of generation {} is {:016x}, computed from its files: {:016x}",
                                         generation.id.value, generation.state_hash, generations_[g].hash));
  }
  if (manifest.state_hash && *manifest.state_hash != hash_)
    return Corrupt(origin, fmt::format("the state hash is {:016x}, computed from the files: {:016x}",
                                       *manifest.state_hash, hash_));
  return {};
}

Status Counts::CompareTables(const Manifest& manifest, std::size_t generation, const std::string& origin) const {
  for (const TableSpec& table : manifest.tables) {
    Tally found;
    for (std::size_t g = 0; g <= generation; ++g) {
      const auto it = generations_[g].tables.find(table.id);
      const Tally here = it == generations_[g].tables.end() ? Tally{} : it->second;
      found = {here.rows, here.removed, here.waiting, found.state_rows + here.state_rows};
    }
    const auto& recorded = manifest.generations[generation].tables;
    const auto it = std::ranges::find(recorded, table.id, &CheckpointTable::table);
    const Tally expected = it == recorded.end()
                               ? Tally{}
                               : Tally{it->rows, it->removed, it->seen, static_cast<std::int64_t>(it->state_rows)};
    if (found == expected) continue;
    return Corrupt(origin, fmt::format("table '{}' in generation {}: manifest: {} rows, {} removed, {} waiting, "
                                       "{} rows at the cut; files: {} rows, {} removed, {} waiting, {} rows at the cut",
                                       table.name, manifest.generations[generation].id.value, expected.rows,
                                       expected.removed, expected.waiting, expected.state_rows, found.rows,
                                       found.removed, found.waiting, found.state_rows));
  }
  return {};
}

}  // namespace tarn::inspector
