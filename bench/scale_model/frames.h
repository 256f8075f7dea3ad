// The frames of the messages that a node sends together: small messages to one node share a frame, as in net/bundles.h.
#pragma once

#include <vector>

#include "bench/scale_model/model_nodes.h"

namespace tarn::scale {

// A simulated frame represents one frame for each server of a bundle that has any of the messages.
struct Frame {
  ModelNode* to = nullptr;
  std::vector<Arrived> messages;
  Load worker, server;  // of the worker, and of the busiest server of the bundle
  const Load& LoadOf(const ModelNode& node) const { return node.is_worker ? worker : server; }
};

struct Unsent {
  ModelNode* to = nullptr;
  Arrived message;
};

// The frames of `messages`, in the order in which they are sent.
std::vector<Frame> FramesOf(std::vector<Unsent> messages);

}  // namespace tarn::scale
