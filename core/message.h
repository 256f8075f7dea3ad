// Every message between the nodes of a fleet, as plain values: those of the data plane below, all others generated from
// schemas/wire.fbs (wire_objects.h). net/frame.h encodes and decodes them, docs/protocol.md specifies them. State
// machines use only these types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <boost/container/small_vector.hpp>

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

// A run of a table's keys that lie in one partition, in the order of its keys.
struct Section {
  PartitionId partition;
  std::uint32_t count = 0;
  // Push: the sequence of this section's push id. Pull: the last sequence of the worker's own pushes to this partition
  // that the answer must contain (0: none).
  Sequence sequence;
  Version version = kNoVersion;  // Push: version of the partition when this section's rows were pulled
};

enum class KeyCodec : std::uint8_t {
  kRaw,    // frame: count 64-bit little-endian keys
  kRange,  // no frame: first_key, first_key + 1, ...
  kDelta,  // frame: as in kernels/key_delta.h
  kHeld,   // no frame: the keys that the shard stores as `list`
};

// The keys of one table in a data message; `count` is the sum over the sections.
struct KeyList {
  KeyCodec codec = KeyCodec::kRaw;
  Key first_key = 0;
  std::uint32_t count = 0;
  std::vector<Section> sections;
  // The sender's number for these keys, never reused for other keys (rule W3); 0: none. A shard that receives the keys
  // may store them under this number.
  std::uint64_t list = 0;
  Buffer frame;  // see KeyCodec
};

// A request is about rows of one table or of several, and has one answer (rule W6).

// The parts of a message, one per table. A single part is stored in place, without an allocation, because all messages
// of a model with one table have one part; several are stored on the heap. Moving the message invalidates pointers to
// its parts.
template <typename Part>
using TableParts = boost::container::small_vector<Part, 1>;

// The rows of one table that a pull requests. The tables of a pull have the same consistency.
struct PullPart {
  TableId table;
  ValueCodec codec = ValueCodec::kFp32;  // requested for the answer
  KeyList keys;
};
// Requests rows. `clock` is the clock at which the rows will be used, to which the staleness bound refers.
struct Pull {
  RequestId request;
  Clock clock;
  TableParts<PullPart> tables;
};

// The answer for one table of a pull. values: count rows, in the order of the keys.
struct ReplyPart {
  TableId table;
  ValueCodec codec = ValueCodec::kFp32;
  std::uint32_t count = 0;
  std::vector<Version> versions;  // of the partition of each section of the pull, when the shard answered
  Buffer values;
  bool on_disk = false;  // whether the shard has rows of this table on disk (rule T4)
};
struct PullReply {
  RequestId request;
  // The shard's minimum clock when it answered; with backup workers the open clock of the tables (rule C8).
  Clock min_clock;
  TableParts<ReplyPart> tables;  // as in the pull
};

// What a push does to the rows of its keys (rule A8).
enum class PushAction : std::uint8_t {
  kStep,    // an optimizer step with gradients
  kAssign,  // sets their values
  kDelete,  // removes them
};

// A push to rows of one table. `values` by action: kStep: the gradients of keys.count rows, summed over the batch's
// duplicates, and with `pulled` after them the keys.count rows as pulled. kAssign: the new values of the rows, in fp32.
// kDelete: empty.
struct PushPart {
  TableId table;
  Clock pulled_clock;  // the lowest minimum clock of the replies with which the worker received these rows
  ValueCodec codec = ValueCodec::kFp32;
  std::optional<ValueCodec> pulled;  // codec of the rows as pulled, for rules with UpdateRule::needs_pulled
  PushAction action = PushAction::kStep;
  KeyList keys;
  Buffer values;
};
struct Push {
  RequestId request;
  Clock clock;  // the clock that the gradients belong to
  TableParts<PushPart> tables;
};

// The answer for one section of a push. kOk: applied (or gathered) now or before. kOutOfOrder: not applied; `expected`
// is the sequence that the partition waits for. Other codes: see ErrorCode.
struct SectionAck {
  PartitionId partition;
  Sequence sequence;
  ErrorCode code = ErrorCode::kOk;
  Sequence expected;
};
struct PushAck {
  RequestId request;
  std::vector<SectionAck> sections;  // one per section of the push, in its order
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
  Buffer values;  // payload of PutBlob and BlobPiece
};

// Calls keys(buffer) and values(buffer) for the payload of a message, table by table; some may be empty.
template <typename AnyMessage, typename Keys, typename Values>
void ForEachPayload(AnyMessage& message, const Keys& keys, const Values& values) {
  if (auto* pull = std::get_if<Pull>(&message.body)) {
    for (auto& table : pull->tables) keys(table.keys.frame);
  } else if (auto* reply = std::get_if<PullReply>(&message.body)) {
    for (auto& table : reply->tables) values(table.values);
  } else if (auto* push = std::get_if<Push>(&message.body)) {
    for (auto& table : push->tables) keys(table.keys.frame), values(table.values);
  } else if (auto* soon = std::get_if<Prefetch>(&message.body)) {
    keys(soon->keys.frame);
  } else {
    values(message.values);
  }
}

inline std::size_t PayloadBytes(const Message& message) {
  std::size_t bytes = 0;
  const auto add = [&bytes](const Buffer& buffer) { bytes += buffer.size(); };
  ForEachPayload(message, add, add);
  return bytes;
}

// "Pull", "PushAck", ...
inline std::string_view BodyName(const Body& body) { return kBodyNames[body.index()]; }

// A connection of the local node's transport: where a message came from and where answers go.
using Peer = StrongId<struct PeerTag, std::uint64_t>;
inline constexpr Peer kSchedulerPeer{0};
// The peer through which a client reaches a shard.
inline constexpr Peer ShardPeer(ShardId shard) { return Peer(1 + std::uint64_t{shard.value}); }
// The numbers of peers that connected to the local node (through its ROUTER) begin here.
inline constexpr std::uint64_t kFirstAcceptedPeer = std::uint64_t{1} << 32;

struct Outgoing {
  Peer to;
  Message message;
};
// Lists of messages grow without copying them.
static_assert(std::is_nothrow_move_constructible_v<Message> && std::is_nothrow_move_assignable_v<Message>);
// The messages that a state machine sends, in order. The loop empties it after every step.
using Outbox = std::vector<Outgoing>;

}  // namespace tarn
