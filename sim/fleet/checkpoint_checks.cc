#include "sim/fleet/checkpoint_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "server/store/store.h"
#include "sim/sim_blobs.h"

namespace tarn::sim {
namespace {

ProgramState ProgramStateIn(const Buffer& bytes) {
  ProgramState state;
  TARN_CHECK(bytes.size() == sizeof(state), "a saved state has the size that SimWorker saves");
  std::memcpy(&state, bytes.data(), sizeof(state));
  return state;
}

}  // namespace

std::map<Key, float> ValuesIn(const SimDisk& disk, const ResumePoint& point) {
  std::map<Key, float> values;
  const auto* generations = disk.files.Find(point.directory);
  const auto restored = Restore(disk, point.directory, point.manifest);
  if (generations == nullptr || !restored) return values;
  const TableSpec* counts = (*restored)->FindTable("counts");
  if (counts == nullptr) return values;
  for (const auto& [id, parts] : *generations)
    for (const auto& [shard, snapshot] : parts)
      for (const server::TableRows& table : snapshot->tables)
        for (const server::PartitionRows& partition : table.partitions)
          if (table.spec.name == "counts")
            for (const Key key : partition.keys) values[key] = (*restored)->Values(counts->id, key).value()[0];
  return values;
}

void CheckCheckpoint(const Scenario& scenario, const SimDisk& disk, const ResumePoint& point, Oracle* oracle) {
  const std::map<Key, float> values = ValuesIn(disk, point);
  if (scenario.CutsAtClock()) oracle->CheckCutData(point.manifest);
  for (Key key : oracle->Keys()) {
    const auto it = values.find(key);
    const float value = it == values.end() ? 0 : it->second;
    if (scenario.CutsAtClock())
      oracle->CheckCutValue(point.manifest.resume_clock, key, value);
    else
      oracle->CheckCopiedValue(point.manifest, key, value);
  }
}

void CheckBlobs(FleetContext& context, const ResumePoint& point) {
  const Scenario& scenario = context.scenario;
  if (!scenario.top_k) return;
  const Clock cut = point.manifest.resume_clock;
  const auto in_step = [](const ConsistencySpec& spec) { return spec.mode == ConsistencyMode::kBsp; };
  const bool exact = in_step(scenario.job.consistency) && in_step(scenario.counts) && in_step(scenario.layer);
  for (const WorkerEntry& entry : context.processes.scheduler()->view().workers) {
    if (entry.state != WorkerState::kLive || entry.join >= cut || !scenario.CutsAtClock()) continue;
    const auto blob = std::ranges::find(point.manifest.blobs, entry.rank, &WorkerBlob::rank);
    if (blob == point.manifest.blobs.end() || blob->incarnation != entry.incarnation)
      context.oracle.Fail(fmt::format("{}: the state of worker {} is missing", point.directory, entry.rank.value));
  }
  for (const WorkerBlob& blob : point.manifest.blobs) {
    const auto stored = ReadStored(context.disk, point.directory, point.manifest, blob);
    if (!stored) {
      context.oracle.Fail(stored.error().message);
      continue;
    }
    const auto* expected = context.oracle.residuals().At(blob.incarnation, cut);
    if (exact && expected != nullptr && *expected != stored->residuals)
      context.oracle.Fail(fmt::format(
          "{}: worker {} had {} residual counts at clock {}, but the checkpoint has {} different ones, of clock {}",
          point.directory, blob.rank.value, expected->size(), cut.value, stored->residuals.size(),
          stored->clock.value));
  }
}

void CheckProgramStates(FleetContext& context, const ResumePoint& point) {
  const Scenario& scenario = context.scenario;
  if (!scenario.program_state) return;
  const ProgramStates& programs = context.oracle.programs();
  // With residuals, checkpoints contain state of workers even before the scheduler knows of the programs.
  const bool residuals = std::ranges::any_of(scenario.job.tables | std::views::values,
                                             [](const TableOverride& own) { return KeepsResiduals(own.push_codec); });
  const bool at_clock = scenario.CutsAtClock() || (scenario.MayCutAtClock() && !residuals);
  const Clock cut = point.manifest.resume_clock;
  for (const WorkerBlob& blob : point.manifest.blobs) {
    const auto stored = ReadStored(context.disk, point.directory, point.manifest, blob);
    if (!stored || !blob.program_state) {  // without state: allowed if the program began after the order
      const ProgramState* state = programs.At(blob.incarnation, cut);
      if (!stored) context.oracle.Fail(stored.error().message);
      if (at_clock && state != nullptr && state->batches > 0)
        context.oracle.Fail(
            fmt::format("{}: the state of the program of worker {} is missing", point.directory, blob.rank.value));
      continue;
    }
    const ProgramState state = ProgramStateIn(stored->program);
    const ProgramState* then = programs.At(blob.incarnation, stored->clock);
    if (then == nullptr || *then != state)
      context.oracle.Fail(fmt::format("{}: the program of worker {} has {} batches, which it did not have at clock {}",
                                      point.directory, blob.rank.value, state.batches, stored->clock.value));
    then = programs.At(blob.incarnation, cut);
    if (at_clock && (then == nullptr || then->batches != state.batches))
      context.oracle.Fail(fmt::format("{}: the program of worker {} has {} batches, but {} at clock {} of the tables",
                                      point.directory, blob.rank.value, state.batches,
                                      then == nullptr ? 0 : then->batches, cut.value));
  }
}

void CheckDrainedStates(FleetContext& context, const ResumePoint& point) {
  const DataState& data = point.manifest.data;
  for (const WorkerBlob& blob : point.manifest.blobs) {
    const auto stored = ReadStored(context.disk, point.directory, point.manifest, blob);
    if (!stored || !blob.program_state) continue;
    const ProgramState state = ProgramStateIn(stored->program);
    if (state.batches == 0 || state.epoch != data.epoch || data.trained.empty()) continue;
    const std::uint64_t trained = data.trained.at(state.first_row / data.split_rows);
    if (trained != state.rows)
      context.oracle.Fail(
          fmt::format("{}: the program of worker {} has trained {} rows of the lease at row {}, and the "
                      "checkpoint counts {}",
                      point.directory, blob.rank.value, state.rows, state.first_row, trained));
  }
}

void TakeBlobs(FleetContext& context, const ResumePoint& point) {
  for (const WorkerBlob& blob : point.manifest.blobs) {
    const auto stored = ReadStored(context.disk, point.directory, point.manifest, blob);
    if (!stored) {
      context.oracle.Fail(stored.error().message);
      continue;
    }
    context.oracle.residuals().Put(blob.rank, stored->residuals);
    context.oracle.programs().PutSaved(blob.rank, stored->program);
  }
}

}  // namespace tarn::sim
