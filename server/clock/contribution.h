// A part of an aggregated push that waits for its clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/message.h"

namespace tarn::server {

// One section of one push. Shares the buffers of the message.
struct Contribution {
  TableId table;
  PartitionId partition;
  WorkerRank rank;
  Incarnation incarnation;
  Sequence sequence;
  Version version = kNoVersion;  // of the partition when the rows were pulled
  Clock pulled_clock;            // PushPart::pulled_clock
  std::uint32_t count = 0;
  KeyCodec key_codec = KeyCodec::kRaw;
  Key first_key = 0;           // for kRange
  Buffer keys;                 // for kRaw: all keys of the table in the message
  std::size_t key_offset = 0;  // position in `keys`, counted in keys
  PushAction action = PushAction::kStep;
  ValueCodec codec = ValueCodec::kFp32;
  Buffer values;
  std::size_t value_offset = 0;  // in bytes
  std::size_t bytes = 0;         // bytes of the buffers counted for this contribution
};

}  // namespace tarn::server
