#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <ranges>
#include <string>

#include "core/key_delta.h"
#include "core/limits.h"
#include "kernels/low_rank.h"
#include "kernels/sparse_values.h"
#include "net/header.h"

namespace tarn::net {
namespace {

Status Malformed(std::string text) { return Fail(ErrorCode::kMalformed, std::move(text)); }

Status CheckNoValues(const Buffer& values) {
  if (values.empty()) return {};
  return Malformed(fmt::format("values frame: {} bytes, expected none", values.size()));
}

Status CheckSections(const KeyList& list) {
  std::uint64_t sum = 0;
  for (const Section& section : list.sections) {
    if (section.partition.value >= limits::kPartitionsMax)
      return Malformed(fmt::format("keys.sections[].partition: {}, expected below {}", section.partition.value,
                                   limits::kPartitionsMax));
    sum += section.count;
  }
  if (sum == list.count) return {};
  return Malformed(fmt::format("keys.sections: counts add up to {}, expected keys.count {}", sum, list.count));
}

// The bytes of a delta-coded list are checked when they are decoded.
Status CheckKeysFrame(const KeyList& list) {
  const Buffer& keys = list.frame;
  if (list.codec == KeyCodec::kHeld && list.list == 0)
    return Malformed("keys.list: 0, expected the number of a list that the receiver holds");
  if (list.codec == KeyCodec::kDelta) {
    const std::size_t least = DeltaBytesMin(list.count), most = DeltaBytesMax(list.count);
    if (keys.size() >= least && keys.size() <= most) return {};
    return Malformed(fmt::format("keys frame: {} bytes, expected {} to {} for {} delta-coded keys", keys.size(), least,
                                 most, list.count));
  }
  const bool raw = list.codec == KeyCodec::kRaw;
  const std::size_t expected = raw ? std::size_t{list.count} * sizeof(Key) : 0;
  if (keys.size() == expected) return {};
  if (!raw)
    return Malformed(
        fmt::format("keys frame: {} bytes, expected none for keys sent as a range or as a list number", keys.size()));
  return Malformed(fmt::format("keys frame: {} bytes, expected {} for {} keys", keys.size(), expected, list.count));
}

Status CheckKeys(const KeyList& list) {
  if (list.count > limits::kKeysPerMessageMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("keys.count: {}, expected at most {}", list.count, limits::kKeysPerMessageMax));
  TARN_RETURN_IF_ERROR(CheckSections(list));
  TARN_RETURN_IF_ERROR(CheckKeysFrame(list));
  const bool overflows = list.count > 0 && list.first_key > std::numeric_limits<Key>::max() - (list.count - 1);
  if (list.codec == KeyCodec::kRange && overflows)
    return Malformed(
        fmt::format("keys.first_key: {} with count {} goes past the last key", list.first_key, list.count));
  return {};
}

// Checks that the size of `values` is possible for `count` rows in codec kTopK. The receiver checks the bytes when it
// decodes them.
Status CheckTopK(std::uint32_t count, const Buffer& values) {
  const std::size_t least = kernels::kSparseBytesMin;
  const std::size_t most = kernels::SparseBytesMax(std::size_t{count} * limits::kRowDimMax);
  if (values.size() >= least && values.size() <= most) return {};
  return Malformed(fmt::format("values frame: {} bytes, expected {} to {} for the largest values of {} rows",
                               values.size(), least, most, count));
}

// Checks that the size of `values` is possible for the factors of `count` rows in codec kLowRank.
Status CheckLowRank(std::uint32_t count, const Buffer& values) {
  const std::size_t least = kernels::LowRankBytes(count, 1, 1);
  const std::size_t most = kernels::LowRankBytes(count, limits::kRowDimMax, limits::kPushRankMax);
  if (values.size() >= least && values.size() <= most && values.size() % sizeof(float) == 0) return {};
  return Malformed(fmt::format("values frame: {} bytes, expected a multiple of 4 from {} to {} for factors of {} rows",
                               values.size(), least, most, count));
}

// Checks that the size of `values` is possible for `count` rows in `codec` plus, with `pulled`, `count` rows in codec
// `*pulled`, all of one dim in 1..kRowDimMax.
Status CheckValues(std::uint32_t count, ValueCodec codec, const Buffer& values, std::optional<ValueCodec> pulled = {}) {
  if (count == 0) return CheckNoValues(values);
  if (codec == ValueCodec::kTopK) return CheckTopK(count, values);
  if (codec == ValueCodec::kLowRank) return CheckLowRank(count, values);
  const auto row_bytes = [&](std::uint32_t dim) {
    return CodecRowBytes(codec, dim) + (pulled ? CodecRowBytes(*pulled, dim) : 0);
  };
  const auto dims = std::views::iota(1u, limits::kRowDimMax + 1);
  const std::size_t row = values.size() / count;
  const bool even = values.size() % count == 0;
  if (even && std::ranges::binary_search(dims, row, {}, row_bytes)) return {};
  return Malformed(fmt::format("values frame: {} bytes, expected {} rows of 1 to {} values, {} to {} bytes each",
                               values.size(), count, limits::kRowDimMax, row_bytes(1), row_bytes(limits::kRowDimMax)));
}

Status CheckPiece(std::uint64_t offset, std::uint64_t total, const Buffer& values) {
  if (total > limits::kBlobBytesMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("total: {}, expected at most {}", total, limits::kBlobBytesMax));
  if (!values.empty() && values.size() <= limits::kBlobPieceBytesMax && offset <= total &&
      values.size() <= total - offset)
    return {};
  return Malformed(fmt::format(
      "values frame: {} bytes at offset {} of a blob of {} bytes, expected 1 to {} bytes that end within the blob",
      values.size(), offset, total, limits::kBlobPieceBytesMax));
}

Status CheckRoutes(const RouteMap& routes) {
  if (routes.partition_bits > limits::kPartitionBitsMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("view.routes.partition_bits: {}, expected at most {}",
                                                  routes.partition_bits, limits::kPartitionBitsMax));
  if (routes.owners.empty()) return {};
  if (routes.owners.size() != std::size_t{1} << routes.partition_bits)
    return Malformed(fmt::format("view.routes.owners: {} items, expected {} for {} partition bits",
                                 routes.owners.size(), 1u << routes.partition_bits, routes.partition_bits));
  for (ShardId owner : routes.owners)
    if (owner.value >= routes.endpoints.size())
      return Malformed(fmt::format("view.routes.owners[]: shard {}, expected below {} (the endpoints)", owner.value,
                                   routes.endpoints.size()));
  return {};
}

Status CheckView(const View& view) {
  for (const TableSpec& table : view.tables)
    if (table.dim == 0 || table.dim > limits::kRowDimMax)
      return Malformed(fmt::format("view.tables[].dim: {}, expected 1 to {}", table.dim, limits::kRowDimMax));
  return CheckRoutes(view.routes);
}

// A push that assigns rows carries them in fp32; one that deletes rows carries no values (A8).
Status CheckChange(const PushPart& m) {
  if (m.codec != ValueCodec::kFp32 || m.pulled)
    return Malformed(
        fmt::format("codec: {}{} in a push that assigns or deletes rows, expected fp32 without pulled rows",
                    Name(m.codec), m.pulled ? ", with pulled rows" : ""));
  return m.action == PushAction::kDelete ? CheckNoValues(m.values) : CheckValues(m.keys.count, m.codec, m.values);
}

Status CheckTable(const PullPart& m) { return CheckKeys(m.keys); }

Status CheckTable(const ReplyPart& m) {
  if (!IsForPulls(m.codec)) return Malformed(fmt::format("codec: {}, which is for pushes alone", Name(m.codec)));
  return CheckValues(m.count, m.codec, m.values);
}

Status CheckTable(const PushPart& m) {
  TARN_RETURN_IF_ERROR(CheckKeys(m.keys));
  if (m.action != PushAction::kStep) return CheckChange(m);
  if (m.pulled && (KeepsResiduals(m.codec) || !IsForPulls(*m.pulled)))
    return Malformed(
        fmt::format("pulled: rows in codec {} with gradients in codec {}, expected rows in a codec for pulls, and "
                    "gradients in a codec without residuals",
                    Name(*m.pulled), Name(m.codec)));
  return CheckValues(m.keys.count, m.codec, m.values, m.pulled);
}

std::uint64_t CountOf(const PullPart& m) { return m.keys.count; }
std::uint64_t CountOf(const PushPart& m) { return m.keys.count; }
std::uint64_t CountOf(const ReplyPart& m) { return m.count; }

template <typename Part>
Status CheckTables(const TableParts<Part>& tables) {
  std::uint64_t count = 0;
  for (const Part& table : tables) {
    if (Status status = CheckTable(table); !status)
      return Fail(status.error().code, "tables[]." + status.error().message);
    count += CountOf(table);
  }
  if (count <= limits::kKeysPerMessageMax) return {};
  return Fail(ErrorCode::kTooLarge,
              fmt::format("tables: {} keys, expected at most {} in a message", count, limits::kKeysPerMessageMax));
}

// Checks a body and the payload. Messages whose body has no overload must have no payload.
struct Checker {
  const Buffer& values;

  Status operator()(const Pull& m) const { return CheckTables(m.tables); }
  Status operator()(const PullReply& m) const { return CheckTables(m.tables); }
  Status operator()(const Push& m) const { return CheckTables(m.tables); }
  Status operator()(const Prefetch& m) const { return CheckKeys(m.keys); }
  Status operator()(const PutBlob& m) const { return CheckPiece(m.offset, m.total, values); }
  Status operator()(const BlobPiece& m) const { return CheckPiece(m.offset, m.total, values); }
  Status operator()(const Welcome& m) const {
    TARN_RETURN_IF_ERROR(CheckNoValues(values));
    return CheckView(m.view);
  }
  Status operator()(const ViewUpdate& m) const {
    TARN_RETURN_IF_ERROR(CheckNoValues(values));
    return CheckView(m.view);
  }
  template <typename Other>
  Status operator()(const Other&) const {
    return CheckNoValues(values);
  }
};

}  // namespace

Status CheckMeaning(const Message& message) {
  Status status = std::visit(Checker{message.values}, message.body);
  if (status) return status;
  return Fail(status.error().code, fmt::format("{}.{}", BodyName(message.body), status.error().message));
}

}  // namespace tarn::net
