// Every message between the nodes of a fleet, as plain values. schemas/wire.fbs says how each travels as bytes,
// net/frame.h converts, docs/protocol.md tells the story. State machines see only these types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/quality.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "core/view.h"

namespace tarn {

enum class Role : std::uint8_t { kScheduler, kShard, kWorker };

// Who sent a message. rank: 0 for the scheduler, ShardId for a shard, WorkerRank for a worker.
struct Sender {
  Role role = Role::kWorker;
  std::uint32_t rank = 0;
  Incarnation incarnation;  // 0 before Welcome
};

// --- Data: worker <-> shard ---------------------------------------------------------------------------------

// A run of a message's keys that lie in one partition, in the order of the keys frame.
struct Section {
  PartitionId partition;
  std::uint32_t count = 0;
  // Push: this section's push id sequence. Pull: the last sequence of the worker's own pushes to this partition
  // that the answer must contain (0: none).
  Sequence sequence;
};

enum class KeyCodec : std::uint8_t {
  kRaw,    // keys frame: count 64-bit little-endian keys
  kRange,  // no keys frame: first_key, first_key + 1, ...
  kDelta,  // keys frame: as kernels/key_delta.h tells
  kHeld,   // no keys frame: the keys that the shard holds as `list`
};

// The keys of a data message; `count` is the sum over the sections.
struct KeyList {
  KeyCodec codec = KeyCodec::kRaw;
  Key first_key = 0;
  std::uint32_t count = 0;
  std::vector<Section> sections;
  // The sender's number of these keys, for ever of these and no others (rule W3). With keys: the shard may hold them as
  // such. 0: they have none.
  std::uint64_t list = 0;
};

// Asks for rows. `clock` is the clock at which the rows will be used: the bound refers to it.
struct Pull {
  RequestId request;
  TableId table;
  Clock clock;
  ValueCodec codec = ValueCodec::kFp32;  // wanted for the answer
  KeyList keys;
};

// values: count rows of the table, in the order of the keys.
struct PullReply {
  RequestId request;
  TableId table;
  Clock min_clock;  // the shard's minimum clock when it answered
  ValueCodec codec = ValueCodec::kFp32;
  std::uint32_t count = 0;
};

// Gradients of rows, summed over the batch's duplicates. values: count rows.
struct Push {
  RequestId request;
  TableId table;
  Clock clock;         // the clock that the gradients belong to
  Clock pulled_clock;  // the clock for which their rows were pulled
  ValueCodec codec = ValueCodec::kFp32;
  KeyList keys;
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

// Push c, tick, pull c + 1 in one message: the push's keys are also the pull's. Answered by a PushAck and, once
// the shard may, by a PullReply to pull_request. The tick itself travels as Tick, when all pushes are acknowledged.
struct PushPull {
  Push push;
  RequestId pull_request;
  Clock pull_clock;
  ValueCodec pull_codec = ValueCodec::kFp32;
};

// Where a worker stands in its training data: in lease `lease`, the first `rows` rows (counted from the lease's
// first_row, so skip_rows are among them) are trained and acknowledged. Train leases before it are done, later ones
// not begun.
struct DataPosition {
  LeaseId lease;
  std::uint64_t rows = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

// The sender has finished all clocks < clock, and every push of them is acknowledged by every shard. A clock may
// jump. Acknowledged with TickAck.
struct TickPoint {  // a tick that was made: to this clock, with the data up to this position
  Clock clock;
  DataPosition position;
  friend bool operator==(const TickPoint&, const TickPoint&) = default;
};
struct Tick {
  Clock clock;
  DataPosition position;
  // Ticks before this one that not every shard has acknowledged, in order; the last limits::kTicksKeptMax of them.
  std::vector<TickPoint> earlier;
};
struct TickAck {
  Clock clock;
};

// Rows that will be pulled soon. Not answered.
struct Prefetch {
  TableId table;
  KeyList keys;
};

// A request that could not be served. epoch: the refuser's; with kStaleEpoch the newer view follows as ViewUpdate
// from the scheduler, which the client asks by its next heartbeat.
struct ErrorReply {
  RequestId request;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  Epoch epoch;
};

// --- Control: node <-> scheduler ------------------------------------------------------------------------------

inline constexpr std::uint32_t kAnyRank = 0xffffffff;

// Sent until Welcome comes. `nonce` is random per process start: it makes a repeated Join harmless.
struct Join {
  Role role = Role::kWorker;
  std::uint32_t rank = kAnyRank;  // shard: its ShardId; worker: its rank, or kAnyRank
  std::uint64_t nonce = 0;
  std::uint32_t protocol_version = 0;
  std::string endpoint;                 // shard: where its ROUTER is bound
  std::uint32_t shards_per_server = 0;  // shard: of its process; 0: it does not say
};

// What a shard does about its log (rules L1 to L6); for durability "log".
struct LogOrder {
  std::uint64_t run = 0;  // of this run; 0: no log
  bool recover = false;   // there is a log: replay it, from the segment that began at checkpoint `from` on
  CheckpointId from;      // 0: the beginning of the run
  LogSequence at_least;   // what is known to be in the log
};
struct Welcome {
  std::uint64_t nonce = 0;  // of the Join it answers
  std::uint32_t rank = 0;
  Incarnation incarnation;
  Clock start_clock;             // worker: its first clock
  std::string job_text;          // the job, as resolved TOML
  std::string resume_directory;  // shard: checkpoint to load before it confirms a view; empty: none
  View view;
  LogOrder log;                  // shard
  std::uint64_t blob_bytes = 0;  // worker: of the state that its rank goes on from, to be fetched (rule K10); 0: none
};

// Progress of a node; also the confirmation of a view. Sent every heartbeat period and at once after a new view.
struct FencedTick {  // what a shard holds of a worker that is being fenced
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
struct Counter {
  std::string name;
  double value = 0;
};
struct Heartbeat {
  ViewVersion view;                // newest view adopted
  std::uint64_t proposal = 0;      // worker: newest proposal obeyed
  Clock clock;                     // worker: the clock it is in, from when it obeyed `proposal`; shard: minimum clock
  Clock acked_clock;               // worker: its newest tick that every shard has acknowledged (start clock if none)
  DataPosition position;           // worker: as of the tick acked_clock
  std::vector<FencedTick> fenced;  // shard
  std::vector<Counter> counters;   // cumulative metrics: samples, bytes, seconds per stage, ...
  std::vector<std::uint64_t> staleness;  // worker: histogram of measured staleness, bucket i = i clocks, cumulative
  CheckpointId writing;  // shard: the oldest checkpoint into whose directory it may still write; 0: none
  std::vector<WorkerTick> fenced_ticks;  // shard: what it holds of ticks before those in `fenced`, in order
  LogSequence log_synced;                // shard: durable in its log
  std::uint64_t log_bytes = 0;           // shard: of its log
  // Worker: the newest proposal with `drain` for which all that it sent is acknowledged, and in `position`; 0: none.
  std::uint64_t drained = 0;
};
struct HeartbeatAck {
  ViewVersion view;  // newest; a ViewUpdate follows if the sender's is older
};

struct ViewUpdate {
  View view;
};

// worker -> scheduler: wants the table (its id is ignored). scheduler -> worker: it exists everywhere, spec.id set;
// or code says why not. Repeated until answered; the same spec twice is fine, another under the same name is not.
struct CreateTable {
  TableSpec spec;
  ErrorCode code = ErrorCode::kOk;
  std::string message;
};

// worker -> scheduler: entered barrier number n (1, 2, ...). scheduler -> worker: everybody has.
struct Barrier {
  std::uint64_t number = 0;
};

enum class LeasePurpose : std::uint8_t { kTrain, kValidate, kTest };

struct LeaseGrant {
  LeaseId lease;
  LeasePurpose purpose = LeasePurpose::kTrain;
  std::uint32_t epoch = 0;  // 0, 1, ...
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  std::uint64_t skip_rows = 0;  // of them already trained: begin behind
};
struct LeaseDone {  // training: only once the tick behind its last batch is acknowledged by every shard
  LeaseId lease;
  Quality quality;  // training: of the predictions before each update
};
// worker -> scheduler. Repeated with the same number until a LeaseReply with it comes.
struct LeaseRequest {
  std::uint64_t number = 0;  // 1, 2, ... per incarnation
  std::uint32_t want = 0;    // how many leases more
  std::vector<LeaseDone> done;
  std::uint64_t rows[3] = {0, 0, 0};  // lines of the train, validation and test set, as the worker sees them
};
struct LeaseReply {
  std::uint64_t number = 0;
  std::vector<LeaseGrant> grants;
  Clock jump_to;          // with no grants: nothing to train now; tick to this clock (if ahead), ask again
  bool finished = false;  // no more work ever: leave
};

// shard -> scheduler: its part of checkpoint `id` is written (or failed: code, message).
// worker -> scheduler: its state when it reached the clock of an at_clock order; another, with a file, once its blob
// is written.
// Repeated until the view no longer has the order. code kNotFound: the order's base is not there any more.
struct CheckpointFile {
  std::string name;  // relative to the order's directory
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  std::uint64_t rows = 0;
  std::uint64_t removed = 0;   // keys that the base has and the state has not
  std::uint64_t seen = 0;      // keys that wait for admission
  PartitionId first{1}, last;  // partitions that it may hold, both included; last < first: not known
};
// What a part, or all parts of a checkpoint, hold of one table.
struct CheckpointTable {
  TableId table;
  std::uint64_t rows = 0, removed = 0, seen = 0;  // in the files
  std::uint64_t state_rows = 0;                   // that there were at the cut
  friend bool operator==(const CheckpointTable&, const CheckpointTable&) = default;
};
struct CheckpointPart {
  CheckpointId id;
  ErrorCode code = ErrorCode::kOk;
  std::string message;
  std::vector<CheckpointFile> files;
  Clock max_clock;               // shard: highest clock of any worker at the cut
  std::uint64_t state_hash = 0;  // shard: sum over rows in its files of the row's hash, see server/store/snapshot.h
  DataPosition position;         // worker
  Clock clock;                   // worker: the clock it ticked to
  std::vector<CheckpointTable> tables;      // shard: in order of id
  std::optional<std::uint64_t> whole_hash;  // shard: over all its rows, where it is known
};

// worker -> shard: some bytes of the worker's blob for a checkpoint (rule K9). values: those at `offset`, of `total`.
// Repeated until the acknowledgement comes; one piece at a time.
struct PutBlob {
  CheckpointId checkpoint;
  std::uint64_t offset = 0, total = 0;
};
// shard -> worker: so many bytes are written, the next ones are wanted; once all are durable, in this file.
struct PutBlobAck {
  CheckpointId checkpoint;
  std::uint64_t received = 0;
  CheckpointFile file;  // no name: not all yet
};
// worker -> shard: wants the bytes at `offset` of the blob of its rank, of the checkpoint that was resumed from.
struct GetBlob {
  std::uint64_t offset = 0;
};
// shard -> worker. values: those at `offset`, of `total`.
struct BlobPiece {
  std::uint64_t offset = 0, total = 0;
};

// tool -> scheduler: cut a checkpoint now. scheduler -> tool: it is whole, in `directory`; or it is not yet (kOk, no
// directory); or code and message say why there is none. Repeated with the same number until one of the others comes.
struct CheckpointRequest {
  std::uint64_t number = 0;
  ErrorCode code = ErrorCode::kOk;
  std::string message;
  std::string directory;
};

// worker -> scheduler: it has finished and wants to go. Answered with Shutdown.
struct Leave {
  Clock clock;
  DataPosition position;
};

// scheduler -> node: stop now. code kOk: the job is done (or stopped cleanly); else why it failed.
// Anyone -> scheduler (tools, a failing shard): stop the job; code says whether it is a failure.
struct Shutdown {
  ErrorCode code = ErrorCode::kOk;
  std::string reason;
};

using Body = std::variant<Pull, PullReply, Push, PushAck, PushPull, Tick, TickAck, Prefetch, ErrorReply, Join, Welcome,
                          Heartbeat, HeartbeatAck, ViewUpdate, CreateTable, Barrier, LeaseRequest, LeaseReply,
                          CheckpointPart, Leave, Shutdown, CheckpointRequest, PutBlob, PutBlobAck, GetBlob, BlobPiece>;

struct Message {
  std::uint64_t job = 0;  // Fingerprint of the job; 0 in a Join
  Sender sender;
  Epoch epoch;  // of the sender's route map
  Body body;
  Buffer keys;    // Pull, Push, PushPull, Prefetch: see KeyCodec
  Buffer values;  // PullReply, Push, PushPull: count rows in the codec; PutBlob, BlobPiece: bytes
};

// "Pull", "PushAck", ...
std::string_view BodyName(const Body& body);

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
// What a state machine wants sent, in order. The loop empties it after every step.
using Outbox = std::vector<Outgoing>;

}  // namespace tarn
