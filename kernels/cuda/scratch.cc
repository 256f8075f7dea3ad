#include "kernels/cuda/scratch.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "kernels/cuda/native.h"
#include "kernels/cuda/pieces.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kItemsMax = (std::size_t{1} << 31) - 1;

Status AllocateInto(Stream& stream, std::size_t bytes, std::string_view what, DeviceBuffer* buffer) {
  auto got = DeviceBuffer::Allocate(stream, bytes, what);
  if (!got) return std::unexpected(std::move(got).error());
  *buffer = std::move(*got);
  return {};
}

}  // namespace

SortScratch::SortScratch(std::unique_ptr<Native> native) : native_(std::move(native)) {}
SortScratch::~SortScratch() = default;

Expected<std::unique_ptr<SortScratch>> SortScratch::Make(Stream& stream, std::size_t items_max) {
  TARN_CHECK(items_max <= kItemsMax, "positions have 31 bits");
  auto native = std::make_unique<Native>();
  cuda::SortBuffers& buffers = native->buffers;
  native->items_max = items_max;
  const int device = stream.native().device;  // CUB uses the calling thread's GPU
  if (const cudaError_t error = cuda::SortTempBytes(items_max, &buffers.temp_bytes); error != cudaSuccess)
    return Fail(ErrorCode::kInternal, fmt::format("GPU {}: cannot determine the memory for sorting {} items: {}",
                                                  device, items_max, cudaGetErrorString(error)));
  // CUB treats a null buffer as a size query, so the buffer must not be empty.
  buffers.temp_bytes += buffers.temp_bytes == 0 ? 1 : 0;
  TARN_RETURN_IF_ERROR(
      AllocateInto(stream, items_max * sizeof(std::uint32_t), "the sort's index array", &native->identity));
  TARN_RETURN_IF_ERROR(AllocateInto(stream, items_max * sizeof(std::uint64_t), "sorted keys", &native->keys));
  TARN_RETURN_IF_ERROR(AllocateInto(stream, items_max * sizeof(std::uint32_t), "sorted items", &native->words));
  TARN_RETURN_IF_ERROR(AllocateInto(stream, buffers.temp_bytes, "the sort's workspace", &native->temp));
  buffers.identity = native->identity.as<std::uint32_t>();
  buffers.keys = native->keys.as<std::uint64_t>();
  buffers.words = native->words.as<std::uint32_t>();
  buffers.temp = native->temp.data();
  stream.native().Note(cuda::FillIdentity(stream.native().stream, items_max, native->identity.as<std::uint32_t>()),
                       "FillIdentity");
  return std::unique_ptr<SortScratch>(new SortScratch(std::move(native)));
}

Segments::Segments(std::unique_ptr<Native> native) : native_(std::move(native)) {}
Segments::~Segments() = default;

Expected<std::unique_ptr<Segments>> Segments::Make(Stream& stream, const Capacity& capacity) {
  TARN_CHECK(capacity.occurrences <= kItemsMax && capacity.rows <= kItemsMax, "positions have 31 bits");
  auto native = std::make_unique<Native>();
  native->capacity = capacity;
  const std::size_t n = capacity.occurrences, of_pieces = cuda::PieceSlots(n) * capacity.dim;
  TARN_RETURN_IF_ERROR(
      AllocateInto(stream, (4 * n + 1) * sizeof(std::uint32_t), "a batch's occurrences", &native->occurrences));
  TARN_RETURN_IF_ERROR(
      AllocateInto(stream, 2 * capacity.rows * sizeof(std::uint32_t), "a batch's rows", &native->rows));
  TARN_RETURN_IF_ERROR(AllocateInto(stream, of_pieces * sizeof(float), "sums of gradients", &native->partials));
  auto *by_occurrence = native->occurrences.as<std::uint32_t>(), *by_row = native->rows.as<std::uint32_t>();
  native->view = {.order = by_occurrence,
                  .rows = by_occurrence + n,
                  .begins = by_row,
                  .ends = by_row + capacity.rows,
                  .pieces = by_occurrence + 2 * n,
                  .n_pieces = by_occurrence + 4 * n,
                  .sample_of = by_occurrence + 3 * n,
                  .partials = native->partials.as<float>()};
  return std::unique_ptr<Segments>(new Segments(std::move(native)));
}

}  // namespace tarn::kernels
