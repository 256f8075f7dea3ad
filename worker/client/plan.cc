#include "worker/client/plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/partition.h"
#include "kernels/rows.h"

namespace tarn::worker {

void Planner::SetKeys(std::span<const Key> keys) {
  scratch_.Clear(keys.size());
  n_keys_ = n_unique_ = 0;
  AddKeys(keys);
}

void Planner::AddKeys(std::span<const Key> keys) {
  unique_.resize(std::max(unique_.size(), n_unique_ + keys.size()));
  index_.resize(std::max(index_.size(), n_keys_ + keys.size()));
  n_unique_ = kernels::AddUniqueKeys(keys, n_unique_, unique_.data(), index_.data() + n_keys_, scratch_);
  n_keys_ += keys.size();
}

void Planner::Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::span<const Key> keys,
                   Plan* plan, CallerOrder* order) {
  SetKeys(keys);
  Place(table, dim, positioner, plan, order);
}

void Planner::Place(TableId table, std::uint32_t dim, const Positioner& positioner, Plan* plan, CallerOrder* order) {
  TARN_CHECK(plan->placed == nullptr, "a plan that a GPU made must be taken back before it is made again");
  plan->table = table;
  plan->dim = dim;
  Group(positioner, plan);
  if (order != nullptr) NoteOrder(order);
  plan->index.resize(n_keys_);
  for (std::size_t i = 0; i < n_keys_; ++i) plan->index[i] = place_[index_[i]];
}

// index_ numbers unique keys by first occurrence: each new number is the previous maximum plus one.
void Planner::NoteOrder(CallerOrder* order) const {
  order->first.resize(n_unique_);
  order->repeats.clear();
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < n_keys_; ++i) {
    std::uint32_t& first = order->first[place_[index_[i]]];
    if (index_[i] == seen) {
      first = i;
      ++seen;
    } else {
      order->repeats.push_back({i, first});
    }
  }
}

// Orders the unique keys by partition (by first occurrence within one) and records the new index of each.
void Planner::Group(const Positioner& positioner, Plan* plan) {
  const std::size_t n = n_unique_;
  const std::uint32_t partitions = 1u << partition_bits_;
  partition_of_.resize(std::max(partition_of_.size(), n));
  order_.resize(std::max(order_.size(), n));
  place_.resize(std::max(place_.size(), n));
  offsets_.resize(partitions + 1);
  for (std::size_t i = 0; i < n; ++i) partition_of_[i] = PartitionOf(positioner(unique_[i]), partition_bits_).value;
  kernels::GroupByPartition(std::span(partition_of_).first(n), partitions, order_.data(), offsets_.data());
  plan->keys.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    plan->keys[i] = unique_[order_[i]];
    place_[order_[i]] = i;
  }
  plan->runs.clear();
  for (std::uint32_t p = 0; p < partitions; ++p)
    if (const std::uint32_t count = offsets_[p + 1] - offsets_[p]; count != 0)
      plan->runs.push_back({PartitionId(p), offsets_[p], count});
}

Plan PlanOfAll(const TableSpec& spec, std::uint64_t seed, std::uint32_t partition_bits) {
  std::vector<Key> all(spec.rows);
  std::iota(all.begin(), all.end(), Key{0});
  Plan plan;
  Planner(partition_bits).Make(spec.id, spec.dim, Positioner(spec, TableSalt(seed, spec.name)), all, &plan);
  return plan;
}

Plan PartOf(const Plan& plan, std::span<const std::uint32_t> places) {
  Plan part{.table = plan.table, .dim = plan.dim, .keys = {}, .runs = {}, .index = {}};
  part.keys.reserve(places.size());
  auto run = plan.runs.begin();
  for (const std::uint32_t place : places) {
    while (place >= run->begin + run->count) ++run;
    const auto next = static_cast<std::uint32_t>(part.keys.size());
    if (part.runs.empty() || part.runs.back().partition != run->partition)
      part.runs.push_back({run->partition, next, 0});
    ++part.runs.back().count;
    part.keys.push_back(plan.keys[place]);
  }
  return part;
}

void SumDuplicates(const Plan& plan, std::uint32_t dim, const float* per_occurrence, float* unique) {
  TARN_CHECK(plan.placed == nullptr, "a plan that a GPU made has no index on the host");
  kernels::ReduceByIndex(plan.index.size(), dim, per_occurrence, plan.index.data(), plan.keys.size(), unique);
}

}  // namespace tarn::worker
