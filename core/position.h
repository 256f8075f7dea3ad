// From a key to its place: position on the 64-bit line, and the partition that holds the position.
//
// Dense: key * 2^64 / rows + salt, so that neighbours stay neighbours and ranges are even. Sparse: an invertible
// mixer of key ^ salt, so that ranges are even whatever the keys look like and no two keys share a position. The
// salt is the table's: tables do not pile up on one shard.
#pragma once

#include "core/hash.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn {

// Positions of one table. Cheap to copy; make it once per table.
class Positioner {
 public:
  Positioner() = default;
  Positioner(const TableSpec& spec, std::uint64_t salt)
      : dense_(spec.kind == TableKind::kDense), rows_(spec.rows), salt_(salt) {}

  // Dense keys must be below the table's rows.
  Position operator()(Key key) const {
    if (!dense_) return Mix64(key ^ salt_);
    return static_cast<Position>((static_cast<unsigned __int128>(key) << 64) / rows_) + salt_;
  }

  bool dense() const { return dense_; }
  std::uint64_t salt() const { return salt_; }

 private:
  bool dense_ = false;
  std::uint64_t rows_ = 1;
  std::uint64_t salt_ = 0;
};

// Partition of a position when the line is cut into 2^bits equal ranges, bits 0..limits::kPartitionBitsMax.
inline PartitionId PartitionOf(Position position, std::uint32_t bits) {
  return PartitionId(bits == 0 ? 0 : static_cast<std::uint32_t>(position >> (64 - bits)));
}

}  // namespace tarn
