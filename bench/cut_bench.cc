// Measures how long a checkpoint delays the pushes of a shard: 10 million rows of 16 values with Adagrad, consecutive
// pushes of 1024 keys, and a checkpoint order among them. A turn is a push and the following call of the shard's timer,
// as in the server's loop. Without --dir the store drops the rows, so the disk is not measured. With --dir four
// checkpoints are written: all rows; the rows changed while the first was written; the rows changed while the second
// was written; and, after pushes to only 1% of the rows, the rows changed since the third. Finally the time to
// write as many bytes as the full checkpoint to one plain file is measured. With --memory, rows beyond this limit are
// on disk, and pushes go to a tenth of the rows.
//
// A push may also be delayed by the machine: by another process, or by a hypervisor that reclaims memory freed by the
// guest. To measure this, another thread regularly reads as many random cache lines as a push.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/codec/manifest.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/job/job.h"
#include "core/position.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/rocksdb_checkpoint_store.h"
#include "server/shard/shard.h"
#include "server/store/store.h"
#include "server/tier/rocksdb_cold_store.h"

namespace tarn::server {
namespace {

[[noreturn]] void Die(const std::string& what) {
  fmt::print(stderr, "cut_bench: {}\n", what);
  std::fflush(stdout);  // which _Exit does not do
  std::_Exit(1);        // the store's thread may be running
}

constexpr std::uint32_t kBits = 6;
constexpr std::uint32_t kDim = 16;
constexpr std::size_t kPushKeys = 1024;
constexpr std::size_t kTurns = 4000;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// CPU time of this thread, which excludes other work on its core.
double CpuNow() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// The longest of some steps, by wall-clock and CPU time.
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
    fmt::print("{}: {} turns, longest {:.3f} ms ({:.3f} ms of CPU time), mean {:.3f} ms\n", what, steps, wall * 1e3,
               cpu * 1e3, wall_sum * 1e3 / double(steps));
  }
};

// Measures the delays that the machine causes: times random reads once a millisecond, on a thread of its own.
class MachineProbe {
 public:
  MachineProbe() : thread_([this] { Read(); }) {}
  ~MachineProbe() {
    done_ = true;
    thread_.join();
  }
  // The longest CPU time of the reads since the last call, in seconds.
  double TakeLongestCpu() { return longest_.exchange(0); }

 private:
  static constexpr std::size_t kReads = 2 * kPushKeys;
  void Read() {
    std::vector<std::uint64_t> memory(std::size_t{1} << 25, 1);
    std::uint64_t at = 1;
    while (!done_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const double start = CpuNow();
      for (std::size_t i = 0; i < kReads; ++i) at = at * 6364136223846793005u + memory[(at >> 30) % memory.size()];
      longest_ = std::max(longest_.load(), CpuNow() - start);
    }
  }

  std::atomic<bool> done_ = false;
  std::atomic<double> longest_ = 0;
  std::thread thread_;
};

// Accepts and drops all rows.
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

// Time to write and sync `bytes` in one file, which is removed afterwards.
Expected<double> PlainWriteSeconds(const std::string& path, std::uint64_t bytes) {
  const std::vector<char> piece(std::size_t{1} << 20, 'x');
  const double start = Now();
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return std::unexpected(SystemError(path, "create", errno));
  const auto failed = [&](std::string_view what) {
    const int error_number = errno;
    ::unlink(path.c_str());
    return std::unexpected(SystemError(path, what, error_number));
  };
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::write(file.get(), piece.data(), std::min<std::uint64_t>(piece.size(), bytes - done));
    if (count < 0) return failed("write");
    done += std::uint64_t(count);
  }
  if (::fsync(file.get()) != 0) return failed("sync");
  if (::close(file.Release()) != 0) return failed("close");
  const double took = Now() - start;
  ::unlink(path.c_str());
  return took;
}

class Bench {
 public:
  // `memory_bytes`: budget of the rows in memory; the others are stored in `dir`. 0: all rows are in memory.
  Bench(std::uint64_t rows, CheckpointStore* store, std::size_t memory_bytes = 0, const std::string& dir = {})
      : rows_(rows), hot_(rows), shard_(Options(memory_bytes, dir), store) {
    spec_.id = TableId(1);
    spec_.name = "t";
    spec_.dim = kDim;
    spec_.optimizer.kind = "adagrad";
    spec_.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
    position_ = Positioner(spec_, TableSalt(Job().job.seed, spec_.name));
    sequences_.resize(1u << kBits);
    gradients_ = Buffer::CopyOf(std::span<const float>(std::vector<float>(kPushKeys * kDim, 0.25f)));
    Join();
    Longest ignored;
    for (std::uint64_t first = 0; first < rows; first += kPushKeys) Push(first, &ignored);
    if (memory_bytes != 0) hot_ = rows / 10;
  }

  void Run(const DroppingStore& store) {
    Measure("without a checkpoint");
    view_.checkpoint = {CheckpointId(1), false, Clock(0), "nowhere"};
    ++view_.version.value;
    const double start = Now();
    Longest longest;
    longest.Time([&] { FromScheduler(ViewUpdate{view_}); });
    while (!store.finished) Turn(&longest);
    longest.Print("during the checkpoint");
    fmt::print("  {:.3f} s, {} rows\n", Now() - start, store.rows);
    Measure("after it");
  }

 private:
  ShardOptions Options(std::size_t memory_bytes, const std::string& dir) {
    ShardOptions options{.nonce = 1};
    if (memory_bytes == 0) return options;
    options.make_tier = [this, memory_bytes, dir](const tarn::Job&) -> Expected<Tier> {
      auto cold = RocksDbColdStore::Open(&disk_, {.directory = dir + "/tier", .file_system = nullptr},
                                         [this] { disk_events_.release(); });
      if (!cold) Die(cold.error().message);
      return Tier{.store = *std::move(cold), .limit_bytes = memory_bytes};
    };
    return options;
  }
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
      const Key key = (first + i) % hot_;
      parts[PartitionOf(position_(key), kBits)].push_back(key);
    }
    std::vector<Key> keys;
    PushPart push{.table = spec_.id, .keys = {KeyCodec::kRaw, 0, kPushKeys, {}}, .values = gradients_};
    for (const auto& [partition, mine] : parts) {
      push.keys.sections.push_back({partition, std::uint32_t(mine.size()), Sequence(++sequences_[partition.value])});
      keys.insert(keys.end(), mine.begin(), mine.end());
    }
    Message message;
    message.job = 7;
    message.sender = {Role::kWorker, 0, Incarnation(10)};
    message.epoch = Epoch(1);
    push.keys.frame = Buffer::CopyOf(std::span<const Key>(keys));
    message.body = tarn::Push{RequestId(1), Clock(0), {std::move(push)}};
    longest->Time([&] {
      shard_.OnMessage(Peer(kFirstAcceptedPeer + 1), std::move(message), 0, &out_);
      EndTurn();
      while (out_.empty()) {  // waits for rows from disk
        (void)disk_events_.try_acquire_for(std::chrono::milliseconds(1));
        EndTurn();
      }
    });
    out_.clear();
  }
  // The rest of a turn of the server's loop: rows from disk, and the timer if it is due.
  void EndTurn() {
    shard_.OnTier(0, &out_);
    if (shard_.NextTimer() <= 0) shard_.OnTimer(0, &out_);
  }
  // Pushes neighbouring keys, from another position each time.
  void Turn(Longest* longest) {
    next_ = next_ * 6364136223846793005u + 1442695040888963407u;
    Push((next_ >> 20) % hot_, longest);
  }
  void Measure(const char* what) {
    Longest longest;
    for (std::size_t i = 0; i < kTurns; ++i) Turn(&longest);
    longest.Print(what);
  }

 public:
  // Cuts a checkpoint and continues to push until it is durable. Returns its bytes.
  std::uint64_t Write(std::uint64_t id, const std::string& dir, const char* what, RocksDbCheckpointStore* store) {
    const std::string directory = fmt::format("{}/ckpt-{}", dir, id);
    const bool full = manifest_.generations.empty();
    view_.checkpoint = {CheckpointId(id),
                        false,
                        Clock(0),
                        directory,
                        CheckpointId(full ? 0 : id - 1),
                        full ? "" : fmt::format("{}/ckpt-{}", dir, id - 1),
                        false};
    ++view_.version.value;
    const double start = Now();
    Longest longest, order;
    order.Time([&] { FromScheduler(ViewUpdate{view_}); });
    order.Print("the order to cut");
    (void)machine_probe_.TakeLongestCpu();
    std::vector<CheckpointPart> parts;
    for (; parts.empty(); parts = store->TakeWritten()) Turn(&longest);
    const double took = Now() - start;
    if (parts[0].code != ErrorCode::kOk) Die(parts[0].message);
    shard_.OnCheckpointWritten(parts[0], 0, &out_);
    view_.checkpoint = {};
    ++view_.version.value;
    FromScheduler(ViewUpdate{view_});
    manifest_.id = CheckpointId(id);
    manifest_.partition_bits = kBits;
    manifest_.tables = {spec_};
    manifest_.generations.push_back({manifest_.id, Clock(0), parts[0].files, parts[0].tables, parts[0].state_hash});
    if (const Status written = WriteManifest(directory, manifest_); !written) Die(written.error().message);
    const Generation& own = manifest_.generations.back();
    longest.Print(what);
    std::uint64_t entries = 0;
    for (const CheckpointFile& file : own.files) entries += file.rows;
    fmt::print("  {:.2f} s, {} rows, {} bytes; random reads meanwhile: longest {:.3f} ms of CPU time\n", took, entries,
               own.bytes(), machine_probe_.TakeLongestCpu() * 1e3);
    return own.bytes();
  }

  void RunOnDisk(const std::string& dir, RocksDbCheckpointStore* store) {
    Measure("without a checkpoint");
    const std::uint64_t full = Write(1, dir, "while all rows are written", store);
    Write(2, dir, "while the rows changed during checkpoint 1 are written", store);
    // From the third checkpoint on only these keys are pushed.
    hot_ = rows_ / 100;
    Write(3, dir, "while the rows changed during checkpoint 2 are written", store);
    Longest ignored;
    for (std::uint64_t first = 0; first < hot_; first += kPushKeys) Push(first, &ignored);
    const std::uint64_t delta = Write(4, dir, "while the 1% that changed is written", store);
    fmt::print("1% of the rows changed: {:.2f}% of the bytes\n", 100.0 * double(delta) / double(full));
    Measure("after it");
    const Expected<double> plain_seconds = PlainWriteSeconds(dir + "/plain", full);
    if (!plain_seconds) Die(plain_seconds.error().message);
    fmt::print("one plain file of {} bytes: {:.2f} s\n", full, *plain_seconds);
  }

 private:
  std::uint64_t rows_;
  std::uint64_t hot_;  // pushes go to the first hot_ keys
  DiskPool disk_;
  std::counting_semaphore<> disk_events_{0};
  Shard shard_;
  MachineProbe machine_probe_;
  TableSpec spec_;
  Positioner position_;
  View view_;
  Outbox out_;
  Manifest manifest_;
  Buffer gradients_;
  std::vector<std::uint64_t> sequences_;
  std::uint64_t next_ = 1;
};

}  // namespace
}  // namespace tarn::server

int main(int argc, char** argv) {
  std::uint64_t rows = 10'000'000;
  CLI::App app{"Measures how long a checkpoint delays the pushes of one shard."};
  app.add_option("--rows", rows, "rows of 16 values with Adagrad")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{2048}, std::uint64_t{1} << 32));
  std::string dir;
  app.add_option("--dir", dir, "folder for checkpoints (default: drop their rows)");
  std::size_t memory_mib = 0;
  app.add_option("--memory", memory_mib, "MiB of rows in memory, with the others in --dir (default: all rows)")
      ->check(CLI::Range(std::size_t{64}, std::size_t{1} << 20));
  CLI11_PARSE(app, argc, argv);
  if (memory_mib != 0 && dir.empty()) tarn::server::Die("--memory needs --dir");
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as net::KeepLargeBlocks does in a server
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  if (dir.empty()) {
    tarn::server::DroppingStore store;
    tarn::server::Bench(rows, &store).Run(store);
    return 0;
  }
  tarn::DiskPool disk;
  tarn::server::RocksDbCheckpointStore store(&disk, [] {});
  tarn::server::Bench(rows, &store, memory_mib << 20, dir).RunOnDisk(dir, &store);
}
