// A ColdStore in memory, for tests and simulated fleets. Asynchronous operations end in order: when the owner calls
// RunOne, in WaitForWrite, or at once if there is no `begun`. Reads check that the segments exist, and verify a
// checksum of each.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/tier/cold_store.h"

namespace tarn::server {

class MemoryColdStore : public ColdStore {
 public:
  // `begun` is called when an operation begins, and must cause one later call of RunOne; null: operations end at once.
  explicit MemoryColdStore(std::function<void()> begun = {}) : begun_(std::move(begun)) {}

  void Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) override;
  void Remove(SegmentId segment) override;
  Status Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) override;
  void Fetch(std::vector<RecordAt> records, std::size_t record_bytes) override;
  std::vector<ColdEvent> TakeEvents() override { return std::exchange(events_, {}); }
  void WaitForWrite() override;
  std::string where() const override { return "memory"; }
  std::size_t memory_bytes() const override { return 0; }
  std::uint64_t disk_bytes() const override { return bytes_; }

  // Ends the oldest operation in progress, if any.
  void RunOne();
  // From now on reads fail with `error`, and so do operations when they end.
  void FailWith(Error error) { error_ = std::move(error); }
  // Changes one bit of a stored segment, if any: later reads of it must fail.
  bool Damage();
  // Applies `change` to the bytes of every stored segment and recomputes its checksum, to simulate a replaced file.
  void Forge(const std::function<void(std::span<std::byte>)>& change);

  std::size_t under_way() const { return jobs_.size(); }
  std::uint64_t reads() const { return reads_; }      // records read synchronously
  std::uint64_t fetches() const { return fetches_; }  // records read asynchronously

 private:
  struct WriteJob {
    SegmentId segment;
    std::shared_ptr<const SegmentBytes> bytes;
  };
  struct RemoveJob {
    SegmentId segment;
  };
  struct FetchJob {
    std::vector<RecordAt> records;
    std::size_t record_bytes;
  };
  using Job = std::variant<WriteJob, RemoveJob, FetchJob>;
  struct Stored {
    SegmentBytes segment;
    std::uint32_t crc32c = 0;
  };

  void Begin(Job job);
  void Run(WriteJob& job);
  void Run(RemoveJob& job);
  void Run(FetchJob& job);
  Status ReadAll(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) const;

  std::function<void()> begun_;
  std::deque<Job> jobs_;
  std::map<SegmentId, Stored> segments_;
  std::vector<ColdEvent> events_;
  Error error_{ErrorCode::kOk, {}};
  std::uint64_t bytes_ = 0, reads_ = 0, fetches_ = 0;
};

}  // namespace tarn::server
