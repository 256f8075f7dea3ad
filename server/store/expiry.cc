#include "server/store/expiry.h"

#include <algorithm>
#include <limits>

namespace tarn::server {

namespace {

std::uint32_t Clamped(std::uint64_t time) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(time, std::numeric_limits<std::uint32_t>::max()));
}

bool Counts(const Table& table, bool seconds) {
  return table.rules() != nullptr && table.rules()->in_seconds() == seconds;
}

}  // namespace

void Expiry::AdvanceClock(Clock clock) {
  clock_ = std::max(clock_.value_or(clock), clock);
  for (const auto& table : tables_)
    if (table && Counts(*table, false)) Advance(table.get(), clock_->value);
}

void Expiry::AdvanceSeconds(std::uint64_t seconds) {
  seconds_ = std::max(seconds_.value_or(seconds), seconds);
  for (const auto& table : tables_)
    if (table && Counts(*table, true)) Advance(table.get(), seconds);
}

bool Expiry::counts_seconds() const {
  return std::ranges::any_of(tables_, [](const auto& table) { return table && Counts(*table, true); });
}

void Expiry::OnTableAdded(Table* table) {
  if (Counts(*table, true) && seconds_) Advance(table, *seconds_);
  if (Counts(*table, false) && clock_) Advance(table, clock_->value);
}

void Expiry::Advance(Table* table, std::uint64_t now) {
  if (table->Advance(Clamped(now)))
    ForEachSparse(partitions_, *table, [](SparseFragment& fragment) { fragment.OnBoundary(); });
}

void Expiry::Sweep(std::size_t rows) {
  if (sweeping()) sweeper_.Continue(rows, tables_, partitions_, context_->sweeps_due);
}

}  // namespace tarn::server
