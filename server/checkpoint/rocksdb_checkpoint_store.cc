#include "server/checkpoint/rocksdb_checkpoint_store.h"

#include <algorithm>
#include <utility>

#include "server/checkpoint/rocksdb_checkpoint_reader.h"
#include "server/exhaustion.h"

namespace tarn::server {

RocksDbCheckpointStore::RocksDbCheckpointStore(DiskPool* pool, std::function<void()> wake, std::size_t queued_bytes_max)
    : wake_(std::move(wake)), queued_bytes_max_(queued_bytes_max), writes_(pool, "checkpoint") {}

RocksDbCheckpointStore::~RocksDbCheckpointStore() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
}

void RocksDbCheckpointStore::Begin(Snapshot head, std::string directory) {
  ++parts_;
  Queue(BeginJob{std::move(head), std::move(directory), run_bytes_max_}, 0);
}

// The factor is measured. It covers queued rows, the run that the writer collects, its sorted order, RocksDB's files
// and heap fragmentation.
std::size_t RocksDbCheckpointStore::memory_max() const { return parts_ == 0 ? 0 : 10 * run_bytes_max_; }

void RocksDbCheckpointStore::BoundMemory(std::size_t bytes) {
  run_bytes_max_ = std::min(bytes, limits::kCheckpointRunBytes);
  const std::lock_guard lock(mutex_);
  queued_bytes_max_ = std::min(bytes, queued_bytes_max_);
}

void RocksDbCheckpointStore::Put(CutRows chunk) {
  const std::size_t bytes = ByteCount(chunk.rows);
  Queue(std::move(chunk), bytes);
}

void RocksDbCheckpointStore::Finish(std::optional<std::uint64_t> whole_hash) { Queue(FinishJob{whole_hash}, 0); }
void RocksDbCheckpointStore::Abandon() { Queue(AbandonJob{}, 0); }

void RocksDbCheckpointStore::Queue(Job job, std::size_t bytes) {
  const std::lock_guard lock(mutex_);  // the job locks it first, so its bytes are counted by then
  writes_.Post([this, bytes, job = std::move(job)]() mutable { RunJob(std::move(job), bytes); });
  queued_bytes_ += bytes;
}

bool RocksDbCheckpointStore::HasRoom() {
  const std::lock_guard lock(mutex_);
  waited_for_ = queued_bytes_ >= queued_bytes_max_;
  return !waited_for_;
}

// On the strand.
void RocksDbCheckpointStore::RunJob(Job job, std::size_t bytes) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    queued_bytes_ -= bytes;
    // Wake the shard when the queue is half empty, not for every chunk.
    room = waited_for_ && queued_bytes_ <= queued_bytes_max_ / 2;
    if (room) waited_for_ = false;
  }
  if (room) wake_();
  DoOrReport(std::move(job));
}

// If memory runs out before the writer exists, the report is made from the job.
void RocksDbCheckpointStore::DoOrReport(Job job) {
  CheckpointPart begun;
  if (const auto* begin = std::get_if<BeginJob>(&job))
    begun = {.id = begin->head.id, .max_clock = begin->head.max_clock};
  const Status memory = CatchExhaustion([&] { Do(std::move(job)); });
  if (memory) return;
  if (writer_) {
    Report(writer_->Failed(memory.error()));
    writer_.reset();
  } else if (begun.id.value != 0) {
    begun.code = memory.error().code;
    begun.message = memory.error().message;
    Report(std::move(begun));
  }
}

// A failure is reported at once; later jobs of the part are dropped.
void RocksDbCheckpointStore::Do(Job job) {
  if (auto* begin = std::get_if<BeginJob>(&job)) {
    writer_ = std::make_unique<RocksDbCheckpointWriter>(std::move(begin->head), std::move(begin->directory),
                                                        begin->run_bytes_max);
    if (const Status status = writer_->Begin(); !status) {
      Report(writer_->Failed(status.error()));
      writer_.reset();
    }
  } else if (!writer_) {
    return;
  } else if (auto* chunk = std::get_if<CutRows>(&job)) {
    if (const Status status = writer_->Put(std::move(*chunk)); !status) {
      Report(writer_->Failed(status.error()));
      writer_.reset();
    }
  } else if (const auto* finish = std::get_if<FinishJob>(&job)) {
    Report(writer_->Finish(finish->whole_hash));
    writer_.reset();
  } else {
    writer_->Abandon();
    Report(writer_->Failed({ErrorCode::kCancelled, "abandoned"}));
    writer_.reset();
  }
}

void RocksDbCheckpointStore::Report(CheckpointPart part) {
  {
    const std::lock_guard lock(mutex_);
    written_.push_back(std::move(part));
  }
  wake_();
}

std::vector<CheckpointPart> RocksDbCheckpointStore::TakeWritten() {
  const std::lock_guard lock(mutex_);
  parts_ -= written_.size();
  return std::exchange(written_, {});
}

Status RocksDbCheckpointStore::Load(const std::string& directory, RowSink& sink) {
  return ReadCheckpoint(directory, sink);
}

}  // namespace tarn::server
