// A worker's blob: state in checkpoints that belongs to a worker's rank rather than to a row (rules K9, K10). It
// contains residuals (gradients that compressed pushes have not sent, rule W5) and state of the program.
//
// A blob is a sequence of chunks. Each is a FlatBuffer (schemas/blob.fbs) in its own envelope (core/codec/sealed.h), so
// that a blob is encoded, sent, verified and read one chunk at a time. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/types.h"

namespace tarn {

inline constexpr std::uint32_t kBlobVersion = 3;  // 2: the checksum covers the version too; 3: state of the program

// Limits of ResidualRows. With a velocity (push_momentum) a row is twice as long as a row of its table; the factor of a
// low_rank table has a longer name than its table.
inline constexpr std::uint32_t kResidualDimMax = 2 * limits::kRowDimMax;
inline constexpr std::size_t kResidualNameBytesMax = limits::kNameBytesMax + 16;

// Residuals of one table, ordered by the time of their last gradient, oldest first. For keys[i], whose last gradient
// was at clocks[i], the `dim` values that begin at values[i * dim] have not been sent yet.
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
  Clock clock;  // the worker's clock when it captured the state; the blob reflects all its pushes of earlier clocks
  std::uint32_t index = 0;
  bool last = false;
  ResidualRows rows;  // `table` is empty if the chunk has none
  Buffer state;       // of the program: the bytes after those of the previous chunks
};

Buffer EncodeBlobChunk(const BlobChunk& chunk);

// Encodes the state of a program as chunks with at most chunk_bytes bytes of state each. Every chunk has the fields of
// `head` (whose `last` is false, because another chunk ends the blob); the indices start at that of `head`.
std::vector<Buffer> EncodeProgramState(const BlobChunk& head, std::span<const std::byte> state,
                                       std::size_t chunk_bytes);

// The expected owner of a blob.
struct BlobOrigin {
  std::string name;         // for errors: the file
  CheckpointId checkpoint;  // 0: any
  WorkerRank rank;
};

// Passes the chunks of a complete blob to `take`, in order, and stops at the first error: that of `take`, or kCorrupt
// or kUnsupported (a newer version), naming the blob and what was expected.
Status ReadBlob(std::span<const std::byte> bytes, const BlobOrigin& origin,
                const std::function<Status(BlobChunk chunk)>& take);

// The state of the program in a complete blob; empty: none. Errors: see ReadBlob.
Expected<Buffer> ReadProgramState(std::span<const std::byte> bytes, const BlobOrigin& origin);

}  // namespace tarn
