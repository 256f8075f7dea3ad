#include "scheduler/checkpoints/checkpoint_requests.h"

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::scheduler {

std::optional<CheckpointRequest> CheckpointRequests::Ask(Peer from, std::uint64_t number) {
  for (const CheckpointRequest& reply : answered_)
    if (reply.number == number) return reply;
  for (Waiting& waiting : waiting_) {
    if (waiting.number != number) continue;
    waiting.peer = from;  // it may have a new connection
    return std::nullopt;
  }
  if (waiting_.size() == limits::kCheckpointRequestsMax)
    return CheckpointRequest{
        number, ErrorCode::kOverloaded, "too many requests are waiting for a checkpoint; try again later", {}};
  waiting_.push_back({from, number, {}});
  return std::nullopt;
}

CheckpointRequests::Answer CheckpointRequests::Close(const Waiting& waiting, ErrorCode code,
                                                     const std::string& text_or_directory) {
  CheckpointRequest reply{waiting.number, code, {}, {}};
  (code == ErrorCode::kOk ? reply.directory : reply.message) = text_or_directory;
  if (answered_.size() == limits::kCheckpointRequestsMax) answered_.erase(answered_.begin());
  answered_.push_back(reply);
  return {waiting.peer, std::move(reply)};
}

std::optional<CheckpointRequests::Answer> CheckpointRequests::Reply(std::uint64_t number, ErrorCode code,
                                                                    std::string text_or_directory) {
  const auto it = std::ranges::find(waiting_, number, &Waiting::number);
  if (it == waiting_.end()) return std::nullopt;
  const Waiting waiting = *it;
  waiting_.erase(it);
  return Close(waiting, code, text_or_directory);
}

void CheckpointRequests::Ordered(CheckpointId id) {
  for (Waiting& waiting : waiting_)
    if (waiting.order.value == 0) waiting.order = id;
}

bool CheckpointRequests::Unordered() const {
  return std::ranges::any_of(waiting_, [](const Waiting& waiting) { return waiting.order.value == 0; });
}

std::vector<CheckpointRequests::Answer> CheckpointRequests::Ended(CheckpointId id, ErrorCode code,
                                                                  const std::string& text_or_directory) {
  std::vector<Answer> answers;
  for (const Waiting& waiting : waiting_)
    if (waiting.order == id) answers.push_back(Close(waiting, code, text_or_directory));
  std::erase_if(waiting_, [id](const Waiting& waiting) { return waiting.order == id; });
  return answers;
}

void CheckpointRequests::Voided(CheckpointId id) {
  for (Waiting& waiting : waiting_)
    if (waiting.order == id) waiting.order = {};
}

std::vector<CheckpointRequests::Answer> CheckpointRequests::EndAll(ErrorCode code, const std::string& reason) {
  std::vector<Answer> answers;
  for (const Waiting& waiting : std::exchange(waiting_, {})) answers.push_back(Close(waiting, code, reason));
  return answers;
}

}  // namespace tarn::scheduler
