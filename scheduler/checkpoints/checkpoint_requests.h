// Tools that asked for a checkpoint and wait for its directory (rule K8). A request is served by the first checkpoint
// that is ordered after it came. Plain state: the scheduler sends what this returns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"

namespace tarn::scheduler {

class CheckpointRequests {
 public:
  struct Answer {
    Peer to;
    CheckpointRequest reply;
  };

  // The answer that is known already: of a repeated request, or kOverloaded beyond limits::kCheckpointRequestsMax.
  // Nothing: it waits now, or did before.
  std::optional<CheckpointRequest> Ask(Peer from, std::uint64_t number);
  // Refuses or answers one that waits.
  std::optional<Answer> Reply(std::uint64_t number, ErrorCode code, std::string text_or_directory);

  // A checkpoint was ordered: it serves all that wait for none yet.
  void Ordered(CheckpointId id);
  // What waits for this checkpoint is answered with its directory (kOk) or a reason.
  std::vector<Answer> Ended(CheckpointId id, ErrorCode code, const std::string& text_or_directory);
  // It is void, another one follows: what waited for it waits on.
  void Voided(CheckpointId id);
  // Nothing will be cut any more.
  std::vector<Answer> EndAll(ErrorCode code, const std::string& reason);
  // Whether any waits for a checkpoint that is not ordered yet.
  bool Unordered() const;

 private:
  struct Waiting {
    Peer peer;
    std::uint64_t number = 0;
    CheckpointId order;  // 0: none yet
  };
  Answer Close(const Waiting& waiting, ErrorCode code, const std::string& text_or_directory);

  std::vector<Waiting> waiting_;
  std::vector<CheckpointRequest> answered_;  // the newest, for requests that are repeated; oldest first
};

}  // namespace tarn::scheduler
