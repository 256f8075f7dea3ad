#include "scheduler/tables.h"

#include <fmt/format.h>

#include "core/limits.h"
#include "core/names.h"

namespace tarn::scheduler {

std::string TableDifference(const TableSpec& here, const TableSpec& there, bool shape_only) {
  if (here.kind != there.kind) return fmt::format("kind: {} here, {} there", Name(here.kind), Name(there.kind));
  if (here.dim != there.dim) return fmt::format("dim: {} here, {} there", here.dim, there.dim);
  if (here.rows != there.rows) return fmt::format("rows: {} here, {} there", here.rows, there.rows);
  if (here.initializer != there.initializer) return "another initializer";
  if (here.optimizer.kind != there.optimizer.kind)
    return fmt::format("optimizer: {} here, {} there", Name(here.optimizer.kind), Name(there.optimizer.kind));
  if (shape_only) return {};
  if (here.optimizer != there.optimizer) return "other settings of the optimizer";
  if (here.consistency != there.consistency) return "another consistency";
  if (here.pull_codec != there.pull_codec || here.push_codec != there.push_codec) return "another codec";
  return {};
}

TableSpec Tables::Resolve(TableSpec spec) const {
  spec.consistency = consistency_;
  auto it = overrides_.find(spec.name);
  if (it == overrides_.end()) return spec;
  if (it->second.has_consistency) spec.consistency = it->second.consistency;
  if (it->second.has_pull_codec) spec.pull_codec = it->second.pull_codec;
  if (it->second.has_push_codec) spec.push_codec = it->second.push_codec;
  return spec;
}

std::optional<TableSpec> Tables::Ask(Incarnation worker, const TableSpec& wanted,
                                     const std::vector<TableSpec>& existing) {
  CreateTable& answer = waiting_[{worker, wanted.name}];
  answer = CreateTable{.spec = Resolve(wanted), .code = ErrorCode::kOk, .message = {}};
  auto refuse = [&](ErrorCode code, std::string message) {
    answer.code = code;
    answer.message = std::move(message);
    return std::nullopt;
  };
  for (const TableSpec& table : existing) {
    if (table.name != wanted.name) continue;
    const std::string difference = TableDifference(answer.spec, table, false);
    answer.spec.id = table.id;
    if (difference.empty()) return std::nullopt;
    return refuse(ErrorCode::kAlreadyExists,
                  fmt::format("table {} exists with another shape or settings: {}", Quoted(wanted.name), difference));
  }
  if (existing.size() >= limits::kTablesMax)
    return refuse(ErrorCode::kTooLarge,
                  fmt::format("table {}: a job has at most {} tables", Quoted(wanted.name), limits::kTablesMax));
  if (auto valid = Validate(answer.spec); !valid) return refuse(valid.error().code, valid.error().message);
  answer.spec.id = TableId(static_cast<std::uint32_t>(existing.size() + 1));
  return answer.spec;
}

std::vector<std::pair<Incarnation, CreateTable>> Tables::Answers(ViewVersion confirmed) {
  std::vector<std::pair<Incarnation, CreateTable>> due;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto since = since_.find(it->first.second);
    const bool ready = it->second.code != ErrorCode::kOk || since == since_.end() || confirmed >= since->second;
    if (!ready) {
      ++it;
      continue;
    }
    due.emplace_back(it->first.first, std::move(it->second));
    it = waiting_.erase(it);
  }
  return due;
}

void Tables::End(Incarnation worker) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.first.first == worker; });
}

}  // namespace tarn::scheduler
