// The records of a shard's log: the inputs that change its state, and that state but for the rows. Bytes by
// schemas/log.fbs. Pure functions and values; any thread.
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

// A push: the sections that were taken, with keys and values as the message brought them.
struct LoggedPush {
  Incarnation incarnation;
  WorkerRank rank;
  Push push;  // request, pulled_clock: not kept
  Buffer keys, values;
};

struct LoggedTick {
  Incarnation incarnation;
  Tick tick;
};

// A view that was adopted.
struct LoggedView {
  ViewVersion version;
  std::vector<WorkerEntry> workers;
  std::vector<TableSpec> tables;
  CheckpointId newest_order;  // seen, this view's included
};

struct LoggedMember {
  Incarnation incarnation;
  Clock tick;
  DataPosition position;
  Clock pushed;
  std::vector<TickPoint> earlier;
};

// The state but for the rows. `gathered` records follow it.
struct LoggedHead {
  std::uint32_t partition_bits = 0;
  LoggedView view;
  Clock minimum;
  std::vector<LoggedMember> members;
  std::map<Incarnation, std::vector<Sequence>> watermarks;  // by partition
  std::uint64_t gathered = 0;
  std::uint64_t hash = 0;
  std::optional<Clock> rows_clock;  // the time told to rows with a life
  std::optional<std::uint64_t> rows_seconds;
};

// A push that waits for its clock; part of a head.
struct LoggedGathered {
  LoggedPush push;
};

// The time of day was told to the rows.
struct LoggedTime {
  std::uint64_t seconds = 0;
};

using LoggedBody = std::variant<LoggedHead, LoggedPush, LoggedTick, LoggedView, LoggedGathered, LoggedTime>;

LogRecord EncodeRecord(const LoggedHead& head);
LogRecord EncodeRecord(const LoggedPush& push);
LogRecord EncodeRecord(const LoggedTick& tick);
LogRecord EncodeRecord(const LoggedView& view);
LogRecord EncodeRecord(const LoggedGathered& gathered);
LogRecord EncodeRecord(const LoggedTime& time);

// kCorrupt, naming the field: bytes that are no record. What a record means (tables, partitions, counts) is the
// shard's to check.
Expected<LoggedBody> DecodeRecord(const LogRecord& record);

}  // namespace tarn::server
