// The memory outside of a message that it holds: payload, sections, and its list of tables if that is not part of it.
// For the bounds of messages that wait.
#pragma once

#include <cstddef>
#include <variant>

#include "core/message.h"

namespace tarn {

template <typename Part>
std::size_t HeldBytesOfTables(const TableParts<Part>& tables) {
  std::size_t bytes = tables.size() > 1 ? tables.size() * sizeof(Part) : 0;  // a single one is part of the message
  for (const Part& table : tables) bytes += table.keys.sections.size() * sizeof(Section);
  return bytes;
}

inline std::size_t HeldBytes(const Message& message) {
  std::size_t bytes = PayloadBytes(message);
  if (const auto* pull = std::get_if<Pull>(&message.body)) bytes += HeldBytesOfTables(pull->tables);
  if (const auto* push = std::get_if<Push>(&message.body)) bytes += HeldBytesOfTables(push->tables);
  return bytes;
}

}  // namespace tarn
