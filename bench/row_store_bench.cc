// Throughput of one core in rows: gathers and optimizer steps of a message's keys in a sparse table, on the store
// alone, and a pull and a push through the shard's state machine. Items are rows.
//
//   row_store_bench --benchmark_filter=Gather
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/position.h"
#include "server/shard/shard.h"
#include "server/store/store.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::server {
namespace {

constexpr std::uint32_t kBits = 6;
constexpr std::size_t kMessageKeys = 4096;
constexpr std::size_t kMessages = 256;
constexpr const char* kRules[] = {"sgd", "row_wise_adagrad", "adagrad", "adam"};  // by the argument of BM_Apply

TableSpec MakeSpec(const char* optimizer) {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "embeddings";
  spec.dim = 16;
  spec.optimizer.kind = optimizer;
  spec.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  return spec;
}

struct Batch {
  std::vector<Key> keys;
  std::vector<Section> sections;
};

// Unique keys, uniform in `rows`, sorted by partition like those of a client.
Batch MakeBatch(const TableSpec& spec, std::uint64_t seed, std::uint64_t rows) {
  const Positioner position(spec, TableSalt(1, spec.name));
  Batch batch;
  SplitMix random(seed);
  while (batch.keys.size() < kMessageKeys) batch.keys.push_back(Mix64(random.Below(rows)));
  std::ranges::sort(batch.keys);
  batch.keys.erase(std::unique(batch.keys.begin(), batch.keys.end()), batch.keys.end());
  std::ranges::stable_sort(batch.keys, {}, [&](Key key) { return PartitionOf(position(key), kBits); });
  for (Key key : batch.keys) {
    const PartitionId p = PartitionOf(position(key), kBits);
    if (batch.sections.empty() || batch.sections.back().partition != p) batch.sections.push_back({p, 0, {}});
    ++batch.sections.back().count;
  }
  return batch;
}

// A store with a table of `row_count` rows, and batches of their keys.
struct FilledStore {
  explicit FilledStore(const char* optimizer, std::uint64_t row_count) : spec(MakeSpec(optimizer)) {
    StoreOptions options{.job_seed = 1, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));
    rows = std::make_unique<Store>(options);
    if (!rows->AddTable(spec)) std::abort();
    const Positioner position(spec, TableSalt(1, spec.name));
    for (std::uint64_t i = 0; i < row_count; ++i) {
      const Key key = Mix64(i);
      const Section section{PartitionOf(position(key), kBits), 1, {}};
      rows->Apply(spec.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32,
                  reinterpret_cast<const std::byte*>(gradients.data()), Clock(0));
    }
    for (std::uint64_t seed = 0; seed < kMessages; ++seed) batches.push_back(MakeBatch(spec, seed, row_count));
  }
  TableSpec spec;
  std::unique_ptr<Store> rows;
  std::vector<Batch> batches;
  std::vector<float> gradients = std::vector<float>(kMessageKeys * 16, 0.001f);
};

void BM_Gather(benchmark::State& state) {
  const FilledStore filled("sgd", std::uint64_t(state.range(0)));
  const auto codec = static_cast<ValueCodec>(state.range(1));
  std::vector<std::byte> out(kMessageKeys * 64);
  std::size_t next = 0, keys = 0;
  for (auto _ : state) {
    const Batch& batch = filled.batches[next++ % kMessages];
    filled.rows->Gather(filled.spec.id, batch.sections, batch.keys, codec, out.data());
    keys += batch.keys.size();
  }
  state.SetItemsProcessed(std::int64_t(keys));
}
BENCHMARK(BM_Gather)->Args({100'000, 0})->Args({4'000'000, 0})->Args({4'000'000, 1});

void BM_Apply(benchmark::State& state) {
  FilledStore filled(kRules[state.range(1)], std::uint64_t(state.range(0)));
  std::size_t next = 0, keys = 0;
  for (auto _ : state) {
    const Batch& batch = filled.batches[next++ % kMessages];
    filled.rows->Apply(filled.spec.id, batch.sections, batch.keys, ValueCodec::kFp32,
                       reinterpret_cast<const std::byte*>(filled.gradients.data()), Clock(1));
    keys += batch.keys.size();
  }
  state.SetItemsProcessed(std::int64_t(keys));
}
BENCHMARK(BM_Apply)
    ->Args({100'000, 0})
    ->Args({4'000'000, 0})
    ->Args({4'000'000, 1})
    ->Args({2'000'000, 2})
    ->Args({2'000'000, 3});

// Pushes that create their rows.
void BM_Insert(benchmark::State& state) {
  const TableSpec spec = MakeSpec("adagrad");
  const std::vector<float> gradients(kMessageKeys * 16, 0.001f);
  std::vector<Batch> batches;
  batches.reserve(kMessages);
  for (std::uint64_t seed = 0; seed < kMessages; ++seed) batches.push_back(MakeBatch(spec, seed, ~std::uint64_t{0}));
  std::size_t keys = 0;
  for (auto _ : state) {
    StoreOptions options{.job_seed = 1, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));
    Store rows(options);
    if (!rows.AddTable(spec)) std::abort();
    for (const Batch& batch : batches) {
      rows.Apply(spec.id, batch.sections, batch.keys, ValueCodec::kFp32,
                 reinterpret_cast<const std::byte*>(gradients.data()), Clock(1));
      keys += batch.keys.size();
    }
  }
  state.SetItemsProcessed(std::int64_t(keys));
}
BENCHMARK(BM_Insert)->Unit(benchmark::kMillisecond);

// A pull and then a push of the same keys by each of two workers, as messages, and their ticks. Argument: 1 if the
// table is aggregated.
void BM_ShardPushAndPull(benchmark::State& state) {
  TableSpec spec = MakeSpec("adagrad");
  const bool aggregated = state.range(0) != 0;
  if (aggregated) spec.consistency = {ConsistencyMode::kBsp, 0, ApplyMode::kAggregated};
  MemoryCheckpointFiles files;
  MemoryCheckpointStore store(&files, ShardId(0), [](const CheckpointPart&) {});
  Shard shard({.nonce = 1}, &store);
  Outbox out;
  shard.Start(0, &out);
  constexpr std::uint32_t kWorkers = 2;
  Welcome welcome{.nonce = 1, .incarnation = Incarnation(1), .job_text = ToToml(Job{})};
  welcome.view.version = ViewVersion(1);
  welcome.view.routes = {Epoch(1), kBits, EvenOwners(kBits, 1), {""}};
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    welcome.view.workers.push_back({WorkerRank(w), Incarnation(10 + w), WorkerState::kLive, {}, {}});
  welcome.view.tables = {spec};
  Message message;
  message.job = 1;
  message.sender.role = Role::kScheduler;
  message.body = welcome;
  shard.OnMessage(kSchedulerPeer, Message(message), 0, &out);

  std::vector<Batch> batches;
  std::vector<Buffer> keys;
  for (std::uint64_t seed = 0; seed < kMessages; ++seed) {
    batches.push_back(MakeBatch(spec, seed, 1'000'000));
    keys.push_back(Buffer::CopyOf(std::span<const Key>(batches.back().keys)));
  }
  const std::vector<float> gradients(kMessageKeys * 16, 0.001f);
  std::uint64_t clock = 0;
  std::size_t rows = 0;
  std::vector<std::vector<std::uint64_t>> sequences(kWorkers, std::vector<std::uint64_t>(1u << kBits, 0));
  for (auto _ : state) {
    for (std::uint32_t w = 0; w < kWorkers; ++w) {
      const std::size_t b = (clock * kWorkers + w) % kMessages;
      message.epoch = Epoch(1);
      message.sender = {Role::kWorker, w, Incarnation(10 + w)};
      const auto count = static_cast<std::uint32_t>(batches[b].keys.size());
      KeyList list{KeyCodec::kRaw, 0, count, batches[b].sections, 0, keys[b]};
      message.body = Pull{RequestId(clock), Clock(clock), {{spec.id, ValueCodec::kFp32, list}}};
      shard.OnMessage(Peer(kFirstAcceptedPeer + 1), Message(message), 0, &out);
      for (Section& section : list.sections) section.sequence = Sequence(++sequences[w][section.partition.value]);
      PushPart push{.table = spec.id,
                    .pulled_clock = Clock(clock),
                    .keys = std::move(list),
                    .values = Buffer::Copy(gradients.data(), count * 64)};
      message.body = Push{RequestId(clock), Clock(clock), {std::move(push)}};
      shard.OnMessage(Peer(kFirstAcceptedPeer + 1), Message(message), 0, &out);
      rows += 2 * count;
    }
    ++clock;
    for (std::uint32_t w = 0; w < kWorkers; ++w) {
      message.sender = {Role::kWorker, w, Incarnation(10 + w)};
      message.body = Tick{Clock(clock), {}};
      shard.OnMessage(Peer(kFirstAcceptedPeer + 1), Message(message), 0, &out);
    }
    out.clear();
  }
  state.SetItemsProcessed(std::int64_t(rows));
}
BENCHMARK(BM_ShardPushAndPull)->Arg(0)->Arg(1);

}  // namespace
}  // namespace tarn::server

BENCHMARK_MAIN();
