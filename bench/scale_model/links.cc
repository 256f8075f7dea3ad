#include "bench/scale_model/links.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace tarn::scale {

void Links::Send(ModelNode* from, std::vector<std::pair<Outgoing, Extent>> outgoing, bool measured) {
  const Peer sender = from->is_worker ? nodes_->PeerOf(*from) : ShardPeer(ShardId(from->index));
  std::vector<Unsent> unsent;
  for (auto& [each, extent] : outgoing) {
    ModelNode* to =
        from->is_worker ? &nodes_->shard(ShardId(ModelNodes::ShardOf(*from, each.to))) : &nodes_->At(each.to);
    unsent.push_back({to, {sender, std::move(each.message), extent}});
  }
  for (Frame& frame : FramesOf(std::move(unsent))) {
    if (measured) {
      Count(frame);
      const double ns = message_costs_->OfFrame(Work::kSend, frame.LoadOf(*from)) * nodes_->Slow(*from);
      if (ns > 0) from->machine.main->Run(ns, [] {});
    }
    Send(from, std::move(frame));
  }
}

void Links::Count(const Frame& frame) {
  counters_.frames += frame.worker.frames;
  counters_.bytes += frame.worker.bytes;
  for (const Arrived& each : frame.messages) {
    const Body& body = each.message.body;
    counters_.messages += each.extent.copies;
    if (std::holds_alternative<Tick>(body) || std::holds_alternative<TickAck>(body))
      counters_.ticks += each.extent.copies;
  }
}

void Links::Send(ModelNode* from, Frame frame) {
  const ModelNode& to = *frame.to;
  frame.messages.front().frame_ns = message_costs_->OfFrame(Work::kReceive, frame.LoadOf(to));
  const double out_ns = message_costs_->Io(Work::kIoSend, frame.LoadOf(*from)) * nodes_->Slow(*from);
  const double in_ns = message_costs_->Io(Work::kIoReceive, frame.LoadOf(to)) * nodes_->Slow(to);
  const auto shared = std::make_shared<Frame>(std::move(frame));
  if (options_->cores != 0)
    PassHost(from, out_ns, in_ns, shared);
  else
    PassNetwork(from, out_ns, in_ns, shared);
}

void Links::PassHost(ModelNode* from, double out_ns, double in_ns, const SharedFrame& frame) {
  const Ns latency = options_->free ? 0 : static_cast<Ns>(costs_->local_latency_ns);
  from->machine.io->Run(out_ns, [this, frame, in_ns, latency] {
    events_->At(events_->now() + latency, [this, frame, in_ns] {
      frame->to->machine.io->Run(in_ns, [this, frame] { deliver_(frame->to, std::move(frame->messages)); });
    });
  });
}

void Links::PassNetwork(ModelNode* from, double out_ns, double in_ns, const SharedFrame& frame) {
  const double gbit = options_->network.gbit_per_second;
  const double per_byte = options_->free || gbit <= 0 ? 0 : 8 / gbit;
  ModelNode* to = frame->to;
  const double out_bytes = frame->LoadOf(*from).bytes, in_bytes = frame->LoadOf(*to).bytes;
  const double ready = from->machine.io->Reserve(double(events_->now()), out_ns);
  const double sent = from->machine.out_wire.Pass(ready, out_bytes, per_byte);
  from->machine.out_wire_ns += out_bytes * per_byte;
  to->machine.in_wire_ns += in_bytes * per_byte;
  const double latency = options_->free ? 0 : options_->network.latency_us * 1000;
  // The first byte may arrive before the last one is sent.
  const double first = std::max(ready, sent - out_bytes * per_byte) + latency;
  events_->At(std::llround(first), [this, frame, in_ns, in_bytes, per_byte] {
    ModelNode* node = frame->to;
    const double in = node->machine.in_wire.Pass(double(events_->now()), in_bytes, per_byte);
    const double done = node->machine.io->Reserve(in, in_ns);
    events_->At(std::llround(done), [this, frame] { deliver_(frame->to, std::move(frame->messages)); });
  });
}

}  // namespace tarn::scale
