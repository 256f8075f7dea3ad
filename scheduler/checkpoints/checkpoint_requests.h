// Tools and workers that asked for a checkpoint and wait for its directory (rule K8). The first checkpoint ordered
// after a request serves it. Plain state: the caller sends what this returns.
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

  // The answer, if it is known: of a repeated request, or kOverloaded beyond limits::kCheckpointRequestsMax. Nothing:
  // the request waits.
  std::optional<CheckpointRequest> Ask(Peer from, std::uint64_t number);
  // Answers one that waits.
  std::optional<Answer> Reply(std::uint64_t number, ErrorCode code, std::string text_or_directory);

  // A checkpoint was ordered: it serves all requests that no other serves.
  void Ordered(CheckpointId id);
  // Requests that wait for this checkpoint are answered with its directory (kOk) or a reason.
  std::vector<Answer> Ended(CheckpointId id, ErrorCode code, const std::string& text_or_directory);
  // It is void, and another one follows: its requests wait for that one.
  void Voided(CheckpointId id);
  // No checkpoint will be cut any more.
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
