// Random choices of a scenario that concern its tables: consistency, codecs, lives, caches and lists of keys. Functions
// that take a seed use a separate random sequence, so that adding them did not change the other choices of existing
// seeds.
#pragma once

#include <cstdint>
#include <string>

#include "core/hash.h"
#include "sim/scenario.h"

namespace tarn::sim {

void ChooseConsistency(SplitMix& rng, ConsistencySpec* out);
// A dynamic staleness bound (rule C9).
void ChooseStalenessRange(std::uint64_t seed, Scenario* s);
// Backup workers (rule C8).
void ChooseBackups(std::uint64_t seed, Scenario* s);
// [tables.NAME] of the job: a separate mode in some runs, and codecs.
void ChooseTable(SplitMix& rng, const std::string& name, bool mixed, Job* job, ConsistencySpec* spec);
// All tables aggregated and workers at different clocks: pushes are gathered for clocks after a cut, and several clocks
// close at once.
void ChooseAhead(std::uint64_t seed, Scenario* s);
// Workers that run ahead of a checkpoint at a clock, while a shard receives the order late.
void ChooseRace(std::uint64_t seed, Scenario* s);
// Rows of the oracle table that are admitted and expire, or are stored in 16 bits.
void ChooseLife(std::uint64_t seed, Scenario* s);
// int8 codec in one direction or both.
void ChooseInt8(std::uint64_t seed, Scenario* s);
// Push codecs with few bits a value, or of low rank.
void ChooseLowBits(std::uint64_t seed, Scenario* s);
// Top-k pushes, with residual memory of every size.
void ChooseTopK(std::uint64_t seed, Scenario* s);
// Update rules: some need the rows as they were pulled, the delay, or a state of the partition.
void ChooseRules(std::uint64_t seed, Scenario* s);
// Rows that workers assign and delete.
void ChooseChanges(std::uint64_t seed, Scenario* s);
// Key lists held by shards: often few, so that lists are missing; sometimes none.
void ChooseLists(std::uint64_t seed, Scenario* s);
// Lanes: pulls use other connections than pushes, so that either may overtake the other.
void ChooseLanes(std::uint64_t seed, Scenario* s);
// Worker caches and combined pushes.
void ChooseCache(std::uint64_t seed, Scenario* s);
// Epochs with so few splits that a worker may have none, and has two consecutive evaluations within the staleness
// bound.
void ChooseShortEpochs(std::uint64_t seed, Scenario* s);

}  // namespace tarn::sim
