// Top-k compression of pushes with error feedback (rule W5): of a gradient plus what was not sent before, the largest
// part goes out and the rest is kept for the key's next gradient. Aji, Heafield: "Sparse communication for distributed
// gradient descent", 2017; Stich, Cordonnier, Jaggi: "Sparsified SGD with memory", 2018, algorithm 1, without the rate,
// which is the server's.
//
// What is chosen depends on the plan, the gradients and what was kept, and not on how the push is cut into messages: so
// not on the number of servers and shards. Ties go to what stands first in the plan. Not thread-safe. Internal to
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
#include "worker/client/plan.h"
#include "worker/client/residual_table.h"

namespace tarn::worker {

class Residuals {
 public:
  struct Counters {
    std::uint64_t rows = 0;     // kept now
    std::uint64_t expired = 0;  // dropped with their row
    std::uint64_t crowded = 0;  // sent for want of room
  };

  // Once the job is known.
  void Begin(std::uint64_t job_seed) { job_seed_ = job_seed; }

  // What goes out of a push instead of its gradients. Of a sparse table: whole rows, those of the largest norms, and
  // those for which there is no room any more. Of a dense one: all rows, with zeros where nothing goes out. The plan is
  // good until the next call. plan.keys is not empty; clocks do not go back.
  struct Sent {
    const Plan* plan = nullptr;
    Buffer rows;
  };
  Sent Compress(const Plan& plan, const TableSpec& spec, std::uint32_t partition_bits, const Buffer& gradients,
                Clock clock);

  // The worker's blob as of now: of the tables that (still) push in kTopK, a chunk an item, each with the head's fields
  // and about so many bytes of rows.
  std::vector<Buffer> Encode(const BlobChunk& head, const std::map<TableId, TableSpec>& tables,
                             std::size_t chunk_bytes) const;
  // Takes over what a chunk of a blob holds. Before the first Compress.
  void Restore(const ResidualRows& rows);

  const Counters& counters() const { return counters_; }
  std::uint64_t Hash() const;

 private:
  ResidualTable& TableOf(const std::string& name, std::uint32_t dim);
  void Expire(const TableSpec& spec, Clock clock, ResidualTable* table);
  Buffer AddResiduals(const Plan& plan, const ResidualTable& table, const Buffer& gradients) const;
  Sent CompressSparse(const Plan& plan, const TableSpec& spec, std::uint32_t bits, const Buffer& rows, Clock clock,
                      ResidualTable* table);
  Sent CompressDense(const Plan& plan, const TableSpec& spec, Buffer rows, Clock clock, ResidualTable* table);
  struct Crowded {
    PartitionId partition;
    Key key;
    std::vector<float> row;
  };
  std::vector<Crowded> CrowdOut(const TableSpec& spec, std::uint32_t bits, ResidualTable* table);
  Sent Gather(const Plan& plan, const float* rows, std::vector<Crowded> crowded);
  void Choose(std::size_t n, float share, const float* magnitudes);

  std::uint64_t job_seed_ = 0;
  std::map<std::string, ResidualTable> tables_;  // by name, as in blobs
  Counters counters_;
  // Scratch.
  Plan chosen_;
  std::vector<std::uint32_t> index_;  // chosen, ascending
  std::vector<float> norms_, values_;
  kernels::TopKScratch scratch_;
};

}  // namespace tarn::worker
