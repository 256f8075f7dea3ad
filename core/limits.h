// The limits of the system. Everything that can grow has a limit here, and a test at the limit and one past it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::limits {

// Wire.
inline constexpr std::size_t kFramesMax = 3;                            // header, keys, values
inline constexpr std::size_t kFrameBytesMax = std::size_t{64} << 20;    // one frame, also ZMQ_MAXMSGSIZE
inline constexpr std::size_t kMessageBytesMax = std::size_t{80} << 20;  // all frames of one message
inline constexpr std::size_t kHeaderBytesMax = std::size_t{8} << 20;    // the FlatBuffer alone
inline constexpr std::size_t kSmallMessageBytes = 8 << 10;              // up to this size a message is one frame
inline constexpr std::size_t kBundleMessagesMax = 64;                   // small messages in one frame
inline constexpr std::size_t kBundleBytesMax = 16 << 10;  // of such a frame; ZeroMQ's high-water mark counts frames
inline constexpr std::size_t kPieceBytes = 512 << 10;     // clients split larger pulls and pushes into such messages
inline constexpr std::uint32_t kProtocolVersion = 4;      // until the first release, nodes must be of the same build
inline constexpr std::size_t kMessageTablesMax = 64;      // of a pull or a push
// Tables share a request only while its keys and values have at most this many bytes. Copying more would take longer
// than sending another message.
inline constexpr std::size_t kSharedRequestBytes = 32 << 10;
inline constexpr int kSocketHighWaterMark = 1024;                       // messages; credits keep queues far shorter
inline constexpr std::size_t kBacklogBytesMax = std::size_t{64} << 20;  // beyond the high-water mark, per peer
inline constexpr std::size_t kShmRingBytes = std::size_t{2} << 20;      // shared with a peer, each direction
inline constexpr std::size_t kShmLanesMax = 64;  // peers of a node that share memory with it; others use the network
inline constexpr std::size_t kShmTicketsMax = 1024;       // issued and not used yet
inline constexpr std::size_t kShmUnidentifiedMax = 256;   // connections that have not sent their ticket yet
inline constexpr std::size_t kAcceptedPeersMax = 65536;   // connections that a node remembers
inline constexpr std::uint32_t kHeaderDepthMax = 8;       // nesting of a header's tables
inline constexpr std::uint32_t kHeaderTablesMax = 24576;  // of a header: kTablesMax tables with kRuleOptionsMax options
inline constexpr std::uint32_t kKeysPerMessageMax = 8u << 20;  // also for a range, whose keys take no bytes
inline constexpr std::uint32_t kTextBytesMax = 4096;  // a message or reason for users; longer ones are truncated
inline constexpr std::uint32_t kEndpointBytesMax = 256;
inline constexpr std::uint32_t kPathBytesMax = 4096;
inline constexpr std::uint32_t kCountersMax = 1024;            // of a heartbeat
inline constexpr std::uint32_t kFencedTicksMax = 65536;        // of a heartbeat; further ones are omitted
inline constexpr std::uint32_t kStalenessBucketsMax = 65536;   // of a heartbeat's histogram
inline constexpr std::uint32_t kDelayBucketsMax = 4096;        // likewise; the last one also counts longer delays
inline constexpr std::uint32_t kDelayWorkersMax = 128;         // ranks whose gradient delays are counted separately
inline constexpr std::uint32_t kQualityBucketsMax = 1u << 16;  // of a lease's quality
inline constexpr std::uint32_t kCheckpointFilesMax = 4096;     // of one shard's part
inline constexpr std::uint32_t kCheckpointChainMax = 1000;     // incremental checkpoints after a full one
inline constexpr std::uint64_t kCheckpointIdMax = std::uint64_t{1} << 62;
inline constexpr std::size_t kManifestFilesMax = std::size_t{1} << 20;    // beyond it, a checkpoint is a full one
inline constexpr std::size_t kManifestTablesMax = std::size_t{4} << 20;   // FlatBuffer tables: files, epochs, ...
inline constexpr std::size_t kManifestBytesMax = std::size_t{512} << 20;  // of the file
inline constexpr std::size_t kStateBytesMax = std::size_t{1} << 30;  // of the scheduler's state: a manifest and more
// A checkpoint is due when a shard's log has this size, whatever periods the job sets. Logs are truncated at a complete
// checkpoint, so this bounds what a recovery replays.
inline constexpr std::uint64_t kLogBytesMax = std::uint64_t{8} << 30;
inline constexpr std::size_t kCheckpointRequestsMax = 64;  // waiting requests of tools; as many answers are remembered

// Tables.
inline constexpr std::uint32_t kRowDimMax = 4096;
inline constexpr std::uint64_t kDensePartitionBytesMax = std::uint64_t{64}
                                                         << 30;  // values and slots, allocated as a whole
inline constexpr std::uint32_t kTablesMax = 1024;
inline constexpr std::uint32_t kPartitionBitsMax = 12;
inline constexpr std::uint32_t kPartitionsMax = 1u << kPartitionBitsMax;
inline constexpr std::uint32_t kNameBytesMax = 128;
inline constexpr std::uint32_t kRuleNameBytesMax = 64;     // of an update rule, and of an option
inline constexpr std::uint32_t kRuleOptionsMax = 16;       // of an update rule
inline constexpr std::uint32_t kAdmitCountMax = 1u << 20;  // pushes before a key gets a row
inline constexpr std::uint64_t kLifeClocksMax = 1u << 30;  // maximum age, in clocks or seconds
inline constexpr std::uint64_t kCandidatesMax = 4u << 20;  // keys counted without a row: per table, over all partitions
inline constexpr std::uint64_t kCandidatesPartitionMax = 65536;  // per partition, where they are sorted in one step
inline constexpr std::uint64_t kRemovedKeysMax = 16u << 20;  // for the next checkpoint: per table, over all partitions

// Fleet.
inline constexpr std::uint32_t kWorkersMax = 16384;
inline constexpr std::uint32_t kShardsMax = 4096;
inline constexpr std::uint32_t kWorkerEntriesMax = 65536;  // of a view: live and ending incarnations

inline constexpr std::uint32_t kStalenessMax = 1u << 20;   // clocks
inline constexpr std::uint32_t kStalenessRangeMax = 1024;  // clocks
inline constexpr std::uint32_t kPushRankMax = 64;
inline constexpr std::uint32_t kPushEveryMax = 1024;  // clocks

inline constexpr std::size_t kWorkerCacheBytesMin = 1 << 10;  // memory of a worker for rows of one table

// Job file.
inline constexpr std::size_t kJobBytesMax = 256 << 10;
inline constexpr std::size_t kJobDotsMax = 4096;  // '.' in the text: bounds the nesting of tables
inline constexpr std::uint32_t kBatchRowsMax = 1u << 20;
inline constexpr std::uint32_t kEpochsMax = 1'000'000;
inline constexpr std::uint32_t kPrefetchMax = 64;  // batches
inline constexpr std::uint32_t kLocalStepsMax = 1u << 16;
inline constexpr std::uint32_t kLayersMax = 16;
inline constexpr std::uint32_t kClassesMax = 4096;

// Client.
inline constexpr std::size_t kCreditBytes = std::size_t{32} << 20;       // in flight per shard, requests and replies
inline constexpr std::size_t kPlanKeysMax = (std::size_t{1} << 31) - 1;  // of one request, with duplicates
inline constexpr std::size_t kQueuedBytesMax = std::size_t{256} << 20;   // of unacknowledged pushes, per client
inline constexpr std::size_t kAskedBytesMax = std::size_t{4} << 30;  // keys and rows of unanswered pulls, per client

inline constexpr std::size_t kGatheredBytesMax = std::size_t{32} << 20;  // combined pushes not sent yet, per client

// A client remembers the newest pulls of each table for the pushes of the same rows: at most this many (more than
// kPrefetchMax), and at most this many bytes of rows for update rules with needs_pulled.
inline constexpr std::size_t kPullsRememberedMax = 96;
inline constexpr std::size_t kPulledBytesRememberedMax = std::size_t{1} << 30;

inline constexpr std::size_t kHeldKeysBytesMax = std::size_t{4} << 20;  // stored key lists of a client, per shard
inline constexpr std::uint32_t kHeldKeysMin = 32;                       // shorter lists are not stored

// Shard.
inline constexpr std::size_t kHeldListsBytesMax = std::size_t{256} << 20;  // key lists of all clients
inline constexpr std::size_t kHeldListsPeerBytesMax =
    3 * kHeldKeysBytesMax;  // key lists of one client, with the shard's overhead per list
inline constexpr std::size_t kParkedPullsMax = 65536;
// Separate answers that wait until the log is durable; further ones are merged by worker and partition.
inline constexpr std::size_t kHeldAnswersMax = 65536;
inline constexpr std::size_t kBucketBytesMax = std::size_t{4} << 30;  // aggregated pushes waiting for their clock
inline constexpr std::size_t kReplyBytesMax = std::size_t{4} << 30;   // pull replies not yet taken by the network
// Pull replies to one client that the network has not taken yet; the client's credit keeps them below this limit.
inline constexpr std::size_t kReplyPeerBytesMax = std::size_t{128} << 20;
inline constexpr std::size_t kSweepSliceRows = 4096;                       // rows checked for expiry in one step
inline constexpr std::size_t kCutSliceBytes = std::size_t{256} << 10;      // rows copied for a checkpoint in one step
inline constexpr std::size_t kCheckpointRunBytes = std::size_t{64} << 20;  // rows of a partition buffered by its writer
// Copied rows that wait to be written to a checkpoint, not counting rows copied early (K3).
inline constexpr std::size_t kCutQueuedBytesMax = std::size_t{256} << 20;
inline constexpr std::uint32_t kTicksKeptMax = 64;          // earlier ticks of one worker that are stored
inline constexpr std::uint32_t kClocksAheadMax = 1u << 30;  // a tick may jump at most this far

inline constexpr std::size_t kServerMemoryMin = std::size_t{64} << 20;   // minimum of storage.memory, if set
inline constexpr std::size_t kWaitingMessagesMax = 4096;                 // messages of a shard that wait for cold rows
inline constexpr std::size_t kWaitingBytesMax = std::size_t{256} << 20;  // bytes of these messages

// Worker state.
inline constexpr std::uint64_t kResidualBytesMin = 1 << 10;  // of one table with top-k pushes
inline constexpr std::uint64_t kResidualBytesDefault = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kResidualBytesMax = std::uint64_t{64} << 30;
inline constexpr std::size_t kBlobChunkBytes = 256 << 10;                // approximate; at least one row
inline constexpr std::size_t kBlobPieceBytesMax = std::size_t{1} << 20;  // of one message
inline constexpr std::uint64_t kBlobBytesMax = std::uint64_t{1} << 40;   // of one worker
inline constexpr std::uint32_t kBlobsMax = kWorkersMax;                  // of a checkpoint

// Control.
inline constexpr std::uint32_t kLeasesPerWorkerMax = 64;
inline constexpr std::size_t kHeldMessagesMax =
    1u << 16;  // messages of the scheduler that wait until its state is durable

// HTTP server of a process.
inline constexpr std::uint32_t kHttpHeaderBytesMax = 8 << 10;  // of a request, request line included
inline constexpr std::size_t kHttpConnectionsMax = 64;         // at one time
inline constexpr std::int64_t kHttpRequestUs = 10'000'000;     // to receive a request, and again to send its answer

// Data.
inline constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;
inline constexpr std::uint32_t kColumnsMax = 4096;

}  // namespace tarn::limits
