// Puts the rows of a checkpoint into a row store: checks each table's shape against the one that the job has now
// (rule K5), by name, since ids may differ, and leaves out what the store does not own.
#pragma once

#include <span>

#include "server/checkpoint/checkpoint_store.h"
#include "server/store/store.h"

namespace tarn::server {

class RowLoader : public RowSink {
 public:
  // Of tables that `rows` does not have: kEmpty where they came after this shard's part was cut, while others still
  // wrote theirs. The manifest names them, and has no rows of them that this shard owns.
  enum class Unknown { kRefused, kEmpty };

  // `rows` has the tables of the job and outlives the loader.
  explicit RowLoader(Store* rows, Unknown unknown = Unknown::kRefused) : rows_(rows), unknown_(unknown) {}

  // What the store owns; everything if it is cut into another number of partitions than the checkpoint.
  bool Wants(PartitionId partition, std::uint32_t partition_bits) const override;
  // kInvalidArgument, naming the table and what differs; kNotFound if there must be such a table and is none.
  Status OnTable(const TableSpec& spec) override;
  Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) override;
  Status OnRemoved(std::span<const Key> keys) override;
  Status OnSeen(std::span<const Seen> seen) override;
  // Of a checkpoint with another number of partitions it is dropped: versions and states of rules begin anew.
  Status OnState(PartitionId partition, std::uint32_t partition_bits, const FragmentState& state) override;

 private:
  Status CheckKnown() const;

  Store* rows_;
  Unknown unknown_;
  bool known_ = false;  // the table at hand
  TableId table_;
};

}  // namespace tarn::server
