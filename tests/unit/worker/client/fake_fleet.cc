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

std::vector<Key> KeysOf(const KeyList& list) {
  std::vector<Key> keys(list.count);
  const Buffer& frame = list.frame;
  TARN_CHECK(list.codec != KeyCodec::kHeld, "the keys are another message's");
  if (list.codec == KeyCodec::kDelta) {
    TARN_CHECK(kernels::DecodeKeys(keys.size(), {frame.data(), frame.size()}, keys.data()), "sound bytes of keys");
    return keys;
  }
  for (std::uint32_t i = 0; i < list.count; ++i)
    keys[i] = list.codec == KeyCodec::kRange ? list.first_key + i : frame.as<Key>()[i];
  return keys;
}

template <typename Part>
std::optional<FakeShard::TableKeys> FakeShard::TakeKeys(const TableParts<Part>& parts) {
  TableKeys all;
  for (const Part& part : parts) {
    const KeyList& list = part.keys;
    if (list.codec == KeyCodec::kHeld) {
      const auto held = lists.find(list.list);
      if (held == lists.end()) return std::nullopt;
      TARN_CHECK(held->second.size() == list.count && list.frame.empty(), "a list as it was, and no keys");
      all.push_back(held->second);
      continue;
    }
    const std::vector<Key>& keys = all.emplace_back(KeysOf(list));
    if (list.list == 0) continue;
    const auto [held, is_new] = lists.emplace(list.list, keys);
    TARN_CHECK(is_new || held->second == keys, "a number is of one list for ever");
  }
  return all;
}

PushAck FakeShard::Apply(const Push& push, const TableKeys& keys) {
  PushAck ack{push.request, {}};
  for (std::size_t i = 0; i < keys.size(); ++i) Apply(push.clock, push.tables[i], keys[i], &ack);
  return ack;
}

void FakeShard::Apply(Clock clock, const PushPart& part, const std::vector<Key>& keys, PushAck* ack) {
  const std::uint32_t dim = tables.at(part.table).dim;
  std::vector<float> values(keys.size() * dim);
  const bool deletes = part.action == PushAction::kDelete;
  if (deletes) {
    TARN_CHECK(part.values.empty(), "a deletion has no values");
  } else if (part.codec == ValueCodec::kTopK) {
    const std::span bytes(part.values.data(), part.values.size());
    TARN_CHECK(kernels::DecodeSparse(values.size(), bytes, values.data()).has_value(), "other values");
  } else {
    const std::size_t pulled = part.pulled ? CodecRowBytes(*part.pulled, dim) : 0;
    TARN_CHECK(part.values.size() == keys.size() * (CodecRowBytes(part.codec, dim) + pulled), "values of another size");
    kernels::DecodeRows(part.codec, dim, keys.size(), part.values.data(), values.data());
  }
  std::size_t first = 0;
  for (const Section& section : part.keys.sections) {
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
                         part.table,
                         clock,
                         {key, key + section.count},
                         deletes ? std::vector<float>() : std::vector<float>(value, value + section.count * dim)});
    }
    ack->sections.push_back(answer);
    first += section.count;
  }
}

std::optional<PullReply> FakeShard::Answer(const Parked& parked) {
  const Pull& pull = parked.pull;
  if (minimum && pull.clock > *minimum) return std::nullopt;
  for (const PullPart& part : pull.tables)
    for (const Section& section : part.keys.sections)
      if (section.sequence > watermark[section.partition]) return std::nullopt;
  PullReply reply{pull.request, told_minimum.value_or(minimum.value_or(pull.clock)), {}};
  for (std::size_t i = 0; i < pull.tables.size(); ++i) reply.tables.push_back(RowsOf(pull.tables[i], parked.keys[i]));
  return reply;
}

ReplyPart FakeShard::RowsOf(const PullPart& part, const std::vector<Key>& keys) {
  const std::uint32_t dim = tables.at(part.table).dim;
  std::vector<float> rows;
  for (Key key : keys)
    for (std::uint32_t d = 0; d < dim; ++d) rows.push_back(ValueOf(part.table, key, d) + shift);
  Buffer values = Buffer::Allocate(keys.size() * CodecRowBytes(part.codec, dim));
  kernels::EncodeRows(part.codec, dim, keys.size(), rows.data(), values.data());
  return {part.table,        part.codec,
          part.keys.count,   std::vector<Version>(part.keys.sections.size(), version),
          std::move(values), on_disk.contains(part.table)};
}

std::vector<Body> FakeShard::Handle(const Message& message) {
  std::vector<Body> answers;
  if (const auto* tick = std::get_if<Tick>(&message.body)) {
    ticked = std::max(ticked, tick->clock);
    answers.push_back(TickAck{tick->clock});
  } else if (const auto* push = std::get_if<Push>(&message.body)) {
    const auto keys = TakeKeys(push->tables);
    answers.push_back(keys ? Body(Apply(*push, *keys))
                           : Body(ErrorReply{push->request, ErrorCode::kUnknownKeys, "", {}}));
  } else if (const auto* pull = std::get_if<Pull>(&message.body)) {
    std::erase_if(parked_, [&](const Parked& p) { return p.pull.request == pull->request; });
    if (auto keys = TakeKeys(pull->tables))
      parked_.push_back({*pull, *std::move(keys)});
    else
      answers.push_back(ErrorReply{pull->request, ErrorCode::kUnknownKeys, "", {}});
  }
  for (Body& body : Release()) answers.push_back(std::move(body));
  return answers;
}

std::vector<Body> FakeShard::Release() {
  std::vector<Body> answers;
  for (auto it = parked_.begin(); it != parked_.end();) {
    auto reply = Answer(*it);
    if (!reply) {
      ++it;
      continue;
    }
    answers.push_back(*std::move(reply));
    it = parked_.erase(it);
  }
  return answers;
}

// Stores the rows of a pull and records its outcome.
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

// Records the outcome of a request that has an answer.
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

// Records `event`, or the failure of the request.
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

std::vector<RequestId> FakeFleet::Pull(const std::vector<std::pair<const Plan*, PullWhen>>& tables) {
  std::vector<RequestId> ids;
  std::vector<TableToPull> pulls;
  for (const auto& [plan, when] : tables) {
    const auto recorder = std::make_shared<PullRecorder>(this, ids.emplace_back(NextRequest()), *plan);
    recorders_.push_back(recorder);
    pulls.push_back({plan, when, recorder.get()});
  }
  client.Pull(pulls, now, &out);
  return ids;
}

std::vector<RequestId> FakeFleet::Push(const std::vector<Plan>& plans, Clock pulled_clock) {
  std::vector<RequestId> ids;
  std::vector<TableToPush> pushes;
  pushes.reserve(plans.size());
  for (const Plan& plan : plans)
    pushes.push_back({&plan, Gradients(plan), Record(PushDone{ids.emplace_back(NextRequest())})});
  client.Push(pushes, pulled_clock, now, &out);
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
  client.Handle(kSchedulerPeer, std::move(message), now);
  client.Settle(now, &out);
}

void FakeFleet::FromShard(std::uint32_t shard, Body body, Buffer values) {
  Message message;
  message.job = 77;
  message.sender = {Role::kShard, shard, Incarnation(2)};
  message.epoch = view.routes.epoch;
  message.body = std::move(body);
  message.values = std::move(values);
  client.Handle(ShardPeer(ShardId(shard)), std::move(message), now);
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
        for (Body& body : shards[i].Handle(message)) {
          Message answer;
          answer.body = body;
          if (lose && lose(answer)) continue;
          FromShard(i, std::move(body));
        }
      }
      std::vector<Body> bodies = shards[i].Release();
      busy |= !bodies.empty();
      for (Body& body : bodies) FromShard(i, std::move(body));
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
