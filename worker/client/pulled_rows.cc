#include "worker/client/pulled_rows.h"

#include <algorithm>
#include <cstring>

#include "core/table/table_spec.h"
#include "kernels/convert.h"
#include "kernels/rows.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kTileFloats = limits::kRowDimMax;

// Rows in other codecs are decoded in tiles, because a call per row would cost more than the row.
void DecodeToOccurrences(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* from,
                         const std::uint32_t* occurrences, float* out) {
  alignas(64) float tile[kTileFloats];
  const std::size_t tile_rows = kTileFloats / dim, row_bytes = CodecRowBytes(codec, dim);
  for (std::size_t i = 0; i < n; i += tile_rows) {
    const std::size_t count = std::min(n - i, tile_rows);
    kernels::DecodeRows(codec, dim, count, from + i * row_bytes, tile);
    kernels::ScatterByIndex(dim, count, tile, occurrences + i, out);
  }
}

// Calls copy(begin, count, from) for each run of consecutive rows of the plan.
template <typename Copy>
void ForEachRun(const PulledRows& rows, std::uint32_t dim, const Copy& copy) {
  const std::size_t row_bytes = CodecRowBytes(rows.codec, dim);
  const std::byte* from = rows.values.data();
  for (std::size_t i = 0; i < rows.parts.size();) {
    const std::size_t begin = rows.parts[i].begin;
    std::size_t end = begin;
    for (; i < rows.parts.size() && rows.parts[i].begin == end; ++i) end += rows.parts[i].count;
    copy(begin, end - begin, from);
    from += (end - begin) * row_bytes;
  }
}

bool AreWholePlan(std::span<const PlanRun> parts, std::size_t plan_rows) {
  std::size_t count = 0;
  for (const PlanRun& part : parts) {
    if (part.begin != count) return false;
    count += part.count;
  }
  return count == plan_rows;
}

}  // namespace

void CopyToPlanOrder(const PulledRows& rows, std::uint32_t dim, float* out) {
  ForEachRun(rows, dim, [&](std::size_t begin, std::size_t count, const std::byte* from) {
    kernels::DecodeRows(rows.codec, dim, count, from, out + begin * dim);
  });
}

void CopyToCallerOrder(const PulledRows& rows, std::uint32_t dim, const CallerOrder& order, float* out) {
  ForEachRun(rows, dim, [&](std::size_t begin, std::size_t count, const std::byte* from) {
    const std::uint32_t* occurrences = order.first.data() + begin;
    if (rows.codec == ValueCodec::kFp32)
      kernels::ScatterByIndex(dim, count, reinterpret_cast<const float*>(from), occurrences, out);
    else
      DecodeToOccurrences(rows.codec, dim, count, from, occurrences, out);
  });
}

void CopyRepeats(std::uint32_t dim, const CallerOrder& order, float* out) {
  for (const CallerOrder::Repeat& repeat : order.repeats)
    std::memcpy(out + std::size_t{repeat.occurrence} * dim, out + std::size_t{repeat.first} * dim, dim * sizeof(float));
}

void PlanRows::Take(const PulledRows& rows) {
  if (rows.codec == ValueCodec::kFp32 && !rows.values.lent() && AreWholePlan(rows.parts, rows_)) {
    values_ = rows.values;
    return;
  }
  if (values_.empty()) values_ = Buffer::Allocate(rows_ * dim_ * sizeof(float));
  CopyToPlanOrder(rows, dim_, values_.as_mutable<float>().data());
}

}  // namespace tarn::worker
