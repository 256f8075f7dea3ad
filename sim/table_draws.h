// Draws of a scenario that concern its tables: consistency, codecs, lives, caches and lists of keys. Functions with a
// seed draw from a sequence of their own, so that the rest of the seed means what it meant before they were added.
#pragma once

#include <cstdint>
#include <string>

#include "core/hash.h"
#include "sim/scenario.h"

namespace tarn::sim {

void ChooseConsistency(SplitMix& rng, ConsistencySpec* out);
// What [tables.NAME] of the job says: a mode of its own in some runs, and codecs.
void ChooseTable(SplitMix& rng, const std::string& name, bool mixed, Job* job, ConsistencySpec* spec);
// Everything aggregated, and workers apart: pushes are gathered for clocks beyond a cut, and clocks close together.
void ChooseAhead(std::uint64_t seed, Scenario* s);
// Workers that run ahead of a checkpoint at a clock, of which a shard hears late.
void ChooseRace(std::uint64_t seed, Scenario* s);
// Rows of the oracle table that come and go, or are kept in 16 bits.
void ChooseLife(std::uint64_t seed, Scenario* s);
// Rows of bytes, one way or both.
void ChooseInt8(std::uint64_t seed, Scenario* s);
// Pushes of the largest alone, with all sizes of what may be kept.
void ChooseTopK(std::uint64_t seed, Scenario* s);
// Lists of keys that shards hold: often few, so that they are missed, at times none.
void ChooseLists(std::uint64_t seed, Scenario* s);
// Pulls that take other connections than pushes, and overtake them.
void ChooseLanes(std::uint64_t seed, Scenario* s);
// Workers that keep rows, and pushes that wait for later ones.
void ChooseCache(std::uint64_t seed, Scenario* s);
// Epochs of so few splits that a worker may have none, and goes from one evaluation to the next within the bound.
void ChooseShortEpochs(std::uint64_t seed, Scenario* s);

}  // namespace tarn::sim
