#include "server/loop.h"

#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "core/disk_pool.h"
#include "core/log.h"
#include "core/metrics/metrics_file.h"
#include "core/process_limits.h"
#include "kernels/subnormals.h"
#include "net/local_endpoint.h"
#include "net/zmq/transport.h"
#include "server/effect_record.h"
#include "server/exhaustion.h"
#include "server/heap_trimmer.h"
#include "server/loading_beacon.h"
#include "server/log/file_shard_log.h"
#include "server/memory_meter.h"
#include "server/scheduler_watch.h"
#include "server/shard/shard.h"
#include "server/shard_diagnostics.h"
#include "server/shard_disks.h"
#include "server/shard_memory.h"
#include "server/shard_metrics.h"
#include "server/shard_reporter.h"
#include "server/shard_sockets.h"
#include "server/store/store.h"
#include "server/turn.h"

namespace tarn::server {

namespace {

constexpr std::size_t kMessagesPerTurn = 256;
constexpr TimeUs kTurnUsMax = 100'000;  // maximum wait for messages: log, lease and memory are checked in each turn

TimeUs Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
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
  DiskPool::Strand* notes;  // writes warnings about a stalled disk: the log file may be on that disk
  StopSignal* stop;
  std::atomic<bool>* answered;  // by the scheduler, to any shard
};

// One shard on its thread.
class ShardLoop {
 public:
  ShardLoop(const ServerOptions& options, std::uint32_t index, const Shared& shared)
      : options_(options),
        shared_(shared),
        index_(index),
        shard_id_(ShardOf(options, index)),
        sockets_(shared.context, options, index),
        waker_(shared.stop, [this] { sockets_.Wake(); }),
        disks_({.shard = shard_id_, .shards = options.shards, .run_dir = options.run_dir}, shared.disk,
               [this] { sockets_.Wake(); }),
        memory_(shard_id_, index, shared.memory, shared.trimmer),
        scheduler_(options, index),
        diagnostics_(shard_id_, shared.notes),
        reporter_(shard_id_, shared.metrics, index < options.feeds.size() ? options.feeds[index] : nullptr) {}

  Status Run() {
    TARN_RETURN_IF_ERROR(Open());
    const TimeUs started = Now();
    scheduler_.Begin(started);
    shard_->Start(started, &out_);
    Flush();
    while (!shard_->ended()) {
      if (shared_.stop->IsSet()) {
        if (shard_->stopped()) break;
        return Fail(ErrorCode::kCancelled, "terminated by a signal before the job was over");
      }
      TARN_RETURN_IF_ERROR(Turn());
    }
    Publish(Now());  // the last line of the metrics covers the whole run
    if (record_) TARN_RETURN_IF_ERROR(record_->Close());
    const Shutdown& reason = shard_->stop_reason();
    LogInfo("shard {}: stopped ({}): {}", shard_id_.value, ErrorName(reason.code), reason.reason);
    if (reason.code == ErrorCode::kOk) return {};
    return Fail(reason.code, reason.reason);
  }

 private:
  Status Open() {
    auto endpoint = sockets_.Open();
    if (!endpoint) return std::unexpected(endpoint.error());
    if (!options_.record.empty()) {
      auto file = AtomicFile::Create(fmt::format("{}/shard-{}", options_.record, shard_id_.value));
      if (!file) return std::unexpected(file.error());
      record_.emplace(*std::move(file));
    }
    shard_.emplace(ShardOptions{.shard = shard_id_,
                                .nonce = options_.nonces[index_],
                                .endpoint = *std::move(endpoint),
                                .shards_per_server = options_.shards,
                                .http = options_.http,
                                .flush = [this] { Flush(); },
                                .log = disks_.log(),
                                .blobs = &disks_.blobs(),
                                .make_tier = [this](const Job& job) { return MakeTier(job); },
                                .unix_us = [](TimeUs) { return static_cast<TimeUs>(WallSeconds() * 1e6); }},
                   &disks_.checkpoints(), record_ ? &*record_ : nullptr);
    return {};
  }

  Expected<Tier> MakeTier(const Job& job) {
    auto store = disks_.OpenTier(job);
    if (!store) return std::unexpected(store.error());
    if (*store == nullptr) return Tier{};
    return Tier{.store = *std::move(store), .limit_bytes = memory_.Begin(job.storage.memory, ResidentBytes())};
  }

  // Catches exhaustion of memory outside the steps of the shard, for example in the transport.
  Status Turn() {
    Status status;
    const Status memory = CatchExhaustion([&] { status = TakeTurn(); });
    if (memory) return status;
    const Shutdown& reason = shard_->stop_reason();
    if (shard_->stopped()) return Fail(reason.code, reason.reason);  // no memory to repeat the reason
    shard_->Abandon(memory.error(), &out_);
    Flush();
    return {};
  }

  Status TakeTurn() {
    batch_.clear();
    sockets_.transport().Receive(&batch_, kMessagesPerTurn,
                                 std::clamp<TimeUs>(shard_->NextTimer() - Now(), 0, kTurnUsMax));
    const bool was_joined = shard_->joined();
    if (!was_joined && std::ranges::find(batch_, kSchedulerPeer, &net::Received::from) != batch_.end())
      *shared_.answered = true;
    const std::unique_ptr<LoadingBeacon> beacon = was_joined ? nullptr : BeaconFor(batch_);
    const TimeUs now = HandOver(&batch_, &*shard_, Now, &out_, [this] { Flush(); });
    for (CheckpointPart& part : disks_.checkpoints().TakeWritten()) {
      diagnostics_.OnCheckpointPart(part);
      shard_->OnCheckpointWritten(std::move(part), now, &out_);
      memory_.TrimSoon(now);
    }
    memory_.TrimIfDue(now);
    for (const BlobWritten& written : disks_.blobs().TakeWritten()) shard_->OnBlobWritten(written, now, &out_);
    shard_->OnLogSynced(now, &out_);
    shard_->OnTier(now, &out_);
    if (now >= shard_->NextTimer()) shard_->OnTimer(now, &out_);
    if (record_ && !record_->status()) shard_->Abandon(record_->status().error(), &out_);
    if (FileShardLog* log = disks_.log()) log->EndTurn();
    Flush();
    batch_.clear();  // releases payloads, before the memory is counted
    if (memory_.IsDue(now)) ShareMemory(now);
    if (!was_joined && shard_->joined()) {
      sockets_.transport().SetBusyPoll(shard_->busy_poll_us());
      LogInfo("shard {}: joined, {} partitions, {} rows", shard_id_.value, shard_->rows().owned().size(),
              shard_->rows().row_count());
    }
    if (reporter_.IsDue(now)) Publish(now);
    diagnostics_.WatchLog(now, shard_->log_is_durable(), shard_->log_synced());
    if (diagnostics_.NotFiniteIsDue(now, shard_->rows().counters().not_finite))
      diagnostics_.LogNotFinite(shard_->rows().not_finite());
    if (shard_->stopped()) return {};
    return scheduler_.Check(now, shard_->scheduler_heard(), shard_->lease_us(), shard_->joined());
  }

  // Starts a beacon if the batch contains the shard's Welcome, because this thread then loads the state that it names.
  // Otherwise null.
  std::unique_ptr<LoadingBeacon> BeaconFor(const std::vector<net::Received>& batch) const {
    for (const net::Received& received : batch) {
      const auto* welcome = std::get_if<Welcome>(&received.message.body);
      if (welcome == nullptr || welcome->nonce != options_.nonces[index_]) continue;
      const auto job = ParseJob(welcome->job_text, "the scheduler's job", ".");
      if (!job) return nullptr;  // the shard reports the error
      return std::make_unique<LoadingBeacon>(
          LoadingBeacon::Options{.context = shared_.context,
                                 .insecure = options_.insecure,
                                 .scheduler = options_.scheduler,
                                 .period_us = static_cast<TimeUs>(job->fleet.heartbeat_seconds * 1e6),
                                 .heartbeat = LoadingHeartbeat(received.message)});
    }
    return nullptr;
  }

  void Flush() {
    sockets_.transport().Send(out_);
    out_.clear();
  }

  void ShareMemory(TimeUs now) {
    const Store& rows = shard_->rows();
    const Residency* tier = rows.tier();
    shard_->SetMemoryLimit(memory_.Share({.bytes = shard_->memory_bytes(),
                                          .checkpoint_bytes = disks_.checkpoints().memory_max(),
                                          .resident = ResidentBytes(),
                                          .rows = rows.row_count(),
                                          .rows_in_memory = tier != nullptr ? tier->resident_rows() : rows.row_count()},
                                         now));
  }

  void Publish(TimeUs now) {
    reporter_.Publish(now, WallSeconds(), shard_->joined() && !shard_->stopped(),
                      ShardMetrics(*shard_, sockets_.transport().counters(), disks_.log()));
  }

  const ServerOptions& options_;
  const Shared& shared_;
  std::uint32_t index_;
  ShardId shard_id_;
  ShardSockets sockets_;
  StopSignal::Waker waker_;  // wakes sockets_, so it is destroyed before them
  ShardDisks disks_;         // wakes them too
  std::optional<EffectRecord> record_;
  std::optional<Shard> shard_;
  ShardMemory memory_;
  SchedulerWatch scheduler_;
  ShardDiagnostics diagnostics_;
  ShardReporter reporter_;
  std::vector<net::Received> batch_;
  Outbox out_;
};

}  // namespace

Status Server::Run() {
  TARN_CHECK(options_.nonces.size() == options_.shards, "one nonce per shard");
  auto scheduler = net::SchedulerEndpoint(options_.scheduler, options_.join_seconds, [this] { return stop_.IsSet(); });
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
  const Shared shared{&context, &meter, &trimmer, &disk, metrics.get(), &notes, &stop_, &answered_};
  std::mutex mutex;
  Status result;
  std::vector<std::thread> threads;
  // A server needs all of its shards: if one fails, all end, and Run returns the first error.
  const auto stop_all = [&](const Status& status) {
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
    if (!status) stop_all(status);
  };
  const Status started = CatchLimits([&]() -> Status {
    for (std::uint32_t index = 0; index < options_.shards; ++index) threads.emplace_back(run, index);
    return {};
  });
  if (!started) stop_all(started);
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace tarn::server
