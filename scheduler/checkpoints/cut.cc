#include "scheduler/checkpoints/cut.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::scheduler {
namespace {

// Whether the checkpoint must include the worker's blob (rule K9).
bool RequiresBlob(const Cut& cut, const WorkerNode& worker) {
  if (!cut.order.blobs || !worker.live()) return false;
  return cut.order.at_clock ? worker.join <= cut.order.clock : cut.had_workers.contains(worker.incarnation);
}

}  // namespace

std::string_view Name(CutReason reason) {
  switch (reason) {
    case CutReason::kPeriodic: return "periodic";
    case CutReason::kRequested: return "requested";
    case CutReason::kBest: return "best";
    case CutReason::kHash: return "hash";
    case CutReason::kFinal: return "final";
    case CutReason::kStop: return "stop";
  }
  return "unknown";
}

bool PartsMissing(const Cut& cut, std::size_t shards, const Workers& workers) {
  if (cut.shards.size() != shards) return true;
  for (const auto& [id, worker] : workers.all()) {
    if (RequiresBlob(cut, worker) && !cut.blobs.contains(id)) return true;
    const bool fencing = worker.state == WorkerNode::State::kFencing;
    if (fencing && worker.keeps_state && cut.order.blobs && cut.had_workers.contains(id)) return true;
    if (!cut.order.at_clock || cut.workers.contains(id)) continue;
    if (fencing) return true;
    if (worker.live() && worker.join < cut.order.clock) return true;
  }
  return false;
}

std::vector<WorkerBlob> BlobsOf(const Cut& cut, const Workers& workers, Notes* notes) {
  std::vector<WorkerBlob> blobs;
  for (const auto& [id, worker] : workers.all()) {
    if (RequiresBlob(cut, worker))
      blobs.push_back({worker.rank, id, cut.blobs.at(id).files.front(), cut.blobs.at(id).program_state});
    else if (cut.order.blobs && cut.had_workers.contains(id))
      notes->Warn(fmt::format("checkpoint {} does not contain the state of worker {}, which has ended",
                              cut.order.id.value, worker.rank.value));
  }
  std::ranges::sort(blobs, {}, &WorkerBlob::rank);
  return blobs;
}

bool IsVoidedBy(const Cut& cut, const Verdict& verdict) {
  if (cut.writes_manifest) return false;
  if (cut.order.blobs && verdict.keeps_state && cut.had_workers.contains(verdict.worker)) return true;
  if (!cut.order.at_clock || cut.workers.contains(verdict.worker)) return false;
  return verdict.join < cut.order.clock && verdict.end > cut.order.clock;
}

}  // namespace tarn::scheduler
