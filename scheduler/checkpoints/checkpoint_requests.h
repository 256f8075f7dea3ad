// Requests of tools and workers for a checkpoint (rule K8). The first checkpoint ordered after a request serves it, and
// the answer is its directory. Plain state: the caller sends the returned answers.
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

  // Adds a request. Returns the answer if it is a repetition, or kOverloaded beyond limits::kCheckpointRequestsMax;
  // nullopt: the request waits.
  std::optional<CheckpointRequest> Ask(Peer from, std::uint64_t number);
  // Answers a waiting request; nullopt: none with this number waits.
  std::optional<Answer> Reply(std::uint64_t number, ErrorCode code, std::string text_or_directory);

  // A checkpoint was ordered: it serves all requests without a checkpoint.
  void Ordered(CheckpointId id);
  // Answers the requests that wait for this checkpoint, with its directory (kOk) or an error.
  std::vector<Answer> Ended(CheckpointId id, ErrorCode code, const std::string& text_or_directory);
  // The checkpoint is void: its requests wait for the next one.
  void Voided(CheckpointId id);
  // Answers all requests with an error, because no more checkpoints are cut.
  std::vector<Answer> EndAll(ErrorCode code, const std::string& reason);
  // Whether a request waits for a checkpoint that is not ordered yet.
  bool Unordered() const;

 private:
  struct Waiting {
    Peer peer;
    std::uint64_t number = 0;
    CheckpointId order;  // 0: none yet
  };
  Answer Close(const Waiting& waiting, ErrorCode code, const std::string& text_or_directory);

  std::vector<Waiting> waiting_;
  std::vector<CheckpointRequest> answered_;  // the newest answers, for repeated requests; oldest first
};

}  // namespace tarn::scheduler
