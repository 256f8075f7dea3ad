// What a worker's message did to a shard, as a line of a record. The bits of a shard's rows, and of all answers to
// pulls, follow from the order of its effects: with it tools/replay repeats an asynchronous run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/message.h"

namespace tarn::server {

// A pull was answered, a push with a new section was applied or gathered, or a tick advanced its worker's clock. The
// effects of one worker on one shard all differ, except those of equal pulls, which may be exchanged.
struct Effect {
  enum class Kind : std::uint8_t { kPull, kPush, kTick };
  Kind kind = Kind::kTick;
  WorkerRank worker;
  std::uint32_t table = 0;     // tick: 0
  std::uint64_t at = 0;        // pull, tick: the clock; push: the sequence of its first new section
  std::uint64_t sections = 0;  // pull: hash of its sections; push: the partition of its first new section; tick: 0
  friend bool operator==(const Effect&, const Effect&) = default;
};

Effect EffectOf(WorkerRank worker, const Pull& pull);
Effect EffectOf(WorkerRank worker, const Push& push, std::size_t first_new);
Effect EffectOf(WorkerRank worker, const Tick& tick);
// The effect that a message of a worker has if all its sections are new; nothing if it can have none. No PushPull: the
// training loop sends none.
std::optional<Effect> EffectOf(const Message& message);

// "KIND WORKER TABLE AT SECTIONS"; Parse: nothing if the line is not that.
std::string ToLine(const Effect& effect);
std::optional<Effect> ParseEffect(std::string_view line);

}  // namespace tarn::server
