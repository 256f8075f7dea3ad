#include "bench/scale_model/measured_clocks.h"

#include <algorithm>

namespace tarn::scale {

MeasuredClocks::Busy MeasuredClocks::BusyOf(const ModelNode& node) {
  const Machine& m = node.machine;
  return {node.compute_ns, m.main->busy_ns(), m.io->busy_ns(), m.out_wire_ns, m.in_wire_ns};
}

void MeasuredClocks::OnBatch() {
  ++batches_;
  if (began_ns_ == 0 && batches_ >= std::uint64_t{options_->workers} * options_->warm_up) {
    began_ns_ = double(events_->now());
    for (const auto& node : nodes_->all()) at_begin_.push_back(BusyOf(*node));
  }
  if (batches_ < std::uint64_t{options_->workers} * (options_->warm_up + options_->clocks)) return;
  ended_ns_ = double(events_->now());
  over_ = true;
}

void MeasuredClocks::AddTo(FleetResult* r) const {
  const double ns = ended_ns_ - began_ns_;
  r->clock_seconds = ns * 1e-9 / options_->clocks;
  for (std::size_t i = 0; i < nodes_->all().size(); ++i) {
    const ModelNode& node = *nodes_->all()[i];
    const Busy busy = BusyOf(node), before = at_begin_[i];
    const double main = (busy.main - before.main) / ns, io = (busy.io - before.io) / ns;
    const double out = busy.out_wire - before.out_wire, in = busy.in_wire - before.in_wire;
    r->link_busiest = std::max({r->link_busiest, out / ns, in / ns});
    if (node.is_worker)
      AddWorker(node, main, io, (busy.compute - before.compute) / ns, r);
    else
      AddShard(node, main, io, r);
  }
  r->worker_waits = std::max(0.0, 1 - r->worker_compute - r->worker_messages);
  r->staleness_mean = StalenessMean();
}

double MeasuredClocks::StalenessMean() const {
  double sum = 0;
  std::uint64_t pulls = 0;
  for (const auto& node : nodes_->all()) {
    if (!node->is_worker) continue;
    const auto& staleness = node->trainer->client().staleness();
    for (std::size_t s = 0; s < staleness.size(); ++s) {
      sum += double(s) * double(staleness[s]);
      pulls += staleness[s];
    }
  }
  return pulls > 0 ? sum / double(pulls) : 0;
}

void MeasuredClocks::AddWorker(const ModelNode& node, double main, double io, double compute, FleetResult* r) const {
  r->worker_compute += compute / options_->workers;
  r->worker_messages += (main - compute) / options_->workers;
  r->worker_io += io / options_->workers;
  r->repeats += node.trainer->client().counters().repeats;
}

void MeasuredClocks::AddShard(const ModelNode& node, double main, double io, FleetResult* r) const {
  r->server_busy += main / nodes_->shards();
  r->server_io += io / nodes_->shards();
  r->server_busiest = std::max(r->server_busiest, main);
  const server::ShardCounters& c = node.shard->counters();
  r->refused += c.refused_epoch + c.refused_fenced + c.refused_other;
}

}  // namespace tarn::scale
