// A checkpoint that is ordered and not complete, and what is missing of it (rules K1, K2, K9). Plain values and
// questions about them.
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

// Why a checkpoint is cut. Of two that are wanted at once, the later in this list is cut.
enum class CutReason : std::uint8_t { kPeriodic, kRequested, kBest, kHash, kFinal, kStop };
std::string_view Name(CutReason reason);

struct Cut {
  CutReason reason = CutReason::kPeriodic;
  CheckpointOrder order;
  Manifest manifest;                // K2: noted at the order; K1: filled in at the end
  std::uint64_t samples_noted = 0;  // K2
  bool at_boundary = false;  // nothing was being trained when it was ordered, nor has been since: it holds all there is
  std::map<ShardId, CheckpointPart> shards;
  std::map<Incarnation, CheckpointPart> workers;
  std::map<Incarnation, CheckpointFile> blobs;  // of workers, whole (rule K9)
  std::set<Incarnation> had_workers;            // that were live when it was ordered
  bool writes_manifest = false;                 // all parts are in, and nothing changes it any more
  bool hash_only() const { return order.directory.empty(); }
};

// Whether parts of shards or of workers have not arrived. A worker that is being fenced counts as missing: its verdict
// will say where it was at the clock of the cut.
bool PartsMissing(const Cut& cut, std::size_t shards, const Workers& workers);

// The states of workers that belong into the manifest (rule K9), by rank. Those of workers that are gone are warned of.
std::vector<WorkerBlob> BlobsOf(const Cut& cut, const Workers& workers, Notes* notes);

// Whether the cut can never be whole: the worker ended beyond the clock of the cut without having reported where it was
// at that clock.
bool IsVoidedBy(const Cut& cut, const Verdict& verdict);

}  // namespace tarn::scheduler
