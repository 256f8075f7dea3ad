#include "server/store/dense_fragment.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::server {

namespace {

constexpr std::size_t kInitializedTogether = 32;

}  // namespace

DenseFragment::DenseFragment(const Table& table, PartitionId partition, StoreContext* context)
    : Fragment(table, partition, context),
      range_(DenseRangeOf(table.spec().rows, table.salt(), context->partition_bits, partition)) {}

void DenseFragment::Release() {
  if (values_ == nullptr) return;
  context_->arena.Release(values_, ValueBytes());
  context_->arena.Release(slots_, SlotBytes());
  values_ = slots_ = nullptr;
}

void DenseFragment::Create() {
  auto* values = static_cast<float*>(context_->arena.Allocate(ValueBytes()));
  slots_ = static_cast<float*>(context_->arena.Allocate(SlotBytes()));
  for (std::size_t i = 0; i < range_.count; i += kInitializedTogether) {
    Key keys[kInitializedTogether];
    const std::size_t n = std::min<std::size_t>(kInitializedTogether, range_.count - i);
    for (std::size_t j = 0; j < n; ++j) keys[j] = range_.KeyAt(i + j);
    table_.Initialize({keys, n}, values + i * table_.dim());
  }
  for (std::size_t i = 0; i < range_.count; ++i) table_.InitializeSlots(slots_ + i * table_.layout().slot_words);
  values_ = values;
}

RowParts DenseFragment::RowForApply(Key key) {
  if (values_ == nullptr) {
    Create();
    marks_.SetFirst(range_.count);
  }
  const std::uint64_t index = range_.IndexOf(key);
  const RowParts row = Row(index);
  cut_.KeepFirst(index, key, row, [&row] { return row; });
  marks_.Set(index);
  return row;
}

Expected<std::uint64_t> DenseFragment::StateHash() const {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < row_count(); ++i) sum += HashOf(range_.KeyAt(i), Row(i));
  return sum;
}

Status DenseFragment::Load(std::span<const Key> keys, std::span<const std::uint32_t> records) {
  if (values_ == nullptr) Create();
  for (std::size_t i = 0; i < keys.size(); ++i)
    table_.SetRecord(records.data() + i * table_.row_words(), Row(range_.IndexOf(keys[i])));
  return {};
}

void DenseFragment::BeginCut() {
  if (const CutRequest& request = context_->cut.request; request.counts_changes)
    marks_.BeginCut(request.base_is_previous_cut);
  BeginCutOf(row_count(), {});
  cut_next_ = 0;
}

std::size_t DenseFragment::ContinueCut(std::size_t bytes, std::vector<CutRows>* out) {
  std::size_t cost = 0;
  if (cut_next_ < cut_.rows()) {
    const std::uint64_t rows = std::max<std::size_t>(1, bytes / table_.row_bytes());
    const std::uint64_t end = std::min(cut_.rows(), cut_next_ + rows);
    cost = (end - cut_next_) * kCutLookCost;
    for (; cut_next_ < end; ++cut_next_)
      if (cut_.Keep(cut_next_, range_.KeyAt(cut_next_), Row(cut_next_), out)) cost += table_.row_bytes();
    if (cut_next_ < cut_.rows()) return cost;
  }
  return cost + cut_.HandOutRest(bytes - std::min(bytes, cost), out);
}

}  // namespace tarn::server
