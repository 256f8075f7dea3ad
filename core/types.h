// The strong id types of tarn. Each wraps one integer, so that two ids can never be swapped by accident.
//
// All are plain values: copyable, totally ordered, hashable with std::hash, and free to use from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tarn {

// A 64-bit key of a row. Dense tables use 0..rows-1, sparse tables any value.
using Key = std::uint64_t;

// A place on the 64-bit line that is cut into partitions (see core/position.h).
using Position = std::uint64_t;

// Microseconds of a monotonic clock. State machines never read a clock: callers pass the time.
using TimeUs = std::int64_t;

// One integer of type Rep; Tag makes it a distinct type. `value` is public: an id has no invariant.
template <typename Tag, typename Rep>
struct StrongId {
  using ValueType = Rep;
  Rep value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

using TableId = StrongId<struct TableIdTag, std::uint32_t>;
using PartitionId = StrongId<struct PartitionIdTag, std::uint32_t>;
// Global index of a shard: server_rank * shards_per_server + shard_in_server.
using ShardId = StrongId<struct ShardIdTag, std::uint32_t>;
using WorkerRank = StrongId<struct WorkerRankTag, std::uint32_t>;
using ServerRank = StrongId<struct ServerRankTag, std::uint32_t>;
// Version of the route map; only grows. 0 means "none yet".
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
// Version of the scheduler's view, which changes with everything in it (core/view.h); only grows.
using ViewVersion = StrongId<struct ViewVersionTag, std::uint64_t>;
// How many iterations a worker has finished.
using Clock = StrongId<struct ClockTag, std::uint64_t>;
// Identifies one start of a node. The scheduler issues increasing numbers and reuses none. 0 means "none yet".
using Incarnation = StrongId<struct IncarnationTag, std::uint64_t>;
// Number of a push of one worker incarnation to one partition: 1, 2, 3, ... without gaps.
using Sequence = StrongId<struct SequenceTag, std::uint64_t>;
// A client's number for one request, unique within its incarnation.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;
// How many sections of pushes to one table a partition has applied; only grows.
using Version = StrongId<struct VersionTag, std::uint64_t>;
inline constexpr Version kNoVersion{~std::uint64_t{0}};  // not known
// A lease of a data split; ids grow in the order in which leases are granted.
using LeaseId = StrongId<struct LeaseIdTag, std::uint64_t>;
// Number of a record in a shard's log: 1, 2, 3, ... without gaps.
using LogSequence = StrongId<struct LogSequenceTag, std::uint64_t>;
// A checkpoint of this job; only grows.
using CheckpointId = StrongId<struct CheckpointIdTag, std::uint64_t>;

// Clock `c` + `n` more iterations.
constexpr Clock operator+(Clock c, std::uint64_t n) { return Clock(c.value + n); }

}  // namespace tarn

template <typename Tag, typename Rep>
struct std::hash<tarn::StrongId<Tag, Rep>> {
  std::size_t operator()(const tarn::StrongId<Tag, Rep>& id) const noexcept { return std::hash<Rep>{}(id.value); }
};
