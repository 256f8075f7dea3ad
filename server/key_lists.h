// Lists of keys that workers name instead of sending them again (rule W3 of docs/protocol.md). A list is held under
// (incarnation, number): a worker never gives a number to other keys, and an incarnation never comes back, so what is
// found is what was meant. Bounded: the lists used longest ago go. Nothing depends on a list being there: the worker
// sends its keys again (rule W4). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "core/message.h"

namespace tarn::server {

class KeyLists {
 public:
  explicit KeyLists(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  struct List {
    KeyCodec codec = KeyCodec::kRaw;
    Key first_key = 0;
    std::uint32_t count = 0;
    Buffer frame;
  };

  // Copies the keys of a message that was found sound, under keys.list; over an older list of that number. Larger than
  // the bound: not held.
  void Keep(Incarnation incarnation, const KeyList& keys, const Buffer& frame);
  // Null: not held. Valid until the next call that is not const.
  const List* Find(Incarnation incarnation, std::uint64_t number);
  void Drop(Incarnation incarnation);
  void Clear();

  std::size_t size() const { return by_id_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  using Id = std::pair<Incarnation, std::uint64_t>;
  struct Entry {
    Id id;
    List list;
  };
  using Entries = std::list<Entry>;  // last used first
  static std::size_t Cost(const List& list) { return list.frame.size() + sizeof(Entry); }
  void Remove(Entries::iterator it);

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  Entries entries_;
  std::map<Id, Entries::iterator> by_id_;
};

}  // namespace tarn::server
