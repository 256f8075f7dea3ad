#include "server/checkpoint/row_loader.h"

#include <fmt/format.h>

#include "core/table/table_shape.h"

namespace tarn::server {

bool RowLoader::Wants(PartitionId partition, std::uint32_t partition_bits) const {
  return partition_bits != rows_->partition_bits() || rows_->Owns(partition);
}

Status RowLoader::OnTable(const TableSpec& spec) {
  const TableSpec* wanted = rows_->FindTable(spec.name);
  known_ = wanted != nullptr;
  if (!known_ && unknown_ == Unknown::kEmpty) return {};
  if (!known_)
    return Fail(ErrorCode::kNotFound, fmt::format("table '{}' of the checkpoint: not in the job", spec.name));
  if (auto difference = ShapeDifference(spec, "in the checkpoint", *wanted, "in the job"); !difference.empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("table '{}': {}", spec.name, difference));
  table_ = wanted->id;
  return {};
}

Status RowLoader::CheckKnown() const {
  if (known_) return {};
  return Fail(ErrorCode::kCorrupt, "the checkpoint has rows, counts or states of a table that was added after its cut");
}

Status RowLoader::OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) {
  TARN_RETURN_IF_ERROR(CheckKnown());
  return rows_->Load(table_, keys, rows);
}

Status RowLoader::OnRemoved(std::span<const Key> keys) {
  TARN_RETURN_IF_ERROR(CheckKnown());
  return rows_->Remove(table_, keys);
}

Status RowLoader::OnSeen(std::span<const Seen> seen) {
  TARN_RETURN_IF_ERROR(CheckKnown());
  return rows_->LoadSeen(table_, seen);
}

Status RowLoader::OnState(PartitionId partition, std::uint32_t partition_bits, const FragmentState& state) {
  TARN_RETURN_IF_ERROR(CheckKnown());
  return partition_bits == rows_->partition_bits() ? rows_->LoadState(table_, partition, state) : Status();
}

}  // namespace tarn::server
