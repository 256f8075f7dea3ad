#include "scheduler/tables.h"

#include <fmt/format.h>

#include "core/limits.h"
#include "core/names.h"
#include "core/table/table_shape.h"

namespace tarn::scheduler {

namespace {

// The difference between two specs with the same name; empty if they are equal.
std::string Difference(const TableSpec& wanted, const TableSpec& existing) {
  auto shape = ShapeDifference(wanted, "in this request", existing, "in the existing table");
  return shape.empty() ? SettingsChange(existing, wanted) : shape;
}

}  // namespace

std::optional<TableSpec> Tables::Ask(Incarnation worker, const TableSpec& wanted,
                                     const std::vector<TableSpec>& existing, std::uint32_t partition_bits) {
  CreateTable& answer = waiting_[{worker, wanted.name}];
  answer = CreateTable{.spec = AsRun(job_, wanted), .code = ErrorCode::kOk, .message = {}};
  auto refuse = [&](ErrorCode code, std::string message) {
    answer.code = code;
    answer.message = std::move(message);
    return std::nullopt;
  };
  for (const TableSpec& table : existing) {
    if (table.name != wanted.name) continue;
    answer.spec.id = table.id;
    if (resumed_.contains(wanted.name)) return AskResumed(table, partition_bits, &answer);
    const std::string difference = Difference(answer.spec, table);
    if (difference.empty()) return std::nullopt;
    return refuse(ErrorCode::kAlreadyExists,
                  fmt::format("table {} exists with another shape or settings: {}", Quoted(wanted.name), difference));
  }
  if (existing.size() >= limits::kTablesMax)
    return refuse(ErrorCode::kTooLarge,
                  fmt::format("table {}: a job has at most {} tables", Quoted(wanted.name), limits::kTablesMax));
  if (auto valid = Validate(answer.spec); !valid) return refuse(valid.error().code, valid.error().message);
  if (auto enough = CheckWorkersMin(answer.spec); !enough) return refuse(enough.error().code, enough.error().message);
  if (auto fits = ValidatePartitions(answer.spec, partition_bits); !fits)
    return refuse(fits.error().code, fits.error().message);
  answer.spec.id = TableId(static_cast<std::uint32_t>(existing.size() + 1));
  return answer.spec;
}

Status Tables::CheckWorkersMin(const TableSpec& table) const {
  const float needed = OptionOf(table.optimizer, "workers_min");
  if (needed <= static_cast<float>(job_.fleet.workers)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("table {}: workers_min = {:g}: expected at most fleet.workers = {}, or no step would be made",
                          Quoted(table.name), needed, job_.fleet.workers));
}

std::optional<TableSpec> Tables::AskResumed(const TableSpec& stored, std::uint32_t partition_bits,
                                            CreateTable* answer) {
  Status valid = Validate(answer->spec);
  if (valid) valid = CheckWorkersMin(answer->spec);
  if (valid) valid = ValidatePartitions(answer->spec, partition_bits);
  const std::string difference = ShapeDifference(answer->spec, "in the job", stored, "in the checkpoint");
  if (!difference.empty())
    valid = Fail(ErrorCode::kAlreadyExists, fmt::format("table {}: {}", Quoted(stored.name), difference));
  if (!valid) {
    answer->code = valid.error().code;
    answer->message = valid.error().message;
    return std::nullopt;
  }
  resumed_.erase(stored.name);
  if (answer->spec == stored) return std::nullopt;
  return answer->spec;
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
