#include "worker/train/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/log.h"

namespace tarn::worker {
namespace {

std::uint64_t Word(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Structured bindings name all members, so that adding a member fails to compile here.
void Append(const BatchView& batch, std::vector<std::uint64_t>* key) {
  const auto& [rows, fields, dense_columns, labels, dense, offsets, weights, first, keys] = batch;
  key->insert(key->end(),
              {rows, fields, dense_columns, Word(labels), Word(dense), Word(offsets), Word(weights), first, keys});
}

void Append(const TableView& table, std::vector<std::uint64_t>* key) {
  const auto& [rows, gradients, index, unique, segments] = table;
  key->insert(key->end(), {Word(rows), Word(gradients), Word(index), unique, Word(segments)});
}

void Append(const StepInput& input, std::vector<std::uint64_t>* key) {
  const auto& [batch, views, scale, train] = input;
  Append(batch, key);
  for (const TableView& view : views) Append(view, key);
  key->insert(key->end(), {std::bit_cast<std::uint32_t>(scale), std::uint64_t{train}});
}

}  // namespace

StepOutcome StepGraphs::Run(std::span<const StepInput> parts, const std::function<StepOutcome()>& step) {
  if (off_ || parts.empty()) return step();
  ++steps_;
  Key key = KeyOf(parts);
  Known* const known = Find(key);
  if (known == nullptr) {
    Remember(std::move(key));
    return step();
  }
  known->used = steps_;
  if (!known->recorded && !Record(step, known)) return step();
  known->graph.Launch();
  ++launched_;
  return known->outcome;
}

StepGraphs::Key StepGraphs::KeyOf(std::span<const StepInput> parts) {
  Key key = {kernels::MemoryVersion(stream_)};
  for (const StepInput& part : parts) Append(part, &key);
  return key;
}

StepGraphs::Known* StepGraphs::Find(const Key& key) {
  const auto found = std::ranges::find(known_, key, &Known::key);
  return found == known_.end() ? nullptr : &*found;
}

// Replaces the least recently used entry.
void StepGraphs::Remember(Key key) {
  Known& known =
      known_.size() < kGraphsMax ? known_.emplace_back(&stream_) : *std::ranges::min_element(known_, {}, &Known::used);
  known.key = std::move(key);
  known.recorded = false;
  known.used = steps_;
}

bool StepGraphs::Record(const std::function<StepOutcome()>& step, Known* known) {
  const Status recorded = known->graph.Record([&] { known->outcome = step(); });
  known->recorded = recorded.has_value();
  if (known->recorded) return true;
  if (recorded.error().code == ErrorCode::kUnavailable) return false;  // recorded at its next occurrence
  LogWarning("{}; from now on the operations of each step are launched one by one", recorded.error().message);
  off_ = true;
  return false;
}

}  // namespace tarn::worker
