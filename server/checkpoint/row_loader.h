// Loads the rows of a checkpoint into a store. Matches tables by name, since their ids may differ, and compares each
// table's shape with that in the job (rule K5). Skips keys of partitions that the store does not own.
#pragma once

#include <span>

#include "server/checkpoint/checkpoint_store.h"
#include "server/store/store.h"

namespace tarn::server {

class RowLoader : public RowSink {
 public:
  // What to do with a table of the manifest that `rows` does not have. kEmpty: accept it if the checkpoint has no rows
  // of it for this shard. This is so if the table was created after the shard cut its part and before the last part was
  // written.
  enum class Unknown { kRefused, kEmpty };

  // `rows` has the tables of the job and outlives the loader.
  explicit RowLoader(Store* rows, Unknown unknown = Unknown::kRefused) : rows_(rows), unknown_(unknown) {}

  // Whether the store owns the partition. True for all if store and checkpoint have different numbers of partitions.
  bool Wants(PartitionId partition, std::uint32_t partition_bits) const override;
  // kInvalidArgument, naming the table and the difference; kNotFound if the store has no such table (kRefused).
  Status OnTable(const TableSpec& spec) override;
  Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) override;
  Status OnRemoved(std::span<const Key> keys) override;
  Status OnSeen(std::span<const Seen> seen) override;
  // Drops the state if the checkpoint has another number of partitions: versions and rules' states then start anew.
  Status OnState(PartitionId partition, std::uint32_t partition_bits, const FragmentState& state) override;

 private:
  Status CheckKnown() const;

  Store* rows_;
  Unknown unknown_;
  bool known_ = false;  // whether the store has the current table
  TableId table_;       // its id in the store
};

}  // namespace tarn::server
