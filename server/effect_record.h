// Records the effects of workers' messages on one shard in a file, one line each (shard/effect.h), in the order in
// which they happened. A worker repeats a pull whose answer is late, and uses the first answer that arrives. The record
// has the first that was served; a replay differs if that one was lost. Only Close creates the file under its name, so
// a shard that is killed leaves no record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "server/shard/effect.h"
#include "server/shard/shard_observer.h"

namespace tarn::server {

// Not thread-safe.
class EffectRecord final : public ShardObserver {
 public:
  // The newest pulls of each worker by which repeats are recognized. A repeat follows a second after its pull.
  static constexpr std::size_t kPullsKept = 16'384;

  explicit EffectRecord(AtomicFile file) : file_(std::move(file)) {}

  void OnPushTaken(WorkerRank worker, const Push& push, std::size_t first_new) override {
    Add(EffectOf(worker, push, first_new));
  }
  void OnPullServed(WorkerRank worker, Incarnation incarnation, const Pull& pull, Clock) override {
    if (IsFirst(incarnation, pull.request)) Add(EffectOf(worker, pull));
  }
  void OnTick(WorkerRank worker, const Tick& tick) override { Add(EffectOf(worker, tick)); }

  // The first error of a write; the record is then incomplete.
  const Status& status() const { return status_; }
  // Writes the buffered lines and creates the file under its name, unless a write has failed. Returns the first error.
  Status Close();

 private:
  bool IsFirst(Incarnation worker, RequestId pull);
  void Add(const Effect& effect);
  void Write();

  AtomicFile file_;
  std::string waiting_;  // not written yet
  std::uint64_t written_ = 0;
  std::map<Incarnation, std::set<RequestId>> pulls_;
  Status status_;
};

}  // namespace tarn::server
