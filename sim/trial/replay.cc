#include "sim/trial/replay.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tarn::sim {
namespace {

constexpr TimeUs kRepeatWaitUs = 60'000'000;  // limit without a repeated effect; far more than any message takes

}  // namespace

Replay::Replay(Recording recording, std::optional<std::uint64_t> until)
    : recording_(std::move(recording)), until_(until) {
  for (const std::vector<server::Effect>& order : recording_.effects) gates_.emplace_back(&order);
}

void Replay::Leave() {
  left_ = true;
  for (worker::BatchBegins& begins : recording_.begins) begins.open = true;
  for (EffectGate& gate : gates_) gate.Open();
}

Status Replay::Check(TimeUs now) {
  if (left_) return {};
  std::size_t repeated = 0;
  for (std::size_t shard = 0; shard < gates_.size(); ++shard) {
    repeated += gates_[shard].done();
    if (!gates_[shard].difference().empty())
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("shard {} differs from its record: {}", shard, gates_[shard].difference()));
  }
  if (repeated != std::exchange(repeated_, repeated)) repeated_at_ = now;
  if (now - repeated_at_ < kRepeatWaitUs) return {};
  std::string waiting;
  for (std::size_t shard = 0; shard < gates_.size(); ++shard)
    waiting += fmt::format("\nshard {}: {}", shard, gates_[shard].Waiting());
  return Fail(ErrorCode::kCorrupt,
              "the recorded run cannot be repeated further: the next message of its order does not arrive" + waiting);
}

Status Replay::CheckComplete() const {
  if (left_) return {};
  for (std::size_t shard = 0; shard < gates_.size(); ++shard)
    if (!gates_[shard].complete())
      return Fail(ErrorCode::kCorrupt, fmt::format("the job is done, but of its record for shard {} only {}", shard,
                                                   gates_[shard].Waiting()));
  return {};
}

std::vector<std::size_t> Replay::repeated() const {
  std::vector<std::size_t> effects;
  effects.reserve(gates_.size());
  for (const EffectGate& gate : gates_) effects.push_back(gate.done());
  return effects;
}

}  // namespace tarn::sim
