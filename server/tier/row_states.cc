#include "server/tier/row_states.h"

#include <algorithm>

namespace tarn::server {

void RowStates::Add(std::uint32_t place, std::uint32_t number, std::uint32_t slot) {
  Place& of = places_[place];
  if (number / kPageWords == of.pages.size()) {
    of.pages.push_back(std::make_unique<RowState[]>(kPageWords));
    bytes_ += kPageWords * sizeof(RowState);
  }
  of.end = std::max(of.end, number + 1);
  At(place, number) = RowState(slot);
  ++rows_;
}

void RowStates::Remove(std::uint32_t place, std::uint32_t number) {
  At(place, number) = RowState();
  --rows_;
}

void RowStates::Age(std::uint64_t uses, std::uint64_t resident) {
  for (std::uint64_t due = aging_.Due(uses, rows_, resident); due != 0; --due) {
    for (std::size_t skipped = 0; aged_number_ >= places_[aged_place_].end; ++skipped) {
      if (skipped == places_.size()) return;
      aged_number_ = 0;
      aged_place_ = aged_place_ + 1 == places_.size() ? 0 : aged_place_ + 1;
    }
    RowState& state = At(aged_place_, aged_number_++);
    state.SetCount(AfterAging(state.count(), random_));
  }
}

}  // namespace tarn::server
