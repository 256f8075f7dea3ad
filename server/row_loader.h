// Puts the rows of a checkpoint into a row store: checks each table's shape against the one that the job has now
// (rule K5), by name, since ids may differ, and leaves out what the store does not own.
#pragma once

#include <span>

#include "server/checkpoint_store.h"
#include "server/row_store.h"

namespace tarn::server {

class RowLoader : public RowSink {
 public:
  // `rows` has the tables of the job and outlives the loader.
  explicit RowLoader(RowStore* rows) : rows_(rows) {}

  // What the store owns; everything if it is cut into another number of partitions than the checkpoint.
  bool Wants(PartitionId partition, std::uint32_t partition_bits) const override;
  // kInvalidArgument, naming the table and what differs; kNotFound if the job has no such table.
  Status OnTable(const TableSpec& spec) override;
  Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) override;
  Status OnRemoved(std::span<const Key> keys) override;
  Status OnSeen(std::span<const Seen> seen) override;

 private:
  RowStore* rows_;
  TableId table_;
};

}  // namespace tarn::server
