#include "bench/scale_model/model_nodes.h"

#include <fmt/format.h>

#include <cmath>

#include "core/hash.h"
#include "core/limits.h"

namespace tarn::scale {
namespace {

constexpr std::uint64_t kSplitBatches = 8;

TrainerModelOptions TrainerOptions(const Job& job, const FleetOptions& options, const Workload& workload) {
  TrainerModelOptions trainer;
  trainer.prefetch = job.train.prefetch;
  // Enough also for workers that are ahead of others.
  trainer.train_rows = std::uint64_t{options.workers} * workload.batch_rows() *
                       (2 * std::uint64_t{options.warm_up + options.clocks} + 4 * kSplitBatches);
  const TableSpec& sparse = workload.tables().front().spec;
  const double shrunk = (sizeof(Key) + 4.0 * sparse.dim) / (sizeof(Key) + 4.0 * workload.wire_dim(sparse.id));
  trainer.client.piece_bytes = static_cast<std::size_t>(double(limits::kPieceBytes) * shrunk);
  trainer.client.credit_bytes = static_cast<std::size_t>(double(limits::kCreditBytes) * shrunk);
  return trainer;
}

}  // namespace

Job ModelJob(Job job, const FleetOptions& options, const Workload& workload) {
  job.fleet.servers = options.servers / options.bundle;
  job.fleet.shards = 1;
  job.fleet.workers = options.workers;
  job.fleet.heartbeat_seconds = 5;
  job.fleet.lease_seconds = 1000;  // no node dies; setup takes no simulated time
  job.storage = {};
  job.storage.durability = Durability::kNone;
  job.train.batch_rows = workload.batch_rows();
  job.train.epochs = 1;
  job.data.split_rows = kSplitBatches * workload.batch_rows();
  return job;
}

ModelNodes::ModelNodes(const Job& job, const FleetOptions* options, const Costs* costs, Workload* workload,
                       Meter* meter, sim::EventQueue* events)
    : options_(options),
      events_(events),
      shards_(job.fleet.servers),
      shared_host_(events, options->cores, costs->busy_slowdown) {
  TrainerModelOptions trainer = TrainerOptions(job, *options, *workload);
  for (std::uint32_t i = 0; i < shards_ + options->workers; ++i) {
    ModelNode& node = *nodes_.emplace_back(std::make_unique<ModelNode>());
    node.is_worker = i >= shards_;
    node.index = node.is_worker ? i - shards_ : i;
    MakeThreads(&node.machine);
    if (!node.is_worker) {
      MakeShard(&node, costs, workload, meter);
      continue;
    }
    trainer.client.rank = node.index;
    trainer.client.nonce = Mix64(options->seed ^ (i + 1)) | 1;
    trainer.first_batch = Mix64(options->seed + i) % workload->batches();
    node.trainer = std::make_unique<TrainerModel>(trainer, workload, meter);
  }
}

void ModelNodes::MakeShard(ModelNode* node, const Costs* costs, const Workload* workload, Meter* meter) {
  server::ShardOptions shard;
  shard.shard = ShardId(node->index);
  shard.nonce = Mix64(options_->seed ^ (node->index + 1)) | 1;
  shard.endpoint = fmt::format("sim://{}", node->index);
  node->store = std::make_unique<server::MemoryCheckpointStore>(&files_, shard.shard, [](const CheckpointPart&) {});
  node->work = std::make_unique<ShardWork>(options_, costs, workload, meter);
  node->shard = std::make_unique<server::Shard>(shard, node->store.get(), node->work.get());
}

void ModelNodes::MakeThreads(Machine* machine) {
  if (options_->cores == 0) machine->own_host = std::make_unique<Host>(events_, 0, 1);
  Host* host = options_->cores == 0 ? machine->own_host.get() : &shared_host_;
  machine->main = std::make_unique<Thread>(host);
  machine->io = std::make_unique<Thread>(host);
  machine->reader = std::make_unique<Thread>(host);
}

std::uint32_t ModelNodes::ShardOf(const ModelNode& from, Peer to) {
  if (!from.is_worker) return from.index;
  return to == kSchedulerPeer ? 0 : static_cast<std::uint32_t>(to.value - ShardPeer(ShardId(0)).value);
}

double ModelNodes::Slow(const ModelNode& node) const {
  const StragglerOptions& s = options_->stragglers;
  if (s.share <= 0) return 1;
  const auto period = s.period_seconds > 0 ? std::uint64_t(double(events_->now()) * 1e-9 / s.period_seconds) : 0;
  SplitMix random(HashCombine(HashCombine(options_->seed, PeerOf(node).value), period));
  const double share = node.is_worker ? s.share : 1 - std::pow(1 - s.share, options_->bundle);
  return random.Unit() < share ? s.times_slower : 1;
}

}  // namespace tarn::scale
