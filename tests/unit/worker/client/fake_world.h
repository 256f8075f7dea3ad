// For tests of the threaded library: scripted shards in this process and a transport to them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "net/transport.h"
#include "tests/unit/worker/client/fake_fleet.h"
#include "worker/tarn.h"

namespace tarn {

using worker::FakeShard;
using worker::SparseTable;

// State shared by the test and the transport.
struct FakeWorld {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<net::Received> inbox;
  bool woken = false;
  bool welcome_all = true;
  bool says_wait = false;  // answers Joins without a Welcome
  bool deaf = false;       // shards lose received messages
  bool no_memory = false;  // allocation of answers fails
  bool scheduler_dead = false;
  std::vector<DataPosition> ticks;  // positions, as received by shard 0
  std::size_t prefetched = 0;       // keys
  std::map<Peer, std::uint32_t> lanes;
  int connects = 0;
  std::size_t kept = 0;  // messages that were still in the caller's list when it received again
  View view;
  std::vector<FakeShard> shards{2};
  std::string job_text = ToToml(Job{});

  FakeWorld() {
    view.version = ViewVersion(1);
    view.routes.epoch = Epoch(1);
    view.routes.partition_bits = 4;
    view.routes.endpoints = {"fake://0", "fake://1"};
    for (std::uint32_t p = 0; p < 16; ++p) view.routes.owners.push_back(ShardId(p / 8));
    AddTable(SparseTable("users", 3));
  }

  TableSpec AddTable(TableSpec spec) {
    spec.id = TableId(std::uint32_t(view.tables.size()) + 1);
    view.tables.push_back(spec);
    for (FakeShard& shard : shards) shard.tables[spec.id] = spec;
    return spec;
  }

  CreateTable Create(TableSpec spec) {
    const auto there = std::ranges::find(view.tables, spec.name, &TableSpec::name);
    if (there == view.tables.end()) return {AddTable(spec), ErrorCode::kOk, ""};
    spec.id = there->id;
    if (spec == *there) return {spec, ErrorCode::kOk, ""};
    return {spec, ErrorCode::kAlreadyExists, "another shape"};
  }

  void Answer(Peer from, Body body) {
    Message message;
    message.job = 77;
    message.body = std::move(body);
    inbox.push_back({from, std::move(message)});
    changed.notify_all();
  }

  // Advances the minimum clock of shards, which then answer the pulls that wait for it.
  void Release(Clock minimum) {
    const std::lock_guard lock(mutex);
    for (std::uint32_t s = 0; s < shards.size(); ++s) {
      shards[s].minimum = minimum;
      for (Body& body : shards[s].Release()) Answer(ShardPeer(ShardId(s)), std::move(body));
    }
  }

  void FromScheduler(Body body) {
    const std::lock_guard lock(mutex);
    Answer(kSchedulerPeer, std::move(body));
  }
};

class FakeTransport final : public net::Transport {
 public:
  explicit FakeTransport(FakeWorld* world) : world_(world) {}
  Expected<std::string> Bind(const std::string& endpoint) override { return endpoint; }
  Status Connect(Peer peer, const std::string& endpoint) override {
    if (endpoint == "nonsense") return Fail(ErrorCode::kInvalidArgument, "no address");
    const std::lock_guard lock(world_->mutex);
    world_->lanes[peer] = lanes_;
    ++world_->connects;
    return {};
  }
  void SetLanes(std::uint32_t lanes) override { lanes_ = lanes; }

  void Send(Peer to, const Message& message) override {
    const std::lock_guard lock(world_->mutex);
    if (to == kSchedulerPeer) return ToScheduler(message);
    if (world_->deaf) return;
    if (const auto* tick = std::get_if<Tick>(&message.body); tick != nullptr && to == ShardPeer(ShardId(0)))
      world_->ticks.push_back(tick->position);
    if (const auto* soon = std::get_if<Prefetch>(&message.body)) world_->prefetched += soon->keys.count;
    for (Body& body : world_->shards[to.value - 1].Handle(message)) world_->Answer(to, std::move(body));
  }

  std::size_t Receive(std::vector<net::Received>* out, std::size_t max, std::int64_t timeout_us) override {
    std::unique_lock lock(world_->mutex);
    world_->changed.wait_for(lock, std::chrono::microseconds(timeout_us),
                             [&] { return world_->woken || !world_->inbox.empty(); });
    world_->woken = false;
    if (world_->no_memory) throw std::bad_alloc();
    world_->kept += out->size();
    std::size_t taken = 0;
    for (; taken < max && !world_->inbox.empty(); ++taken) {
      out->push_back(std::move(world_->inbox.front()));
      world_->inbox.pop_front();
    }
    return taken;
  }

  void Wake() override {
    const std::lock_guard lock(world_->mutex);
    world_->woken = true;
    world_->changed.notify_all();
  }

  net::TransportCounters counters() const override { return {}; }

 private:
  void ToScheduler(const Message& message) {
    if (world_->scheduler_dead) return;
    if (std::holds_alternative<Heartbeat>(message.body)) {
      world_->Answer(kSchedulerPeer, HeartbeatAck{world_->view.version});
    } else if (const auto* join = std::get_if<Join>(&message.body)) {
      if (world_->welcome_all)
        world_->Answer(kSchedulerPeer,
                       Welcome{join->nonce, 0, Incarnation(5), Clock(0), world_->job_text, "", world_->view});
      else if (world_->says_wait)
        world_->Answer(kSchedulerPeer, HeartbeatAck{});
    } else if (const auto* table = std::get_if<CreateTable>(&message.body)) {
      world_->Answer(kSchedulerPeer, world_->Create(table->spec));
    } else if (const auto* barrier = std::get_if<Barrier>(&message.body)) {
      world_->Answer(kSchedulerPeer, *barrier);
    } else if (const auto* request = std::get_if<LeaseRequest>(&message.body)) {
      LeaseReply reply;
      reply.number = request->number;
      reply.finished = true;
      world_->Answer(kSchedulerPeer, reply);
    } else if (std::holds_alternative<Leave>(message.body)) {
      world_->Answer(kSchedulerPeer, Shutdown{ErrorCode::kOk, "left"});
    }
  }

  FakeWorld* world_;
  std::uint32_t lanes_ = 1;
};

inline Expected<Client> ConnectTo(FakeWorld* world, double timeout_seconds = 10) {
  ConnectOptions options;
  options.scheduler = "fake://scheduler";
  options.timeout_seconds = timeout_seconds;
  return Client::Connect(options, std::make_unique<FakeTransport>(world));
}

}  // namespace tarn
