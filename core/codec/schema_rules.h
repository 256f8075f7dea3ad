// What a FlatBuffers schema says about its tables and flatc's verifier does not check, read from the binary schema that
// flatc makes (reflection): the enumerators that there are, and what the attributes of schemas/types.fbs say of fields.
// core/codec/schema_check.h checks by it, so that no table needs checks of its own.
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

// An enum: a field or an item of a list that is one, or one within a struct.
struct EnumRule {
  std::size_t at = 0;     // bytes from the beginning of the struct
  std::uint8_t last = 0;  // the largest enumerator; they count from 0
  std::string name;       // in the struct; empty: it is the whole of it
};

enum class FieldKind : std::uint8_t {
  kEnum,
  kStruct,
  kTable,
  kString,
  kItems,    // a list of numbers, enums or structs
  kStrings,  // a list of them
  kTables,   // a list of them
};

struct FieldRule {
  FieldKind kind = FieldKind::kEnum;
  bool optional = false;                  // a table or struct may be missing
  bool text = false;                      // a string for people: MendTexts changes it
  bool bytes = false;                     // strings need not be UTF-8
  std::uint16_t offset = 0;               // in the table's vtable
  std::uint64_t limit = 0;                // items of a list, bytes of a string
  std::uint64_t each = 0;                 // bytes of each string of a list
  std::vector<EnumRule> enums;            // in the field, or in each item
  std::size_t item_bytes = 0, align = 0;  // of kItems
  const TableRules* table = nullptr;      // of kTable, kTables
  std::string name;
};

// Of one table, in the order of its fields. Numbers, which may have any value, and unions have no rule.
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
  // `bfbs`: the schema as flatc --schema writes it. Every list and string must name a limit of `limits`: anything else
  // is a programmer's error.
  SchemaRules(std::span<const std::uint8_t> bfbs, std::span<const NamedLimit> limits);

  // Of a table of the schema, such as "tarn.wire.Join".
  const TableRules& Of(std::string_view table) const;

 private:
  std::map<std::string, TableRules, std::less<>> tables_;  // by name; never moved, as they point at each other
};

// The rules of schemas/wire.fbs, and so of types.fbs and data.fbs too.
const SchemaRules& WireRules();

}  // namespace tarn
