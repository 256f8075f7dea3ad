#include "worker/client/push_combiner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/hash.h"
#include "core/limits.h"
#include "core/position.h"

namespace tarn::worker {
namespace {

std::size_t BytesOf(std::size_t keys, const Buffer& gradients) { return keys * sizeof(Key) + gradients.size(); }

}  // namespace

void PushCombiner::Begin() {
  const Job& job = context_->job_file;
  on_ = job.worker_cache.push_every > 1 ||
        std::ranges::any_of(job.tables, [](const auto& table) { return table.second.worker_cache.push_every > 1; });
  planner_ = std::make_unique<Planner>(context_->view.routes.partition_bits);
}

// The number of clocks whose pushes are combined; 1: none are. Update rules that need the rows as they were
// pulled exclude combining, because a sum of gradients belongs to several pulled rows; codecs with residuals, because
// these are added to every push.
std::uint32_t PushCombiner::ClocksOf(const TableSpec& spec) const {
  const bool may = spec.consistency.mode != ConsistencyMode::kBsp && spec.consistency.apply == ApplyMode::kImmediate &&
                   !NeedsPulled(spec) && !KeepsResiduals(spec.push_codec);
  return may ? WorkerCacheOf(context_->job_file, spec.name).push_every : 1;
}

void PushCombiner::Add(const Plan& plan, const TableSpec& spec, const Buffer& gradients, const PushOrigin& origin,
                       const ClientPushes::What& what) {
  pushes_->Open(what.clock);
  const auto [it, fresh] = groups_.try_emplace(spec.id, Group{spec, origin.seen, {}, {}});
  Group& group = it->second;
  group.seen = std::min(group.seen, origin.seen);
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const auto [version, is_new] = group.versions.try_emplace(plan.runs[i].partition, origin.versions[i]);
    if (!is_new) version->second = std::min(version->second, origin.versions[i]);  // kNoVersion is the largest
  }
  group.parts.push_back({{what.clock, what.done}, plan.keys, gradients});
  bytes_ += BytesOf(plan.keys.size(), gradients);
  due_ = context_->now + kCombinePauseUs;
  if (bytes_ > limits::kGatheredBytesMax) FlushAll();
}

void PushCombiner::OnTick(Clock before, Clock asked) {
  if (groups_.empty()) return;
  if (asked > before + 1) return FlushAll();
  pushes_->BeginGroup();
  due_ = context_->now + kCombinePauseUs;
  for (auto it = groups_.begin(); it != groups_.end();) {
    const Group& group = it->second;
    if (asked < group.parts.front().push.clock + ClocksOf(group.spec)) {
      ++it;
      continue;
    }
    Flush(group);
    it = groups_.erase(it);
  }
  if (groups_.empty()) due_ = kNever;
}

void PushCombiner::SetSeparate(bool separate) {
  separate_ = separate;
  if (separate) FlushAll();
}

void PushCombiner::FlushAll() {
  pushes_->BeginGroup();
  for (const auto& [id, group] : groups_) Flush(group);
  groups_.clear();
  due_ = kNever;
}

void PushCombiner::OnTimer() {
  if (due_ <= context_->now) FlushAll();
}

// A combined push has the clock of its last part, so that the pushes attributed to a dead worker (M3) are complete.
void PushCombiner::Flush(const Group& group) {
  std::vector<ClientPushes::Gathered> gathered;
  std::vector<Key> keys;
  std::size_t gradient_bytes = 0;
  for (const Part& part : group.parts) {
    gathered.push_back(part.push);
    keys.insert(keys.end(), part.keys.begin(), part.keys.end());
    gradient_bytes += part.gradients.size();
    bytes_ -= BytesOf(part.keys.size(), part.gradients);
  }
  Buffer all = Buffer::Allocate(gradient_bytes);
  std::byte* to = all.data();
  for (const Part& part : group.parts) {
    std::memcpy(to, part.gradients.data(), part.gradients.size());
    to += part.gradients.size();
  }
  const TableSpec& spec = group.spec;
  Plan plan;
  planner_->Make(spec.id, spec.dim, Positioner(spec, TableSalt(context_->job_file.job.seed, spec.name)), keys, &plan);
  Buffer sums = Buffer::Allocate(plan.keys.size() * spec.dim * sizeof(float));
  SumDuplicates(plan, spec.dim, all.as<float>().data(), sums.as_mutable<float>().data());
  context_->counters.combined_pushes += gathered.size() - 1;
  PushOrigin origin{group.seen, {}, {}};
  for (const PlanRun& run : plan.runs) origin.versions.push_back(group.versions.at(run.partition));
  const ClientPushes::What what{.clock = gathered.back().clock};
  pushes_->Add(plan, spec, {sums}, origin, what, std::move(gathered));
}

void PushCombiner::FailAll(const Error& error) {
  for (auto& [id, group] : groups_)
    for (Part& part : group.parts) Fail(std::exchange(part.push.done, nullptr), error);
}

std::uint64_t PushCombiner::Hash() const {
  std::uint64_t hash = HashCombine(bytes_, due_ == kNever ? 0 : due_);
  for (const auto& [table, group] : groups_) hash = HashCombine(HashCombine(hash, table.value), group.parts.size());
  return hash;
}

}  // namespace tarn::worker
