// Reads, for a cut, those rows of one sparse fragment that are on disk. It reads them in their order on disk, one slice
// ahead, and does not keep them in memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/store/fragment_cut.h"
#include "server/store/snapshot.h"
#include "server/store/sparse_rows.h"
#include "server/store/store_context.h"

namespace tarn::server {

class ColdWalk {
 public:
  ColdWalk(const Table& table, const SparseRows& rows, FragmentCut* cut, StoreContext* context)
      : table_(table), rows_(rows), cut_(cut), context_(context) {}

  // Drops all rows, also those being read.
  void Clear();
  bool empty() const { return found_.empty(); }
  // Whether so many rows were added that they must be read before the walk over the fragment continues.
  bool IsFull() const;
  // Adds a row of the cut that is on disk.
  void Add(std::uint32_t number, Key key);
  // Adds the fetched slice to the cut and starts the fetch of the next. Returns the cost in copied bytes. The context
  // records whether the cut must wait for the disk, or that the disk failed.
  std::size_t Continue(std::vector<CutRows>* out);

  std::size_t memory_bytes() const { return found_.capacity() * sizeof(Row); }

 private:
  struct Row {
    ColdId id;
    std::uint32_t number;
    Key key;
  };
  void Take(std::vector<CutRows>* out);
  void FetchNext(std::vector<CutRows>* out);

  const Table& table_;
  const SparseRows& rows_;
  FragmentCut* cut_;
  StoreContext* context_;
  std::vector<Row> found_;
  std::size_t next_ = 0;       // index in found_; earlier rows are in the cut or in fetching_
  std::vector<Row> fetching_;  // being read, in order of id
};

}  // namespace tarn::server
