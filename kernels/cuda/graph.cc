#include "kernels/graph.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "kernels/cuda/gemm_state.h"
#include "kernels/cuda/native.h"

namespace tarn::kernels {
namespace {

using Recording = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroyer<cudaGraphDestroy>>;
using Executable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroyer<cudaGraphExecDestroy>>;

// Clears the pending CUDA error, so that later calls do not report it.
std::unexpected<Error> Unsupported(const Stream::Native& stream, std::string_view what, cudaError_t error) {
  cudaGetLastError();
  return Fail(ErrorCode::kUnsupported,
              fmt::format("GPU {}: cannot {} a graph: {}", stream.device, what, cudaGetErrorString(error)));
}

// The reason why the work could not be recorded; ok if there is none. Clears it in the stream.
Status TakeObstacle(Stream::Native& stream) {
  const char* refused = std::exchange(stream.refused, nullptr);
  const char* failed = std::exchange(stream.failed, nullptr);
  const std::string reason = std::exchange(stream.reason, {});
  if (refused != nullptr)
    return Fail(ErrorCode::kUnavailable, fmt::format("GPU {}: not recorded: {}", stream.device, refused));
  if (failed != nullptr)
    return Fail(ErrorCode::kUnsupported, fmt::format("GPU {}: not recorded: {}: {}", stream.device, failed, reason));
  return {};
}

Expected<Recording> RecordWork(Stream::Native& stream, const std::function<void()>& work) {
  // Records only this thread's work: other threads may allocate meanwhile.
  if (const cudaError_t error = cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal);
      error != cudaSuccess)
    return Unsupported(stream, "begin", error);
  stream.recording = true;
  work();
  stream.recording = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream.stream, &graph);
  Recording recording(graph);
  if (error != cudaSuccess) cudaGetLastError();
  TARN_RETURN_IF_ERROR(TakeObstacle(stream));
  if (error != cudaSuccess) return Unsupported(stream, "record", error);
  return recording;
}

}  // namespace

struct Graph::Native {
  Executable executable;
  bool recorded = false;
};

Graph::Graph(Stream* stream) : stream_(*stream), native_(std::make_unique<Native>()) {}
Graph::~Graph() = default;

Status Graph::Record(const std::function<void()>& work) {
  Stream::Native& stream = stream_.native();
  native_->recorded = false;
  if (stream.failed != nullptr)
    return Fail(ErrorCode::kUnavailable,
                fmt::format("GPU {}: not recorded: {} has failed", stream.device, stream.failed));
  auto recording = RecordWork(stream, work);
  if (!recording) return std::unexpected(std::move(recording).error());
  cudaGraphExecUpdateResultInfo changed = {};
  if (native_->executable != nullptr &&
      cudaGraphExecUpdate(native_->executable.get(), recording->get(), &changed) != cudaSuccess) {
    cudaGetLastError();  // operations or their dependencies have changed: a new executable is needed
    native_->executable.reset();
  }
  if (native_->executable == nullptr) {
    cudaGraphExec_t executable = nullptr;
    if (const cudaError_t error = cudaGraphInstantiate(&executable, recording->get(), 0); error != cudaSuccess)
      return Unsupported(stream, "make", error);
    native_->executable.reset(executable);
  }
  native_->recorded = true;
  return {};
}

void Graph::Launch() {
  TARN_CHECK(native_->recorded, "a graph is recorded before it is launched");
  Stream::Native& stream = stream_.native();
  Stream::Native::use.graphs.fetch_add(1, std::memory_order_relaxed);
  stream.Note(cudaGraphLaunch(native_->executable.get(), stream.stream), "a recorded step");
}

std::uint64_t MemoryVersion(Stream& stream) { return stream.native().memory_version; }

}  // namespace tarn::kernels
