// The rows on disk that the cut of a checkpoint needs: cold rows, which are read for it and not kept in memory, and
// spilled rows: copies of rows that were about to change, written to disk when the copies in memory reach a limit.
//
//   cut.Fetch(table, ids);                        // cold rows, or
//   cut.FetchSpilled(table, ids);                 // spilled rows; later, from the log's Poll:
//   if (cut.HasRecords()) cut.Take(&records);     // in the order of the fetches
//
// The shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_log.h"

namespace tarn::server {

class ColdCut : private FetchReceiver {
 public:
  // `log` outlives it, and has no other user of the tables that contain spilled rows. `limit_bytes`: memory budget of
  // the shard.
  ColdCut(ColdLog* log, std::size_t limit_bytes) : log_(log) { SetLimit(limit_bytes); }
  void SetLimit(std::size_t bytes);

  // Starts to read the whole records of cold rows. `ids` must be ascending.
  void Fetch(TableId table, std::vector<ColdId> ids);
  bool HasRecords() const { return !records_.empty(); }
  // Returns the records of the oldest fetch that was not taken yet. False if that fetch has not ended.
  bool Take(std::vector<std::uint32_t>* records);
  // Must be called when the cut has ended. Discards all fetches, also those in progress, and frees the spilled rows.
  void Drop();

  // Appends a copy of a row to the log: its `record`, which has `words` words, the same number for every row of a
  // table. Blocks if the disk is too slow. Errors are those of ColdLog::Append and WaitForRoom.
  Expected<ColdId> Spill(TableId table, std::size_t words, Key key, const std::uint32_t* record);
  // Like Fetch, for spilled rows. Each record is the row's key (upper word first) and then the words given to Spill.
  void FetchSpilled(TableId table, std::vector<ColdId> ids);
  void FreeSpilled(TableId table, std::span<const ColdId> ids);
  // Whether a cut with `held_bytes` bytes of copies in memory must spill them now. The limit is 1/32 of the budget, at
  // most 16 MiB, and twice that while the disk is too slow.
  bool MustSpill(std::size_t held_bytes) const;
  // The limit that applies while the disk keeps up.
  std::size_t held_bytes_max() const { return held_bytes_max_; }

 private:
  Status OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) override;

  ColdLog* log_;
  std::size_t held_bytes_max_ = 0;
  std::size_t fetching_ = 0, dropped_ = 0;          // fetches in progress; how many of them, the oldest, are dropped
  std::deque<std::vector<std::uint32_t>> records_;  // by fetch
  std::unordered_set<TableId> spilled_;             // tables of which any cut has spilled rows
};

}  // namespace tarn::server
