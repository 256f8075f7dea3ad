#include "worker/client/key_lists.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "core/hash.h"
#include "kernels/key_delta.h"

namespace tarn::worker {
namespace {

// Four lanes, so that it runs at memory speed. Equal fingerprints are always followed by a comparison of the bytes.
std::uint64_t Fingerprint(const Buffer& frame) {
  const auto keys = frame.as<Key>();
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::size_t i = 0;
  for (; i + 4 <= keys.size(); i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane)
      lanes[lane] = std::rotl(lanes[lane] ^ keys[i + lane], 27) * 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = keys.size();
  for (std::uint64_t lane : lanes) hash = HashCombine(hash, lane);
  for (; i < keys.size(); ++i) hash = HashCombine(hash, keys[i]);
  return hash;
}

bool SameBytes(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

KeyLists::OfShard& KeyLists::At(ShardId shard) {
  if (shards_.size() <= shard.value) shards_.resize(shard.value + 1);
  return shards_[shard.value];
}

void KeyLists::SwitchOff(ShardId shard) { At(shard).no_lists_until = std::numeric_limits<TimeUs>::max(); }

std::uint64_t KeyLists::NumberOf(ShardId shard, const Buffer& keys, TimeUs now) {
  if (keys.size() < keys_min_ * sizeof(Key) || keys.empty() || keys.size() > bytes_max_) return 0;
  OfShard& of = At(shard);
  if (now < of.no_lists_until) return 0;
  const std::uint64_t fingerprint = Fingerprint(keys);
  for (auto [it, end] = of.by_fingerprint.equal_range(fingerprint); it != end; ++it) {
    if (!SameBytes(it->second->keys, keys)) continue;
    of.entries.splice(of.entries.begin(), of.entries, it->second);
    return it->second->number;
  }
  of.entries.push_front({next_++, fingerprint, keys, false});
  of.by_number.emplace(of.entries.front().number, of.entries.begin());
  of.by_fingerprint.emplace(fingerprint, of.entries.begin());
  of.bytes += keys.size();
  const std::uint64_t number = of.entries.front().number;
  while (of.bytes > bytes_max_) RemoveLast(&of);
  return number;
}

void KeyLists::RemoveLast(OfShard* of) {
  const auto last = std::prev(of->entries.end());
  auto it = of->by_fingerprint.find(last->fingerprint);
  while (it->second != last) ++it;
  of->by_fingerprint.erase(it);
  of->by_number.erase(last->number);
  of->bytes -= last->keys.size();
  of->entries.erase(last);
}

void KeyLists::EncodeDelta(KeyList* keys) {
  if (keys->codec != KeyCodec::kRaw || keys->count < kKeyBlock) return;
  delta_.resize(std::max(delta_.size(), DeltaBytesMax(keys->count)));
  const std::size_t bytes = kernels::EncodeKeys(keys->frame.as<Key>(), delta_.data());
  if (bytes == 0) return;
  keys->codec = KeyCodec::kDelta;
  keys->frame = Buffer::Copy(delta_.data(), bytes);
}

void KeyLists::Encode(ShardId shard, KeyList* keys) {
  const Entry* entry = nullptr;
  if (keys->list != 0 && shard.value < shards_.size()) {
    const auto& by_number = shards_[shard.value].by_number;
    if (const auto it = by_number.find(keys->list); it != by_number.end()) entry = &*it->second;
  }
  if (entry == nullptr) keys->list = 0;
  if (entry != nullptr && entry->held) {
    keys->codec = KeyCodec::kHeld;
    keys->frame = Buffer();
  } else {
    EncodeDelta(keys);
  }
}

void KeyLists::OnHeld(ShardId shard, std::uint64_t number) {
  if (number == 0 || shard.value >= shards_.size()) return;
  const auto& by_number = shards_[shard.value].by_number;
  if (const auto it = by_number.find(number); it != by_number.end()) it->second->held = true;
}

void KeyLists::OnUnknown(ShardId shard, TimeUs until) {
  OfShard& of = At(shard);
  of = OfShard();
  of.no_lists_until = until;
}

std::uint64_t KeyLists::Hash() const {
  std::uint64_t hash = next_;
  for (const OfShard& of : shards_) hash = HashCombine(HashCombine(hash, of.bytes), std::uint64_t(of.no_lists_until));
  return hash;
}

}  // namespace tarn::worker
