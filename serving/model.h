// Parameters for serving: a full export and the deltas applied to it. Any thread may look up, but not during Apply. To
// update without a pause, open a second Model from the same files, apply the delta to it, and swap the two.
//
//   auto model = Model::Open("model.tarn");
//   model->Apply("delta-12.tarn");
//   auto users = model->FindTable("users");
//   model->Lookup(*users, keys, values, found);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "serving/export_file.h"

namespace tarn::serving {

class Model {
 public:
  // kInvalidArgument if the file is a delta; else as ExportFile::Open.
  static Expected<Model> Open(const std::string& path, ExportFile::Options options = {});

  // Applies a delta. kInvalidArgument: not a delta, or a delta for another state or other tables. kCorrupt: the dim of
  // a table differs from before. Else as ExportFile::Open. After an error the model is unchanged.
  Status Apply(const std::string& path, ExportFile::Options options = {});

  CheckpointId checkpoint() const { return layers_.back().info().checkpoint; }
  std::size_t deltas() const { return layers_.size() - 1; }

  struct Table {
    std::uint32_t dim = 0;
    std::vector<const ExportTable*> layers;  // oldest first; null: the file does not have the table
  };
  // Finds a table; valid until the next Apply. kNotFound lists the existing tables.
  Expected<Table> FindTable(std::string_view name) const;

  // Writes the rows of `keys` to `values` (keys.size() x dim floats), and to `found` (one per key) whether the key has
  // a row. Keys without a row get zeros.
  void Lookup(const Table& table, std::span<const Key> keys, std::span<float> values, std::span<bool> found) const;

 private:
  std::vector<ExportFile> layers_;  // the full export first
};

}  // namespace tarn::serving
