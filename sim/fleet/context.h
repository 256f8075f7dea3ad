// State shared by the parts of a simulated fleet: the run's records and random sequences, and the interface to its
// processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/hash.h"
#include "core/message.h"
#include "sim/event_queue.h"
#include "sim/fleet/clocks.h"
#include "sim/fleet/process.h"
#include "sim/fleet/processes.h"
#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/scenario.h"
#include "sim/sim_store.h"

namespace tarn::sim {

// Independent random sequences, so that one kind of fault does not shift the draws of another.
struct Dice {
  explicit Dice(std::uint64_t draw);
  SplitMix main, tier, outage, time, turn, death;
};

// The operations of the fleet that its fault injectors and checkers call.
class FleetControl {
 public:
  virtual ~FleetControl() = default;
  // Runs one step of a process, after its pause if it is paused, and handles its output. Does nothing if the process
  // has ended.
  virtual void Step(ProcessId id, std::function<void(Process&, Outbox*)> step) = 0;
  // Schedules the next timer of the process. Must be called when its clock or timers have changed.
  virtual void ArmTimer(ProcessId id, Process& process) = 0;
  virtual ProcessId StartShard(std::uint32_t index) = 0;
  virtual ProcessId StartWorker(std::uint32_t rank) = 0;
  virtual void StartAll() = 0;
  // All processes have ended at once: discards the records about them.
  virtual void OnAllEnded() = 0;
};

// One run of a fleet. Not copyable: its members refer to each other.
struct FleetContext {
  // disk and control outlive it. later: the run continues from a checkpoint of an earlier one. deliver:
  // Network::Deliver.
  FleetContext(const Scenario& the_scenario, SimDisk* the_disk, FleetControl* the_control, bool later, bool is_verbose,
               Network::Deliver deliver);
  FleetContext(const FleetContext&) = delete;
  FleetContext& operator=(const FleetContext&) = delete;

  TimeUs now() const { return events.now(); }
  TimeUs lease_us() const { return TimeUs(scenario.job.fleet.lease_seconds * 1e6); }
  TimeUs until_us() const { return scenario.faults.until_us; }
  // A random time between 0.1 s and until_us() + 0.1 s.
  TimeUs Sometime(SplitMix* from) const { return 100'000 + TimeUs(from->Below(std::uint64_t(until_us()))); }
  void Trace(const std::string& what) const;

  const Scenario scenario;
  SimDisk& disk;
  FleetControl& control;
  const bool verbose;
  const std::string checkpoints;  // the folder of this run's checkpoints
  EventQueue events;
  Dice dice;
  Oracle oracle;
  Network network;
  Processes processes;
  SimClocks clocks;
  std::function<void()> flush;  // sends the messages in the outbox of the current step; null outside of steps
};

}  // namespace tarn::sim
