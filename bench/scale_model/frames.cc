#include "bench/scale_model/frames.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/limits.h"

namespace tarn::scale {
namespace {

void Add(Unsent unsent, Frame* frame) {
  const Extent& extent = unsent.message.extent;
  frame->to = unsent.to;
  frame->worker.frames = std::max(frame->worker.frames, extent.copies);
  frame->worker.bytes += extent.bytes;
  frame->server.frames = std::max(frame->server.frames, extent.copies * extent.part);
  frame->server.bytes += extent.bytes * extent.part;
  frame->messages.push_back(std::move(unsent.message));
}

// The bytes of one real frame.
double BytesOf(const Frame& frame) { return frame.worker.frames > 0 ? frame.worker.bytes / frame.worker.frames : 0; }

}  // namespace

std::vector<Frame> FramesOf(std::vector<Unsent> messages) {
  std::vector<Frame> closed, open;
  std::unordered_map<const ModelNode*, std::size_t> open_by_node;
  for (Unsent& unsent : messages) {
    const Extent& extent = unsent.message.extent;
    const double bytes = extent.copies > 0 ? extent.bytes / extent.copies : 0;
    const auto [found, is_new] = open_by_node.try_emplace(unsent.to, open.size());
    if (is_new) open.emplace_back();
    Frame& frame = open[found->second];
    const bool large = bytes > double(limits::kSmallMessageBytes);
    const bool full =
        BytesOf(frame) + bytes > double(limits::kBundleBytesMax) || frame.messages.size() == limits::kBundleMessagesMax;
    if (!frame.messages.empty() && (large || full)) closed.push_back(std::exchange(frame, {}));
    Add(std::move(unsent), large ? &closed.emplace_back() : &frame);
  }
  for (Frame& frame : open)
    if (!frame.messages.empty()) closed.push_back(std::move(frame));
  return closed;
}

}  // namespace tarn::scale
