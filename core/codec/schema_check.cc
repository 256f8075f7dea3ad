#include "core/codec/schema_check.h"

#include <flatbuffers/flatbuffers.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "core/utf8.h"

namespace tarn {
namespace {

using flatbuffers::String;
using flatbuffers::Table;
using Items = flatbuffers::Vector<std::uint8_t>;
using Strings = flatbuffers::Vector<flatbuffers::Offset<String>>;
using Tables = flatbuffers::Vector<flatbuffers::Offset<Table>>;

// Checks one buffer. Each function returns whether the check may continue; if not, the status has the error, which
// begins with the path of the field.
class Checker {
 public:
  Checker(std::size_t bytes_max, Status* status) : bytes_max_(bytes_max), status_(*status) {}

  bool CheckTable(const TableRules& rules, const Table& table) {
    for (const FieldRule& rule : rules.fields)
      if (!CheckField(rule, table)) [[unlikely]]
        return Within(rule.name);
    return true;
  }

 private:
  bool Refuse(ErrorCode code, std::string message) {
    status_ = Fail(code, std::move(message));
    return false;
  }
  // Prefixes the error with `place`. Returns false.
  bool Within(std::string_view place) {
    status_.error().message = std::string(place) + status_.error().message;
    return false;
  }

  bool CheckField(const FieldRule& rule, const Table& table) {
    if (rule.kind == FieldKind::kEnum) return CheckEnum(rule.enums[0], table.GetField<std::uint8_t>(rule.offset, 0));
    if (rule.kind == FieldKind::kStruct) {
      const auto* value = table.GetStruct<const std::uint8_t*>(rule.offset);
      return value == nullptr ? CheckMissing(rule) : CheckEnums(rule, value);
    }
    const void* value = table.GetPointer<const void*>(rule.offset);
    if (value == nullptr) return rule.kind != FieldKind::kTable || CheckMissing(rule);
    switch (rule.kind) {
      case FieldKind::kTable: return CheckTable(*rule.table, *static_cast<const Table*>(value)) || Within(".");
      case FieldKind::kString: return CheckString(rule, rule.limit, *static_cast<const String*>(value));
      case FieldKind::kStrings: return CheckStrings(rule, *static_cast<const Strings*>(value));
      case FieldKind::kTables: return CheckTables(rule, *static_cast<const Tables*>(value));
      default: return CheckItems(rule, *static_cast<const Items*>(value));
    }
  }

  bool CheckMissing(const FieldRule& rule) { return rule.optional || Refuse(ErrorCode::kMalformed, ": missing"); }

  bool CheckEnum(const EnumRule& rule, std::uint8_t value) {
    if (value <= rule.last) [[likely]]
      return true;
    return Refuse(ErrorCode::kMalformed, fmt::format("{}{}: value {}, expected 0 to {}", rule.name.empty() ? "" : ".",
                                                     rule.name, value, rule.last));
  }

  bool CheckEnums(const FieldRule& rule, const std::uint8_t* item) {
    for (const EnumRule& enum_rule : rule.enums)
      if (!CheckEnum(enum_rule, item[enum_rule.at])) return false;
    return true;
  }

  // Checks the size of a list or string, and counts its bytes.
  bool CheckSize(std::size_t size, std::uint64_t limit, std::string_view unit, std::size_t bytes) {
    bytes_ += bytes;
    if (size <= limit && bytes_ <= bytes_max_) [[likely]]
      return true;
    return Refuse(ErrorCode::kTooLarge,
                  size > limit ? fmt::format(": {} {}, expected at most {}", size, unit, limit)
                               : fmt::format(": {} bytes in lists and strings up to here, expected at most {}", bytes_,
                                             bytes_max_));
  }

  bool CheckString(const FieldRule& rule, std::uint64_t limit, const String& text) {
    if (!CheckSize(text.size(), limit, "bytes", text.size())) return false;
    return rule.bytes || IsUtf8(text.string_view()) || Refuse(ErrorCode::kMalformed, ": bytes that are not UTF-8");
  }

  bool CheckStrings(const FieldRule& rule, const Strings& strings) {
    if (!CheckSize(strings.size(), rule.limit, "items", strings.size() * sizeof(flatbuffers::uoffset_t))) return false;
    for (flatbuffers::uoffset_t i = 0; i < strings.size(); ++i)
      if (!CheckString(rule, rule.each, *strings.Get(i))) return Within("[]");
    return true;
  }

  bool CheckTables(const FieldRule& rule, const Tables& tables) {
    if (!CheckSize(tables.size(), rule.limit, "items", tables.size() * sizeof(flatbuffers::uoffset_t))) return false;
    for (flatbuffers::uoffset_t i = 0; i < tables.size(); ++i)
      if (!CheckTable(*rule.table, *tables.Get(i))) return Within("[].");
    return true;
  }

  bool CheckItems(const FieldRule& rule, const Items& items) {
    if (!CheckSize(items.size(), rule.limit, "items", items.size() * rule.item_bytes)) return false;
    if (items.size() > 0 && reinterpret_cast<std::uintptr_t>(items.Data()) % rule.align != 0)
      return Refuse(ErrorCode::kMalformed, fmt::format(": items not aligned to {} bytes", rule.align));
    for (const EnumRule& enum_rule : rule.enums) {
      const std::uint8_t* value = items.Data() + enum_rule.at;
      for (std::size_t left = items.size(); left > 0; --left, value += rule.item_bytes)
        if (!CheckEnum(enum_rule, *value)) return Within("[]");
    }
    return true;
  }

  std::size_t bytes_ = 0, bytes_max_ = 0;
  Status& status_;
};

// Shortens a string in its buffer, and zeroes the rest.
void Shorten(String* text, std::size_t size) {
  auto* chars = const_cast<char*>(text->c_str());
  std::memset(chars + size, 0, text->size() - size);
  flatbuffers::WriteScalar(reinterpret_cast<std::uint8_t*>(text), static_cast<flatbuffers::uoffset_t>(size));
}

void MendText(std::uint64_t limit, String* text) {
  if (text->size() <= limit && IsUtf8(text->string_view())) [[likely]]
    return;
  auto* chars = const_cast<char*>(text->c_str());
  const std::string_view all(chars, text->size());
  std::size_t size = 0;
  while (size < all.size()) {
    const std::size_t length = Utf8Length(all.substr(size));
    if (size + std::max<std::size_t>(length, 1) > limit) break;
    if (length == 0) chars[size] = '?';
    size += std::max<std::size_t>(length, 1);
  }
  if (size < all.size()) Shorten(text, size);
}

}  // namespace

void Check(const TableRules& rules, const Table& table, std::size_t bytes_max, Status* status) {
  Checker(bytes_max, status).CheckTable(rules, table);
}

Status Check(const TableRules& rules, const Table& table, std::size_t bytes_max) {
  Status status;
  Check(rules, table, bytes_max, &status);
  return status;
}

void MendTexts(const TableRules& rules, Table* table) {
  for (const FieldRule& rule : rules.fields) {
    if (!rule.text) continue;
    if (auto* text = table->GetPointer<String*>(rule.offset)) MendText(rule.limit, text);
  }
}

}  // namespace tarn
