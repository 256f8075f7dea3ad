// Small messages of one Send, gathered by peer so that they travel together (net/frame.h): ZeroMQ's thread is woken
// once for all of them. Large ones pass, behind the small ones of their peer that came before.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "net/backlog.h"

namespace tarn::net {

// Not thread-safe.
class Bundles {
 public:
  // Takes an encoded message, and gives to send(peer, frames) what must not wait for more.
  template <typename Send>
  void Add(Peer to, Frames frames, Send send) {
    const std::size_t size = BytesOf(frames);
    Bundle& bundle = Of(to, send);
    const bool packed = frames.size() == 1;
    const bool full =
        bundle.frames.size() == limits::kBundleMessagesMax || bundle.bytes + size > limits::kBundleBytesMax;
    if (!packed || full) Give(&bundle, send);
    if (!packed) return send(to, std::move(frames));
    bundle.frames.push_back(std::move(frames.front()));
    bundle.bytes += size;
  }

  template <typename Send>
  void Flush(Send send) {
    for (std::size_t i = 0; i < used_; ++i) Give(&bundles_[i], send);
    used_ = 0;
  }

 private:
  static constexpr std::size_t kPeersMax = 64;  // at a time

  struct Bundle {
    Peer to;
    Frames frames;
    std::size_t bytes = 0;
  };

  // Few peers a turn: a search is quicker than a map.
  template <typename Send>
  Bundle& Of(Peer peer, Send send) {
    for (std::size_t i = used_; i-- > 0;)
      if (bundles_[i].to == peer) return bundles_[i];
    if (used_ == kPeersMax) Flush(send);
    if (used_ == bundles_.size()) bundles_.emplace_back();
    bundles_[used_].to = peer;
    return bundles_[used_++];
  }

  template <typename Send>
  static void Give(Bundle* bundle, Send send) {
    bundle->bytes = 0;
    if (!bundle->frames.empty()) send(bundle->to, std::exchange(bundle->frames, {}));
  }

  std::vector<Bundle> bundles_;
  std::size_t used_ = 0;  // of bundles_; the others keep their place for later
};

}  // namespace tarn::net
