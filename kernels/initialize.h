// Initial values of rows: a pure function of (spec, salt of the table, key, index in the row), so that a row starts
// with the same bits on every server, at any time, for any number of servers.
//
//   std::vector<float> row(spec.dim);
//   InitializeRow(spec.initializer, TableSalt(job.seed, spec.name), key, row);
#pragma once

#include <cstdint>
#include <span>

#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn::kernels {

// Writes the initial values of row `key`. Element i is drawn from word i of the counter-based stream
// SplitMix(HashCombine(table_salt, key)) (core/hash.h), whatever the width of the row. Any thread.
//   zero      0
//   constant  a
//   uniform   a + (b - a) u, u in [0, 1) with 53 bits
//   normal    a + b q(u), u in (0, 1) with 52 bits
// q is the inverse of the standard normal distribution's CDF (kernels/normal_quantile.h): relative error below 1e-14 in
// double before the rounding to float, |q| < 8.3. The same bits on every x86-64.
void InitializeRow(const InitializerSpec& spec, std::uint64_t table_salt, Key key, std::span<float> row);

// The same for many keys; `out` is keys.size() x dim. For narrow rows several times as fast as one call per key.
void InitializeRows(const InitializerSpec& spec, std::uint64_t table_salt, std::span<const Key> keys, std::size_t dim,
                    float* out);

}  // namespace tarn::kernels
