#include "sim/trial/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include <sstream>
#include <string_view>

#include "core/file.h"
#include "core/limits.h"

namespace tarn::sim {
namespace {

Status CheckJob(const Job& job) {
  const auto refuse = [](std::string_view key, std::string_view why) {
    return Fail(ErrorCode::kUnsupported, fmt::format("a run with {} cannot be repeated: {}", key, why));
  };
  if (job.train.device != "cpu")
    return refuse("train.device = \"gpu\"", "a GPU's sums depend on the order of its threads");
  if (job.train.hot_rows.rows != 0) return refuse("train.hot_rows", "what the cache holds depends on time");
  const auto cached = [](const WorkerCacheSpec& cache) { return cache.bytes != 0 || cache.push_every != 1; };
  if (cached(job.worker_cache) || std::ranges::any_of(job.tables | std::views::values, [&](const TableOverride& table) {
        return table.has_worker_cache && cached(table.worker_cache);
      }))
    return refuse("worker_cache or push_every", "what the cache holds and sends depends on time");
  if (std::ranges::any_of(job.tables | std::views::values,
                          [](const TableOverride& table) { return table.life.expire_seconds != 0; }))
    return refuse("expire_seconds", "its rows depend on the time of day");
  return {};
}

std::unexpected<Error> Corrupt(const std::string& path, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", path, what));
}

Expected<std::string> ReadRecord(const std::string& path) {
  auto text = ReadFile(path, std::numeric_limits<std::size_t>::max());
  if (text || text.error().code != ErrorCode::kNotFound) return text;
  return Fail(ErrorCode::kNotFound,
              fmt::format("{}: no such file: expected a run that tools/launch --record has brought to its end", path));
}

Expected<std::vector<server::Effect>> LoadShard(const std::string& path) {
  const auto text = ReadRecord(path);
  if (!text) return std::unexpected(text.error());
  std::vector<server::Effect> effects;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const auto effect = server::ParseEffect(line);
    if (!effect) return Corrupt(path, fmt::format("line {}: '{}' is not an effect", effects.size() + 1, line));
    effects.push_back(*effect);
  }
  return effects;
}

// Loads the record of one worker. Adds its leases to `leases`: the leases of all workers, by id.
Status LoadWorker(const std::string& path, WorkerRank rank, std::map<std::uint64_t, WorkerRank>* leases,
                  std::vector<std::uint64_t>* begins) {
  const auto text = ReadRecord(path);
  if (!text) return std::unexpected(text.error());
  std::set<std::uint64_t> incarnations;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    std::uint64_t incarnation = 0, number = 0;
    words >> kind >> incarnation >> number;
    if (!words) return Corrupt(path, fmt::format("'{}' is not a line of a worker's record", line));
    incarnations.insert(incarnation);
    if (kind == "lease" && !leases->emplace(number, rank).second)
      return Corrupt(path, fmt::format("lease {} was granted twice", number));
    if (kind == "begin") begins->push_back(number);
  }
  if (incarnations.size() > 1)
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: worker {} died and was started again: its messages may be "
                                                     "lost, and such a run cannot be repeated",
                                                     path, rank.value));
  return {};
}

// Returns the worker of each lease, in order of the ids. A lease that no worker has recorded was granted at the end of
// the run, to a worker that ended before it could record the lease; such a worker has no later leases.
Expected<std::vector<WorkerRank>> LeaseOrder(const std::map<std::uint64_t, WorkerRank>& leases, std::uint32_t workers) {
  std::vector<std::uint64_t> last(workers);
  for (const auto& [id, rank] : leases) last[rank.value] = id;
  std::vector<WorkerRank> order;
  std::uint64_t unhandled = 0;
  for (const auto& [id, rank] : leases) {
    while (order.size() + 1 < id) {
      const std::uint64_t missing = order.size() + 1;
      const auto gone = std::ranges::find_if(last, [missing](std::uint64_t newest) { return newest < missing; });
      if (gone == last.end() || ++unhandled > workers * limits::kLeasesPerWorkerMax)
        return Fail(ErrorCode::kCorrupt, fmt::format("no worker got lease {}", missing));
      order.push_back(WorkerRank(static_cast<std::uint32_t>(gone - last.begin())));
    }
    order.push_back(rank);
  }
  return order;
}

}  // namespace

Expected<Recording> Recording::Load(const Job& job, const std::string& run_dir) {
  TARN_RETURN_IF_ERROR(CheckJob(job));
  const std::string folder = run_dir + "/record";
  Recording recording;
  for (std::uint32_t shard = 0; shard < job.fleet.servers * job.fleet.shards; ++shard) {
    auto effects = LoadShard(fmt::format("{}/shard-{}", folder, shard));
    if (!effects) return std::unexpected(effects.error());
    recording.effects.push_back(*std::move(effects));
  }
  std::map<std::uint64_t, WorkerRank> leases;
  recording.begins.resize(job.fleet.workers);
  for (std::uint32_t rank = 0; rank < job.fleet.workers; ++rank)
    TARN_RETURN_IF_ERROR(LoadWorker(fmt::format("{}/worker-{}", folder, rank), WorkerRank(rank), &leases,
                                    &recording.begins[rank].pushed));
  auto order = LeaseOrder(leases, job.fleet.workers);
  if (!order) return Corrupt(folder, order.error().message);
  recording.leases = *std::move(order);
  return recording;
}

}  // namespace tarn::sim
