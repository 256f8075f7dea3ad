// The effect of a worker's message on a shard, as a line of a record. The order of its effects determines the bits of a
// shard's rows and of all answers to pulls, so tools/replay can repeat an asynchronous run from the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/message.h"

namespace tarn::server {

// A pull was answered, a push with a new section was applied or gathered, or a tick advanced its worker's clock. The
// effects of one worker on one shard all differ, except those of equal pulls, whose order does not matter.
struct Effect {
  enum class Kind : std::uint8_t { kPull, kPush, kTick };
  Kind kind = Kind::kTick;
  WorkerRank worker;
  std::uint32_t table = 0;  // pull: its first; push: of its first new section; tick: 0
  std::uint64_t at = 0;     // pull, tick: the clock; push: the sequence of its first new section
  // pull: hash of its tables and sections; push: the partition of its first new section; tick: 0
  std::uint64_t sections = 0;
  friend bool operator==(const Effect&, const Effect&) = default;
};

Effect EffectOf(WorkerRank worker, const Pull& pull);
// first_new: index over the sections of all tables.
Effect EffectOf(WorkerRank worker, const Push& push, std::size_t first_new);
Effect EffectOf(WorkerRank worker, const Tick& tick);
// The effect that a message of a worker has if all its sections are new; nullopt if it can have none.
std::optional<Effect> EffectOf(const Message& message);

// ToLine returns "KIND WORKER TABLE AT SECTIONS". ParseEffect returns nullopt if the line has another form.
std::string ToLine(const Effect& effect);
std::optional<Effect> ParseEffect(std::string_view line);

}  // namespace tarn::server
