#include "core/message.h"

#include <array>

namespace tarn {

std::string_view BodyName(const Body& body) {
  static constexpr std::array<std::string_view, std::variant_size_v<Body>> kNames = {
      "Pull",     "PullReply",         "Push",         "PushAck",        "PushPull",
      "Tick",     "TickAck",           "Prefetch",     "ErrorReply",     "Join",
      "Welcome",  "Heartbeat",         "HeartbeatAck", "ViewUpdate",     "CreateTable",
      "Barrier",  "LeaseRequest",      "LeaseReply",   "CheckpointPart", "Leave",
      "Shutdown", "CheckpointRequest", "PutBlob",      "PutBlobAck",     "GetBlob",
      "BlobPiece"};
  return kNames[body.index()];
}

std::vector<ShardId> EvenOwners(std::uint32_t partition_bits, std::uint32_t shards) {
  const std::uint64_t partitions = std::uint64_t{1} << partition_bits;
  std::vector<ShardId> owners(partitions);
  for (std::uint64_t p = 0; p < partitions; ++p)
    owners[p] = ShardId(static_cast<std::uint32_t>(p * shards / partitions));
  return owners;
}

}  // namespace tarn
