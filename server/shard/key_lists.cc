#include "server/shard/key_lists.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tarn::server {

void KeyLists::Keep(Incarnation incarnation, const KeyList& keys) {
  const Buffer& frame = keys.frame;
  const std::size_t cost = frame.size() + kEntryBytes;
  if (const auto known = workers_.find(incarnation); known != workers_.end()) {
    const auto old = known->second.by_number.find(keys.list);
    if (old != known->second.by_number.end()) Remove(old->second);
  }
  if (cost > std::min(bytes_max_, worker_bytes_max_)) return;
  Worker& worker = workers_[incarnation];
  while (worker.bytes + cost > worker_bytes_max_) Remove(worker.lists.back());
  while (bytes_ + cost > bytes_max_) Remove(std::prev(entries_.end()));
  // Copied, because the frame may be memory that belongs to its transport.
  List list{keys.codec, keys.first_key, keys.count, Buffer::Copy(frame.data(), frame.size())};
  bytes_ += Cost(list);
  worker.bytes += Cost(list);
  entries_.push_front({incarnation, keys.list, std::move(list), {}});
  worker.lists.push_front(entries_.begin());
  entries_.front().place = worker.lists.begin();
  worker.by_number.emplace(keys.list, entries_.begin());
}

void KeyLists::SetBound(std::size_t bytes_max) {
  bytes_max_ = bytes_max;
  while (bytes_ > bytes_max_) Remove(std::prev(entries_.end()));
}

const KeyLists::List* KeyLists::Find(Incarnation incarnation, std::uint64_t number) {
  const auto worker = workers_.find(incarnation);
  if (worker == workers_.end()) return nullptr;
  const auto it = worker->second.by_number.find(number);
  if (it == worker->second.by_number.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  worker->second.lists.splice(worker->second.lists.begin(), worker->second.lists, it->second->place);
  return &it->second->list;
}

void KeyLists::Remove(Entries::iterator it) {
  Worker& worker = workers_.at(it->incarnation);
  bytes_ -= Cost(it->list);
  worker.bytes -= Cost(it->list);
  worker.by_number.erase(it->number);
  worker.lists.erase(it->place);
  entries_.erase(it);
}

void KeyLists::Drop(Incarnation incarnation) {
  const auto worker = workers_.find(incarnation);
  if (worker == workers_.end()) return;
  while (!worker->second.lists.empty()) Remove(worker->second.lists.back());
  workers_.erase(worker);
}

void KeyLists::Clear() {
  entries_.clear();
  workers_.clear();
  bytes_ = 0;
}

}  // namespace tarn::server
