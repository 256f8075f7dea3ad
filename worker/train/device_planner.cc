#include "worker/train/device_planner.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "kernels/positions.h"
#include "kernels/segments.h"
#include "kernels/sort_scratch.h"
#include "kernels/stream.h"
#include "kernels/unique.h"
#include "worker/train/device_memory.h"

namespace tarn::worker {
namespace {

using kernels::DeviceBuffer;
using kernels::PinnedBuffer;
using kernels::Stream;

// Finds the runs of the partitions; the keys are already grouped by ascending partition.
void CutRuns(const Positioner& positioner, std::uint32_t partition_bits, Plan* plan) {
  const auto partition_of = [&](Key key) { return PartitionOf(positioner(key), partition_bits); };
  plan->runs.clear();
  for (auto begin = plan->keys.begin(); begin != plan->keys.end();) {
    const PartitionId partition = partition_of(*begin);
    const auto end =
        std::partition_point(begin, plan->keys.end(), [&](Key key) { return partition_of(key) == partition; });
    plan->runs.push_back(
        {partition, static_cast<std::uint32_t>(begin - plan->keys.begin()), static_cast<std::uint32_t>(end - begin)});
    begin = end;
  }
}

class StreamPlanner final : public DevicePlanner {
 public:
  StreamPlanner(int gpu, std::unique_ptr<Stream> stream, std::uint32_t partition_bits)
      : gpu_(gpu), partition_bits_(partition_bits), stream_(std::move(stream)) {}
  ~StreamPlanner() override { (void)stream_->Wait(); }

  Status Bring(std::span<const Key> keys) override {
    TARN_RETURN_IF_ERROR(MakeRoom(keys.size()));
    brought_ = keys.size();
    if (!keys.empty()) std::memcpy(keys_host_.data(), keys.data(), keys.size_bytes());
    kernels::CopyToDevice(*stream_, keys_host_.data(), keys.size_bytes(), keys_.data());
    return {};
  }

  Status Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::size_t n, Plan* plan) override {
    TARN_CHECK(!positioner.dense() && n <= brought_, "keys of a sparse table that were brought");
    TakeBack(plan);
    plan->table = table;
    plan->dim = dim;
    plan->index.clear();
    Memory* const memory = Take(n);
    plan->placed = memory;
    TARN_RETURN_IF_ERROR(SortKeys(positioner, memory));
    TARN_RETURN_IF_ERROR(FetchKeys(positioner, memory, &plan->keys));
    CutRuns(positioner, partition_bits_, plan);
    return {};
  }

  void TakeBack(Plan* plan) override {
    const PlacedPlan* const placed = std::exchange(plan->placed, nullptr);
    if (placed == nullptr) return;
    const auto memory = std::ranges::find(memory_, placed, [](const auto& m) -> const PlacedPlan* { return m.get(); });
    TARN_CHECK(memory != memory_.end(), "the plan is this planner's");
    (*memory)->taken = false;
  }

 private:
  struct Memory : PlacedPlan {
    DeviceBuffer keys_room, index_room;
    bool taken = false;
  };

  // Makes room for a batch of n keys.
  Status MakeRoom(std::size_t n) {
    TARN_RETURN_IF_ERROR(Fit(*stream_, n * sizeof(Key), "planned keys", &keys_host_));
    TARN_RETURN_IF_ERROR(Fit(*stream_, n * sizeof(Key), "planned keys", &keys_));
    TARN_RETURN_IF_ERROR(Fit(*stream_, n * sizeof(Position), "positions of planned keys", &positions_));
    TARN_RETURN_IF_ERROR(Fit(*stream_, sizeof(std::uint32_t), "the number of unique keys", &unique_host_));
    TARN_RETURN_IF_ERROR(Fit(*stream_, sizeof(std::uint32_t), "the number of unique keys", &unique_));
    if (sort_ != nullptr && n <= sorted_max_) return {};
    sort_.reset();
    segments_.reset();
    if (MakeSorting(std::min(WithRoom(n), limits::kPlanKeysMax))) return {};
    return MakeSorting(n);
  }

  Status MakeSorting(std::size_t n) {
    auto sort = kernels::SortScratch::Make(*stream_, n);
    if (!sort) return std::unexpected(std::move(sort).error());
    auto segments = kernels::Segments::Make(*stream_, {.occurrences = n, .rows = n});
    if (!segments) return std::unexpected(std::move(segments).error());
    sort_ = std::move(*sort);
    segments_ = std::move(*segments);
    sorted_max_ = n;
    return {};
  }

  // Reuses the Memory of a plan that was taken back, or adds an empty one.
  Memory* Take(std::size_t n) {
    auto memory = std::ranges::find(memory_, false, &Memory::taken);
    if (memory == memory_.end()) memory = memory_.insert(memory_.end(), std::make_unique<Memory>());
    (*memory)->gpu = gpu_;
    (*memory)->occurrences = n;
    (*memory)->taken = true;
    return memory->get();
  }

  // Computes the unique positions, their number, and the index.
  Status SortKeys(const Positioner& positioner, Memory* memory) {
    const std::size_t n = memory->occurrences;
    TARN_RETURN_IF_ERROR(Fit(*stream_, n * sizeof(std::uint32_t), "a plan's index", &memory->index_room));
    memory->index = memory->index_room.as<std::uint32_t>();
    auto* const positions = positions_.as<Position>();
    kernels::PositionsOf(*stream_, n, keys_.as<Key>(), positioner.salt(), positions);
    kernels::UniqueKeys(*stream_, n, positions, positions, memory->index_room.as<std::uint32_t>(),
                        unique_.as<std::uint32_t>(), *sort_, *segments_);
    return {};
  }

  // The second wait completes all arrays of the plan in GPU memory.
  Status FetchKeys(const Positioner& positioner, Memory* memory, std::vector<Key>* keys) {
    kernels::CopyToHost(*stream_, unique_.data(), sizeof(std::uint32_t), unique_host_.data());
    TARN_RETURN_IF_ERROR(stream_->Wait());
    const std::size_t unique = *unique_host_.as<std::uint32_t>(), bytes = unique * sizeof(Key);
    TARN_RETURN_IF_ERROR(Fit(*stream_, bytes, "a plan's keys", &memory->keys_room));
    memory->keys = memory->keys_room.as<Key>();
    kernels::KeysAt(*stream_, unique, positions_.as<Position>(), positioner.salt(), memory->keys_room.as<Key>());
    kernels::CopyToHost(*stream_, memory->keys, bytes, keys_host_.data());
    TARN_RETURN_IF_ERROR(stream_->Wait());
    keys->assign(keys_host_.as<Key>(), keys_host_.as<Key>() + unique);
    return {};
  }

  int gpu_;
  std::uint32_t partition_bits_;
  std::unique_ptr<Stream> stream_;
  std::size_t brought_ = 0;
  PinnedBuffer keys_host_;  // keys copied to the GPU, or unique keys copied back
  PinnedBuffer unique_host_;
  DeviceBuffer keys_, positions_, unique_;
  std::unique_ptr<kernels::SortScratch> sort_;
  std::unique_ptr<kernels::Segments> segments_;
  std::size_t sorted_max_ = 0;
  std::vector<std::unique_ptr<Memory>> memory_;  // one per plan; free after TakeBack
};

}  // namespace

Expected<std::unique_ptr<DevicePlanner>> MakeDevicePlanner(int gpu, std::uint32_t partition_bits) {
  auto stream = Stream::Make(gpu);
  if (!stream) return std::unexpected(std::move(stream).error());
  return std::make_unique<StreamPlanner>(gpu, std::move(*stream), partition_bits);
}

}  // namespace tarn::worker
