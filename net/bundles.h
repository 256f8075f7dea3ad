// Small messages of one Send, gathered by lane so that they travel together (net/frame.h): whoever carries them has one
// thing to carry, and ZeroMQ's thread is woken once for all of them. Large ones pass, behind the small ones of their
// lane that came before.
#pragma once

#include <cstddef>
#include <vector>

#include "core/message.h"
#include "net/frame.h"
#include "net/lane_id.h"

namespace tarn::net {

// Not thread-safe.
class Bundles {
 public:
  // Takes a message that `encoder` has begun, and gives to send(lane, frame) or send(lane, frames) what must not wait
  // for more: a packed message or a bundle, or the frames of a large message. What a FrameView shows is gone
  // afterwards.
  template <typename Send>
  void Add(const LaneId& to, const Encoder& encoder, const Send& send) {
    Bundle& bundle = Of(to, send);
    const std::size_t bytes = encoder.packed_bytes();
    if (bytes == 0) {
      Give(&bundle, send);
      return send(to, encoder.Split());
    }
    std::byte* place = bundle.writer.Place(bytes);
    if (place == nullptr) {
      Give(&bundle, send);
      place = bundle.writer.Place(bytes);
    }
    encoder.Pack(place);
  }

  template <typename Send>
  void Flush(const Send& send) {
    for (std::size_t i = 0; i < used_; ++i) Give(&bundles_[i], send);
    used_ = 0;
  }

 private:
  static constexpr std::size_t kLanesMax = 64;  // at a time

  struct Bundle {
    LaneId to;
    BundleWriter writer;
  };

  // Few lanes a turn: a search is quicker than a map.
  template <typename Send>
  Bundle& Of(const LaneId& lane, const Send& send) {
    for (std::size_t i = used_; i-- > 0;)
      if (bundles_[i].to == lane) return bundles_[i];
    if (used_ == kLanesMax) Flush(send);
    if (used_ == bundles_.size()) bundles_.emplace_back();
    bundles_[used_].to = lane;
    return bundles_[used_++];
  }

  template <typename Send>
  static void Give(Bundle* bundle, const Send& send) {
    if (bundle->writer.messages() != 0) send(bundle->to, bundle->writer.Finish());
    bundle->writer.Clear();
  }

  std::vector<Bundle> bundles_;
  std::size_t used_ = 0;  // of bundles_; the others keep their place for later
};

}  // namespace tarn::net
