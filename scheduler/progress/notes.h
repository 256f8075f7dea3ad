// Collects lines for the log from the parts of the state machine, until the loop takes them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tarn::scheduler {

struct Note {
  std::string text;
  bool warning = false;  // something is lost or fails, and the run continues
};

class Notes {
 public:
  static constexpr std::size_t kNotesMax = 1000;  // further ones are dropped

  void Info(std::string text) { Add({std::move(text), false}); }
  void Warn(std::string text) { Add({std::move(text), true}); }
  std::vector<Note> Take() { return std::exchange(notes_, {}); }

 private:
  void Add(Note note) {
    if (notes_.size() < kNotesMax) notes_.push_back(std::move(note));
  }

  std::vector<Note> notes_;
};

}  // namespace tarn::scheduler
