// Rows on disk that a cut's walk has come across in one sparse fragment: they are read in the order in which they lie
// there, a slice ahead, and are not kept in memory. Not thread-safe.
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

  void Clear();
  bool empty() const { return found_.empty(); }
  // So many were found that they are to be read before the walk goes on.
  bool IsFull() const;
  void Add(std::uint32_t number, Key key);
  // Takes the slice that was fetched into the cut and fetches the next. Returns what that cost, in bytes of copies; the
  // context says if the disk has to be waited for, or has failed.
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
  std::size_t next_ = 0;       // those before it are done
  std::vector<Row> fetching_;  // in order of id
};

}  // namespace tarn::server
