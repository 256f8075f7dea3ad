// A worker's blob: what belongs to its rank and to no row, kept in checkpoints (rules K9, K10). So far: residuals, what
// pushes that send the largest alone have not sent (rule W5).
//
// A blob is one or more chunks, each sealed by itself (core/codec/sealed.h) around a FlatBuffer (schemas/blob.fbs): it
// can be made, sent, checked and read a chunk at a time. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/types.h"

namespace tarn {

inline constexpr std::uint32_t kBlobVersion = 2;  // from it on the sum covers the version too

// Of one table, in the order in which their keys had a gradient, the longest ago first: values[i * dim ...) was not
// sent for keys[i], which had its last gradient at clocks[i].
struct ResidualRows {
  std::string table;
  std::uint32_t dim = 0;
  std::vector<Key> keys;
  std::vector<Clock> clocks;
  std::vector<float> values;
  friend bool operator==(const ResidualRows&, const ResidualRows&) = default;
};

struct BlobChunk {
  CheckpointId checkpoint;
  WorkerRank rank;
  Clock clock;  // of the worker when the blob was taken: pushes of clocks before it are in it
  std::uint32_t index = 0;
  bool last = false;
  ResidualRows rows;  // no table: none
};

Buffer EncodeBlobChunk(const BlobChunk& chunk);

// Whose blob it is to be.
struct BlobOrigin {
  std::string name;         // for errors: the file
  CheckpointId checkpoint;  // 0: any
  WorkerRank rank;
};

// Hands the chunks of a whole blob to `take`, in order, and ends with the first error: kCorrupt, kUnsupported (a newer
// version), naming the blob and what was expected.
Status ReadBlob(std::span<const std::byte> bytes, const BlobOrigin& origin,
                const std::function<Status(BlobChunk chunk)>& take);

}  // namespace tarn
