#include "worker/client/residuals.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/hash.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/low_rank.h"

namespace tarn::worker {
namespace {

// share * n, but at least 1.
std::size_t KeptOf(std::size_t n, float share) {
  const auto kept = static_cast<std::size_t>(std::llround(static_cast<double>(share) * static_cast<double>(n)));
  return std::clamp<std::size_t>(kept, 1, n);
}

// The share of rows or values that is sent at a clock.
float ShareAt(const CompressionSpec& spec, Clock clock) {
  if (clock.value >= spec.warmup_clocks) return spec.share;
  const double part = static_cast<double>(clock.value + 1) / static_cast<double>(spec.warmup_clocks);
  return static_cast<float>(std::pow(static_cast<double>(spec.share), part));
}

std::uint32_t WidthOf(const TableSpec& spec) {
  return spec.push_codec == ValueCodec::kTopK && spec.compression.momentum != 0 ? 2 * spec.dim : spec.dim;
}

// A blob stores the right factor of a table as a table with this suffix to its name: `rank` rows of dim values.
constexpr std::string_view kFactorSuffix = "\n(factor)";
std::string FactorName(const std::string& table) { return table + std::string(kFactorSuffix); }

// Divides the residuals of all tables into chunks.
class ChunkWriter {
 public:
  ChunkWriter(const BlobChunk& head, std::size_t chunk_bytes) : chunk_(head), chunk_bytes_(chunk_bytes) {}

  void BeginTable(const std::string& name, std::uint32_t dim) {
    if (!chunk_.rows.keys.empty()) Flush();
    chunk_.rows.table = name;
    chunk_.rows.dim = dim;
  }
  void Add(Key key, Clock clock, const float* row) {
    ResidualRows& rows = chunk_.rows;
    rows.keys.push_back(key);
    rows.clocks.push_back(clock);
    rows.values.insert(rows.values.end(), row, row + rows.dim);
    const std::size_t row_bytes = sizeof(Key) + sizeof(Clock) + rows.dim * sizeof(float);
    if ((rows.keys.size() + 1) * row_bytes > chunk_bytes_) Flush();
  }
  std::vector<Buffer> Finish() {
    chunk_.last = true;
    Flush();
    return std::move(chunks_);
  }

 private:
  void Flush() {
    chunks_.push_back(EncodeBlobChunk(chunk_));
    ++chunk_.index;
    chunk_.rows.keys.clear();
    chunk_.rows.clocks.clear();
    chunk_.rows.values.clear();
  }

  BlobChunk chunk_;
  std::size_t chunk_bytes_;
  std::vector<Buffer> chunks_;
};

}  // namespace

ResidualTable& Residuals::TableOf(const std::string& name, std::uint32_t width) {
  ResidualTable& table = tables_.try_emplace(name, width).first->second;
  if (table.dim() == width) return table;
  // The new table stays empty, unless a resumed job has switched momentum on or off: then it gets the residuals.
  ResidualTable other(width);
  if (table.dim() == 2 * width || 2 * table.dim() == width) {
    std::vector<float> row(width);
    table.ForEach([&](Key key, Clock clock, const float* from) {
      std::copy_n(from, std::min(width, table.dim()), row.begin());
      other.Put(key, clock, row.data());
    });
  }
  table = std::move(other);
  return table;
}

Residuals::Sent Residuals::Compress(const Plan& plan, const TableSpec& spec, std::uint32_t partition_bits,
                                    const Buffer& gradients, Clock clock) {
  ResidualTable& table = TableOf(spec.name, WidthOf(spec));
  counters_.rows -= table.size();
  Expire(spec, clock, &table);
  Buffer rows = AddResiduals(plan, spec, table, gradients);
  Sent sent;
  if (spec.push_codec == ValueCodec::kLowRank)
    sent = CompressLowRank(plan, spec, std::move(rows), clock, &table);
  else if (spec.push_codec != ValueCodec::kTopK)
    sent = CompressBits(plan, spec, partition_bits, rows, clock, &table);
  else if (spec.kind == TableKind::kSparse)
    sent = CompressSparse(plan, spec, partition_bits, rows, clock, &table);
  else
    sent = CompressDense(plan, spec, std::move(rows), clock, &table);
  counters_.rows += table.size();
  return sent;
}

// Drops residuals of rows that have probably expired: their keys had no gradient on this worker for the lifetime of a
// row.
void Residuals::Expire(const TableSpec& spec, Clock clock, ResidualTable* table) {
  if (!spec.life.on || spec.life.expire_clocks == 0) return;
  while (table->size() != 0 && table->oldest_clock() + spec.life.expire_clocks < clock) {
    table->Erase(table->oldest());
    ++counters_.expired;
  }
}

// Returns the gradients plus the residuals of their keys. With momentum, sets velocities_ to the velocities of the
// rows.
Buffer Residuals::AddResiduals(const Plan& plan, const TableSpec& spec, const ResidualTable& table,
                               const Buffer& gradients) {
  const std::uint32_t dim = plan.dim;
  const bool has_velocity = table.dim() != dim;
  Buffer rows = Buffer::Copy(gradients.data(), gradients.size());
  float* to = rows.as_mutable<float>().data();
  if (has_velocity) velocities_.assign(to, to + plan.keys.size() * dim);
  for (std::size_t i = 0; i < plan.keys.size(); ++i, to += dim) {
    const float* kept = table.Find(plan.keys[i]);
    if (kept == nullptr) continue;
    for (std::uint32_t j = 0; j < dim && has_velocity; ++j) {
      to[j] += spec.compression.momentum * kept[dim + j];
      velocities_[i * dim + j] = to[j];
    }
    kernels::Add(dim, kept, to);
  }
  return rows;
}

// Stores the residual of the plan's row i, and its velocity with momentum; erases them if all are zero. Where the
// gradient was not finite, keeps what was stored before (rule A5).
void Residuals::Keep(const TableSpec& spec, Key key, Clock clock, const float* row, std::size_t i,
                     ResidualTable* table) {
  kept_.assign(row, row + spec.dim);
  if (table->dim() != spec.dim) {
    const auto velocity = velocities_.begin() + static_cast<std::ptrdiff_t>(i * spec.dim);
    kept_.insert(kept_.end(), velocity, velocity + spec.dim);
  }
  if (!kernels::AllFinite(kept_.size(), kept_.data())) [[unlikely]] {
    const float* before = table->Find(key);
    for (std::size_t j = 0; j < kept_.size(); ++j)
      if (!std::isfinite(kept_[j])) kept_[j] = before == nullptr ? 0 : before[j];
  }
  if (std::ranges::all_of(kept_, [](float value) { return value == 0; }))
    table->Erase(key);
  else
    table->Put(key, clock, kept_.data());
}

void Residuals::Choose(std::size_t n, float share, const float* magnitudes) {
  index_.resize(KeptOf(n, share));
  values_.resize(index_.size());
  kernels::TopK(n, index_.size(), magnitudes, index_.data(), values_.data(), scratch_);
}

Residuals::Sent Residuals::CompressSparse(const Plan& plan, const TableSpec& spec, std::uint32_t bits,
                                          const Buffer& rows, Clock clock, ResidualTable* table) {
  const float* row = rows.as<float>().data();
  norms_.resize(plan.keys.size());
  kernels::RowNorms(plan.dim, plan.keys.size(), row, norms_.data());
  Choose(plan.keys.size(), ShareAt(spec.compression, clock), norms_.data());
  for (std::size_t i = 0, chosen = 0; i < plan.keys.size(); ++i) {
    const bool goes = chosen < index_.size() && index_[chosen] == i;
    chosen += goes ? 1 : 0;
    if (goes)
      table->Erase(plan.keys[i]);
    else
      Keep(spec, plan.keys[i], clock, row + i * plan.dim, i, table);
  }
  return Gather(plan, row, CrowdOut(spec, bits, Clock(UINT64_MAX), table));
}

// Removes the oldest residuals for which there is no room. Returns those last changed before clock `lost_from`, to be
// sent. Drops the others: a push of this clock has sent their keys.
std::vector<Residuals::Crowded> Residuals::CrowdOut(const TableSpec& spec, std::uint32_t bits, Clock lost_from,
                                                    ResidualTable* table) {
  const Positioner position(spec, TableSalt(job_seed_, spec.name));
  const std::uint64_t rows_max = ResidualRowsMax(spec);
  std::vector<Crowded> crowded;
  while (table->size() > rows_max) {
    const Key key = table->oldest();
    const float* row = table->Find(key);
    if (table->oldest_clock() < lost_from)
      crowded.push_back({PartitionOf(position(key), bits), key, {row, row + spec.dim}});
    table->Erase(key);
    ++counters_.crowded;
  }
  std::ranges::stable_sort(crowded, {}, &Crowded::partition);
  return crowded;
}

// Returns the selected rows and those crowded out as one plan: by partition, the selected ones first.
Residuals::Sent Residuals::Gather(const Plan& plan, const float* rows, std::vector<Crowded> crowded) {
  const std::size_t n = index_.size() + crowded.size();
  Sent sent{&chosen_, {Buffer::Allocate(n * plan.dim * sizeof(float))}};
  float* to = sent.rows.rows.as_mutable<float>().data();
  chosen_.table = plan.table;
  chosen_.dim = plan.dim;
  chosen_.keys.clear();
  chosen_.runs.clear();
  const auto add = [&](PartitionId partition, Key key, const float* row) {
    if (chosen_.runs.empty() || chosen_.runs.back().partition != partition)
      chosen_.runs.push_back({partition, static_cast<std::uint32_t>(chosen_.keys.size()), 0});
    ++chosen_.runs.back().count;
    chosen_.keys.push_back(key);
    std::memcpy(to, row, plan.dim * sizeof(float));
    to += plan.dim;
  };
  std::size_t next = 0, crowd = 0;
  const auto add_crowd = [&](auto belongs) {
    for (; crowd < crowded.size() && belongs(crowded[crowd].partition); ++crowd)
      add(crowded[crowd].partition, crowded[crowd].key, crowded[crowd].row.data());
  };
  for (const PlanRun& run : plan.runs) {
    add_crowd([&](PartitionId partition) { return partition < run.partition; });
    for (; next < index_.size() && index_[next] < run.begin + run.count; ++next)
      add(run.partition, plan.keys[index_[next]], rows + std::size_t{index_[next]} * plan.dim);
    add_crowd([&](PartitionId partition) { return partition == run.partition; });
  }
  add_crowd([](PartitionId) { return true; });
  return sent;
}

Residuals::Sent Residuals::CompressDense(const Plan& plan, const TableSpec& spec, Buffer rows, Clock clock,
                                         ResidualTable* table) {
  const auto values = rows.as_mutable<float>();
  Choose(values.size(), ShareAt(spec.compression, clock), values.data());
  Sent sent{&plan, {Buffer::Allocate(rows.size())}};
  const auto out = sent.rows.rows.as_mutable<float>();
  kernels::Fill(out.size(), 0.0f, out.data());
  for (const std::uint32_t i : index_) {
    out[i] = std::exchange(values[i], 0.0f);
    if (table->dim() != spec.dim) velocities_[i] = 0;
  }
  for (std::size_t i = 0; i < plan.keys.size(); ++i)
    Keep(spec, plan.keys[i], clock, values.data() + i * plan.dim, i, table);
  return sent;
}

// Rows that are not finite are sent as such, for the server to drop and count, and lose their residuals.
Residuals::Sent Residuals::CompressLowRank(const Plan& plan, const TableSpec& spec, Buffer rows, Clock clock,
                                           ResidualTable* table) {
  const std::size_t n = plan.keys.size();
  const std::uint32_t dim = plan.dim, rank = spec.compression.rank;
  const auto send_whole = [&] {
    for (const Key key : plan.keys) table->Erase(key);
    return Sent{&plan, {rows}};
  };
  if (!kernels::LowRankPays(n, dim, rank)) return send_whole();
  Buffer finite = Buffer::Copy(rows.data(), rows.size());
  float* const matrix = finite.as_mutable<float>().data();
  index_.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    if (kernels::AllFinite(dim, matrix + std::size_t{i} * dim)) continue;
    index_.push_back(i);
    kernels::Fill(dim, 0.0f, matrix + std::size_t{i} * dim);
  }
  std::vector<float>& right = factors_[spec.name];
  if (right.size() != std::size_t{rank} * dim) {
    right.resize(std::size_t{rank} * dim);
    kernels::StartLowRank(dim, rank, TableSalt(job_seed_, FactorName(spec.name)), right.data());
  }
  Sent sent{&plan, {Buffer::Allocate(n * rank * sizeof(float))}};
  float* const left = sent.rows.rows.as_mutable<float>().data();
  kernels::FactorLowRank(n, dim, rank, matrix, left, right.data());
  values_.resize(n * dim);
  kernels::MultiplyLowRank(n, dim, rank, left, right.data(), values_.data());
  if (!kernels::AllFinite(values_.size(), values_.data())) {  // an overflow
    factors_.erase(spec.name);
    return send_whole();
  }
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = matrix[i] - values_[i];
  for (std::size_t i = 0; i < n; ++i) Keep(spec, plan.keys[i], clock, values_.data() + i * dim, i, table);
  for (const std::uint32_t i : index_) {
    table->Erase(plan.keys[i]);
    kernels::Fill(rank, std::numeric_limits<float>::quiet_NaN(), left + std::size_t{i} * rank);
  }
  sent.rows.right = right;
  return sent;
}

// Stores what the encoding of each row will lose. A row that is not finite leaves no residual.
Residuals::Sent Residuals::CompressBits(const Plan& plan, const TableSpec& spec, std::uint32_t bits, const Buffer& rows,
                                        Clock clock, ResidualTable* table) {
  encoded_.resize(CodecRowBytes(spec.push_codec, plan.dim));
  values_.resize(plan.dim);
  const float* row = rows.as<float>().data();
  for (const Key key : plan.keys) {
    kernels::EncodeRows(spec.push_codec, plan.dim, 1, row, encoded_.data());
    kernels::DecodeRows(spec.push_codec, plan.dim, 1, encoded_.data(), values_.data());
    bool lost = false, finite = true;
    for (std::uint32_t j = 0; j < plan.dim; ++j) {
      values_[j] = row[j] - values_[j];
      lost |= values_[j] != 0;
      finite &= std::isfinite(values_[j]);
    }
    if (lost && finite)
      table->Put(key, clock, values_.data());
    else
      table->Erase(key);
    row += plan.dim;
  }
  if (spec.kind == TableKind::kDense) return {&plan, {rows}};
  std::vector<Crowded> crowded = CrowdOut(spec, bits, clock, table);
  if (crowded.empty()) return {&plan, {rows}};
  index_.resize(plan.keys.size());
  std::iota(index_.begin(), index_.end(), 0u);
  return Gather(plan, rows.as<float>().data(), std::move(crowded));
}

std::vector<Buffer> Residuals::Encode(const BlobChunk& head, const std::map<TableId, TableSpec>& tables,
                                      std::size_t chunk_bytes) const {
  ChunkWriter out(head, chunk_bytes);
  for (const auto& [id, spec] : tables) {
    const auto table = tables_.find(spec.name);
    if (!KeepsResiduals(spec.push_codec) || table == tables_.end()) continue;
    out.BeginTable(spec.name, table->second.dim());
    table->second.ForEach([&](Key key, Clock last, const float* row) { out.Add(key, last, row); });
    const auto factor = factors_.find(spec.name);
    if (factor == factors_.end()) continue;
    out.BeginTable(FactorName(spec.name), spec.dim);
    for (std::size_t at = 0; at < factor->second.size(); at += spec.dim)
      out.Add(at / spec.dim, head.clock, factor->second.data() + at);
  }
  return out.Finish();
}

void Residuals::Restore(const ResidualRows& rows) {
  if (rows.table.empty()) return;
  if (rows.table.ends_with(kFactorSuffix)) {
    std::vector<float>& factor = factors_[rows.table.substr(0, rows.table.size() - kFactorSuffix.size())];
    factor.insert(factor.end(), rows.values.begin(), rows.values.end());
    return;
  }
  ResidualTable& table = TableOf(rows.table, rows.dim);
  counters_.rows -= table.size();
  for (std::size_t i = 0; i < rows.keys.size(); ++i)
    table.Put(rows.keys[i], rows.clocks[i], rows.values.data() + i * rows.dim);
  counters_.rows += table.size();
}

std::uint64_t Residuals::Hash() const {
  std::uint64_t hash = tables_.size();
  for (const auto& [name, table] : tables_) hash = HashCombine(hash, HashBytes(name, table.Hash()));
  for (const auto& [name, factor] : factors_)
    hash = HashCombine(hash, HashBytes({reinterpret_cast<const char*>(factor.data()), factor.size() * sizeof(float)}));
  return hash;
}

}  // namespace tarn::worker
