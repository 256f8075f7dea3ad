#include "tools/inspector/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/position.h"
#include "kernels/elementwise.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

constexpr std::size_t kShownMax = 8;  // numbers shown per row

struct Answer {
  Key key = 0;
  bool found = true;
  double norm = 0;
  std::optional<std::uint32_t> last;
  std::optional<float> score;
  std::vector<float> values, slots;
};

double NormOf(std::span<const float> values) { return std::sqrt(kernels::SquaredNorm(values.size(), values.data())); }

// Order key: NaNs first, because they are usually searched for, then the largest norms.
double ByNorm(std::span<const float> values) {
  const double norm = NormOf(values);
  return std::isnan(norm) ? -std::numeric_limits<double>::infinity() : -norm;
}

Answer AnswerOf(Key key, const DecodedRow& row) {
  return {key,
          true,
          NormOf(row.values),
          row.last,
          row.score,
          {row.values.begin(), row.values.end()},
          {row.slots.begin(), row.slots.end()}};
}

Expected<TableSpec> TheTable(const Manifest& manifest, const std::string& name) {
  const auto tables = ChooseTables(manifest, name.empty() ? std::vector<std::string>() : std::vector{name});
  if (!tables) return std::unexpected(tables.error());
  if (tables->size() == 1) return tables->front();
  std::string known;
  for (const TableSpec& table : *tables) known += (known.empty() ? "" : ", ") + table.name;
  return Fail(ErrorCode::kInvalidArgument,
              tables->empty() ? std::string("the checkpoint has no tables") : "--table is required: one of " + known);
}

// The partitions of the keys, in order of the keys.
Expected<std::vector<PartitionId>> PartitionsOf(const Checkpoint& checkpoint, const TableSpec& table,
                                                const std::vector<Key>& keys) {
  const Positioner position(table, checkpoint.SaltOf(table));
  std::vector<PartitionId> partitions;
  for (const Key key : keys) {
    if (table.kind == TableKind::kDense && key >= table.rows)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("key {}: table '{}' has the keys 0 to {}", key, table.name, table.rows - 1));
    partitions.push_back(PartitionOf(position(key), checkpoint.manifest().partition_bits));
  }
  return partitions;
}

Status VerifyPartitions(const Checkpoint& checkpoint, const std::vector<PartitionId>& partitions) {
  return VerifyWantedFiles(checkpoint, "verifying", [&](const CheckpointFile& file) {
    return file.seen == 0 &&
           std::ranges::any_of(partitions, [&](PartitionId p) { return server::MayHold(file, {p, p}); });
  });
}

Expected<std::vector<Answer>> ByKey(const Checkpoint& checkpoint, const TableSpec& table,
                                    const std::vector<Key>& keys) {
  const auto partitions = PartitionsOf(checkpoint, table, keys);
  if (!partitions) return std::unexpected(partitions.error());
  TARN_RETURN_IF_ERROR(VerifyPartitions(checkpoint, *partitions));
  RowDecoder decoder(table);
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const PartitionId partition = (*partitions)[i];
    TARN_RETURN_IF_ERROR(checkpoint.rows->Seek(table, {partition, partition}, keys[i]));
    server::StoredRow row;
    const auto more = checkpoint.rows->Next(&row);
    if (!more) return std::unexpected(more.error());
    if (*more && row.key == keys[i])
      answers.push_back(AnswerOf(row.key, decoder.Decode(row.words)));
    else
      answers.push_back({.key = keys[i], .found = false, .last = {}, .score = {}, .values = {}, .slots = {}});
  }
  return answers;
}

// The first `count` rows by the order key; keeps no more in memory.
Expected<std::vector<Answer>> Best(const Checkpoint& checkpoint, const TableSpec& table, const RowsQuestion& question) {
  std::uint64_t entries = 0;
  for (const Generation& generation : checkpoint.manifest().generations)
    for (const CheckpointFile& file : generation.files) entries += file.rows;
  ProgressLine progress("reading rows", entries);
  RowDecoder decoder(table);
  std::vector<std::pair<double, Answer>> heap;  // the worst of the kept rows first
  auto worse = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.key < b.second.key;
  };
  auto take = [&](const server::StoredRow& row) -> Status {
    progress.Add(1);
    const DecodedRow decoded = decoder.Decode(row.words);
    const double order = question.which == RowsQuestion::Which::kLargest ? ByNorm(decoded.values) : *decoded.last;
    const std::pair place(order, row.key);
    if (heap.size() == question.count && place >= std::pair(heap.front().first, heap.front().second.key)) return {};
    heap.emplace_back(order, AnswerOf(row.key, decoded));
    std::ranges::push_heap(heap, worse);
    if (heap.size() <= question.count) return {};
    std::ranges::pop_heap(heap, worse);
    heap.pop_back();
    return {};
  };
  TARN_RETURN_IF_ERROR(ForEachRow(checkpoint.rows.get(), table, take));
  std::ranges::sort(heap, worse);
  std::vector<Answer> answers;
  for (auto& [order, answer] : heap) answers.push_back(std::move(answer));
  return answers;
}

Expected<std::vector<Answer>> First(const Checkpoint& checkpoint, const TableSpec& table, std::uint32_t count) {
  RowDecoder decoder(table);
  std::vector<Answer> answers;
  for (const server::PartitionRun run : PartitionRuns(checkpoint.manifest())) {
    TARN_RETURN_IF_ERROR(checkpoint.rows->Seek(table, run));
    server::StoredRow row;
    while (answers.size() < count) {
      const auto more = checkpoint.rows->Next(&row);
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      answers.push_back(AnswerOf(row.key, decoder.Decode(row.words)));
    }
  }
  return answers;
}

std::string Numbers(std::span<const float> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < kShownMax; ++i)
    text += fmt::format("{}{:.6g}", i ? " " : "", values[i]);
  if (values.size() > kShownMax) text += fmt::format(" ... ({} in all; --json for all of them)", values.size());
  return text;
}

std::string Text(const TableSpec& table, const std::vector<Answer>& answers, bool slots) {
  if (answers.empty()) return fmt::format("table {}: no rows\n", table.name);
  const bool life = table.life.on;
  std::string text = fmt::format("{:>20}  {:>11}{}  values\n", "key", "norm",
                                 life ? fmt::format("  {:>10}  {:>9}", "last", "score") : "");
  for (const Answer& answer : answers) {
    if (!answer.found) {
      text += fmt::format("{:>20}  no row: a pull returns its initial values\n", answer.key);
      continue;
    }
    text += fmt::format("{:>20}  {:>11.5g}", answer.key, answer.norm);
    if (life) text += fmt::format("  {:>10}  {:>9.4g}", answer.last.value_or(0), double(answer.score.value_or(0)));
    text += "  " + Numbers(answer.values) + "\n";
    if (slots && !answer.slots.empty()) text += fmt::format("{:>20}  slots {}\n", "", Numbers(answer.slots));
  }
  return text;
}

Json Floats(std::span<const float> values) {
  Json json = Json::array();
  for (const float value : values) json.push_back(ShortestNumber(value));
  return json;
}

std::string RowsJson(const TableSpec& table, const std::vector<Answer>& answers) {
  Json rows = Json::array();
  for (const Answer& answer : answers) {
    Json& row = rows.emplace_back(Json{{"key", answer.key}, {"found", answer.found}});
    if (!answer.found) continue;
    row["norm"] = answer.norm;
    if (answer.last) row["last"] = *answer.last;
    if (answer.score) row["score"] = ShortestNumber(*answer.score);
    row["values"] = Floats(answer.values);
    row["slots"] = Floats(answer.slots);
  }
  return JsonText({{"table", table.name}, {"rows", std::move(rows)}}) + "\n";
}

}  // namespace

Expected<std::string> AnswerRows(const std::string& path, const RowsQuestion& question) {
  const auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  const auto table = TheTable(checkpoint->manifest(), question.table);
  if (!table) return std::unexpected(table.error());
  if (question.which == RowsQuestion::Which::kOldest && !table->life.on)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "table '{}' does not store when its rows were pushed; enable it with life = true under [tables.{}] of the "
            "job file",
            table->name, table->name));
  if (question.which != RowsQuestion::Which::kKeys) TARN_RETURN_IF_ERROR(VerifyAllFiles(*checkpoint, "verifying"));
  Expected<std::vector<Answer>> answers;
  switch (question.which) {
    case RowsQuestion::Which::kFirst: answers = First(*checkpoint, *table, question.count); break;
    case RowsQuestion::Which::kKeys: answers = ByKey(*checkpoint, *table, question.keys); break;
    case RowsQuestion::Which::kLargest:
    case RowsQuestion::Which::kOldest: answers = Best(*checkpoint, *table, question); break;
  }
  if (!answers) return std::unexpected(answers.error());
  return question.json ? RowsJson(*table, *answers) : Text(*table, *answers, question.slots);
}

}  // namespace tarn::inspector
