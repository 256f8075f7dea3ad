// kernels/stream.h, kernels/graph.h and kernels/visible_gpus.h in a build without CUDA.
#include "kernels/graph.h"
#include "kernels/stream.h"
#include "kernels/visible_gpus.h"

namespace tarn::kernels {

struct Stream::Native {};

Expected<std::unique_ptr<Stream>> Stream::Make(int) {
  return Fail(ErrorCode::kUnsupported, "this build has no CUDA: tools/install cuda && tools/build");
}
Stream::Stream(std::unique_ptr<Native> native) : native_(std::move(native)) {}
Stream::~Stream() = default;
Stream::Native& Stream::native() { return *native_; }
Status Stream::Wait() { return {}; }
void Stream::WaitFor(Stream&) {}
bool Stream::Done() { return true; }
void Stream::NotifyWhenDone(const std::function<void()>*) {}
int Stream::device() const { return 0; }
std::string Stream::device_name() const { return {}; }

std::size_t Stream::free_bytes() const { return 0; }

Expected<DeviceBuffer> DeviceBuffer::Allocate(Stream&, std::size_t, std::string_view) { return DeviceBuffer(); }
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept = default;
Expected<PinnedBuffer> PinnedBuffer::Allocate(Stream&, std::size_t, std::string_view) { return PinnedBuffer(); }
PinnedBuffer::~PinnedBuffer() = default;
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept = default;
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept = default;
DeviceUse DeviceUseSoFar() { return {}; }
void CopyToDevice(Stream&, const void*, std::size_t, void*) {}
void CopyToHost(Stream&, const void*, std::size_t, void*) {}
void CopyOnDevice(Stream&, const void*, std::size_t, void*) {}
int VisibleGpus() { return 0; }

struct Graph::Native {};
Graph::Graph(Stream* stream) : stream_(*stream) {}
Graph::~Graph() = default;
Status Graph::Record(const std::function<void()>&) { return Fail(ErrorCode::kUnsupported, "this build has no CUDA"); }
void Graph::Launch() {}
std::uint64_t MemoryVersion(Stream&) { return 0; }

}  // namespace tarn::kernels
