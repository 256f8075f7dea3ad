// The items of a log that are not written yet, in order: records, beginnings of segments, and checkpoints that make
// older segments unnecessary. Shared by FileShardLog and the simulator's log. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "server/log/log_writer.h"
#include "server/log/shard_log.h"

namespace tarn::server {

class LogQueue {
 public:
  struct Begin {
    CheckpointId cut;
  };
  struct Drop {
    CheckpointId before;
  };
  using Item = std::variant<LogRecord, Begin, Drop>;

  // The sequence of the next record pushed is `last` + 1.
  void Start(LogSequence last) { last_ = last; }
  LogSequence Push(LogRecord record) {
    bytes_ += record.bytes();
    urgent_ |= record.is_urgent;
    items_.emplace_back(std::move(record));
    return last_ = LogSequence(last_.value + 1);
  }
  void PushBegin(CheckpointId cut) {
    items_.emplace_back(Begin{cut});
    urgent_ = true;
  }
  void PushDrop(CheckpointId before) {
    items_.emplace_back(Drop{before});
    dropping_ = urgent_ = true;
  }

  LogSequence last() const { return last_; }  // the last sequence assigned
  bool empty() const { return items_.empty(); }
  bool dropping() const { return dropping_; }  // a Drop is among the items
  bool urgent() const { return urgent_; }      // an item is urgent
  std::size_t bytes() const { return bytes_; }
  std::vector<Item> TakeAll() {
    bytes_ = 0;
    dropping_ = urgent_ = false;
    return std::exchange(items_, {});
  }

 private:
  std::vector<Item> items_;
  std::size_t bytes_ = 0;
  bool dropping_ = false, urgent_ = false;
  LogSequence last_;
};

// Writes items taken from a queue. The last batch becomes durable with the writer's next Sync.
Status WriteItems(std::vector<LogQueue::Item> items, LogWriter* writer);

}  // namespace tarn::server
