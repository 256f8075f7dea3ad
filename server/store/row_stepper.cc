#include "server/store/row_stepper.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/hash.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/half_rows.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"
#include "server/tier/resident_rows.h"

namespace tarn::server {

namespace {

constexpr std::uint64_t kRounding = 0x726f756e64;

// Number of leading rows that are distinct. Only rows that share a bit with an earlier row are searched for.
std::size_t DistinctRows(std::size_t n, float* const* rows) {
  constexpr int kBitsLog2 = 12;
  std::uint64_t seen[(1 << kBitsLog2) / 64] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bit = Mix64(reinterpret_cast<std::uintptr_t>(rows[i])) >> (64 - kBitsLog2);
    if ((seen[bit / 64] >> (bit % 64) & 1) != 0 && std::find(rows, rows + i, rows[i]) != rows + i) return i;
    seen[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  return n;
}

// Finds the keys of a group whose `values` (gradients or pulled rows) are not finite (rule A5), and counts those that
// `counted` does not contain. Returns a bit for each, by its index in the group.
std::uint32_t SkipNotFinite(const RowGroup& group, const float* values, std::uint32_t counted, Table* table,
                            StoreContext* context) {
  static_assert(kGroupKeys == 32, "a bit of a word for each key");
  const std::uint32_t dim = table->dim();
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < group.n; ++i) {
    if (kernels::AllFinite(dim, values + i * dim)) continue;
    found |= std::uint32_t{1} << i;
    if ((counted >> i & 1) != 0) continue;
    ++context->counters.not_finite;
    table->CountNotFinite(group.keys[i]);
  }
  return found;
}

// Decodes rows and returns whether all values are finite. Floats are copied too, because a worker that shares the
// memory of its push can change a value between the check and the step. Rows that follow others in a frame may be
// unaligned; they are copied to `aligned` first.
bool Decode(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* from, std::vector<float>* to,
            std::vector<float>* aligned) {
  to->resize(kGroupKeys * dim);
  if (reinterpret_cast<std::uintptr_t>(from) % alignof(float) != 0) {
    const std::size_t bytes = n * CodecRowBytes(codec, dim);
    aligned->resize((bytes + sizeof(float) - 1) / sizeof(float));
    std::memcpy(aligned->data(), from, bytes);
    from = reinterpret_cast<const std::byte*>(aligned->data());
  }
  if (codec == ValueCodec::kFp32)
    return kernels::CopyAllFinite(n * dim, reinterpret_cast<const float*>(from), to->data());
  kernels::DecodeRows(codec, dim, n, from, to->data());
  return kernels::AllFinite(n * dim, to->data());
}

}  // namespace

// Addresses of a group's values; for absent rows, of their initial values in absent_.
void RowStepper::FindValues(const Table& table, const RowGroup& group, const float** rows) {
  Key absent[kGroupKeys];
  std::uint32_t absent_at[kGroupKeys];
  std::size_t n_absent = 0;
  for (std::size_t i = 0; i < group.n; ++i) {
    if (table.is_dense()) {
      rows[i] = group.dense(i)->Values(group.keys[i]);
    } else {
      rows[i] = group.rows[i];
      if (rows[i] != nullptr && table.has_life() && group.sparse(i)->IsExpired(group.numbers[i])) rows[i] = nullptr;
      if (rows[i] != nullptr && table.resident() != nullptr)
        table.resident()->CountUse(group.sparse(i)->rows().place(), group.numbers[i]);
    }
    if (rows[i] != nullptr) continue;
    absent_at[n_absent] = static_cast<std::uint32_t>(i);
    absent[n_absent++] = group.keys[i];
  }
  if (n_absent == 0) return;
  absent_.resize(kGroupKeys * table.layout().value_words);
  table.Initialize({absent, n_absent}, absent_.data());
  for (std::size_t j = 0; j < n_absent; ++j) rows[absent_at[j]] = absent_.data() + j * table.layout().value_words;
}

void RowStepper::Gather(const Table& table, const RowGroup& group, ValueCodec codec, std::byte* out) {
  const float* rows[kGroupKeys];
  FindValues(table, group, rows);
  if (table.spec().row_codec == ValueCodec::kFp32)
    kernels::GatherRowsEncoded(codec, table.dim(), group.n, rows, out);
  else
    GatherHalves(table, codec, group.n, rows, out);
}

void RowStepper::GatherHalves(const Table& table, ValueCodec codec, std::size_t n, const float* const* rows,
                              std::byte* out) {
  const std::uint32_t dim = table.dim();
  if (codec == table.spec().row_codec) {
    for (std::size_t i = 0; i < n; ++i) std::memcpy(out + i * dim * 2, rows[i], dim * 2);
    return;
  }
  const std::uint16_t* halves[kGroupKeys];
  for (std::size_t i = 0; i < n; ++i) halves[i] = reinterpret_cast<const std::uint16_t*>(rows[i]);
  wide_.resize(kGroupKeys * dim);
  kernels::WidenRows(table.spec().row_codec, dim, n, halves, wide_.data());
  kernels::EncodeRows(codec, dim, n, wide_.data(), out);
}

void RowStepper::BeginPush(const Table& table, const PushedRows& rows) {
  push_ = {.clock = rows.clock,
           .rate = kernels::LearningRate(table.spec().optimizer, rows.clock),
           .staleness = rows.staleness,
           .worker = rows.worker};
  rounding_ = HashCombine(HashCombine(table.salt() ^ kRounding, rows.clock.value), rows.push);
  pulled_.clear();
  assigns_ = rows.action == PushAction::kAssign;
}

RowParts RowStepper::RowForApply(const Table& table, const RowGroup& group, std::size_t i,
                                 const StoreContext& context) const {
  const Key key = group.keys[i];
  if (table.is_dense()) {
    const RowParts row = group.dense(i)->RowForApply(key);
    PrefetchForWrite(row.slots, table.layout().slot_words);
    PrefetchForWrite(row.values, table.dim());
    return row;
  }
  SparseFragment& fragment = *group.sparse(i);
  std::uint32_t number = group.numbers[i];
  // If the message contains a key twice, its row may have been inserted or removed since.
  if (number == RowIndex::kNone || group.generation != context.insert_generation) number = fragment.Find(key);
  return fragment.RowForApply(key, number, push_.clock, assigns_ ? Creation::kAlways : Creation::kIfAdmitted);
}

void RowStepper::Apply(Table* table, const RowGroup& group, const PushedRows& rows, StoreContext* context) {
  const std::uint32_t dim = table->dim();
  std::uint32_t skipped = 0;
  if (!Decode(rows.codec, dim, group.n, rows.gradients, &decoded_, &aligned_))
    skipped = SkipNotFinite(group, decoded_.data(), 0, table, context);
  if (rows.pulled != nullptr && !Decode(rows.pulled_codec, dim, group.n, rows.pulled, &pulled_, &aligned_))
    skipped |= SkipNotFinite(group, pulled_.data(), skipped, table, context);
  StepGroup(*table, group, skipped, *context);
}

// Skips keys without a row, and those whose bit is in `left_out`.
void RowStepper::StepGroup(const Table& table, const RowGroup& group, std::uint32_t left_out,
                           const StoreContext& context) {
  const std::uint32_t dim = table.dim();
  float* values[kGroupKeys];
  float* slots[kGroupKeys];
  // Whether a row in memory needs only its change mark before the step: no life changes, and no cut needs a copy.
  const bool plain = !table.is_dense() && !table.has_life() && !context.cut.active;
  for (std::size_t i = 0; i < group.n; ++i) {
    if ((left_out >> i & 1) != 0) {
      values[i] = nullptr;
      continue;
    }
    if (plain && group.rows[i] != nullptr) {
      group.sparse(i)->MarkChanged(group.numbers[i]);
      values[i] = group.rows[i];
      slots[i] = values[i] + table.layout().value_words;
      continue;
    }
    const RowParts row = RowForApply(table, group, i, context);
    values[i] = row.values;
    slots[i] = row.slots;
  }
  for (std::size_t i = 0, end = 0; i < group.n; i = end + 1) {
    for (end = i; end < group.n && values[end] != nullptr;) ++end;
    if (end == i) continue;
    const kernels::RowsToStep rows{.dim = dim,
                                   .n = end - i,
                                   .values = values + i,
                                   .slots = slots + i,
                                   .gradients = decoded_.data() + i * dim,
                                   .pulled = pulled_.empty() ? nullptr : pulled_.data() + i * dim,
                                   .partition_state = rule_state_,
                                   .begins_section = std::exchange(begins_section_, false)};
    Step(table, rows, group.keys + i, values + i);
  }
}

// One optimizer step for each row, or its new values. If a 16-bit row occurs twice, the second step uses the result of
// the first.
void RowStepper::Step(const Table& table, const kernels::RowsToStep& rows, const Key* keys, float** values) {
  if (assigns_) return Assign(table, rows, values);
  if (table.spec().row_codec == ValueCodec::kFp32) return table.optimizer().Apply(push_, rows);
  for (std::size_t i = 0, count = 0; i < rows.n; i += count) {
    count = DistinctRows(rows.n - i, values + i);
    kernels::RowsToStep part = rows;
    part.n = count;
    part.slots += i;
    part.gradients += i * rows.dim;
    if (part.pulled != nullptr) part.pulled += i * rows.dim;
    part.begins_section = rows.begins_section && i == 0;
    StepHalves(table, part, keys + i, values + i);
  }
}

// Sets the rows to rows.gradients, which has the assigned values. Rounds 16-bit rows to the nearest number.
void RowStepper::Assign(const Table& table, const kernels::RowsToStep& rows, float** values) const {
  const std::size_t row_bytes = CodecRowBytes(table.spec().row_codec, rows.dim);
  for (std::size_t i = 0; i < rows.n; ++i) {
    const float* from = rows.gradients + i * rows.dim;
    if (table.spec().row_codec == ValueCodec::kFp32)
      std::memcpy(values[i], from, row_bytes);
    else
      kernels::NearestRow(table.spec().row_codec, rows.dim, from, reinterpret_cast<std::uint16_t*>(values[i]));
  }
}

// Distinct rows in 16 bits: they are widened for their step.
void RowStepper::StepHalves(const Table& table, const kernels::RowsToStep& rows, const Key* keys, float** values) {
  std::uint16_t* halves[kGroupKeys];
  float* wide[kGroupKeys];
  std::uint64_t seeds[kGroupKeys];
  wide_.resize(kGroupKeys * rows.dim);
  for (std::size_t i = 0; i < rows.n; ++i) {
    halves[i] = reinterpret_cast<std::uint16_t*>(values[i]);
    wide[i] = wide_.data() + i * rows.dim;
    seeds[i] = HashCombine(rounding_, keys[i]);
  }
  kernels::WidenRows(table.spec().row_codec, rows.dim, rows.n, halves, wide_.data());
  kernels::RowsToStep widened = rows;
  widened.values = wide;
  table.optimizer().Apply(push_, widened);
  kernels::NarrowRows(table.spec().row_codec, rows.dim, rows.n, wide_.data(), seeds, halves);
}

}  // namespace tarn::server
