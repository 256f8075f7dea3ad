// A ColdStore in memory, for tests and simulated fleets. What is done beside the shard's work ends when the owner says
// so (RunOne), one thing after the other; reads check that what they read is there, and a checksum of each segment.
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
  // `begun` is called for everything that is begun and must lead to one call of RunOne later; null: at once.
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

  // Ends the oldest thing under way, if there is one.
  void RunOne();
  // From now on everything fails with `error`.
  void FailWith(Error error) { error_ = std::move(error); }
  // Changes one bit of a stored segment, if there is one: reads of it must fail from then on.
  bool Damage();
  // Changes the bytes of every stored segment; their checksums fit again, as those of a swapped file would.
  void Forge(const std::function<void(std::span<std::byte>)>& change);

  std::size_t under_way() const { return jobs_.size(); }
  std::uint64_t reads() const { return reads_; }      // records read while the shard waited
  std::uint64_t fetches() const { return fetches_; }  // records read beside it

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
