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
//   - items of lists are aligned (the verifier of FlatBuffers 2.0.8, VerifyVectorOrString, checks only a list's
//     length);
//   - all lists and strings together have no more than `bytes_max` bytes. Lists may share bytes of the buffer; with the
//     size of the buffer as the limit, the decoded values are nevertheless at most proportional to it.
// kMalformed or kTooLarge; the message begins with the field, such as "view.tables[].kind: value 7, expected 0 to 1".
Status Check(const TableRules& rules, const flatbuffers::Table& table, std::size_t bytes_max);
// The same; `status` must be ok, and receives the error.
void Check(const TableRules& rules, const flatbuffers::Table& table, std::size_t bytes_max, Status* status);

// Corrects texts in place, in a buffer that is being built: truncates them to their limit at a character boundary, and
// replaces bytes that are not UTF-8 by '?'.
void MendTexts(const TableRules& rules, flatbuffers::Table* table);

}  // namespace tarn
