// The records of a shard's log: the inputs that change its state, and the state without the rows. schemas/log.fbs
// defines their encoding. Pure functions and values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"
#include "server/log/shard_log.h"

namespace tarn::server {

// The accepted sections of one table of a push.
struct LoggedPush {
  Incarnation incarnation;
  WorkerRank rank;
  Clock clock;
  PushPart push;
};

struct LoggedTick {
  Incarnation incarnation;
  Tick tick;
};

// An adopted view.
struct LoggedView {
  ViewVersion version;
  std::vector<WorkerEntry> workers;
  std::vector<TableSpec> tables;
  CheckpointId newest_order;  // the newest order seen so far, including this view's
  Clock cut_clock;            // clock of this view's order; 0: no order, or one that names no clock
};

// A worker of the cohort (Cohort::Member, server/clock/cohort.h).
struct LoggedMember {
  Incarnation incarnation;
  Clock tick;
  DataPosition position;
  Clock pushed;
  std::vector<TickPoint> earlier;
};

// The state without the rows. `gathered` records of type LoggedGathered follow it.
struct LoggedHead {
  std::uint32_t partition_bits = 0;
  LoggedView view;
  Clock minimum;
  std::vector<LoggedMember> members;
  std::map<Incarnation, std::vector<Sequence>> watermarks;  // by partition
  std::uint64_t gathered = 0;
  std::uint64_t hash = 0;           // SoftState::Hash (server/shard/soft_state.h)
  std::optional<Clock> rows_clock;  // Expiry::clock and Expiry::seconds (server/store/expiry.h)
  std::optional<std::uint64_t> rows_seconds;
};

// One section of a push that waits for its clock; part of a head.
struct LoggedGathered {
  LoggedPush push;
};

// The time of tables whose rows expire by seconds was set (Expiry::AdvanceSeconds).
struct LoggedTime {
  std::uint64_t seconds = 0;  // since the Unix epoch
};

using LoggedBody = std::variant<LoggedHead, LoggedPush, LoggedTick, LoggedView, LoggedGathered, LoggedTime>;

LogRecord EncodeRecord(const LoggedHead& head);
LogRecord EncodeRecord(const LoggedPush& push);
LogRecord EncodeRecord(const LoggedTick& tick);
LogRecord EncodeRecord(const LoggedView& view);
LogRecord EncodeRecord(const LoggedGathered& gathered);
LogRecord EncodeRecord(const LoggedTime& time);

// kCorrupt: the record's head is not a valid FlatBuffer, or a field, which the message names, is invalid. The shard
// checks the meaning (tables, partitions, counts).
Expected<LoggedBody> DecodeRecord(const LogRecord& record);

}  // namespace tarn::server
