// Values inside messages, other than ids. They are sent, and most are also stored, as FlatBuffers structs, so that long
// lists of them are cheap. schemas/types.fbs defines the structs, core/codec/pack.cc converts them. The messages
// themselves are in schemas/wire.fbs and, for the data plane, in core/message.h.
#pragma once

#include <array>
#include <cstdint>

#include "core/error.h"
#include "core/quality.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn {

// A worker's position in its training data: the first `rows` rows of lease `lease` (counted from the lease's first_row,
// including skip_rows) are trained and acknowledged. Earlier training leases are done, later ones not begun.
struct DataPosition {
  LeaseId lease;
  std::uint64_t rows = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

struct TickPoint {  // a tick to `clock`, with the data up to `position`
  Clock clock;
  DataPosition position;
  friend bool operator==(const TickPoint&, const TickPoint&) = default;
};

struct FencedTick {  // a shard's record of a worker that is being fenced
  Incarnation incarnation;
  Clock tick;             // highest clock ticked to
  DataPosition position;  // of that tick
  Clock pushed;           // one past the highest clock of which a push was applied immediately; 0: none
};
struct WorkerTick {
  Incarnation incarnation;
  Clock clock;
  DataPosition position;
};

enum class WorkerState : std::uint8_t {
  kLive,     // in the cohort of every clock >= join
  kFencing,  // declared dead: shards reject its messages and report its highest tick
  kEnded,    // by a verdict: in the cohorts of clocks join <= t < end; its pushes of clocks >= end are void
};

struct WorkerEntry {
  WorkerRank rank;
  Incarnation incarnation;
  WorkerState state = WorkerState::kLive;
  Clock join;
  Clock end;  // kEnded only

  // Whether clock `t` waits for this worker.
  bool InCohort(Clock t) const { return t >= join && (state != WorkerState::kEnded || t < end); }
};

// Numbers of lines in the train, validation and test set.
using SetRows = std::array<std::uint64_t, 3>;

// The contents of one table in a part, or in all parts, of a checkpoint.
struct CheckpointTable {
  TableId table;
  std::uint64_t rows = 0, removed = 0, seen = 0;  // in the files: rows, removed keys, keys that wait for admission
  std::uint64_t state_rows = 0;                   // of the table at the cut
  friend bool operator==(const CheckpointTable&, const CheckpointTable&) = default;
};

}  // namespace tarn
