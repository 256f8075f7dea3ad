// Key lists that shards store, so that keys are sent once and later messages refer to them by number (rules W3, W4 of
// docs/protocol.md). The common case is a push of rows that were just pulled. Internal to worker/; one thread.
//
// A list has a number that this client never reuses, and is found by comparing all bytes of its keys. For each shard
// the most recently used lists are remembered, up to a number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"

namespace tarn::worker {

class KeyLists {
 public:
  // Lists of fewer than `keys_min` keys have no number. `bytes_max`: the most bytes of keys remembered for one shard;
  // 0: no list gets a number.
  KeyLists(std::uint32_t keys_min, std::size_t bytes_max) : keys_min_(keys_min), bytes_max_(bytes_max) {}

  // For jobs without key lists: no further list gets a number.
  void SwitchOff() { bytes_max_ = 0; }
  // The same for one shard, until Clear.
  void SwitchOff(ShardId shard);

  // The number of these keys (64 bits each) for a message to `shard`: an existing one or a new one. 0: none, because
  // there are too few or too many keys, or lists are off for the shard at present (SwitchOff, OnUnknown).
  std::uint64_t NumberOf(ShardId shard, const Buffer& keys, TimeUs now);

  // Encodes a list for a message. `keys` has the number of the list (or 0) and its keys; on return it has what is sent:
  // the number alone if the shard holds the list, else the keys, delta-coded if that saves enough.
  void Encode(ShardId shard, KeyList* keys);

  // The shard has answered a message with this list, so it stores the list.
  void OnHeld(ShardId shard, std::uint64_t number);
  // The shard no longer stores a list that it was expected to store (rule W4). Forgets its lists and makes no new ones
  // until `until`.
  void OnUnknown(ShardId shard, TimeUs until);
  // After a newer route map: forgets all lists.
  void Clear() { shards_.clear(); }

  std::uint64_t Hash() const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::uint64_t fingerprint = 0;
    Buffer keys;
    bool held = false;
  };
  using Entries = std::list<Entry>;  // most recently used first
  struct OfShard {
    Entries entries;
    std::unordered_map<std::uint64_t, Entries::iterator> by_number;
    std::unordered_multimap<std::uint64_t, Entries::iterator> by_fingerprint;
    std::size_t bytes = 0;
    TimeUs no_lists_until = 0;
  };

  OfShard& At(ShardId shard);
  static void RemoveLast(OfShard* of);
  void EncodeDelta(KeyList* keys);

  std::uint32_t keys_min_;
  std::size_t bytes_max_;
  std::uint64_t next_ = 1;
  std::vector<std::byte> delta_;  // scratch
  std::deque<OfShard> shards_;    // by shard; addresses are stable
};

}  // namespace tarn::worker
