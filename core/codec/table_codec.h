// A TableSpec as a FlatBuffer (schemas/types.fbs), in messages, manifests and logs: the one place that knows both. Its
// UnPackTo and CreateTableSpec, which flatc's code calls, are here too. Pure functions, any thread.
#pragma once

#include "core/error.h"
#include "core/table/table_spec.h"
#include "types_generated.h"

namespace tarn {

// `table`: verified, or null. Checks that its parts are there, the enumerators, and the bytes of the name; not the
// ranges, which are Validate's (core/table/table_spec.h). kMalformed or kTooLarge, naming the field as
// "table.optimizer.kind". For files: in messages the checks are those of the message.
Expected<TableSpec> DecodeTable(const wire::TableSpec* table);

}  // namespace tarn
