// Compression of pushes with error feedback (rule W5): a gradient plus the stored residual is compressed and sent, and
// what is lost is stored for the key's next gradient. topk sends the largest entries (Aji, Heafield: "Sparse
// communication for distributed gradient descent", 2017; Stich, Cordonnier, Jaggi: "Sparsified SGD with memory", 2018,
// algorithm 1), sign and one_bit send one bit a value (kernels/low_bits.h), low_rank two thin matrices
// (kernels/low_rank.h). Gradients and residuals do not include the learning rate, which the server applies.
//
// topk with momentum m is deep gradient compression (Lin, Han, Mao, Wang, Dally: "Deep gradient compression", ICLR
// 2018): u = m u + g, v = v + u; the largest entries of v are sent, and v and u are zeroed there. In the first clocks
// the share of sent entries falls from 1 exponentially. A row of a sparse table changes only when it has a gradient.
//
// The selection depends only on the plan, the gradients and the residuals, not on the messages of the push, and so not
// on the number of servers and shards. Ties are resolved by the order in the plan. Not thread-safe. Internal to
// worker/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/codec/worker_blob.h"
#include "core/position.h"
#include "core/table/table_spec.h"
#include "kernels/top_k.h"
#include "worker/client/client_pieces.h"
#include "worker/client/plan.h"
#include "worker/client/residual_table.h"

namespace tarn::worker {

class Residuals {
 public:
  struct Counters {
    std::uint64_t rows = 0;     // stored now
    std::uint64_t expired = 0;  // dropped with their row
    std::uint64_t crowded = 0;  // sent or dropped because there was no room
  };

  // Must be called when the job is known.
  void Begin(std::uint64_t job_seed) { job_seed_ = job_seed; }

  // Returns the gradients to send instead of those of a push. topk, sparse table: whole rows, those with the largest
  // norms and the residuals for which there is no more room. topk, dense table: all rows, with zeros for unsent
  // entries. sign, one_bit: all rows, not encoded yet, and earlier residuals for which there is no more room. low_rank:
  // one row of the left factor for each row, and the right factor; or, if that is not smaller or overflows, all rows,
  // without a factor. The plan is valid until the next call. plan.keys must not be empty; clocks must not decrease.
  struct Sent {
    const Plan* plan = nullptr;
    PushRows rows;
  };
  Sent Compress(const Plan& plan, const TableSpec& spec, std::uint32_t partition_bits, const Buffer& gradients,
                Clock clock);

  // Encodes the worker's blob: chunks with the residuals of the tables that currently keep residuals. Each has the
  // fields of `head` and about the given bytes of rows.
  std::vector<Buffer> Encode(const BlobChunk& head, const std::map<TableId, TableSpec>& tables,
                             std::size_t chunk_bytes) const;
  // Restores the residuals in a chunk of a blob. Must be called before the first Compress.
  void Restore(const ResidualRows& rows);

  const Counters& counters() const { return counters_; }
  std::uint64_t Hash() const;

 private:
  ResidualTable& TableOf(const std::string& name, std::uint32_t width);
  void Expire(const TableSpec& spec, Clock clock, ResidualTable* table);
  Buffer AddResiduals(const Plan& plan, const TableSpec& spec, const ResidualTable& table, const Buffer& gradients);
  void Keep(const TableSpec& spec, Key key, Clock clock, const float* row, std::size_t i, ResidualTable* table);
  Sent CompressSparse(const Plan& plan, const TableSpec& spec, std::uint32_t bits, const Buffer& rows, Clock clock,
                      ResidualTable* table);
  Sent CompressDense(const Plan& plan, const TableSpec& spec, Buffer rows, Clock clock, ResidualTable* table);
  Sent CompressBits(const Plan& plan, const TableSpec& spec, std::uint32_t bits, const Buffer& rows, Clock clock,
                    ResidualTable* table);
  Sent CompressLowRank(const Plan& plan, const TableSpec& spec, Buffer rows, Clock clock, ResidualTable* table);
  struct Crowded {
    PartitionId partition;
    Key key;
    std::vector<float> row;
  };
  std::vector<Crowded> CrowdOut(const TableSpec& spec, std::uint32_t bits, Clock lost_from, ResidualTable* table);
  Sent Gather(const Plan& plan, const float* rows, std::vector<Crowded> crowded);
  void Choose(std::size_t n, float share, const float* magnitudes);

  std::uint64_t job_seed_ = 0;
  // By name, as in blobs. A row has the residual; with momentum, the velocity behind it.
  std::map<std::string, ResidualTable> tables_;
  std::map<std::string, std::vector<float>> factors_;  // by name of the table: the right factor of its last push
  Counters counters_;
  // Scratch.
  Plan chosen_;
  std::vector<std::uint32_t> index_;  // selected rows, ascending
  std::vector<float> norms_, values_;
  std::vector<float> velocities_;   // of the rows of a push, with momentum
  std::vector<float> kept_;         // one row of a ResidualTable
  std::vector<std::byte> encoded_;  // one row
  kernels::TopKScratch scratch_;
};

}  // namespace tarn::worker
