// A Quality as a FlatBuffer (schemas/types.fbs), in messages and manifests: the one place that knows both. Its UnPackTo
// and CreateQuality, which flatc's code calls, are here too. Pure functions, any thread.
#pragma once

#include "core/error.h"
#include "core/quality.h"
#include "types_generated.h"

namespace tarn {

// Whether the buckets are in ascending order and have equally many counts of each kind, of verified bytes. kMalformed;
// the message begins with the field.
Status CheckQuality(const wire::Quality& quality);

}  // namespace tarn
