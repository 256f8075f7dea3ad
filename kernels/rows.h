// Moves rows between pointers into a store and packed arrays (n x dim, row-major), and between packed arrays by index.
// All functions read their input once, allocate nothing and may be called from any thread; accesses to narrow rows by
// pointer or index are prefetched. Inputs and outputs must not overlap. n and dim may be 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// out[i] = *rows[i]. Rows may repeat.
void GatherRows(std::uint32_t dim, std::size_t n, const float* const* rows, float* out);

// The same, encoded (kernels/convert.h), n * CodecRowBytes(codec, dim) bytes; `out` needs no alignment: it may
// point into a frame.
void GatherRowsEncoded(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* const* rows, std::byte* out);

// *rows[i] += in[i], in order; to a row that occurs twice, both are added.
void AddRows(std::uint32_t dim, std::size_t n, const float* in, float* const* rows);

// out[i] = in[index[i]]: expands unique rows to the order of their occurrences, or permutes.
void GatherByIndex(std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index, float* out);

// out[index[i]] = in[i], in order.
void ScatterByIndex(std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index, float* out);

// out[u] = sum of in[i] over all i with unique_index[i] == u, in the order of i; 0 where there is none. Writes all
// n_unique x dim floats. Every unique_index[i] < n_unique. The same bits on every x86-64.
void ReduceByIndex(std::size_t n, std::uint32_t dim, const float* in, const std::uint32_t* unique_index,
                   std::size_t n_unique, float* out);

// Matrices of `rows` x `columns` floats within wider ones: `stride` floats from one row to the next, at least
// `columns`. out[r][c] = in[r][c], and out[r][c] += in[r][c]. Values between the rows are unchanged.
void CopyColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                 std::size_t out_stride);
void AddColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                std::size_t out_stride);

// On a GPU. ScatterByIndex: if an index occurs twice, either row may be the result.
void GatherByIndex(Stream& stream, std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index,
                   float* out);
void ScatterByIndex(Stream& stream, std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index,
                    float* out);
void CopyColumns(Stream& stream, std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride,
                 float* out, std::size_t out_stride);
void AddColumns(Stream& stream, std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride,
                float* out, std::size_t out_stride);

}  // namespace tarn::kernels
