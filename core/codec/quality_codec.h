// Converts a Quality to and from a FlatBuffer (schemas/types.fbs), for messages and manifests. Also has UnPackTo and
// CreateQuality, which flatc's code calls. Pure functions, any thread.
#pragma once

#include "core/error.h"
#include "core/quality.h"
#include "types_generated.h"

namespace tarn {

// Checks a verified buffer: the numbers of the buckets ascend, and each bucket has both counts. kMalformed; the message
// begins with the field.
Status CheckQuality(const wire::Quality& quality);

}  // namespace tarn
