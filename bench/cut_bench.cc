// How long a checkpoint holds up the pushes of a shard: 10 million rows of 16 values with Adagrad, pushes of 1024 keys
// one after the other, and in the middle of them the order to cut. A turn is a push and what the shard's timer does
// behind it, as in the server's loop. The store takes the rows and drops them: the disk is not measured.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <vector>

#include "core/job.h"
#include "core/position.h"
#include "server/checkpoint_store.h"
#include "server/row_store.h"
#include "server/shard.h"

namespace tarn::server {
namespace {

constexpr std::uint32_t kBits = 6;
constexpr std::uint32_t kDim = 16;
constexpr std::size_t kPushKeys = 1024;
constexpr std::size_t kTurns = 4000;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of this thread: what others do on its core is not its stop.
double CpuNow() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// The longest of some steps, by both clocks.
struct Longest {
  double wall = 0, cpu = 0, wall_sum = 0;
  std::size_t steps = 0;

  template <typename Step>
  void Time(Step step) {
    const double wall_start = Now(), cpu_start = CpuNow();
    step();
    const double took = Now() - wall_start;
    cpu = std::max(cpu, CpuNow() - cpu_start);
    wall = std::max(wall, took);
    wall_sum += took;
    ++steps;
  }
  void Print(const char* what) const {
    fmt::print("{}: {} turns, longest {:.3f} ms ({:.3f} ms of the thread), mean {:.3f} ms\n", what, steps, wall * 1e3,
               cpu * 1e3, wall_sum * 1e3 / double(steps));
  }
};

// Takes everything, keeps nothing.
class DroppingStore : public CheckpointStore {
 public:
  void Begin(Snapshot, std::string) override {}
  void Put(CutRows chunk) override { rows += chunk.rows.keys.size(); }
  void Finish(std::optional<std::uint64_t>) override { finished = true; }
  void Abandon() override {}
  bool HasRoom() override { return true; }
  Status Load(const std::string&, RowSink&) override { return {}; }
  std::uint64_t rows = 0;
  bool finished = false;
};

class Bench {
 public:
  explicit Bench(std::uint64_t rows) : rows_(rows), shard_({.nonce = 1}, &store_) {
    spec_.id = TableId(1);
    spec_.name = "t";
    spec_.dim = kDim;
    spec_.optimizer.kind = OptimizerKind::kAdagrad;
    spec_.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
    position_ = Positioner(spec_, TableSalt(Job().job.seed, spec_.name));
    sequences_.resize(1u << kBits);
    gradients_ = Buffer::CopyOf(std::span<const float>(std::vector<float>(kPushKeys * kDim, 0.25f)));
    Join();
    Longest ignored;
    for (std::uint64_t first = 0; first < rows; first += kPushKeys) Push(first, &ignored);
  }

  void Run() {
    Measure("without a checkpoint");
    view_.checkpoint = {CheckpointId(1), false, Clock(0), "nowhere"};
    ++view_.version.value;
    const double start = Now();
    Longest longest;
    longest.Time([&] { FromScheduler(ViewUpdate{view_}); });
    while (!store_.finished) Turn(&longest);
    longest.Print("during the checkpoint");
    fmt::print("  {:.3f} s, {} rows\n", Now() - start, store_.rows);
    Measure("after it");
  }

 private:
  void Join() {
    shard_.Start(0, &out_);
    Welcome welcome{.nonce = 1, .incarnation = Incarnation(5), .job_text = ToToml(Job())};
    view_.version = ViewVersion(1);
    view_.routes = {Epoch(1), kBits, EvenOwners(kBits, 1), {"tcp://127.0.0.1:1"}};
    view_.workers = {{WorkerRank(0), Incarnation(10), WorkerState::kLive, Clock(0), Clock(0)}};
    view_.tables = {spec_};
    welcome.view = view_;
    FromScheduler(welcome);
  }
  void FromScheduler(Body body) {
    Message message;
    message.job = 7;
    message.sender = {Role::kScheduler, 0, Incarnation(1)};
    message.body = std::move(body);
    shard_.OnMessage(kSchedulerPeer, std::move(message), 0, &out_);
    out_.clear();
  }
  void Push(std::uint64_t first, Longest* longest) {
    std::map<PartitionId, std::vector<Key>> parts;
    for (std::uint64_t i = 0; i < kPushKeys; ++i) {
      const Key key = (first + i) % rows_;
      parts[PartitionOf(position_(key), kBits)].push_back(key);
    }
    std::vector<Key> keys;
    tarn::Push push{RequestId(1), spec_.id, Clock(0), Clock(0), ValueCodec::kFp32, {KeyCodec::kRaw, 0, kPushKeys, {}}};
    for (const auto& [partition, mine] : parts) {
      push.keys.sections.push_back({partition, std::uint32_t(mine.size()), Sequence(++sequences_[partition.value])});
      keys.insert(keys.end(), mine.begin(), mine.end());
    }
    Message message;
    message.job = 7;
    message.sender = {Role::kWorker, 0, Incarnation(10)};
    message.epoch = Epoch(1);
    message.body = std::move(push);
    message.keys = Buffer::CopyOf(std::span<const Key>(keys));
    message.values = gradients_;
    longest->Time([&] {
      shard_.OnMessage(Peer(kFirstAcceptedPeer + 1), std::move(message), 0, &out_);
      if (shard_.NextTimer() <= 0) shard_.OnTimer(0, &out_);
    });
    out_.clear();
  }
  // Somewhere else each time: the keys of a push are neighbours.
  void Turn(Longest* longest) {
    next_ = next_ * 6364136223846793005u + 1442695040888963407u;
    Push((next_ >> 20) % rows_, longest);
  }
  void Measure(const char* what) {
    Longest longest;
    for (std::size_t i = 0; i < kTurns; ++i) Turn(&longest);
    longest.Print(what);
  }

  std::uint64_t rows_;
  DroppingStore store_;
  Shard shard_;
  TableSpec spec_;
  Positioner position_;
  View view_;
  Outbox out_;
  Buffer gradients_;
  std::vector<std::uint64_t> sequences_;
  std::uint64_t next_ = 1;
};

}  // namespace
}  // namespace tarn::server

int main(int argc, char** argv) {
  std::uint64_t rows = 10'000'000;
  CLI::App app{"How long a checkpoint holds up the pushes of one shard."};
  app.add_option("--rows", rows, "rows of 16 values with Adagrad")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{2048}, std::uint64_t{1} << 32));
  CLI11_PARSE(app, argc, argv);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as net::KeepLargeBlocks does in a server
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  tarn::server::Bench(rows).Run();
}
