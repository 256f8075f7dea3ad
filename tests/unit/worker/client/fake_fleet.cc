#include "tests/unit/worker/client/fake_fleet.h"

#include <algorithm>
#include <functional>

#include "kernels/convert.h"
#include "kernels/key_delta.h"
#include "kernels/sparse_values.h"
#include "worker/client/pulled_rows.h"

namespace tarn::worker {

float ValueOf(TableId table, Key key, std::uint32_t column) {
  return float(table.value * 1000 + key % 512) + float(column) * 0.25f;
}

std::vector<Key> KeysOf(const KeyList& list, const Buffer& frame) {
  std::vector<Key> keys(list.count);
  TARN_CHECK(list.codec != KeyCodec::kHeld, "the keys are another message's");
  if (list.codec == KeyCodec::kDelta) {
    TARN_CHECK(kernels::DecodeKeys(keys.size(), {frame.data(), frame.size()}, keys.data()), "sound bytes of keys");
    return keys;
  }
  for (std::uint32_t i = 0; i < list.count; ++i)
    keys[i] = list.codec == KeyCodec::kRange ? list.first_key + i : frame.as<Key>()[i];
  return keys;
}

std::optional<std::vector<Key>> FakeShard::TakeKeys(const KeyList& list, const Buffer& frame) {
  if (list.codec == KeyCodec::kHeld) {
    const auto held = lists.find(list.list);
    if (held == lists.end()) return std::nullopt;
    TARN_CHECK(held->second.size() == list.count && frame.empty(), "a list as it was, and no keys");
    return held->second;
  }
  std::vector<Key> keys = KeysOf(list, frame);
  if (list.list == 0) return keys;
  const auto [held, is_new] = lists.emplace(list.list, keys);
  TARN_CHECK(is_new || held->second == keys, "a number is of one list for ever");
  return keys;
}

PushAck FakeShard::Apply(const Push& push, const Message& message, const std::vector<Key>& keys) {
  PushAck ack{push.request, {}};
  const std::uint32_t dim = tables.at(push.table).dim;
  std::vector<float> values(keys.size() * dim);
  const bool deletes = push.action == PushAction::kDelete;
  if (deletes) {
    TARN_CHECK(message.values.empty(), "a deletion has no values");
  } else if (push.codec == ValueCodec::kTopK) {
    const std::span bytes(message.values.data(), message.values.size());
    TARN_CHECK(kernels::DecodeSparse(values.size(), bytes, values.data()).has_value(), "other values");
  } else {
    const std::size_t pulled = push.pulled ? CodecRowBytes(*push.pulled, dim) : 0;
    TARN_CHECK(message.values.size() == keys.size() * (CodecRowBytes(push.codec, dim) + pulled),
               "values of another size");
    kernels::DecodeRows(push.codec, dim, keys.size(), message.values.data(), values.data());
  }
  std::size_t first = 0;
  for (const Section& section : push.keys.sections) {
    Sequence& mark = watermark[section.partition];
    SectionAck answer{section.partition, section.sequence, ErrorCode::kOk, Sequence(0)};
    if (section.sequence.value > mark.value + 1) {
      answer.code = ErrorCode::kOutOfOrder;
      answer.expected = Sequence(mark.value + 1);
    } else if (section.sequence.value == mark.value + 1) {
      mark = section.sequence;
      const auto key = keys.begin() + std::ptrdiff_t(first);
      const auto value = values.begin() + std::ptrdiff_t(first * dim);
      applied.push_back({section.partition,
                         section.sequence,
                         push.table,
                         push.clock,
                         {key, key + section.count},
                         deletes ? std::vector<float>() : std::vector<float>(value, value + section.count * dim)});
    }
    ack.sections.push_back(answer);
    first += section.count;
  }
  return ack;
}

std::optional<PullReply> FakeShard::Answer(const Parked& parked, Buffer* values) {
  const Pull& pull = parked.pull;
  if (minimum && pull.clock > *minimum) return std::nullopt;
  for (const Section& section : pull.keys.sections)
    if (section.sequence > watermark[section.partition]) return std::nullopt;
  const std::uint32_t dim = tables.at(pull.table).dim;
  std::vector<float> rows;
  for (Key key : parked.keys)
    for (std::uint32_t d = 0; d < dim; ++d) rows.push_back(ValueOf(pull.table, key, d) + shift);
  *values = Buffer::Allocate(parked.keys.size() * CodecRowBytes(pull.codec, dim));
  kernels::EncodeRows(pull.codec, dim, parked.keys.size(), rows.data(), values->data());
  const Clock told = told_minimum.value_or(minimum.value_or(pull.clock));
  return PullReply{pull.request, pull.table,      told,
                   pull.codec,   pull.keys.count, std::vector<Version>(pull.keys.sections.size(), version)};
}

std::vector<Body> FakeShard::Handle(const Message& message, std::vector<Buffer>* values) {
  std::vector<Body> answers;
  const auto answer = [&](Body body) {
    answers.push_back(std::move(body));
    values->push_back({});
  };
  if (const auto* tick = std::get_if<Tick>(&message.body)) {
    ticked = std::max(ticked, tick->clock);
    answer(TickAck{tick->clock});
  } else if (const auto* push = std::get_if<Push>(&message.body)) {
    const auto keys = TakeKeys(push->keys, message.keys);
    answer(keys ? Body(Apply(*push, message, *keys))
                : Body(ErrorReply{push->request, ErrorCode::kUnknownKeys, "", {}}));
  } else if (const auto* both = std::get_if<PushPull>(&message.body)) {
    const auto keys = TakeKeys(both->push.keys, message.keys);
    TARN_CHECK(keys.has_value(), "no test forgets lists with a PushPull under way");
    answer(Apply(both->push, message, *keys));
    Pull pull{both->pull_request, both->push.table, both->pull_clock, both->pull_codec, both->push.keys};
    parked_.push_back({pull, *keys});
  } else if (const auto* pull = std::get_if<Pull>(&message.body)) {
    std::erase_if(parked_, [&](const Parked& p) { return p.pull.request == pull->request; });
    if (auto keys = TakeKeys(pull->keys, message.keys))
      parked_.push_back({*pull, *std::move(keys)});
    else
      answer(ErrorReply{pull->request, ErrorCode::kUnknownKeys, "", {}});
  }
  for (Body& body : Release(values)) answers.push_back(std::move(body));
  return answers;
}

std::vector<Body> FakeShard::Release(std::vector<Buffer>* values) {
  std::vector<Body> answers;
  for (auto it = parked_.begin(); it != parked_.end();) {
    Buffer rows;
    const auto reply = Answer(*it, &rows);
    if (!reply) {
      ++it;
      continue;
    }
    answers.push_back(*reply);
    values->push_back(std::move(rows));
    it = parked_.erase(it);
  }
  return answers;
}

// Rows of a pull, and what came of it.
class FakeFleet::PullRecorder final : public PullSink {
 public:
  PullRecorder(FakeFleet* fleet, RequestId request, const Plan& plan) : fleet_(fleet), request_(request), rows_(plan) {}
  void Rows(const PulledRows& rows) override { rows_.Take(rows); }
  void Done(std::uint64_t staleness) override {
    fleet_->events_.push_back(PullDone{request_, rows_.Release(), staleness});
  }
  void Failed(const Error& error) override { fleet_->events_.push_back(RequestFailed{request_, error}); }

 private:
  FakeFleet* fleet_;
  RequestId request_;
  PlanRows rows_;
};

// What a request with an answer came to.
template <typename Value>
class FakeFleet::Recorder final : public Completion<Value> {
 public:
  using Answered = std::function<FleetEvent(Value)>;
  Recorder(FakeFleet* fleet, RequestId request, Answered answered, std::function<FleetEvent(const Error&)> failed)
      : fleet_(fleet), request_(request), answered_(std::move(answered)), failed_(std::move(failed)) {}
  void Done(Value value) override { fleet_->events_.push_back(answered_(std::move(value))); }
  void Failed(const Error& error) override {
    fleet_->events_.push_back(failed_ ? failed_(error) : RequestFailed{request_, error});
  }

 private:
  FakeFleet* fleet_;
  RequestId request_;
  Answered answered_;
  std::function<FleetEvent(const Error&)> failed_;
};

// `event`, or that the request failed.
template <typename Event>
Completion<>* FakeFleet::Record(Event event) {
  class EventRecorder final : public Completion<> {
   public:
    EventRecorder(FakeFleet* fleet, RequestId request, Event event)
        : fleet_(fleet), request_(request), event_(std::move(event)) {}
    void Done() override { fleet_->events_.push_back(event_); }
    void Failed(const Error& error) override { fleet_->events_.push_back(RequestFailed{request_, error}); }

   private:
    FakeFleet* fleet_;
    RequestId request_;
    Event event_;
  };
  const auto recorder = std::make_shared<EventRecorder>(this, RequestId(requests_), std::move(event));
  recorders_.push_back(recorder);
  return recorder.get();
}

RequestId FakeFleet::Pull(const Plan& plan, Clock use, int priority) {
  const RequestId id = NextRequest();
  const auto recorder = std::make_shared<PullRecorder>(this, id, plan);
  recorders_.push_back(recorder);
  client.Pull(plan, {.use = use, .priority = priority}, recorder.get(), now, &out);
  return id;
}

RequestId FakeFleet::Push(const Plan& plan, Buffer gradients, Clock pulled_clock) {
  const RequestId id = NextRequest();
  client.Push(plan, std::move(gradients), pulled_clock, Record(PushDone{id}), now, &out);
  return id;
}

FakeFleet::PushPullIds FakeFleet::PushPull(const Plan& plan, Buffer gradients, Clock pulled_clock,
                                           const MaybePosition& position) {
  PushPullIds ids;
  ids.push = NextRequest();
  Completion<>* const pushed = Record(PushDone{ids.push});
  ids.pull = NextRequest();
  const auto pulled = std::make_shared<PullRecorder>(this, ids.pull, plan);
  recorders_.push_back(pulled);
  const Clock clock = client.clock() + 1;
  NextRequest();
  client.PushPull(plan, std::move(gradients), pulled_clock, position,
                  {.pushed = pushed, .pulled = pulled.get(), .ticked = Record(TickDone{clock})}, now, &out);
  return ids;
}

void FakeFleet::TickTo(Clock clock, const MaybePosition& position) {
  NextRequest();
  client.TickTo(clock, position, Record(TickDone{clock}), now, &out);
}

void FakeFleet::CreateTable(const TableSpec& spec) {
  const auto recorder = std::make_shared<Recorder<TableSpec>>(
      this, NextRequest(), [spec](TableSpec ready) { return TableReady{spec, std::move(ready)}; },
      [spec](const Error& error) { return TableReady{spec, {}, error.code}; });
  recorders_.push_back(recorder);
  client.CreateTable(spec, recorder.get(), now, &out);
}

void FakeFleet::FindTable(const std::string& name) {
  const auto recorder = std::make_shared<Recorder<TableSpec>>(
      this, NextRequest(), [](TableSpec found) { return TableReady{{}, std::move(found)}; }, nullptr);
  recorders_.push_back(recorder);
  client.FindTable(name, recorder.get());
}

void FakeFleet::Barrier() {
  const RequestId id = NextRequest();
  client.Barrier(Record(BarrierDone{id}), now, &out);
}

void FakeFleet::RequestLeases(LeaseRequest request) {
  const auto recorder = std::make_shared<Recorder<LeaseReply>>(
      this, NextRequest(), [](LeaseReply reply) { return LeasesGranted{std::move(reply)}; }, nullptr);
  recorders_.push_back(recorder);
  client.RequestLeases(std::move(request), recorder.get(), now, &out);
}

void FakeFleet::RequestCheckpoint() {
  const auto recorder = std::make_shared<Recorder<std::string>>(
      this, NextRequest(), [](std::string directory) { return CheckpointWritten{std::move(directory)}; }, nullptr);
  recorders_.push_back(recorder);
  client.RequestCheckpoint(recorder.get(), now, &out);
}

void FakeFleet::Leave() {
  NextRequest();
  client.Leave(Record(LeaveDone{}), now, &out);
}

FakeFleet::FakeFleet(FleetOptions fleet_options)
    : options(std::move(fleet_options)), client(options.client), shards(options.shards) {
  job.fleet.lease_seconds = options.lease_seconds;
  job.fleet.heartbeat_seconds = options.heartbeat_seconds;
  view.version = ViewVersion(1);
  view.routes.epoch = Epoch(1);
  view.routes.partition_bits = options.partition_bits;
  for (std::uint32_t i = 0; i < options.shards; ++i) view.routes.endpoints.push_back("fake://" + std::to_string(i));
  for (std::uint32_t p = 0; p < 1u << options.partition_bits; ++p)
    view.routes.owners.push_back(ShardId(p * options.shards >> options.partition_bits));
  WorkerEntry self;
  self.rank = WorkerRank(0);
  self.incarnation = Incarnation(7);
  self.join = options.start;
  view.workers.push_back(self);
  for (TableSpec& spec : options.tables) {
    spec.id = TableId(std::uint32_t(view.tables.size()) + 1);
    view.tables.push_back(spec);
  }
  for (FakeShard& shard : shards)
    for (const TableSpec& spec : view.tables) shard.tables[spec.id] = spec;
}

Welcome FakeFleet::MakeWelcome() const {
  return {options.client.nonce, 0, Incarnation(7), options.start, ToToml(job), "", view};
}

FakeFleet::~FakeFleet() = default;

void FakeFleet::Run() {
  client.Start(now, &out);
  out.clear();
  FromScheduler(MakeWelcome());
  TARN_CHECK(client.state() == ClientState::kRunning, client.stop_reason().reason.c_str());
}

void FakeFleet::FromScheduler(Body body) {
  Message message;
  message.job = 77;
  message.sender = {Role::kScheduler, 0, Incarnation(1)};
  message.body = std::move(body);
  client.Hear(kSchedulerPeer, std::move(message), now);
  client.Settle(now, &out);
}

void FakeFleet::FromShard(std::uint32_t shard, Body body, Buffer values) {
  Message message;
  message.job = 77;
  message.sender = {Role::kShard, shard, Incarnation(2)};
  message.epoch = view.routes.epoch;
  message.body = std::move(body);
  message.values = std::move(values);
  client.Hear(ShardPeer(ShardId(shard)), std::move(message), now);
  client.Settle(now, &out);
}

void FakeFleet::Wait(TimeUs us) {
  const TimeUs end = now + us;
  while (client.NextTimer() <= end) {
    now = std::max(now, client.NextTimer());
    client.OnTimer(now, &out);
  }
  now = end;
}

std::vector<Message> FakeFleet::TakeSent(Peer to) {
  std::vector<Message> taken;
  for (auto it = out.begin(); it != out.end();) {
    if (it->to == to) {
      taken.push_back(std::move(it->message));
      it = out.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

void FakeFleet::Exchange() {
  for (bool busy = true; busy;) {
    busy = false;
    for (std::uint32_t i = 0; i < shards.size(); ++i) {
      for (const Message& message : TakeSent(ShardPeer(ShardId(i)))) {
        if (lose && lose(message)) continue;
        busy = true;
        std::vector<Buffer> values;
        std::vector<Body> bodies = shards[i].Handle(message, &values);
        for (std::size_t k = 0; k < bodies.size(); ++k) {
          Message answer;
          answer.body = bodies[k];
          if (lose && lose(answer)) continue;
          FromShard(i, std::move(bodies[k]), std::move(values[k]));
        }
      }
      std::vector<Buffer> values;
      std::vector<Body> bodies = shards[i].Release(&values);
      busy |= !bodies.empty();
      for (std::size_t k = 0; k < bodies.size(); ++k) FromShard(i, std::move(bodies[k]), std::move(values[k]));
    }
  }
}

Plan FakeFleet::MakePlan(TableId table, const std::vector<Key>& keys) {
  const TableSpec& spec = view.tables.at(table.value - 1);
  Planner planner(options.partition_bits);
  Plan plan;
  planner.Make(table, spec.dim, Positioner(spec, TableSalt(1, spec.name)), keys, &plan);
  return plan;
}

Buffer FakeFleet::Gradients(const Plan& plan) {
  Buffer buffer = Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float));
  auto rows = buffer.as_mutable<float>();
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = float(plan.keys[i / plan.dim] % 1000) + float(i % plan.dim);
  return buffer;
}

TableSpec SparseTable(std::string name, std::uint32_t dim) {
  TableSpec spec;
  spec.name = std::move(name);
  spec.dim = dim;
  return spec;
}

TableSpec DenseTable(std::string name, std::uint32_t dim, std::uint64_t rows) {
  TableSpec spec = SparseTable(std::move(name), dim);
  spec.kind = TableKind::kDense;
  spec.rows = rows;
  return spec;
}

std::map<std::pair<TableId, Key>, float> AppliedSums(const FakeFleet& fleet) {
  std::map<std::pair<TableId, Key>, float> sums;
  for (const FakeShard& shard : fleet.shards)
    for (const Applied& applied : shard.applied) {
      const std::size_t dim = applied.values.size() / applied.keys.size();
      for (std::size_t i = 0; i < applied.keys.size(); ++i)
        sums[{applied.table, applied.keys[i]}] += applied.values[i * dim];
    }
  return sums;
}

}  // namespace tarn::worker
