// An ordered checkpoint that is not complete, and its missing parts (rules K1, K2, K9). Plain values and functions of
// them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/codec/manifest.h"
#include "core/message.h"
#include "scheduler/membership/membership.h"
#include "scheduler/membership/workers.h"
#include "scheduler/progress/notes.h"

namespace tarn::scheduler {

// The reason of a checkpoint. If several are requested at once, the last in this list is cut.
enum class CutReason : std::uint8_t { kPeriodic, kRequested, kBest, kHash, kFinal, kStop };
std::string_view Name(CutReason reason);

struct Cut {
  CutReason reason = CutReason::kPeriodic;
  CheckpointOrder order;
  Manifest manifest;                // K2: made when ordered, completed at the end; K1: made at the end
  std::uint64_t samples_noted = 0;  // K2: rows trained when it was ordered
  bool at_boundary = false;         // no training since it was ordered: the cut has the whole state
  std::map<ShardId, CheckpointPart> shards;
  std::map<Incarnation, CheckpointPart> workers;
  std::map<Incarnation, CheckpointPart> blobs;  // of workers whose blob is complete (rule K9)
  std::set<Incarnation> had_workers;            // live when it was ordered
  bool writes_manifest = false;                 // all parts have arrived; the cut no longer changes
  bool hash_only() const { return order.directory.empty(); }
};

// Whether parts of shards or workers are missing. A worker that is being fenced counts as missing, because its verdict
// determines its position at the clock of the cut, or voids the cut.
bool PartsMissing(const Cut& cut, std::size_t shards, const Workers& workers);

// The workers' blobs for the manifest (rule K9), by rank. Warns about those whose worker has ended.
std::vector<WorkerBlob> BlobsOf(const Cut& cut, const Workers& workers, Notes* notes);

// Whether the cut can never be complete: the worker ended beyond the clock of the cut without reporting its position at
// that clock, or the cut must contain the state of its program.
bool IsVoidedBy(const Cut& cut, const Verdict& verdict);

}  // namespace tarn::scheduler
