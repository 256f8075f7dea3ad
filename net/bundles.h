// Bundles the small messages of one Send by lane (net/frame.h), so that they are sent as one frame and ZeroMQ's thread
// is woken once. Large messages are sent separately, after the earlier small ones of their lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "core/message.h"
#include "net/frame.h"
#include "net/lane_id.h"

namespace tarn::net {

// Not thread-safe. Keeps a buffer of limits::kBundleBytesMax for each of up to kLanesMax lanes, 16 MiB in all. The
// callback `send` must not call this object.
class Bundles {
 public:
  // Adds a message that `encoder` has begun. Passes to send(lane, frame) or send(lane, frames) what must be sent now: a
  // packed message, a bundle, or the frames of a large message. A FrameView is valid only during the call.
  template <typename Send>
  void Add(const LaneId& to, const Encoder& encoder, const Send& send) {
    Bundle& bundle = BundleFor(to, send);
    const std::size_t bytes = encoder.packed_bytes();
    if (bytes == 0) {
      SendBundle(&bundle, send);
      return send(to, encoder.Split());
    }
    std::byte* place = bundle.writer.Place(bytes);
    if (place == nullptr) {
      SendBundle(&bundle, send);
      place = bundle.writer.Place(bytes);
    }
    encoder.Pack(place);
  }

  // Sends what has been added and not sent yet.
  template <typename Send>
  void Flush(const Send& send) {
    for (const std::uint32_t i : open_) SendBundle(&bundles_[i], send);
    for (const std::uint32_t i : open_) bundles_[i].open = false;
    open_.clear();
  }

 private:
  // Lanes with a buffer. Messages to more lanes in one turn are sent in more frames than necessary.
  static constexpr std::size_t kLanesMax = 1'024;

  struct Bundle {
    LaneId to;
    BundleWriter writer;
    bool open = false;  // in open_
  };
  struct HashLane {
    std::size_t operator()(const LaneId& lane) const { return HashCombine(lane.peer.value, lane.lane); }
  };

  template <typename Send>
  Bundle& BundleFor(const LaneId& lane, const Send& send) {
    const std::uint32_t i = IndexOf(lane, send);
    Bundle& bundle = bundles_[i];
    if (!bundle.open) open_.push_back(i);
    bundle.open = true;
    last_ = i;
    return bundle;
  }

  template <typename Send>
  std::uint32_t IndexOf(const LaneId& lane, const Send& send) {
    // Often the lane is that of the last message or, when the caller sends to several shards in turn, the one after it.
    for (std::uint32_t i = last_; i < bundles_.size() && i <= last_ + 1; ++i)
      if (bundles_[i].to == lane) return i;
    const auto found = index_.find(lane);
    if (found != index_.end()) return found->second;
    if (bundles_.size() == kLanesMax) {  // also drops lanes of peers that have left
      Flush(send);
      bundles_.clear();
      index_.clear();
    }
    const auto i = static_cast<std::uint32_t>(bundles_.size());
    bundles_.emplace_back().to = lane;
    index_.emplace(lane, i);
    return i;
  }

  template <typename Send>
  static void SendBundle(Bundle* bundle, const Send& send) {
    if (bundle->writer.messages() != 0) send(bundle->to, bundle->writer.Finish());
    bundle->writer.Clear();
  }

  std::vector<Bundle> bundles_;
  std::unordered_map<LaneId, std::uint32_t, HashLane> index_;  // into bundles_
  std::vector<std::uint32_t> open_;                            // used since the last Flush, in order of first use
  std::uint32_t last_ = 0;                                     // the index of the last message's bundle
};

}  // namespace tarn::net
