// Recovers a shard from its log: loads the rows of a checkpoint, restores the state in the head of its segment, and
// repeats every later input with the code that handled it first (rules L5, L6). Sends nothing. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/error.h"
#include "server/log/record.h"
#include "server/log/shard_log.h"
#include "server/shard/clocks.h"
#include "server/shard/fleet_view.h"
#include "server/shard/pushes.h"
#include "server/shard/shard_cuts.h"
#include "server/shard/shard_observer.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"

namespace tarn::server {

class LogReplay final : public LogSink {
 public:
  // The state of a new shard; all outlive the replay.
  struct Context {
    Store* rows;
    FleetView* view;
    Clocks* clocks;
    Pushes* pushes;
    ShardCuts* cuts;
    StopNotice* stop;
    ShardObserver* observer;
    std::function<std::size_t()> other_bytes;  // memory of the shard besides its rows
  };
  // `checkpoint`: the directory of the checkpoint at which the first segment begins; empty: the start of the run.
  LogReplay(std::string checkpoint, Context context)
      : checkpoint_(std::move(checkpoint)), context_(std::move(context)) {}

  // kCorrupt: the record is invalid, or contradicts earlier ones. Other errors: the checkpoint cannot be loaded, or
  // rows on disk cannot be read or written.
  Status OnRecord(LogSequence sequence, bool begins, LogRecord record) override;
  // Whether a head and all its gathered pushes were read.
  bool restored() const { return restored_; }

 private:
  Status OnHead(const LoggedHead& head);
  Status OnGathered(const LoggedGathered& gathered);
  Status OnInput(const LoggedBody& input);
  Status OnTick(const LoggedTick& logged);
  Status OnView(const LoggedView& logged);
  Status OnCut(const LoggedHead& head);
  Status Restore(const LoggedHead& head);
  Status RestoreMembers(const LoggedHead& head);
  Status OnRestored();
  Status CloseReady();
  std::uint64_t Hash() const;

  std::string checkpoint_;
  Context context_;
  bool restored_ = false;
  std::uint64_t left_ = 0;  // gathered pushes of the current head that have not been read yet
};

}  // namespace tarn::server
