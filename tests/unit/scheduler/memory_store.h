// A SchedulerStore in memory whose operations can be made to fail or stall.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

// Writes end at once, unless the store stalls.
class MemoryStore : public SchedulerStore {
 public:
  void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) override {
    Write({StoreWritten::What::kManifest, id.value, TryManifest(directory, manifest)},
          [this, directory, manifest] { manifests[directory] = manifest; });
  }
  void RemoveCheckpoint(const std::string& directory) override {
    manifests.erase(directory);
    removed.push_back(directory);
    if (slow_removals) removing.push_back(directory);
  }
  std::vector<std::string> Removing() const override { return removing; }
  void WriteState(std::uint64_t number, const SchedulerState& state_now) override {
    Status status;
    if (fail_state) status = Fail(ErrorCode::kIo, "run/scheduler.state: No space left on device");
    Write({StoreWritten::What::kState, number, std::move(status)}, [this, state_now] { state = state_now; });
  }
  void RemoveState() override { state.reset(); }
  void WriteAddresses(std::uint64_t number, const std::vector<ProcessAddress>& now) override {
    Status status;
    if (fail) status = Fail(ErrorCode::kIo, "run/addresses.json: No space left on device");
    Write({StoreWritten::What::kAddresses, number, std::move(status)}, [this, now] { addresses = now; });
  }
  // The operations that have ended since the last call.
  std::vector<StoreWritten> TakeWritten() {
    std::vector<StoreWritten> out;
    for (; !stalls && !under_way.empty(); under_way.erase(under_way.begin())) {
      auto& [end, apply] = under_way.front();
      if (stalls_at_manifest && end.what == StoreWritten::What::kManifest) break;
      if (end.status) apply();
      out.push_back(std::move(end));
    }
    return out;
  }
  std::optional<SchedulerState> state;
  std::vector<ProcessAddress> addresses;
  bool fail_state = false;
  std::size_t generations_max = SIZE_MAX;  // of a manifest
  std::map<std::string, Manifest> manifests;
  std::vector<std::string> removed, removing;
  bool slow_removals = false;
  bool fail = false;
  bool stalls = false, stalls_at_manifest = false;
  std::vector<std::pair<StoreWritten, std::function<void()>>> under_way;

 private:
  Status TryManifest(const std::string& directory, const Manifest& manifest) const {
    if (fail) return Fail(ErrorCode::kIo, directory + "/MANIFEST: No space left on device");
    if (manifest.generations.size() > generations_max) return Fail(ErrorCode::kTooLarge, directory + ": too long");
    return {};
  }
  void Write(StoreWritten end, std::function<void()> apply) {
    under_way.emplace_back(std::move(end), std::move(apply));
  }
};

}  // namespace tarn::scheduler
