// A CUDA graph: GPU operations that are recorded once and then launched together repeatedly. A step of a model has
// about a hundred operations of some microseconds each. Submitted one by one, each costs the caller a launch and the
// GPU a pause; recorded, all of them cost one launch.
//
//   Graph graph(stream.get());
//   Relu(*stream, n, x);                                     // has run before
//   if (Status s = graph.Record([&] { Relu(*stream, n, x); }); !s) ...
//   graph.Launch();                                          // any number of times
//
// A graph records the arguments of operations: addresses, sizes, numbers. The contents of arrays are read at each
// launch. A graph is valid as long as its memory exists: MemoryVersion changes when a stream allocates or frees memory.
//
// One thread at a time: the one that uses the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/stream.h"

namespace tarn::kernels {

class Graph {
 public:
  // Empty. The stream outlives it.
  explicit Graph(Stream* stream);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Calls `work` and records the operations that it submits to the stream, without executing them: those of
  // kernels/*.h, and copies from and to pinned memory. Replaces the previous recording, which must have finished. If
  // CUDA can, its executable is updated in place (cudaGraphExecUpdate); else a new one is made, which takes many times
  // as long as a launch.
  //
  // After an error the graph is empty (the previous recording is lost), nothing was executed, and the stream is
  // unchanged.
  // kUnavailable: the work allocated memory, waited, or multiplied matrices of a shape for which the stream has not
  // selected a cuBLASLt algorithm yet; run the work once without recording, then record it. Or the stream had failed
  // before.
  // kUnsupported: CUDA cannot record this work; the message names what failed.
  Status Record(const std::function<void()>& work);

  // Submits the recorded operations to the stream. The last Record must have succeeded.
  void Launch();

 private:
  struct Native;
  Stream& stream_;
  std::unique_ptr<Native> native_;
};

// Grows whenever GPU memory or pinned memory is allocated or freed through the stream. While it is unchanged, recorded
// addresses are valid.
std::uint64_t MemoryVersion(Stream& stream);

}  // namespace tarn::kernels
