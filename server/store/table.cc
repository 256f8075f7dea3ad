#include "server/store/table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/hash.h"
#include "core/limits.h"
#include "kernels/half_rows.h"
#include "kernels/initialize.h"

namespace tarn::server {

Table::Table(const TableSpec& spec, std::uint64_t job_seed, std::uint32_t partition_bits)
    : spec_(spec),
      salt_(TableSalt(job_seed, spec.name)),
      position_(spec, salt_),
      partition_bits_(partition_bits),
      layout_(LayoutOf(spec)),
      optimizer_(spec.optimizer) {
  if (spec_.life.on) rules_.emplace(spec_.life);
}

void Table::Update(const TableSpec& spec) {
  const bool other_life = spec_.life != spec.life;
  spec_ = spec;
  optimizer_ = kernels::Optimizer(spec.optimizer);
  if (other_life) rules_.emplace(spec_.life);
}

void Table::Initialize(std::span<const Key> keys, float* rows) const {
  if (spec_.row_codec == ValueCodec::kFp32)
    return kernels::InitializeRows(spec_.initializer, salt_, keys, spec_.dim, rows);
  float wide[limits::kRowDimMax];
  for (const Key key : keys) {
    kernels::InitializeRow(spec_.initializer, salt_, key, {wide, spec_.dim});
    rows[layout_.value_words - 1] = 0;  // the padding after an odd last value is zero
    kernels::NearestRow(spec_.row_codec, spec_.dim, wide, reinterpret_cast<std::uint16_t*>(rows));
    rows += layout_.value_words;
  }
}

void Table::AppendRecord(const RowParts& row, std::vector<std::uint32_t>* out) const {
  const std::size_t before = out->size();
  out->resize(before + row_words());
  std::uint32_t* to = out->data() + before;
  const auto append = [&to](const void* from, std::uint32_t words) {
    if (words != 0) std::memcpy(to, from, words * sizeof(std::uint32_t));
    to += words;
  };
  append(row.values, layout_.value_words);
  append(row.slots, layout_.slot_words);
  append(row.life, layout_.life_words);
}

void Table::SetRecord(const std::uint32_t* record, const RowParts& row) const {
  const auto take = [&record](void* to, std::uint32_t words) {
    if (words != 0) std::memcpy(to, record, words * sizeof(std::uint32_t));
    record += words;
  };
  take(row.values, layout_.value_words);
  take(row.slots, layout_.slot_words);
  take(row.life, layout_.life_words);
}

bool Table::Advance(std::uint32_t now) {
  now_ = std::max(now_, now);
  const std::uint32_t boundary = rules_->BoundaryBefore(now_);
  const bool passed = std::exchange(started_, true) && boundary > boundary_;
  boundary_ = boundary;
  return passed && rules_->expires();
}

}  // namespace tarn::server
