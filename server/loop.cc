#include "server/loop.h"

#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "core/byte_size.h"
#include "core/disk_pool.h"
#include "core/json.h"
#include "core/listening.h"
#include "core/log.h"
#include "core/metrics/metrics_file.h"
#include "core/process_limits.h"
#include "kernels/subnormals.h"
#include "net/advertise.h"
#include "net/local_endpoint.h"
#include "net/zmq/transport.h"
#include "server/checkpoint/file_blob_store.h"
#include "server/checkpoint/rocksdb_checkpoint_store.h"
#include "server/exhaustion.h"
#include "server/heap_trimmer.h"
#include "server/loading_beacon.h"
#include "server/log/file_shard_log.h"
#include "server/log_watch.h"
#include "server/memory_meter.h"
#include "server/shard/shard.h"
#include "server/shard_metrics.h"
#include "server/store/store.h"
#include "server/tier/rocksdb_cold_store.h"
#include "server/turn.h"

namespace tarn::server {

namespace {

constexpr std::size_t kMessagesPerTurn = 256;
constexpr TimeUs kTurnUsMax = 100'000;  // between two looks at the log, the lease and the memory
constexpr TimeUs kMetricsPeriodUs = 1'000'000;
// Period of memory checks, normally and during a checkpoint, when memory changes fast.
constexpr TimeUs kMemoryPeriodUs = 100'000, kMemoryPeriodWritingUs = 20'000;
// Rows in memory are few if they are one in so many.
constexpr std::uint64_t kFewRows = 16;
// Of a shard's part of the budget: rows that wait to be written to a checkpoint, and those that are being sorted.
constexpr std::size_t kCheckpointShare = 64, kCheckpointBytesMin = std::size_t{1} << 20;
constexpr TimeUs kMemoryWarningPeriodUs = 60'000'000;
// Delay of a heap trim after a part of a checkpoint, when its writer has freed its memory.
constexpr TimeUs kTrimDelayUs = 2'000'000;
constexpr std::size_t kNotesMax = 64;

TimeUs Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Maximum number of open files of a shard's tier: the tiers together get half of the process's limit, the rest is for
// connections and logs. -1: unlimited, which makes reads faster.
int TierFiles(std::uint32_t shards) {
  constexpr rlim_t kEnough = 65536;
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return -1;
  const rlim_t mine = files.rlim_cur / 2 / shards;
  return mine >= kEnough ? -1 : static_cast<int>(mine);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// State shared by the shards of a server.
struct Shared {
  net::ZmqContext* context;
  MemoryMeter* memory;
  HeapTrimmer* trimmer;
  DiskPool* disk;
  MetricsWriter* metrics;   // null without a run directory
  DiskPool::Strand* notes;  // of a disk that stalls: the log may be on the same
  StopSignal* stop;
};

// One shard on its thread.
class ShardLoop {
 public:
  ShardLoop(const ServerOptions& options, std::uint32_t index, const Shared& shared)
      : options_(options),
        context_(shared.context),
        shard_id_(options.rank.value * options.shards + index),
        index_(index),
        memory_(shared.memory),
        trimmer_(shared.trimmer),
        metrics_(shared.metrics),
        feed_(index < options.feeds.size() ? options.feeds[index] : nullptr),
        disk_(shared.disk),
        notes_(shared.notes),
        stop_(shared.stop),
        transport_(shared.context, {.insecure = options.insecure, .shm = options.shm, .lend_payloads = true}),
        waker_(shared.stop, [this] { transport_.Wake(); }),
        store_(shared.disk, [this] { transport_.Wake(); }),
        blobs_(shared.disk, [this] { transport_.Wake(); }) {
    if (options.run_dir.empty()) return;
    const std::string folder = fmt::format("{}/log/shard-{}", options.run_dir, shard_id_.value);
    log_ = std::make_unique<FileShardLog>(disk_, MakeFileOps(), folder, [this] { transport_.Wake(); });
  }

  Status Run() {
    TARN_RETURN_IF_ERROR(Open());
    const TimeUs started = Now();
    listening_.Begin(started);
    shard_->Start(started, &out_);
    Flush();
    while (!shard_->ended()) {
      if (stop_->IsSet()) {
        if (shard_->stopped()) break;
        return Fail(ErrorCode::kCancelled, "terminated by a signal before the job was over");
      }
      TARN_RETURN_IF_ERROR(Turn());
    }
    PublishMetrics(Now());  // the last line is of the whole run
    const Shutdown& reason = shard_->stop_reason();
    LogInfo("shard {}: stopped: {} {}", shard_id_.value, ErrorName(reason.code), reason.reason);
    if (reason.code == ErrorCode::kOk) return {};
    return Fail(reason.code, reason.reason);
  }

 private:
  Status Open() {
    const bool local = options_.bind == net::kAnyLocalEndpoint;
    const auto wanted =
        local ? context_->folders().Make(options_.run_dir, LocalName()) : ShardEndpoint(options_.bind, index_);
    if (!wanted) return std::unexpected(wanted.error());
    const auto endpoint = transport_.Bind(*wanted);
    if (!endpoint) return std::unexpected(endpoint.error());
    const auto advertised = net::AdvertisedEndpoint(*endpoint, options_.advertise, options_.scheduler);
    if (!advertised) return std::unexpected(advertised.error());
    TARN_RETURN_IF_ERROR(transport_.Connect(kSchedulerPeer, options_.scheduler));
    LogInfo("shard {}: bound to {}, reached at {}, scheduler at {}", shard_id_.value, *endpoint, *advertised,
            options_.scheduler);
    shard_.emplace(ShardOptions{.shard = shard_id_,
                                .nonce = options_.nonces[index_],
                                .endpoint = *advertised,
                                .shards_per_server = options_.shards,
                                .http = options_.http,
                                .log = log_.get(),
                                .blobs = &blobs_,
                                .make_tier = [this](const Job& job) { return MakeTier(job); },
                                .unix_us_at_zero = static_cast<TimeUs>(WallSeconds() * 1e6) - Now()},
                   &store_);
    return {};
  }

  // Unique per start of a server, because binding replaces a socket with the same name.
  std::string LocalName() const {
    return fmt::format("shard-{}-{:08x}", shard_id_.value, static_cast<std::uint32_t>(options_.nonces[index_]));
  }

  Expected<Tier> MakeTier(const Job& job) {
    budget_ = job.storage.memory;
    if (budget_ == 0) return Tier{};
    if (job.storage.tier_dir.empty() && options_.run_dir.empty())
      return Fail(ErrorCode::kInvalidArgument,
                  "storage.memory needs a place for the rows beyond it: storage.tier_dir, or --run-dir");
    const std::string parent = job.storage.tier_dir.empty() ? options_.run_dir + "/tier" : job.storage.tier_dir;
    auto store = RocksDbColdStore::Open(disk_,
                                        {.directory = fmt::format("{}/shard-{}", parent, shard_id_.value),
                                         .open_files_max = TierFiles(options_.shards)},
                                        [this] { transport_.Wake(); });
    if (!store) return std::unexpected(store.error());
    store_.BoundMemory(std::max(kCheckpointBytesMin, budget_ / options_.shards / kCheckpointShare));
    return Tier{.store = std::move(*store), .limit_bytes = memory_->Share(index_, 0, ResidentBytes(), budget_)};
  }

  // Memory may also end in the transport, where no step of the shard sees it.
  Status Turn() {
    Status status;
    const Status memory = CatchExhaustion([&] { status = TakeTurn(); });
    if (memory) return status;
    const Shutdown& reason = shard_->stop_reason();
    if (shard_->stopped()) return Fail(reason.code, reason.reason);  // no memory for saying it again
    shard_->Abandon(memory.error(), &out_);
    Flush();
    return {};
  }

  Status TakeTurn() {
    batch_.clear();
    transport_.Receive(&batch_, kMessagesPerTurn, std::clamp<TimeUs>(shard_->NextTimer() - Now(), 0, kTurnUsMax));
    const bool was_joined = shard_->joined();
    const std::unique_ptr<LoadingBeacon> beacon = was_joined ? nullptr : BeaconFor(batch_);
    const TimeUs now = HandOver(&batch_, &*shard_, Now, &out_, [this] { Flush(); });
    for (CheckpointPart& part : store_.TakeWritten()) {
      LogPart(part);
      shard_->OnCheckpointWritten(std::move(part), now, &out_);
      trim_at_ = now + kTrimDelayUs;
    }
    TrimIfDue(now);
    for (const BlobWritten& written : blobs_.TakeWritten()) shard_->OnBlobWritten(written, now, &out_);
    shard_->OnLogSynced(now, &out_);
    shard_->OnTier(now, &out_);
    if (now >= shard_->NextTimer()) shard_->OnTimer(now, &out_);
    Flush();
    if (budget_ != 0 && now >= next_memory_) ShareMemory(now);
    if (!was_joined && shard_->joined()) {
      transport_.SetBusyPoll(shard_->busy_poll_us());
      LogInfo("shard {}: joined, {} partitions, {} rows", shard_id_.value, shard_->rows().owned().size(),
              shard_->rows().row_count());
    }
    if (now >= next_metrics_) PublishMetrics(now);
    listening_.Note(now, shard_->lease_us());
    WatchLog(now);
    WarnOfNotFinite(now);
    return CheckScheduler(now);
  }

  // The beacon for the time in which this thread loads the state that a Welcome among these messages names.
  std::unique_ptr<LoadingBeacon> BeaconFor(const std::vector<net::Received>& batch) const {
    for (const net::Received& received : batch) {
      const auto* welcome = std::get_if<Welcome>(&received.message.body);
      if (welcome == nullptr || welcome->nonce != options_.nonces[index_]) continue;
      const auto job = ParseJob(welcome->job_text, "the scheduler's job", ".");
      if (!job) return nullptr;  // the shard reports the error
      return std::make_unique<LoadingBeacon>(
          LoadingBeacon::Options{.context = context_,
                                 .insecure = options_.insecure,
                                 .scheduler = options_.scheduler,
                                 .period_us = static_cast<TimeUs>(job->fleet.heartbeat_seconds * 1e6),
                                 .heartbeat = LoadingHeartbeat(received.message)});
    }
    return nullptr;
  }

  // Rule L1: callers that wait for acknowledgements then wait for the disk, and only this process can report it.
  void WatchLog(TimeUs now) {
    const auto silent = log_watch_.Note(now, shard_->log_is_durable(), shard_->log_synced());
    if (!silent) return;
    (void)notes_->TryPost(
        kNotesMax,
        [text = fmt::format("shard {}: the disk of its log has not answered for {:.0f} s, so nothing is acknowledged",
                            shard_id_.value, static_cast<double>(*silent) * 1e-6)] {
          Tell(LogLevel::kWarning, kProgram, text);
        });
  }

  // The heap keeps the holes of each checkpoint, and the next one's are others.
  void TrimIfDue(TimeUs now) {
    if (trim_at_ == 0 || now < trim_at_) return;
    trim_at_ = 0;
    trimmer_->Begin();
  }

  void Flush() {
    transport_.Send(out_);
    out_.clear();
  }

  void ShareMemory(TimeUs now) {
    next_memory_ = now + (store_.memory_max() == 0 ? kMemoryPeriodUs : kMemoryPeriodWritingUs);
    const std::size_t resident = ResidentBytes(), writing = store_.memory_max();
    const std::size_t share = memory_->Share(index_, shard_->memory_bytes() + writing, resident, budget_);
    if (memory_->TrimIsDue(resident, budget_, now)) trimmer_->Begin();
    shard_->SetMemoryLimit(share - std::min(share, writing));
    if (resident > budget_ / 10 * 11 && now >= next_memory_warning_) WarnOfMemory(resident, now);
  }

  // With hardly a row in memory there is nothing left to give.
  void WarnOfMemory(std::size_t resident, TimeUs now) {
    const Residency* tier = shard_->rows().tier();
    if (tier == nullptr || tier->resident_rows() * kFewRows > shard_->rows().row_count()) return;
    next_memory_warning_ = now + kMemoryWarningPeriodUs;
    LogWarning(
        "shard {}: the process takes {} MiB, more than storage.memory = {}: {} MiB of this shard are the index of "
        "its {} rows and what else it keeps of them, with {} rows in memory; expected a larger storage.memory, "
        "more servers, or fewer rows (admission, expiry)",
        shard_id_.value, resident >> 20, ToByteSize(budget_), shard_->memory_bytes() >> 20, shard_->rows().row_count(),
        tier->resident_rows());
  }

  // All shards of a server wait for the same, so only the first logs it.
  void SayWait(TimeUs waited, double left_seconds) {
    if (waited < kWaitNotePeriodUs) next_wait_note_ = kWaitNotePeriodUs;
    if (index_ != 0 || waited < next_wait_note_) return;
    next_wait_note_ = waited + kWaitNotePeriodUs;
    Tell(LogLevel::kWarning, kProgram,
         fmt::format(
             "server {}: has waited {:.0f} s for a welcome from the scheduler at {}, which comes once it runs and "
             "all servers and workers are there (is that its address, {}?); gives up in {:.0f} s",
             options_.rank.value, static_cast<double>(waited) * 1e-6, options_.scheduler, kSameKeys, left_seconds));
  }

  // Rule N7.
  Status CheckScheduler(TimeUs now) {
    if (shard_->stopped()) return {};
    const TimeUs silence = listening_.Silence(shard_->scheduler_heard(), now, shard_->lease_us());
    const double silent = static_cast<double>(silence) * 1e-6;
    const double limit = shard_->joined() ? 2e-6 * static_cast<double>(shard_->lease_us()) : options_.join_seconds;
    if (!shard_->joined()) SayWait(silence, std::max(0.0, limit - silent));
    if (silent <= limit) return {};
    if (shard_->joined())
      return Fail(ErrorCode::kUnavailable, fmt::format("shard {}: the scheduler at {} was not heard for {:.0f} s",
                                                       shard_id_.value, options_.scheduler, silent));
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("shard {}: the scheduler at {} did not welcome it for {:.0f} s: is it running, is that its "
                    "address, {}, and is everybody else there? Its log says for whom it waits; --join-seconds lets "
                    "a server wait longer",
                    shard_id_.value, options_.scheduler, silent, kSameKeys));
  }

  void LogPart(const CheckpointPart& part) const {
    if (part.code == ErrorCode::kCancelled) {
      LogInfo("shard {}: checkpoint {}: {}", shard_id_.value, part.id.value, part.message);
      return;
    }
    if (part.code != ErrorCode::kOk) {
      LogError("shard {}: checkpoint {}: {}", shard_id_.value, part.id.value, part.message);
      return;
    }
    std::uint64_t bytes = 0, rows = 0;
    for (const CheckpointFile& file : part.files) bytes += file.bytes, rows += file.rows;
    LogInfo("shard {}: checkpoint {}: {} rows, {} bytes", shard_id_.value, part.id.value, rows, bytes);
  }

  // In metrics.jsonl and on the HTTP server.
  void PublishMetrics(TimeUs now) {
    next_metrics_ = now + kMetricsPeriodUs;
    auto report = std::make_unique<StatusReport>(StatusReport{.role = "shard",
                                                              .rank = std::to_string(shard_id_.value),
                                                              .ready = shard_->joined() && !shard_->stopped(),
                                                              .unix_seconds = WallSeconds(),
                                                              .metrics = {}});
    report->metrics = ShardMetrics(*shard_, transport_.counters(), log_.get());
    if (metrics_ != nullptr) {
      Json json = {{"time", report->unix_seconds}, {"role", report->role}, {"rank", shard_id_.value}};
      report->metrics.WriteTo(&json);
      metrics_->Append({JsonText(json)});
    }
    if (feed_ != nullptr) feed_->Put(std::move(report));
  }

  void WarnOfNotFinite(TimeUs now) {
    const std::uint64_t skipped = shard_->rows().counters().not_finite;
    if (skipped == not_finite_ || now < next_not_finite_note_) return;
    not_finite_ = skipped;
    next_not_finite_note_ = now + kWaitNotePeriodUs;
    for (const NotFiniteRows& of : shard_->rows().not_finite())
      LogWarning(
          "shard {}: table '{}': {} gradients with infinite or NaN values so far, the last of key {}; their rows were "
          "left as they were",
          shard_id_.value, of.table, of.rows, of.key);
  }

  const ServerOptions& options_;
  net::ZmqContext* context_;
  ShardId shard_id_;
  std::uint32_t index_;
  MemoryMeter* memory_;
  HeapTrimmer* trimmer_;
  MetricsWriter* metrics_;
  std::shared_ptr<StatusFeed> feed_;  // null: not read
  DiskPool* disk_;
  DiskPool::Strand* notes_;
  StopSignal* stop_;
  net::ZmqTransport transport_;
  StopSignal::Waker waker_;            // wakes the transport, so it is destroyed first
  RocksDbCheckpointStore store_;       // and so does it
  FileBlobStore blobs_;                // and so does it
  std::unique_ptr<FileShardLog> log_;  // the same; null without a run directory
  std::optional<Shard> shard_;
  Listening listening_;                        // to the scheduler
  TimeUs next_wait_note_ = kWaitNotePeriodUs;  // after the start
  LogWatch log_watch_;
  std::uint64_t not_finite_ = 0;  // rows skipped, when they were last logged
  TimeUs next_not_finite_note_ = 0;
  TimeUs next_metrics_ = 0;
  std::size_t budget_ = 0;  // the job's; 0: none
  TimeUs next_memory_ = 0;
  TimeUs trim_at_ = 0;  // 0: not wanted
  TimeUs next_memory_warning_ = 0;
  std::vector<net::Received> batch_;
  Outbox out_;
};

}  // namespace

Expected<std::string> ShardEndpoint(const std::string& bind, std::uint32_t index) {
  const std::size_t colon = bind.rfind(':');
  const std::string port = colon == std::string::npos ? "" : bind.substr(colon + 1);
  if (port == "*" || !bind.starts_with("tcp://")) return bind;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number + index > 65535)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--bind {}: expected tcp://HOST:PORT or tcp://HOST:*", bind));
  return fmt::format("{}:{}", bind.substr(0, colon), number == 0 ? 0 : number + index);
}

Status Server::Run() {
  TARN_CHECK(options_.nonces.size() == options_.shards, "a nonce a shard");
  auto scheduler = net::SchedulerEndpoint(options_.scheduler, options_.join_seconds);
  if (!scheduler) return std::unexpected(scheduler.error());
  options_.scheduler = *std::move(scheduler);
  if (options_.bind.empty()) options_.bind = net::DefaultBind(!options_.keys.empty(), options_.insecure);
  net::ZmqContext context({.io_threads = options_.io_threads});
  TARN_RETURN_IF_ERROR(context.SecureFromFile(options_.keys));
  MemoryMeter meter(options_.shards);
  DiskPool disk;
  HeapTrimmer trimmer(&disk, [&meter] {
    const std::size_t before = ResidentBytes();
    malloc_trim(0);
    meter.Trimmed(before, ResidentBytes());
  });
  std::unique_ptr<MetricsWriter> metrics;
  if (!options_.run_dir.empty()) {
    auto opened = MetricsWriter::Open(&disk, options_.run_dir + "/metrics.jsonl");
    if (!opened) return std::unexpected(opened.error());
    metrics = *std::move(opened);
  }
  DiskPool::Strand notes(&disk, "notes");
  const Shared shared{&context, &meter, &trimmer, &disk, metrics.get(), &notes, &stop_};
  std::mutex mutex;
  Status result;
  std::vector<std::thread> threads;
  // A server needs all of its shards: the others end, too, and the first reason is reported.
  const auto give_up = [&](const Status& status) {
    const std::lock_guard lock(mutex);
    if (result) result = status;
    stop_.Set();
  };
  const auto run = [&](std::uint32_t index) {
    pthread_setname_np(pthread_self(), fmt::format("shard-{}", index).c_str());
    const kernels::SubnormalsAreZero fast;
    const Status status = CatchLimits([&] {
      Status ended;
      const Status memory = CatchExhaustion([&] { ended = ShardLoop(options_, index, shared).Run(); });
      return memory ? ended : memory;
    });
    if (!status) give_up(status);
  };
  const Status started = CatchLimits([&]() -> Status {
    for (std::uint32_t index = 0; index < options_.shards; ++index) threads.emplace_back(run, index);
    return {};
  });
  if (!started) give_up(started);
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace tarn::server
