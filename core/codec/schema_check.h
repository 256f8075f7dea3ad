// Checks tables by the rules of their schema (core/codec/schema_rules.h) that flatc's verifier does not check. Verify
// the buffer first: the checks then never read outside of it. Pure functions, any thread.
#pragma once

#include <cstddef>

#include "core/codec/schema_rules.h"
#include "core/error.h"

namespace flatbuffers {
class Table;
}

namespace tarn {

// Checks `table` and the tables below it:
//   - every enum has a known value, also in structs and in lists;
//   - tables and structs exist, unless they are optional;
//   - lists and strings are within their limits, and strings are UTF-8 unless they hold bytes;
//   - items of lists are aligned (VerifyVectorOrString of FlatBuffers 2.0.8 checks the alignment of a list's length,
//     but not that of its items);
//   - all lists and strings together have at most `bytes_max` bytes. Otherwise lists that share bytes of the buffer
//     could decode to far more bytes than the buffer has; pass the size of the buffer to prevent this.
// kMalformed or kTooLarge; the message begins with the field, such as "view.tables[].kind: value 7, expected 0 to 1".
Status Check(const TableRules& rules, const flatbuffers::Table& table, std::size_t bytes_max);
// The same, with the error in `status`, which must be ok before.
void Check(const TableRules& rules, const flatbuffers::Table& table, std::size_t bytes_max, Status* status);

// Corrects the strings of `table` with the attribute `text` in place, in a buffer that is being built: truncates them
// to their limit at a character boundary, and replaces bytes that are not UTF-8 by '?'. Tables below it are unchanged.
void MendTexts(const TableRules& rules, flatbuffers::Table* table);

}  // namespace tarn
