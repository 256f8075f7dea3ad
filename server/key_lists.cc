#include "server/key_lists.h"

#include <iterator>

namespace tarn::server {

void KeyLists::Keep(Incarnation incarnation, const KeyList& keys, const Buffer& frame) {
  const Id id(incarnation, keys.list);
  if (const auto old = by_id_.find(id); old != by_id_.end()) Remove(old->second);
  // A copy: the frame may be memory that its transport wants back.
  List list{keys.codec, keys.first_key, keys.count, Buffer::Copy(frame.data(), frame.size())};
  if (Cost(list) > bytes_max_) return;
  bytes_ += Cost(list);
  entries_.push_front({id, std::move(list)});
  by_id_.emplace(id, entries_.begin());
  while (bytes_ > bytes_max_) Remove(std::prev(entries_.end()));
}

const KeyLists::List* KeyLists::Find(Incarnation incarnation, std::uint64_t number) {
  const auto it = by_id_.find({incarnation, number});
  if (it == by_id_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return &it->second->list;
}

void KeyLists::Remove(Entries::iterator it) {
  bytes_ -= Cost(it->list);
  by_id_.erase(it->id);
  entries_.erase(it);
}

void KeyLists::Drop(Incarnation incarnation) {
  for (auto it = by_id_.lower_bound({incarnation, 0}); it != by_id_.end() && it->first.first == incarnation;)
    Remove((it++)->second);
}

void KeyLists::Clear() {
  entries_.clear();
  by_id_.clear();
  bytes_ = 0;
}

}  // namespace tarn::server
