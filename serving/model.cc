#include "serving/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::serving {

Expected<Model> Model::Open(const std::string& path, ExportFile::Options options) {
  auto file = ExportFile::Open(path, options);
  if (!file) return std::unexpected(file.error());
  if (file->is_delta())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a delta against checkpoint {}; open the full export of that checkpoint first", path,
                            file->info().base_checkpoint.value));
  Model model;
  model.layers_.push_back(std::move(*file));
  return model;
}

Status Model::Apply(const std::string& path, ExportFile::Options options) {
  auto file = ExportFile::Open(path, options);
  if (!file) return std::unexpected(file.error());
  const ExportInfo& here = layers_.back().info();
  const ExportInfo& there = file->info();
  if (!file->is_delta())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: a full export, expected a delta; open it instead", path));
  if (there.base_content != here.content)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: applies to checkpoint {} ({:016x}), but the model is at checkpoint {} ({:016x}){}",
                            path, there.base_checkpoint.value, there.base_content, here.checkpoint.value, here.content,
                            there.base_checkpoint == here.checkpoint
                                ? "; the checkpoints have the same number but come from different runs or table sets"
                                : ""));
  for (const ExportTable& table : file->tables())
    for (const ExportFile& layer : layers_) {
      const ExportTable* before = layer.FindTable(table.name);
      if (before != nullptr && before->dim != table.dim)
        return Fail(ErrorCode::kCorrupt, fmt::format("{}: table '{}' has rows of {} values, expected {} as before",
                                                     path, table.name, table.dim, before->dim));
    }
  layers_.push_back(std::move(*file));
  return {};
}

Expected<Model::Table> Model::FindTable(std::string_view name) const {
  Table table;
  std::string known;
  for (const ExportFile& layer : layers_) {
    const ExportTable* found = layer.FindTable(name);
    table.layers.push_back(found);
    if (found != nullptr) table.dim = found->dim;
    for (const ExportTable& other : layer.tables())
      if (known.find("'" + other.name + "'") == std::string::npos)
        known += (known.empty() ? "'" : ", '") + other.name + "'";
  }
  if (table.dim == 0)
    return Fail(ErrorCode::kNotFound,
                fmt::format("no table '{}'; the tables are {}", name, known.empty() ? "none" : known));
  return table;
}

void Model::Lookup(const Table& table, std::span<const Key> keys, std::span<float> values,
                   std::span<bool> found) const {
  TARN_CHECK(values.size() == keys.size() * table.dim && found.size() == keys.size(), "room for each key");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::span<float> out = values.subspan(i * table.dim, table.dim);
    found[i] = false;
    // The newest layer with the key decides.
    for (std::size_t l = layers_.size(); l-- > 0;) {
      if (table.layers[l] == nullptr) continue;
      const ExportFile::Found hit = layers_[l].Find(*table.layers[l], keys[i]);
      if (hit.row) {
        DecodeValues(table.layers[l]->codec, *hit.row, out);
        found[i] = true;
      }
      if (hit.row || hit.removed) break;
    }
    if (!found[i]) std::ranges::fill(out, 0.0f);
  }
}

}  // namespace tarn::serving
