// The effects of the messages of workers on one shard, as lines of a file (shard/effect.h), in their order. The file
// appears when the run is over: the record of a shard that was killed does not exist.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "server/shard/effect.h"
#include "server/shard/shard_observer.h"

namespace tarn::server {

// Not thread-safe.
class EffectRecord final : public ShardObserver {
 public:
  explicit EffectRecord(AtomicFile file) : file_(std::move(file)) {}

  void OnPushTaken(WorkerRank worker, const Push& push, std::size_t first_new) override {
    Add(EffectOf(worker, push, first_new));
  }
  void OnPullServed(WorkerRank worker, Incarnation, const Pull& pull, Clock) override { Add(EffectOf(worker, pull)); }
  void OnTick(WorkerRank worker, const Tick& tick) override { Add(EffectOf(worker, tick)); }

  // The first error of a write; the record is then incomplete.
  const Status& status() const { return status_; }
  // Writes the rest and puts the file in place. The error, also of an earlier write.
  Status Close();

 private:
  void Add(const Effect& effect);
  void Write();

  AtomicFile file_;
  std::string waiting_;  // not written yet
  std::uint64_t written_ = 0;
  Status status_;
};

}  // namespace tarn::server
