#include "scheduler/membership/fleet_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/log.h"

namespace tarn::scheduler {

FleetWatch::FleetWatch(const FleetSection& fleet, const Membership* membership, Notes* notes)
    : fleet_(fleet),
      lease_us_(static_cast<TimeUs>(fleet.lease_seconds * 1e6)),
      membership_(membership),
      notes_(notes) {}

void FleetWatch::Start(TimeUs now) {
  workers_seen_ = now;
  listening_.Begin(now);
  next_waits_ = now + kWaitNotePeriodUs;
}

bool FleetWatch::Deserted(TimeUs now, bool may_be_empty) {
  const bool has_workers = !membership_->workers().Live().empty() || membership_->workers().waiting() > 0;
  if (has_workers || !last_ended_died_ || may_be_empty) {
    workers_seen_ = now;
    return false;
  }
  workers_seen_ = std::max(workers_seen_, listening_.since());
  return now - workers_seen_ > kWorkerlessLeasesMax * lease_us_;
}

std::string FleetWatch::WaitText(TimeUs now, const CutWaits& cut) const {
  std::string text = WaitsFor(*membership_, fleet_, now, listening_.since());
  if (!text.empty() || !membership_->formed()) return text;
  TickWaits waits{.bound = {}, .backups = 0, .cut = cut};
  std::optional<std::uint32_t> backups;
  for (const TableSpec& table : membership_->view().tables) {
    const ConsistencySpec& spec = table.consistency;
    if (spec.mode == ConsistencyMode::kAsp) continue;
    const std::uint64_t clocks = StalenessBound(spec);
    waits.bound = std::min(waits.bound.value_or(clocks), clocks);
    backups = std::min<std::uint32_t>(backups.value_or(spec.backup_workers), spec.backup_workers);
  }
  waits.backups = backups.value_or(0);
  return WaitsForTicks(*membership_, waits, now, listening_.since());
}

void FleetWatch::WarnOfWaits(TimeUs now, const CutWaits& cut) {
  if (now < next_waits_) return;
  std::string text = WaitText(now, cut);
  if (text.empty()) return;
  notes_->Warn(std::move(text));
  next_waits_ = now + kWaitNotePeriodUs;
}

}  // namespace tarn::scheduler
