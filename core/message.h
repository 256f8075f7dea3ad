// Every message between the nodes of a fleet, as plain values: those of the data plane below, all others generated from
// schemas/wire.fbs (wire_objects.h). net/frame.h encodes and decodes them, docs/protocol.md specifies them. State
// machines use only these types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "core/view.h"
#include "wire_objects.h"

namespace tarn {

// Who sent a message. rank: 0 for the scheduler, ShardId for a shard, WorkerRank for a worker. Tools send as the
// scheduler.
struct Sender {
  Role role = Role::kWorker;
  std::uint32_t rank = 0;
  Incarnation incarnation;  // 0 before Welcome, and always for the scheduler
};
inline constexpr std::uint32_t kAnyRank = 0xffffffff;  // of a joining worker that accepts any rank

// --- The data plane, worker <-> shard: read and written by hand (net/data_header.cc) ---------------------------

// A run of a message's keys that lie in one partition, in the order of the keys frame.
struct Section {
  PartitionId partition;
  std::uint32_t count = 0;
  // Push: this section's push id sequence. Pull: the last sequence of the worker's own pushes to this partition
  // that the answer must contain (0: none).
  Sequence sequence;
  Version version = kNoVersion;  // Push: of the partition when this section's rows were pulled
};

enum class KeyCodec : std::uint8_t {
  kRaw,    // keys frame: count 64-bit little-endian keys
  kRange,  // no keys frame: first_key, first_key + 1, ...
  kDelta,  // keys frame: as in kernels/key_delta.h
  kHeld,   // no keys frame: the keys that the shard stores as `list`
};

// The keys of a data message; `count` is the sum over the sections.
struct KeyList {
  KeyCodec codec = KeyCodec::kRaw;
  Key first_key = 0;
  std::uint32_t count = 0;
  std::vector<Section> sections;
  // The sender's number for these keys, never reused for other keys (rule W3). With keys: the shard may store them
  // under it. 0: no number.
  std::uint64_t list = 0;
};

// Requests rows. `clock` is the clock at which the rows will be used, to which the staleness bound refers.
struct Pull {
  RequestId request;
  TableId table;
  Clock clock;
  ValueCodec codec = ValueCodec::kFp32;  // requested for the answer
  KeyList keys;
};

// values: count rows of the table, in the order of the keys.
struct PullReply {
  RequestId request;
  TableId table;
  Clock min_clock;  // the shard's minimum clock when it answered
  ValueCodec codec = ValueCodec::kFp32;
  std::uint32_t count = 0;
  std::vector<Version> versions;  // of the partition of each section of the pull, when the shard answered
};

// What a push does to the rows of its keys (rule A8).
enum class PushAction : std::uint8_t {
  kStep,    // an optimizer step with gradients
  kAssign,  // sets their values
  kDelete,  // removes them
};

// Gradients of rows, summed over the batch's duplicates. values: count rows, and with `pulled` further count rows.
// kAssign: values of rows, in fp32. kDelete: no values.
struct Push {
  RequestId request;
  TableId table;
  Clock clock;         // the clock that the gradients belong to
  Clock pulled_clock;  // the least minimum clock of the replies that brought their rows
  ValueCodec codec = ValueCodec::kFp32;
  KeyList keys;
  std::optional<ValueCodec> pulled;  // the codec of the rows as their worker pulled them (UpdateRule::needs_pulled)
  PushAction action = PushAction::kStep;
};

// One per section of the push, in order. kOk: applied (or gathered) now or before. kOutOfOrder: `expected` names
// the sequence that the partition waits for; nothing was applied. Other codes: see ErrorCode.
struct SectionAck {
  PartitionId partition;
  Sequence sequence;
  ErrorCode code = ErrorCode::kOk;
  Sequence expected;
};
struct PushAck {
  RequestId request;
  std::vector<SectionAck> sections;
};

// A push of clock c and the pull of clock c + 1 of the same keys in one message. Answered by a PushAck and, when the
// table's consistency allows the pull, by a PullReply to pull_request. The tick between them is a separate Tick, sent
// when all pushes are acknowledged.
struct PushPull {
  Push push;
  RequestId pull_request;
  Clock pull_clock;
  ValueCodec pull_codec = ValueCodec::kFp32;
};

// Rows that will be pulled soon. Not answered.
struct Prefetch {
  TableId table;
  KeyList keys;
};

// --- Any message ------------------------------------------------------------------------------------------------

struct Message {
  std::uint64_t job = 0;  // Fingerprint of the job; 0 in a Join
  Sender sender;
  Epoch epoch;  // of the sender's route map
  Body body;
  Buffer keys;    // Pull, Push, PushPull, Prefetch: see KeyCodec
  Buffer values;  // PullReply, Push, PushPull: count rows in the codec; PutBlob, BlobPiece: bytes
};

// "Pull", "PushAck", ...
inline std::string_view BodyName(const Body& body) { return kBodyNames[body.index()]; }

// A connection of the local node's transport: where a message came from and where answers go.
using Peer = StrongId<struct PeerTag, std::uint64_t>;
inline constexpr Peer kSchedulerPeer{0};
// The peer through which a client reaches a shard.
inline constexpr Peer ShardPeer(ShardId shard) { return Peer(1 + std::uint64_t{shard.value}); }
// Peers that connect to us (through a ROUTER) have numbers from here on.
inline constexpr std::uint64_t kFirstAcceptedPeer = std::uint64_t{1} << 32;

struct Outgoing {
  Peer to;
  Message message;
};
// The messages that a state machine sends, in order. The loop empties it after every step.
using Outbox = std::vector<Outgoing>;

}  // namespace tarn
