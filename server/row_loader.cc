#include "server/row_loader.h"

#include <fmt/format.h>

namespace tarn::server {

namespace {

// What differs between the shapes, or "" if rows of one fit the other.
std::string Difference(const TableSpec& saved, const TableSpec& wanted) {
  if (saved.kind != wanted.kind)
    return fmt::format("kind is {} in the checkpoint and {} in the job", Name(saved.kind), Name(wanted.kind));
  if (saved.dim != wanted.dim)
    return fmt::format("dim is {} in the checkpoint and {} in the job", saved.dim, wanted.dim);
  if (saved.kind == TableKind::kDense && saved.rows != wanted.rows)
    return fmt::format("rows is {} in the checkpoint and {} in the job", saved.rows, wanted.rows);
  if (saved.optimizer.kind != wanted.optimizer.kind)
    return fmt::format("optimizer is {} in the checkpoint and {} in the job", Name(saved.optimizer.kind),
                       Name(wanted.optimizer.kind));
  return "";
}

}  // namespace

Status RowLoader::OnTable(const TableSpec& spec) {
  const TableSpec* wanted = rows_->FindTable(spec.name);
  if (wanted == nullptr)
    return Fail(ErrorCode::kNotFound, fmt::format("table '{}' of the checkpoint: not in the job", spec.name));
  if (const std::string difference = Difference(spec, *wanted); !difference.empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("table '{}': {}", spec.name, difference));
  table_ = wanted->id;
  return {};
}

Status RowLoader::OnRows(std::span<const Key> keys, std::span<const float> rows) {
  return rows_->Load(table_, keys, rows);
}

}  // namespace tarn::server
