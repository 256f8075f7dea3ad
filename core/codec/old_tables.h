// Tables of manifests of versions 1 to 3, whose OptimizerSpec was one struct with the options of all rules. A pure
// function, any thread.
#pragma once

#include "core/error.h"
#include "core/table/table_spec.h"
#include "manifest_generated.h"

namespace tarn {

// As DecodeTable of core/codec/table_codec.h.
Expected<TableSpec> DecodeOldTable(const manifest::TableSpec3* table);

}  // namespace tarn
