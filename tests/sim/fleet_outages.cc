// Logs of a simulated fleet, and what ends everything at once: all processes, or the power with what was not synced.
#include <fmt/format.h>

#include <utility>

#include "tests/sim/fleet_process.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kDownUs = 500'000;

}  // namespace

void Fleet::PlanOutages() {
  const Faults& f = scenario_.faults;
  for (std::uint32_t i = 0; i < f.outages; ++i)
    events_.At(50'000 + TimeUs(rng_.Below(std::uint64_t(f.until_us))), [this] { Outage(); });
}

// What a shard has appended is written after a while, and durable after another; acknowledgements leave then.
void Fleet::TendLog(ProcessId id, Process& p) {
  if (p.log_busy || !p.log->dirty()) return;
  p.log_busy = true;
  const auto some = [this] { return 1 + TimeUs(rng_.Below(std::uint64_t(scenario_.faults.sync_max_us))); };
  const auto with = [this, id](auto run) {
    return [this, id, run] {
      if (const auto it = processes_.find(id); it != processes_.end()) run(*it->second);
    };
  };
  const TimeUs write = events_.now() + some(), sync = write + some();
  events_.At(write, with([](Process& process) { process.log->Write(); }));
  events_.At(sync, with([this, id](Process& process) {
               process.log->Sync(rng_.Chance(0.2));
               process.log_busy = false;
               Step(id, [this](Process& shard, Outbox* out) { shard.shard->OnLogSynced(events_.now(), out); });
             }));
}

void Fleet::Outage() {
  if (down_ || Scheduler() == nullptr || Scheduler()->stopping()) return;
  const bool power = rng_.Chance(scenario_.faults.power);
  Trace(power ? "the power goes" : "everything is killed");
  ++outages_;
  down_ = true;
  for (auto& [id, p] : processes_) {
    if (p->worker) oracle_.OnWorkerGone(p->worker->client().welcome().incarnation);
    network_.RemoveProcess(id);
  }
  processes_.clear();
  disk_->writing.clear();
  for (auto& [shard, disk] : logs_) {
    if (power)
      disk.LosePower([this](std::uint64_t below) { return rng_.Below(below); });
    else
      disk.EndProcess();
  }
  said_.clear();
  heard_.clear();
  shard_slept_until_ = 0;
  events_.At(events_.now() + TimeUs(rng_.Below(kDownUs)), [this] { ComeBack(); });
}

void Fleet::ComeBack() {
  if (!down_) return;
  down_ = false;
  Trace("everything is started again");
  StartAll();
}

}  // namespace tarn::sim
