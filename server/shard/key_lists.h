// Lists of keys that workers name instead of sending them again (rule W3 of docs/protocol.md). A list is stored under
// (incarnation, number). A worker never reuses a number for other keys, and an incarnation is never reused, so a list
// that is found has the right keys. The size is bounded per worker and in total; the least recently used lists are
// evicted. If a list is missing, the worker sends its keys again (rule W4). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>

#include "core/message.h"

namespace tarn::server {

class KeyLists {
 public:
  KeyLists(std::size_t bytes_max, std::size_t worker_bytes_max)
      : bytes_max_(bytes_max), worker_bytes_max_(worker_bytes_max) {}

  struct List {
    KeyCodec codec = KeyCodec::kRaw;
    Key first_key = 0;
    std::uint32_t count = 0;
    Buffer frame;
  };

  // Stores a copy of the keys of a verified message under keys.list, replacing an older list of that number. A list
  // larger than the bound is not stored.
  void Keep(Incarnation incarnation, const KeyList& keys);
  // Null: not stored. Valid until the next non-const call.
  const List* Find(Incarnation incarnation, std::uint64_t number);
  void Drop(Incarnation incarnation);
  void Clear();
  // Changes the bound of all lists together.
  void SetBound(std::size_t bytes_max);

  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Entry;
  using Entries = std::list<Entry>;  // most recently used first, here and below
  using OfWorker = std::list<Entries::iterator>;
  struct Entry {
    Incarnation incarnation;
    std::uint64_t number = 0;
    List list;
    OfWorker::iterator place;  // in the lists of its worker
  };
  struct Worker {
    OfWorker lists;
    std::map<std::uint64_t, Entries::iterator> by_number;
    std::size_t bytes = 0;
  };
  // Includes the approximate overhead of lists, maps and the allocator.
  static constexpr std::size_t kEntryBytes = sizeof(Entry) + 256;
  static std::size_t Cost(const List& list) { return list.frame.size() + kEntryBytes; }
  void Remove(Entries::iterator it);

  std::size_t bytes_max_, worker_bytes_max_;
  std::size_t bytes_ = 0;
  Entries entries_;
  std::map<Incarnation, Worker> workers_;
};

}  // namespace tarn::server
