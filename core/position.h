// Maps a key to its 64-bit position, and a position to its partition.
//
// Dense tables: key * 2^64 / rows + salt. Neighbours remain neighbours, and partitions have equal sizes. Sparse tables:
// an invertible mixer of key ^ salt. Partitions have about equal sizes for any keys, and different keys have different
// positions. The salt differs between tables, so that small tables do not all lie on the same shard.
#pragma once

#include "core/hash.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn {

// Computes the positions of one table. Cheap to copy.
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

// The partition of a position, for 2^bits equal ranges of positions. bits: 0..limits::kPartitionBitsMax.
inline PartitionId PartitionOf(Position position, std::uint32_t bits) {
  return PartitionId(bits == 0 ? 0 : static_cast<std::uint32_t>(position >> (64 - bits)));
}

}  // namespace tarn
