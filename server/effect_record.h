// Records the effects of workers' messages on one shard in a file, one line each (shard/effect.h), in the order in
// which they happened. Only Close creates the file under its name, so a shard that is killed leaves no record.
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
  // Writes the buffered lines and creates the file under its name, unless a write has failed. Returns the first error.
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
