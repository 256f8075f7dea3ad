// Parameters for serving: a full export and the deltas on top of it. Look-ups are free from any thread; Apply is not,
// beside them: serve from one Model while the next is made of the same files, then swap.
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

  // kInvalidArgument if it is no delta, or goes on top of another state than this or of other tables; a table of
  // another shape than before is kCorrupt. The model is then as it was.
  Status Apply(const std::string& path, ExportFile::Options options = {});

  CheckpointId checkpoint() const { return layers_.back().info().checkpoint; }
  std::size_t deltas() const { return layers_.size() - 1; }

  struct Table {
    std::uint32_t dim = 0;
    std::vector<const ExportTable*> layers;  // oldest first; null: not in that file
  };
  // kNotFound, naming the tables that there are. Valid until the next Apply.
  Expected<Table> FindTable(std::string_view name) const;

  // values: keys.size() x dim floats; found: one a key. A key without a row gets zeros.
  void Lookup(const Table& table, std::span<const Key> keys, std::span<float> values, std::span<bool> found) const;

 private:
  std::vector<ExportFile> layers_;  // the full one first
};

}  // namespace tarn::serving
