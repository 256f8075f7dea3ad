// Processes the rows found for a message: copies their values into a reply, or applies the optimizer to them. Owns the
// scratch memory of one store. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"
#include "server/store/row_finder.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

class RowStepper {
 public:
  // Writes the values of a group's rows to `out` in the codec, and for absent rows their initial values.
  void Gather(const Table& table, const RowGroup& group, ValueCodec codec, std::byte* out);

  // Begins a push. Its steps round values stored in 16 bits by key, clock and `push`.
  void BeginPush(const Table& table, Clock clock, std::uint64_t push);
  // Applies one optimizer step to each key of a group that has or gets a row. `gradients`: group.n rows in the codec.
  // Skips and counts gradients that are not finite (rule A5). Reads each byte of `gradients` once, before the first
  // step.
  void Apply(Table* table, const RowGroup& group, ValueCodec codec, const std::byte* gradients, StoreContext* context);

 private:
  bool Decode(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* gradients);
  void FindValues(const Table& table, const RowGroup& group, const float** rows);
  void GatherHalves(const Table& table, ValueCodec codec, std::size_t n, const float* const* rows, std::byte* out);
  static RowParts RowForApply(const Table& table, const RowGroup& group, std::size_t i, Clock clock,
                              const StoreContext& context);
  void StepGroup(const Table& table, const RowGroup& group, const float* gradients, std::uint32_t left_out,
                 const StoreContext& context);
  void Step(const Table& table, std::size_t n, const Key* keys, float** values, float** slots, const float* gradients);
  void StepHalves(const Table& table, std::size_t n, const Key* keys, float** values, float** slots,
                  const float* gradients);

  RuleContext push_;            // the current push
  std::uint64_t rounding_ = 0;  // and its rounding
  std::vector<float> wide_;     // values of one group of 16-bit rows
  std::vector<float> absent_;   // initial values of the absent rows of one group
  std::vector<float> decoded_;  // gradients of one group
};

}  // namespace tarn::server
