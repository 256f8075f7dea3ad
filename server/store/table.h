// One table of a shard, shared by its fragments: shape, initial values, layout of rows, rules of life, and the current
// time. It outlives the fragments. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/position.h"
#include "core/row_layout.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "kernels/optimizer.h"
#include "server/store/life.h"

namespace tarn::server {

class ResidentRows;

// Addresses of a row's values, slots and life. `values` is null if the row is not in memory; `slots` is then invalid.
// `life` is null if the table has none.
struct RowParts {
  float* values = nullptr;
  float* slots = nullptr;
  RowLife* life = nullptr;
};

class Table {
 public:
  // `spec` is valid (core/table/table_spec.h).
  Table(const TableSpec& spec, std::uint64_t job_seed, std::uint32_t partition_bits);

  const TableSpec& spec() const { return spec_; }
  TableId id() const { return spec_.id; }
  std::uint64_t salt() const { return salt_; }
  std::uint32_t dim() const { return spec_.dim; }
  const RowLayout& layout() const { return layout_; }
  bool is_dense() const { return spec_.kind == TableKind::kDense; }
  bool has_life() const { return layout_.life_words != 0; }
  std::uint32_t row_words() const { return layout_.words(); }
  std::size_t row_bytes() const { return row_words() * sizeof(std::uint32_t); }
  PartitionId PartitionOf(Key key) const { return tarn::PartitionOf(position_(key), partition_bits_); }

  // The table's rows under a memory budget; null: all rows stay in memory, or the table is dense.
  ResidentRows* resident() const { return resident_; }
  void set_resident(ResidentRows* resident) { resident_ = resident; }

  // Replaces the settings by those of `spec`, which has the same shape. The caller must have removed the rows that
  // expired by the old rules.
  void Update(const TableSpec& spec);

  // Writes the initial values of `keys` to `rows`, layout().value_words each.
  void Initialize(std::span<const Key> keys, float* rows) const;
  // Writes the initial slots of one row.
  void InitializeSlots(float* slots) const { optimizer_.InitSlots(spec_.dim, slots); }
  const kernels::Optimizer& optimizer() const { return optimizer_; }

  // Appends the row's record (core/row_layout.h) to `out`.
  void AppendRecord(const RowParts& row, std::vector<std::uint32_t>* out) const;
  // Overwrites the row with a record.
  void SetRecord(const std::uint32_t* record, const RowParts& row) const;

  // Rules R3 to R5; null: the table has no life.
  const LifeRules* rules() const { return rules_ ? &*rules_ : nullptr; }
  // The current time, and the latest boundary at or before it.
  std::uint32_t now() const { return now_; }
  std::uint32_t boundary() const { return boundary_; }
  // Sets the time of a table with rules(); a time before now() changes nothing. Returns whether a boundary was passed
  // at which rows expire. The first call only sets the time.
  bool Advance(std::uint32_t now);

  // Counts gradients that were skipped because they contain an infinity or a NaN (rule A5), and records the key of the
  // last one.
  void CountNotFinite(Key key) {
    ++not_finite_;
    not_finite_key_ = key;
  }
  std::uint64_t not_finite() const { return not_finite_; }
  Key not_finite_key() const { return not_finite_key_; }
  void ForgetNotFinite() { not_finite_ = 0; }

 private:
  TableSpec spec_;
  std::uint64_t salt_;
  Positioner position_;
  std::uint32_t partition_bits_;
  RowLayout layout_;
  kernels::Optimizer optimizer_;
  ResidentRows* resident_ = nullptr;
  std::optional<LifeRules> rules_;
  std::uint32_t now_ = 0, boundary_ = 0;
  bool started_ = false;  // the time was set
  std::uint64_t not_finite_ = 0;
  Key not_finite_key_ = 0;
};

}  // namespace tarn::server
