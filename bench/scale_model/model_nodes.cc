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

// The factor by which a node's threads are slower in a period; 1: not slow. `index`: among all nodes, shards first. A
// bundle is as slow as its slowest server.
double SlowFactor(const FleetOptions& options, bool is_worker, std::uint32_t index, std::uint64_t period) {
  const StragglerOptions& s = options.stragglers;
  if (s.share <= 0 || !(is_worker ? s.workers : s.servers)) return 1;
  SplitMix random(HashCombine(HashCombine(options.seed, kFirstAcceptedPeer + index), period));
  const double share = is_worker ? s.share : 1 - std::pow(1 - s.share, options.bundle);
  return random.Unit() < share ? s.times_slower : 1;
}

bool HasSmallBatches(const FleetOptions& options, std::uint32_t worker) {
  return options.stragglers.batch_share < 1 &&
         SlowFactor(options, true, options.servers / options.bundle + worker, 0) > 1;
}

constexpr std::uint32_t kShare = 1000;  // batch share (train.batch_shares) of a worker that is not slow

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
  job.train.batch_shares.clear();
  if (options.stragglers.batch_share >= 1) return job;
  for (std::uint32_t worker = 0; worker < options.workers; ++worker)
    job.train.batch_shares.push_back(
        HasSmallBatches(options, worker) ? std::uint32_t(kShare * options.stragglers.batch_share) : kShare);
  return job;
}

ModelNodes::ModelNodes(const Job& job, const FleetOptions* options, const Costs* costs, const Workloads& workloads,
                       Meter* meter, sim::EventQueue* events)
    : options_(options),
      events_(events),
      shards_(job.fleet.servers),
      shared_host_(events, options->cores, costs->busy_slowdown) {
  TrainerModelOptions trainer = TrainerOptions(job, *options, *workloads.usual);
  for (std::uint32_t i = 0; i < shards_ + options->workers; ++i) {
    ModelNode& node = *nodes_.emplace_back(std::make_unique<ModelNode>());
    node.is_worker = i >= shards_;
    node.index = node.is_worker ? i - shards_ : i;
    MakeThreads(&node);
    if (!node.is_worker) {
      MakeShard(&node, costs, workloads.usual, meter);
      continue;
    }
    trainer.client.rank = node.index;
    trainer.client.nonce = Mix64(options->seed ^ (i + 1)) | 1;
    Workload* workload = HasSmallBatches(*options, node.index) ? workloads.slow : workloads.usual;
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

void ModelNodes::MakeThreads(ModelNode* node) {
  Machine& machine = node->machine;
  const unsigned cores = options_->cores;
  if (cores == 0) machine.own_host = std::make_unique<Host>(events_, 0, 1);
  Host* host = cores == 0 ? machine.own_host.get() : &shared_host_;
  unsigned core = cores == 0 ? 0 : node->index % cores;
  if (cores != 0 && !node->is_worker) core = cores - 1 - core;
  for (auto* thread : {&machine.main, &machine.io, &machine.reader}) *thread = std::make_unique<Thread>(host, core);
}

std::uint32_t ModelNodes::ShardOf(const ModelNode& from, Peer to) {
  if (!from.is_worker) return from.index;
  return to == kSchedulerPeer ? 0 : static_cast<std::uint32_t>(to.value - ShardPeer(ShardId(0)).value);
}

double ModelNodes::Slow(const ModelNode& node) const {
  const double seconds = options_->stragglers.period_seconds;
  const auto period = seconds > 0 ? std::uint64_t(double(events_->now()) * 1e-9 / seconds) : 0;
  return SlowFactor(*options_, node.is_worker, (node.is_worker ? shards_ : 0) + node.index, period);
}

}  // namespace tarn::scale
