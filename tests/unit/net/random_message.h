// Messages as they might occur, and more: every body, every field filled, valid for Encode. For the tests of the
// frame codec and for the fuzzer's first inputs.
#pragma once

#include <cstddef>

#include "core/hash.h"
#include "core/message.h"

namespace tarn::net::testing {

// A message whose body is alternative `body` of Body. `size` steers lists, strings and payloads: about that many
// items and keys at most. A pull, a push or a reply has 1 to 4 tables.
Message RandomMessage(SplitMix* random, std::size_t body, std::size_t size);

}  // namespace tarn::net::testing
