// The rules of a FlatBuffers schema that flatc's verifier does not check: valid enumerators, and the attributes of
// fields (schemas/types.fbs). Read from the binary schema of flatc (reflection). core/codec/schema_check.h applies
// them; hand-written checks are for other rules only.
//
// Plain values; the rules are immutable, and any thread may use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

struct TableRules;

// An enum: a field, an item of a list, or a member of a struct.
struct EnumRule {
  std::size_t at = 0;     // offset in the struct, in bytes
  std::uint8_t last = 0;  // the largest enumerator; the first is 0
  std::string name;       // of the member of the struct; empty: not in a struct, or its only member
};

enum class FieldKind : std::uint8_t {
  kEnum,
  kStruct,
  kTable,
  kString,
  kItems,    // a list of numbers, enums or structs
  kStrings,  // a list of strings
  kTables,   // a list of tables
};

struct FieldRule {
  FieldKind kind = FieldKind::kEnum;
  bool optional = false;                  // a table or struct may be missing
  bool text = false;                      // a string for users: MendTexts may change it
  bool bytes = false;                     // need not be UTF-8
  std::uint16_t offset = 0;               // offset in the table's vtable
  std::uint64_t limit = 0;                // maximum items of a list, bytes of a string
  std::uint64_t each = 0;                 // maximum bytes of each string of a list
  std::vector<EnumRule> enums;            // in the field, or in each item
  std::size_t item_bytes = 0, align = 0;  // of kItems
  const TableRules* table = nullptr;      // of kTable, kTables
  std::string name;
};

// The rules of one table, in the order of its fields. Numbers, which may have any value, and unions have none.
struct TableRules {
  std::vector<FieldRule> fields;
};

// A limit that schemas name.
struct NamedLimit {
  std::string_view name;
  std::uint64_t value = 0;
};

class SchemaRules {
 public:
  // `bfbs`: the binary schema written by flatc --schema. Every list and string must name a limit in `limits` (checked
  // by TARN_CHECK).
  SchemaRules(std::span<const std::uint8_t> bfbs, std::span<const NamedLimit> limits);

  // The rules of a table, such as "tarn.wire.Join", which must be in the schema.
  const TableRules& Of(std::string_view table) const;

 private:
  std::map<std::string, TableRules, std::less<>> tables_;  // by name, at stable addresses: rules point to each other
};

// The rules of schemas/wire.fbs, which includes types.fbs and data.fbs.
const SchemaRules& WireRules();

}  // namespace tarn
