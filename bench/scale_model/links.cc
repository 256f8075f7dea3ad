#include "bench/scale_model/links.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace tarn::scale {

void Links::Send(ModelNode* from, Outgoing outgoing, const Extent& extent, bool counts) {
  ModelNode* to =
      from->is_worker ? &nodes_->shard(ShardId(ModelNodes::ShardOf(*from, outgoing.to))) : &nodes_->At(outgoing.to);
  if (counts) Count(outgoing.message.body, extent);
  const Peer sender = from->is_worker ? nodes_->PeerOf(*from) : ShardPeer(ShardId(from->index));
  auto parcel = std::make_shared<Arrived>(sender, std::move(outgoing.message), extent);
  const double out_ns = message_costs_->Of(from->is_worker, Work::kIoSend, extent.AsBytes()) * nodes_->Slow(*from);
  const double in_ns = message_costs_->Of(to->is_worker, Work::kIoReceive, extent.AsBytes()) * nodes_->Slow(*to);
  if (options_->cores != 0)
    PassHost(from, to, out_ns, in_ns, parcel);
  else
    PassNetwork(from, to, out_ns, in_ns, parcel);
}

void Links::Count(const Body& body, const Extent& extent) {
  counters_.messages += extent.copies;
  counters_.bytes += extent.bytes;
  if (std::holds_alternative<Tick>(body) || std::holds_alternative<TickAck>(body)) counters_.ticks += extent.copies;
}

void Links::PassHost(ModelNode* from, ModelNode* to, double out_ns, double in_ns, const Parcel& parcel) {
  const Ns latency = options_->free ? 0 : static_cast<Ns>(costs_->local_latency_ns);
  from->machine.io->Run(out_ns, [this, to, parcel, in_ns, latency] {
    events_->At(events_->now() + latency, [this, to, parcel, in_ns] {
      to->machine.io->Run(in_ns, [this, to, parcel] { deliver_(to, std::move(*parcel)); });
    });
  });
}

void Links::PassNetwork(ModelNode* from, ModelNode* to, double out_ns, double in_ns, const Parcel& parcel) {
  const double gbit = options_->network.gbit_per_second;
  const double per_byte = options_->free || gbit <= 0 ? 0 : 8 / gbit;
  const Extent& extent = parcel->extent;
  const double out_bytes = extent.bytes * (from->is_worker ? 1 : extent.part);
  const double in_bytes = extent.bytes * (to->is_worker ? 1 : extent.part);
  const double ready = from->machine.io->Reserve(double(events_->now()), out_ns);
  const double sent = from->machine.out_wire.Pass(ready, out_bytes, per_byte);
  from->machine.out_wire_ns += out_bytes * per_byte;
  to->machine.in_wire_ns += in_bytes * per_byte;
  const double latency = options_->free ? 0 : options_->network.latency_us * 1000;
  // The first byte may arrive before the last one is sent.
  const double first = std::max(ready, sent - out_bytes * per_byte) + latency;
  events_->At(std::llround(first), [this, to, parcel, in_ns, in_bytes, per_byte] {
    const double in = to->machine.in_wire.Pass(double(events_->now()), in_bytes, per_byte);
    const double done = to->machine.io->Reserve(in, in_ns);
    events_->At(std::llround(done), [this, to, parcel] { deliver_(to, std::move(*parcel)); });
  });
}

}  // namespace tarn::scale
