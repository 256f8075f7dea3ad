// Random messages for the tests of the frame codec and for the fuzzer's first inputs: every body, with all fields
// filled, valid for Encode, also with values that do not occur in practice.
#pragma once

#include <cstddef>

#include "core/hash.h"
#include "core/message.h"

namespace tarn::net::testing {

// A message whose body is alternative `body` of Body. `size` steers lists, strings and payloads: about that many
// items and keys at most. A pull, a push or a reply has 1 to 4 tables.
Message RandomMessage(SplitMix* random, std::size_t body, std::size_t size);

}  // namespace tarn::net::testing
