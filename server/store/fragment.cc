#include "server/store/fragment.h"

#include <bit>

namespace tarn::server {

Fragment::Fragment(const Table& table, PartitionId partition, StoreContext* context)
    : table_(table),
      partition_(partition),
      context_(context),
      cut_(table, partition, marks_, context),
      rule_state_(table.optimizer().rule().partition_floats) {}

Fragment::~Fragment() { std::erase(context_->cut.holding_early, &cut_); }

FragmentState Fragment::State() const {
  FragmentState state{version_, std::vector<std::uint32_t>(rule_state_.size())};
  std::ranges::transform(rule_state_, state.words.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
  return state;
}

void Fragment::SetState(const FragmentState& state) {
  TARN_CHECK(state.words.size() == rule_state_.size(), "the state of another rule");
  version_ = state.version;
  std::ranges::transform(state.words, rule_state_.begin(),
                         [](std::uint32_t bits) { return std::bit_cast<float>(bits); });
}

std::uint64_t Fragment::HashOf(Key key, const RowParts& row) const {
  context_->record.clear();
  table_.AppendRecord(row, &context_->record);
  return RowHash(table_.salt(), key, context_->record);
}

}  // namespace tarn::server
