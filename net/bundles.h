// Bundles the small messages of one Send by lane (net/frame.h), so that they are sent as one frame and ZeroMQ's thread
// is woken once. Large messages are sent separately, after the earlier small ones of their lane.
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
  // Adds a message that `encoder` has begun. Passes to send(lane, frame) or send(lane, frames) what must be sent now: a
  // packed message, a bundle, or the frames of a large message. A FrameView is valid only during the call.
  template <typename Send>
  void Add(const LaneId& to, const Encoder& encoder, const Send& send) {
    Bundle& bundle = Of(to, send);
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
    for (std::size_t i = 0; i < used_; ++i) SendBundle(&bundles_[i], send);
    used_ = 0;
  }

 private:
  static constexpr std::size_t kLanesMax = 64;  // that have a bundle at the same time

  struct Bundle {
    LaneId to;
    BundleWriter writer;
  };

  // A linear search, because there are few lanes per turn.
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
  static void SendBundle(Bundle* bundle, const Send& send) {
    if (bundle->writer.messages() != 0) send(bundle->to, bundle->writer.Finish());
    bundle->writer.Clear();
  }

  std::vector<Bundle> bundles_;
  std::size_t used_ = 0;  // used elements of bundles_; the others keep their memory
};

}  // namespace tarn::net
