#include "core/codec/schema_rules.h"

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/limits.h"
#include "wire_bfbs_generated.h"

namespace tarn {
namespace {

using reflection::BaseType;

// An integer of a schema is an enum if it refers to a type.
bool IsEnum(BaseType type, int index) { return index >= 0 && type >= BaseType::Byte && type <= BaseType::ULong; }

bool Has(const reflection::Field& field, const char* attribute) {
  return field.attributes() != nullptr && field.attributes()->LookupByKey(attribute) != nullptr;
}

std::vector<const reflection::Field*> InOrder(const reflection::Object& object) {
  std::vector<const reflection::Field*> fields(object.fields()->begin(), object.fields()->end());
  std::ranges::sort(fields, {}, [](const auto* field) { return field->id(); });
  return fields;
}

class Reader {
 public:
  Reader(const reflection::Schema& schema, std::span<const NamedLimit> limits,
         std::map<std::string, TableRules, std::less<>>* tables)
      : schema_(schema), limits_(limits), tables_(*tables) {}

  void Read() {
    for (const auto* object : *schema_.objects())
      if (!object->is_struct())
        for (const auto* field : InOrder(*object)) AddField(*field, &tables_[object->name()->str()]);
  }

 private:
  const reflection::Object& ObjectOf(const reflection::Type& type) const {
    return *schema_.objects()->Get(static_cast<unsigned>(type.index()));
  }

  std::uint64_t Limit(const reflection::Field& field, const char* attribute) const {
    TARN_CHECK(Has(field, attribute), "a list or string of a schema has a limit");
    const std::string_view name = field.attributes()->LookupByKey(attribute)->value()->string_view();
    const auto limit = std::ranges::find(limits_, name, &NamedLimit::name);
    TARN_CHECK(limit != limits_.end(), "a limit of a schema is one of core/limits.h");
    return limit->value;
  }

  EnumRule EnumAt(std::size_t at, const reflection::Type& type, std::string name) const {
    const auto& values = *schema_.enums()->Get(static_cast<unsigned>(type.index()))->values();
    for (unsigned i = 0; i < values.size(); ++i)
      TARN_CHECK(values.Get(i)->value() == i, "enumerators of a schema count from 0 without gaps");
    return {at, static_cast<std::uint8_t>(values.size() - 1), std::move(name)};
  }

  void AddEnums(const reflection::Object& object, std::size_t at, const std::string& prefix,
                std::vector<EnumRule>* enums) const {
    for (const auto* field : InOrder(object)) {
      const bool only_member = object.fields()->size() == 1 && prefix.empty();
      const std::string name = only_member ? "" : prefix + field->name()->str();
      const reflection::Type& type = *field->type();
      if (type.base_type() == BaseType::Obj)
        AddEnums(ObjectOf(type), at + field->offset(), name + ".", enums);
      else if (IsEnum(type.base_type(), type.index()))
        enums->push_back(EnumAt(at + field->offset(), type, name));
    }
  }

  // A table or struct, or a list of them.
  void AddObject(const reflection::Object& object, FieldRule* rule) {
    if (!object.is_struct()) {
      rule->table = &tables_[object.name()->str()];
      return;
    }
    AddEnums(object, 0, "", &rule->enums);
    rule->item_bytes = static_cast<std::size_t>(object.bytesize());
    rule->align = static_cast<std::size_t>(object.minalign());
  }

  void AddList(const reflection::Field& field, FieldRule* rule) {
    const reflection::Type& type = *field.type();
    rule->limit = Limit(field, "limit");
    rule->kind = FieldKind::kItems;
    if (type.element() == BaseType::String) {
      rule->kind = FieldKind::kStrings;
      rule->each = Limit(field, "each");
    } else if (type.element() == BaseType::Obj) {
      AddObject(ObjectOf(type), rule);
      if (rule->table != nullptr) rule->kind = FieldKind::kTables;
    } else {
      rule->item_bytes = rule->align = type.element_size();
      if (IsEnum(type.element(), type.index())) rule->enums.push_back(EnumAt(0, type, ""));
    }
  }

  void AddField(const reflection::Field& field, TableRules* table) {
    const reflection::Type& type = *field.type();
    FieldRule rule{.optional = Has(field, "optional"),
                   .text = Has(field, "text"),
                   .bytes = Has(field, "bytes"),
                   .offset = field.offset(),
                   .name = field.name()->str()};
    if (type.base_type() == BaseType::String) {
      rule.kind = FieldKind::kString;
      rule.limit = Limit(field, "limit");
    } else if (type.base_type() == BaseType::Obj) {
      AddObject(ObjectOf(type), &rule);
      rule.kind = rule.table != nullptr ? FieldKind::kTable : FieldKind::kStruct;
    } else if (type.base_type() == BaseType::Vector) {
      AddList(field, &rule);
    } else if (IsEnum(type.base_type(), type.index())) {
      rule.enums.push_back(EnumAt(0, type, ""));
    } else {
      return;
    }
    table->fields.push_back(std::move(rule));
  }

  const reflection::Schema& schema_;
  std::span<const NamedLimit> limits_;
  std::map<std::string, TableRules, std::less<>>& tables_;
};

constexpr NamedLimit kWireLimits[] = {
#include "wire_limits.inc"
};

}  // namespace

SchemaRules::SchemaRules(std::span<const std::uint8_t> bfbs, std::span<const NamedLimit> limits) {
  Reader(*reflection::GetSchema(bfbs.data()), limits, &tables_).Read();
}

const TableRules& SchemaRules::Of(std::string_view table) const {
  const auto found = tables_.find(table);
  TARN_CHECK(found != tables_.end(), "a table of the schema");
  return found->second;
}

const SchemaRules& WireRules() {
  using Schema = wire::HeaderBinarySchema;
  static const SchemaRules kRules({Schema::data(), Schema::size()}, kWireLimits);
  return kRules;
}

}  // namespace tarn
