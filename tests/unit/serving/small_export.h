// Small exports for tests of readers: a sparse and a dense table with any rows.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/position.h"
#include "serving/export_writer.h"

namespace tarn::serving {

constexpr std::uint64_t kTestSeed = 11;
constexpr std::uint32_t kTestBits = 2;

inline TableSpec SparseSpec() {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 3;
  spec.initializer = {InitializerKind::kNormal, 0, 0.5f};
  return spec;
}
inline TableSpec DenseSpec() {
  TableSpec spec;
  spec.id = TableId(2);
  spec.name = "layer";
  spec.kind = TableKind::kDense;
  spec.rows = 10;
  spec.dim = 2;
  return spec;
}

using Rows = std::map<Key, std::vector<float>>;

// The content of one table of an export.
struct TableContent {
  TableSpec spec;
  Rows rows;
  std::set<Key> removed;
  ValueCodec codec = ValueCodec::kFp32;
};

inline Expected<ExportTotals> WriteExport(const std::string& path, const ExportInfo& info,
                                          const std::vector<TableContent>& tables) {
  auto writer = ExportWriter::Create(path, info);
  if (!writer) return std::unexpected(writer.error());
  for (const TableContent& table : tables) {
    const std::uint64_t salt = TableSalt(kTestSeed, table.spec.name);
    TARN_RETURN_IF_ERROR((*writer)->BeginTable(table.spec, salt, table.codec));
    const Positioner position(table.spec, salt);
    std::map<std::pair<PartitionId, Key>, const std::vector<float>*> order;
    for (const auto& [key, values] : table.rows)
      order[{PartitionOf(position(key), info.partition_bits), key}] = &values;
    for (Key key : table.removed) order[{PartitionOf(position(key), info.partition_bits), key}] = nullptr;
    for (const auto& [place, values] : order)
      TARN_RETURN_IF_ERROR(values != nullptr ? (*writer)->Add(place.first, place.second, *values)
                                             : (*writer)->AddRemoved(place.first, place.second));
  }
  return (*writer)->Finish();
}

inline ExportInfo FullInfo() {
  return {.job = "job", .checkpoint = CheckpointId(3), .clock = Clock(30), .content = 77, .partition_bits = kTestBits};
}
inline ExportInfo DeltaInfo(std::uint64_t from, std::uint64_t to) {
  return {.job = "job",
          .checkpoint = CheckpointId(to),
          .clock = Clock(to * 10),
          .content = 74 + to,
          .base_checkpoint = CheckpointId(from),
          .base_content = 74 + from,
          .partition_bits = kTestBits};
}

inline Rows SomeRows(Key count, std::uint32_t dim, float scale) {
  Rows rows;
  for (Key i = 0; i < count; ++i) {
    std::vector<float>& values = rows[i << 40 | i];
    for (std::uint32_t d = 0; d < dim; ++d) values.push_back(scale * float(i) + float(d));
  }
  return rows;
}

}  // namespace tarn::serving
