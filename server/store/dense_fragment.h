// The rows of a dense table in one partition: a run of keys in two flat arrays, values and slots. The first push or
// load creates all of them. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/store/dense_range.h"
#include "server/store/fragment.h"

namespace tarn::server {

class DenseFragment final : public Fragment {
 public:
  DenseFragment(const Table& table, PartitionId partition, StoreContext* context);

  // The keys of the fragment, whether their rows exist or not.
  const DenseRange& range() const { return range_; }
  // The values of the row of a key in range(). Null while the rows do not exist.
  const float* Values(Key key) const { return values_ == nullptr ? nullptr : Row(range_.IndexOf(key)).values; }
  // The row of a key, to be changed by the caller. Creates the rows if they do not exist.
  RowParts RowForApply(Key key);

  void Release() override;
  std::uint64_t row_count() const override { return values_ == nullptr ? 0 : range_.count; }
  Expected<std::uint64_t> StateHash() const override;
  std::size_t memory_bytes() const override { return marks_.memory_bytes() + cut_.memory_bytes(); }
  Status Load(std::span<const Key> keys, std::span<const std::uint32_t> records) override;
  bool KnowsChanges(bool) const override { return true; }
  void BeginCut() override;
  std::size_t ContinueCut(std::size_t bytes, std::vector<CutRows>* out) override;

 private:
  RowParts Row(std::uint64_t index) const {
    return {values_ + index * table_.dim(), slots_ + index * table_.layout().slot_words, nullptr};
  }
  std::size_t ValueBytes() const { return range_.count * table_.dim() * sizeof(float); }
  std::size_t SlotBytes() const { return range_.count * table_.layout().slot_words * sizeof(float); }
  void Create();

  DenseRange range_;
  float* values_ = nullptr;  // null: the rows do not exist
  float* slots_ = nullptr;
  std::uint64_t cut_next_ = 0;  // index of the next row of the cut
};

}  // namespace tarn::server
