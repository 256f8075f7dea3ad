// Processes the rows found for a message: copies their values into a reply, or applies the optimizer to them. Owns the
// scratch memory of one store. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "server/store/row_finder.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

// What a push, or a clock that closes, does to the rows of its keys: gradients to apply or, by its action, values to
// assign, or deletions.
struct PushedRows {
  ValueCodec codec = ValueCodec::kFp32;
  const std::byte* gradients = nullptr;  // of each key, in the codec; kAssign: the values, kDelete: unused
  // For rules with needs_pulled: each key's row as it was pulled, in pulled_codec. Null: none.
  ValueCodec pulled_codec = ValueCodec::kFp32;
  const std::byte* pulled = nullptr;
  Clock clock;
  std::uint64_t push = 0;       // distinguishes it from other pushes of that clock, for stochastic rounding to 16 bits
  std::uint64_t staleness = 0;  // as in RuleContext
  WorkerRank worker = kNoWorker;  // kNoWorker: the gradients are a sum over workers
  PushAction action = PushAction::kStep;

  // Skips the first n rows.
  void Skip(std::size_t n, std::uint32_t dim) {
    if (action != PushAction::kDelete) gradients += n * CodecRowBytes(codec, dim);
    if (pulled != nullptr) pulled += n * CodecRowBytes(pulled_codec, dim);
  }
};

class RowStepper {
 public:
  // Writes the values of a group's rows to `out` in the codec, and for absent rows their initial values.
  void Gather(const Table& table, const RowGroup& group, ValueCodec codec, std::byte* out);

  // Begins a push. Key, clock and PushedRows::push seed its stochastic rounding of values stored in 16 bits.
  void BeginPush(const Table& table, const PushedRows& rows);
  // Sets the gradient delay of the push's next sections, and the rule's state in their partition.
  void BeginSections(std::uint64_t delay, std::span<float> rule_state) {
    push_.delay = delay;
    rule_state_ = rule_state;
    begins_section_ = true;
  }
  // Whether the table's rule discards the gradients of these sections.
  bool Discards(const Table& table) const { return table.optimizer().Discards(push_); }
  // Applies one optimizer step to each key of a group that has or gets a row, or sets its values (kAssign). `rows`:
  // from the group's first key on. Skips and counts rows whose gradient, or pulled row, is not finite (rule A5). Reads
  // each byte of the push once, before the first step.
  void Apply(Table* table, const RowGroup& group, const PushedRows& rows, StoreContext* context);

 private:
  void FindValues(const Table& table, const RowGroup& group, const float** rows);
  void GatherHalves(const Table& table, ValueCodec codec, std::size_t n, const float* const* rows, std::byte* out);
  RowParts RowForApply(const Table& table, const RowGroup& group, std::size_t i, const StoreContext& context) const;
  void StepGroup(const Table& table, const RowGroup& group, std::uint32_t left_out, const StoreContext& context);
  void Step(const Table& table, const kernels::RowsToStep& rows, const Key* keys, float** values);
  void StepHalves(const Table& table, const kernels::RowsToStep& rows, const Key* keys, float** values);

  void Assign(const Table& table, const kernels::RowsToStep& rows, float** values) const;

  RuleContext push_;  // the current push
  bool assigns_ = false;
  std::span<float> rule_state_;
  bool begins_section_ = false;  // no step of these sections yet
  std::uint64_t rounding_ = 0;   // seed of the push, for stochastic rounding to 16 bits
  std::vector<float> wide_;      // values of one group of 16-bit rows
  std::vector<float> absent_;    // initial values of the absent rows of one group
  std::vector<float> decoded_;   // gradients of one group
  std::vector<float> pulled_;    // rows of one group as they were pulled; empty: the rule does not need them
  std::vector<float> aligned_;   // encoded rows, as Decode reads them
};

}  // namespace tarn::server
