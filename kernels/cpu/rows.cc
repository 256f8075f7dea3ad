#include "kernels/rows.h"

#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

template <typename Width>
HWY_INLINE void AddRow(Width dim, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  for (std::uint32_t j = 0; j < dim; ++j) out[j] += in[j];
}

void AddToPointers(std::uint32_t dim, std::size_t n, const float* in, float* const* rows) {
  WithWidth(dim, [=](auto width) HWY_ATTR {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) PrefetchRow(rows[i + kRowsAhead], width);
      AddRow(width, in + i * width, rows[i]);
    }
  });
}

void AddToIndex(std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index, float* out) {
  WithWidth(dim, [=](auto width) HWY_ATTR {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) PrefetchRow(out + std::size_t{index[i + kRowsAhead]} * width, width);
      AddRow(width, in + i * width, out + std::size_t{index[i]} * width);
    }
  });
}

void AddStrided(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                std::size_t out_stride) {
  WithWidth(columns, [=](auto width) HWY_ATTR {
    for (std::size_t r = 0; r < rows; ++r) AddRow(width, in + r * in_stride, out + r * out_stride);
  });
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(AddToPointers);
HWY_EXPORT(AddToIndex);
HWY_EXPORT(AddStrided);

void GatherRows(std::uint32_t dim, std::size_t n, const float* const* rows, float* out) {
  WithWidth(dim, [=](auto width) {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) PrefetchRow(rows[i + kRowsAhead], width);
      std::memcpy(out + i * width, rows[i], width * sizeof(float));
    }
  });
}

void GatherRowsEncoded(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* const* rows, std::byte* out) {
  const std::size_t row_bytes = CodecRowBytes(codec, dim);
  if (codec == ValueCodec::kFp32) {
    WithWidth(dim, [=](auto width) {
      const std::size_t bytes = width * sizeof(float);
      for (std::size_t i = 0; i < n; ++i) {
        if (i + kRowsAhead < n) PrefetchRow(rows[i + kRowsAhead], width);
        std::memcpy(out + i * bytes, rows[i], bytes);
      }
    });
    return;
  }
  // Narrow rows are first gathered into a tile, because an EncodeRows call per row costs more than the row itself.
  constexpr std::size_t kTileFloats = 1024;
  float tile[kTileFloats];
  const std::size_t tile_rows = dim == 0 ? n : kTileFloats / dim;
  if (tile_rows <= 1) {
    for (std::size_t i = 0; i < n; ++i) EncodeRows(codec, dim, 1, rows[i], out + i * row_bytes);
    return;
  }
  for (std::size_t i = 0; i < n; i += tile_rows) {
    const std::size_t count = n - i < tile_rows ? n - i : tile_rows;
    GatherRows(dim, count, rows + i, tile);
    EncodeRows(codec, dim, count, tile, out + i * row_bytes);
  }
}

void AddRows(std::uint32_t dim, std::size_t n, const float* in, float* const* rows) {
  HWY_DYNAMIC_DISPATCH(AddToPointers)(dim, n, in, rows);
}

void GatherByIndex(std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index, float* out) {
  WithWidth(dim, [=](auto width) {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) PrefetchRow(in + std::size_t{index[i + kRowsAhead]} * width, width);
      std::memcpy(out + i * width, in + std::size_t{index[i]} * width, width * sizeof(float));
    }
  });
}

void ScatterByIndex(std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index, float* out) {
  WithWidth(dim, [=](auto width) {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) PrefetchRow(out + std::size_t{index[i + kRowsAhead]} * width, width);
      std::memcpy(out + std::size_t{index[i]} * width, in + i * width, width * sizeof(float));
    }
  });
}

void ReduceByIndex(std::size_t n, std::uint32_t dim, const float* in, const std::uint32_t* unique_index,
                   std::size_t n_unique, float* out) {
  if (n_unique * dim == 0) return;
  std::memset(out, 0, n_unique * dim * sizeof(float));
  HWY_DYNAMIC_DISPATCH(AddToIndex)(dim, n, in, unique_index, out);
}

void CopyColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                 std::size_t out_stride) {
  if (columns == 0) return;  // the pointers may be null
  WithWidth(columns, [=](auto width) {
    for (std::size_t r = 0; r < rows; ++r) std::memcpy(out + r * out_stride, in + r * in_stride, width * sizeof(float));
  });
}

void AddColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(AddStrided)(rows, columns, in, in_stride, out, out_stride);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
