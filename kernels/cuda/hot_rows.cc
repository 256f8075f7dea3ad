#include "kernels/hot_rows.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cuda/hot_rows_launch.h"
#include "kernels/cuda/native.h"

namespace tarn::kernels {
namespace {

class DeviceHotRows final : public HotRows {
 public:
  static Expected<std::unique_ptr<HotRows>> Make(Stream& stream, const HotRowsOptions& options) {
    auto cache = std::unique_ptr<DeviceHotRows>(new DeviceHotRows(stream, options));
    TARN_RETURN_IF_ERROR(cache->Allocate());
    return std::unique_ptr<HotRows>(std::move(cache));
  }

  void Find(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots, std::uint32_t* missing,
            std::uint32_t* missing_count) override {
    TARN_CHECK(n <= scratch_.keys_max, "a batch has at most batch_keys_max keys");
    Note(cuda::HotFind(queue(), table_, scratch_, n, keys, least.value, ++now_, slots, missing, missing_count),
         "HotRows::Find");
  }
  void Insert(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots) override {
    TARN_CHECK(n <= scratch_.keys_max, "a batch has at most batch_keys_max keys");
    Note(cuda::HotInsert(queue(), table_, scratch_, n, keys, least.value, now_, slots), "HotRows::Insert");
  }
  void Fill(std::size_t n, const std::uint32_t* positions, const std::uint32_t* slots, const float* rows,
            Clock version) override {
    Note(cuda::HotFill(queue(), table_, n, positions, slots, rows, version.value), "HotRows::Fill");
  }
  void Read(std::size_t n, const std::uint32_t* slots, float* out) override {
    Note(cuda::HotRead(queue(), table_, n, slots, out), "HotRows::Read");
  }
  void Oldest(std::size_t n, const std::uint32_t* slots, std::uint64_t* oldest) override {
    Note(cuda::HotOldest(queue(), table_, n, slots, oldest), "HotRows::Oldest");
  }
  void Unpin(std::size_t n, const std::uint32_t* slots) override {
    Note(cuda::HotUnpin(queue(), table_, n, slots), "HotRows::Unpin");
  }
  void Evict(std::size_t n, const Key* keys) override {
    Note(cuda::HotEvict(queue(), table_, n, keys), "HotRows::Evict");
  }
  void Clear() override { Zero(digests_, "HotRows::Clear"); }
  void Age() override {
    if (table_.counts) Note(cuda::HotAge(queue(), table_), "HotRows::Age");
  }

  const float* rows() const override { return table_.rows; }
  std::uint64_t capacity() const override { return std::uint64_t{table_.buckets} * hot::kWays; }

 private:
  DeviceHotRows(Stream& stream, const HotRowsOptions& options) : stream_(stream) {
    table_.dim = options.dim;
    table_.buckets = hot::BucketsFor(options.rows);
    table_.counts = options.score == HotScore::kLfu;
    scratch_.keys_max = options.batch_keys_max;
  }

  Status Allocate() {
    const std::size_t slots = capacity(), words = scratch_.keys_max;
    TARN_RETURN_IF_ERROR(Get(slots * table_.dim, "rows", &rows_, &table_.rows));
    TARN_RETURN_IF_ERROR(Get(slots, "keys and versions", &slots_, &table_.slots));
    TARN_RETURN_IF_ERROR(Get(slots, "digests", &digests_, &table_.digests));
    TARN_RETURN_IF_ERROR(Get(4 * words, "working memory", &batch_, &scratch_.buckets));
    scratch_.sorted_buckets = scratch_.buckets + words;
    scratch_.positions = scratch_.sorted_buckets + words;
    scratch_.sorted_positions = scratch_.positions + words;
    Note(cuda::HotCubBytes(scratch_.keys_max, table_.buckets, &scratch_.cub_bytes), "HotRows: size of CUB's memory");
    std::byte* cub = nullptr;
    TARN_RETURN_IF_ERROR(Get(scratch_.cub_bytes, "working memory of CUB", &cub_, &cub));
    scratch_.cub = cub;
    Zero(digests_, "HotRows: clear digests");
    Zero(slots_, "HotRows: clear slots");
    // HotRead loads the first row in place of a row without a slot, possibly before it is first written.
    Note(cudaMemsetAsync(table_.rows, 0, table_.dim * sizeof(float), queue()), "HotRows: clear a row");
    return stream_.Wait();
  }

  template <typename T>
  Status Get(std::size_t n, const char* what, DeviceBuffer* buffer, T** array) {
    auto memory = DeviceBuffer::Allocate(stream_, n * sizeof(T), fmt::format("the hot-row cache's {}", what));
    if (!memory) return Fail(memory.error().code, memory.error().message + WhatFits());
    *buffer = std::move(*memory);
    *array = buffer->template as<T>();
    return {};
  }

  // Text for an error: the number of rows for which the memory suffices. Counts the memory that is free now, and that
  // of the arrays allocated so far, which are freed with the cache.
  std::string WhatFits() const {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    for (const DeviceBuffer* buffer : {&rows_, &slots_, &digests_}) free += buffer->size();
    return fmt::format("; {} rows were asked for, about {} would fit", capacity(), free / HotRowBytes(table_.dim));
  }

  cudaStream_t queue() { return stream_.native().stream; }
  void Note(cudaError_t error, const char* operation) { stream_.native().Note(error, operation); }
  void Zero(DeviceBuffer& buffer, const char* operation) {
    Note(cudaMemsetAsync(buffer.data(), 0, buffer.size(), queue()), operation);
  }

  Stream& stream_;
  hot::Table table_;
  cuda::HotScratch scratch_;
  std::uint32_t now_ = 0;  // number of Finds so far
  DeviceBuffer rows_, slots_, digests_, batch_, cub_;
};

}  // namespace

Expected<std::unique_ptr<HotRows>> MakeHotRows(Stream& stream, const HotRowsOptions& options) {
  TARN_CHECK(options.batch_keys_max < (1u << 31), "positions have 31 bits");
  return DeviceHotRows::Make(stream, options);
}

}  // namespace tarn::kernels
