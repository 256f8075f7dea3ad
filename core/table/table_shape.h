// The shape of a table: the properties on which its stored rows depend. Specs of the same shape can use the same stored
// rows. All other properties are settings and may change between the runs of a job (rule K5): rates, schedules,
// clipping, consistency, codecs of messages, the numbers of a life, and the update rule if neither rule has state.
#pragma once

#include <string>
#include <string_view>

#include "core/table/table_spec.h"

namespace tarn {

// The first difference of two shapes, such as "dim is 8 in the checkpoint and 16 in the job" for the places "in the
// checkpoint" and "in the job"; empty if there is none. Compares kind, dim, rows, initializer, the kind of the
// optimizer unless both are without state, the codec of rows, and whether the tables have a life and in which unit it
// counts. Does not compare ids and names.
std::string ShapeDifference(const TableSpec& a, std::string_view place_of_a, const TableSpec& b,
                            std::string_view place_of_b);

// "zero", "constant 1", "normal(0, 0.01)", ...
std::string Describe(const InitializerSpec& spec);

// Lists the settings that differ between two specs of the same shape: "learning_rate 0.01 -> 0.1, push_codec fp32 ->
// bf16"; empty if none.
std::string SettingsChange(const TableSpec& from, const TableSpec& to);

}  // namespace tarn
