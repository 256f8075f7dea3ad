#include "server/store/fragment.h"

namespace tarn::server {

Fragment::Fragment(const Table& table, PartitionId partition, StoreContext* context)
    : table_(table), partition_(partition), context_(context), cut_(table, partition, marks_, context) {}

Fragment::~Fragment() { std::erase(context_->cut.holding_early, &cut_); }

std::uint64_t Fragment::HashOf(Key key, const RowParts& row) const {
  context_->record.clear();
  table_.AppendRecord(row, &context_->record);
  return RowHash(table_.salt(), key, context_->record);
}

}  // namespace tarn::server
