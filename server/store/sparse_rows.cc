#include "server/store/sparse_rows.h"

namespace tarn::server {

SparseRows::SparseRows(const Table& table, std::uint32_t place, StoreContext* context)
    : value_words_(table.layout().value_words),
      with_life_(table.has_life()),
      index_(table.salt(), context->partition_bits, &context->pages),
      slabs_(&context->arena, table.layout().value_words + table.layout().slot_words),
      resident_(table.resident()),
      place_(place),
      lives_(&context->arena, kLifeWords) {}

void SparseRows::Release() {
  if (resident_ != nullptr) index_.ForEach([this](Key, std::uint32_t number) { resident_->Remove(place_, number); });
  slabs_.Release();
  lives_.Release();
}

std::uint32_t SparseRows::Insert(std::uint64_t hash, Key key) {
  const std::uint32_t number = free_.empty() ? NumberEnd() : free_.back();
  index_.FindOrInsert(hash, key, number);
  if (resident_ != nullptr) resident_->Add(place_, number);
  if (!free_.empty()) {
    free_.pop_back();
    return number;
  }
  if (resident_ != nullptr)
    ++tier_end_;
  else
    slabs_.Add();
  if (with_life_) lives_.Add();
  return number;
}

std::uint32_t SparseRows::Erase(std::uint64_t hash, Key key) {
  const std::uint32_t number = index_.Erase(hash, key);
  if (number == RowIndex::kNone) return number;
  if (resident_ != nullptr) resident_->Remove(place_, number);
  free_.push_back(number);
  return number;
}

}  // namespace tarn::server
