#include "worker/client/residuals.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/hash.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"

namespace tarn::worker {
namespace {

// share * n, but at least 1.
std::size_t KeptOf(std::size_t n, float share) {
  const auto kept = static_cast<std::size_t>(std::llround(static_cast<double>(share) * static_cast<double>(n)));
  return std::clamp<std::size_t>(kept, 1, n);
}

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

ResidualTable& Residuals::TableOf(const std::string& name, std::uint32_t dim) {
  ResidualTable& table = tables_.try_emplace(name, dim).first->second;
  if (table.dim() != dim) table = ResidualTable(dim);  // it belonged to another table with this name
  return table;
}

Residuals::Sent Residuals::Compress(const Plan& plan, const TableSpec& spec, std::uint32_t partition_bits,
                                    const Buffer& gradients, Clock clock) {
  ResidualTable& table = TableOf(spec.name, spec.dim);
  counters_.rows -= table.size();
  Expire(spec, clock, &table);
  Buffer rows = AddResiduals(plan, table, gradients);
  Sent sent;
  if (spec.push_codec != ValueCodec::kTopK)
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

Buffer Residuals::AddResiduals(const Plan& plan, const ResidualTable& table, const Buffer& gradients) const {
  Buffer rows = Buffer::Copy(gradients.data(), gradients.size());
  float* to = rows.as_mutable<float>().data();
  for (const Key key : plan.keys) {
    if (const float* kept = table.Find(key)) kernels::Add(plan.dim, kept, to);
    to += plan.dim;
  }
  return rows;
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
  Choose(plan.keys.size(), spec.top_k.share, norms_.data());
  for (std::size_t i = 0, chosen = 0; i < plan.keys.size(); ++i) {
    const bool goes = chosen < index_.size() && index_[chosen] == i;
    chosen += goes ? 1 : 0;
    if (goes || norms_[i] == 0) {
      table->Erase(plan.keys[i]);
    } else {
      table->Put(plan.keys[i], clock, row + i * plan.dim);
    }
  }
  return Gather(plan, row, CrowdOut(spec, bits, Clock(UINT64_MAX), table));
}

// Removes the oldest residuals for which there is no room. They are sent, except those from clock `lost_from` on: their
// keys are in this push already.
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

// The selected rows and those crowded out as one plan: by partition, the selected ones first.
Residuals::Sent Residuals::Gather(const Plan& plan, const float* rows, std::vector<Crowded> crowded) {
  const std::size_t n = index_.size() + crowded.size();
  Sent sent{&chosen_, Buffer::Allocate(n * plan.dim * sizeof(float))};
  float* to = sent.rows.as_mutable<float>().data();
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
  Choose(values.size(), spec.top_k.share, values.data());
  Sent sent{&plan, Buffer::Allocate(rows.size())};
  const auto out = sent.rows.as_mutable<float>();
  kernels::Fill(out.size(), 0.0f, out.data());
  for (const std::uint32_t i : index_) out[i] = std::exchange(values[i], 0.0f);
  for (std::size_t i = 0; i < plan.keys.size(); ++i) table->Put(plan.keys[i], clock, values.data() + i * plan.dim);
  return sent;
}

// Stores what the encoding of each row will lose. A row that is not finite loses everything.
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
  if (spec.kind == TableKind::kDense) return {&plan, rows};
  std::vector<Crowded> crowded = CrowdOut(spec, bits, clock, table);
  if (crowded.empty()) return {&plan, rows};
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
    out.BeginTable(spec.name, spec.dim);
    table->second.ForEach([&](Key key, Clock last, const float* row) { out.Add(key, last, row); });
  }
  return out.Finish();
}

void Residuals::Restore(const ResidualRows& rows) {
  if (rows.table.empty()) return;
  ResidualTable& table = TableOf(rows.table, rows.dim);
  counters_.rows -= table.size();
  for (std::size_t i = 0; i < rows.keys.size(); ++i)
    table.Put(rows.keys[i], rows.clocks[i], rows.values.data() + i * rows.dim);
  counters_.rows += table.size();
}

std::uint64_t Residuals::Hash() const {
  std::uint64_t hash = tables_.size();
  for (const auto& [name, table] : tables_) hash = HashCombine(hash, HashBytes(name, table.Hash()));
  return hash;
}

}  // namespace tarn::worker
