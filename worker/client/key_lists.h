// Lists of keys that shards hold, so that keys travel once and later messages name them (rules W3, W4 of
// docs/protocol.md): the push of rows that were just pulled is the common one. Internal to worker/; one thread.
//
// A list is known by a number that no other list of this client ever gets, and is found again by its keys, byte by
// byte: no number ever stands for other keys. Per shard the lists used last are remembered, up to a bound on their
// bytes.
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
  // Lists of fewer keys travel as they are; `bytes_max`: of the keys remembered for one shard; 0: none are.
  KeyLists(std::uint32_t keys_min, std::size_t bytes_max) : keys_min_(keys_min), bytes_max_(bytes_max) {}

  // A job without: no list gets a number any more.
  void SwitchOff() { bytes_max_ = 0; }

  // The number of these keys (64 bits each), for a message to `shard`: the one that they have, or a new one. 0: none,
  // for they are few, or too many, or the shard is left alone for now.
  std::uint64_t NumberOf(ShardId shard, const Buffer& keys, TimeUs now);

  // What is to be sent for the list: `keys` and `frame` hold it with its number (or 0) and its keys, and are changed to
  // what travels.
  void Encode(ShardId shard, KeyList* keys, Buffer* frame);

  // The shard has answered a message with this list: it holds it.
  void OnHeld(ShardId shard, std::uint64_t number);
  // The shard does not hold what we thought: it has no room. Its lists are forgotten and new ones wait until `until`.
  void OnUnknown(ShardId shard, TimeUs until);
  // A newer route map: everything is forgotten.
  void Clear() { shards_.clear(); }

  std::uint64_t Hash() const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::uint64_t fingerprint = 0;
    Buffer keys;
    bool held = false;
  };
  using Entries = std::list<Entry>;  // last used first
  struct OfShard {
    Entries entries;
    std::unordered_map<std::uint64_t, Entries::iterator> by_number;
    std::unordered_multimap<std::uint64_t, Entries::iterator> by_fingerprint;
    std::size_t bytes = 0;
    TimeUs left_alone_until = 0;
  };

  OfShard& At(ShardId shard);
  static void RemoveLast(OfShard* of);
  void EncodeDelta(KeyList* keys, Buffer* frame);

  std::uint32_t keys_min_;
  std::size_t bytes_max_;
  std::uint64_t next_ = 1;
  std::vector<std::byte> delta_;  // scratch
  std::deque<OfShard> shards_;    // by shard; they stay where they are
};

}  // namespace tarn::worker
