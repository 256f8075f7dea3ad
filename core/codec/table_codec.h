// Converts a TableSpec to and from a FlatBuffer (schemas/types.fbs), for messages, manifests and logs. Also has
// UnPackTo and CreateTableSpec, which flatc's code calls. Pure functions, any thread.
#pragma once

#include "core/error.h"
#include "core/table/table_spec.h"
#include "types_generated.h"

namespace tarn {

// Decodes a table from a file. `table`: verified, or null. Checks that all parts are present, the enumerators, and the
// size of the name; Validate (core/table/table_spec.h) checks ranges. kMalformed or kTooLarge with the name of the
// field, such as "table.optimizer.schedule.kind".
Expected<TableSpec> DecodeTable(const wire::TableSpec* table);

}  // namespace tarn
