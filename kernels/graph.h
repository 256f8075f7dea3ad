// A CUDA graph: GPU operations that are recorded once and then launched together repeatedly. A step of a model has
// about a hundred operations of some microseconds each. Submitted one by one, each costs the caller a launch and the
// GPU a pause; recorded, all of them cost one launch.
//
//   Graph graph(stream.get());
//   Relu(*stream, n, x);                                     // has run before
//   if (Status s = graph.Record([&] { Relu(*stream, n, x); }); !s) ...
//   graph.Launch();                                          // as often as the same is to be done
//
// A graph records the arguments of operations: addresses, sizes, numbers. The contents of arrays are read at each
// launch. A graph is valid as long as its memory exists: MemoryVersion changes when a stream allocates or frees memory.
//
// A graph belongs to its stream's thread.
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

  // Calls `work` and records the operations that it gives to the stream, none of which is done: those of kernels/*.h
  // and copies from and to pinned memory. What was recorded before is replaced and must be over; where CUDA can, its
  // executable is changed in place (cudaGraphExecUpdate), else a new one is made, which takes many times as long as a
  // launch.
  //
  // After an error nothing is recorded, nothing was done, and the stream is as it was.
  // kUnavailable: the work asked for memory, waited, or multiplied matrices of a shape that is new to the stream or
  // whose algorithm has yet to be measured. It records once it has run as it is, which measures. Or the stream had
  // failed before.
  // kUnsupported: CUDA does not record this, and will not; the message says what failed.
  Status Record(const std::function<void()>& work);

  // Does what was recorded, in the order of the stream.
  void Launch();

 private:
  struct Native;
  Stream& stream_;
  std::unique_ptr<Native> native_;
};

// Grows whenever memory, of the GPU or pinned, is allocated or freed through the stream. Addresses that were its memory
// mean what they did as long as it stays.
std::uint64_t MemoryVersion(Stream& stream);

}  // namespace tarn::kernels
