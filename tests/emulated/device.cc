// Streams, events, graphs and memory: CUDA's runtime.
//
// The work of a stream is executed when a thread waits for it, as late as its order allows. TARN_EMULATED_SEED=1 (the
// default is 0): a wait first executes all other streams as far as possible; 2 and more: a random part of them. Threads
// and blocks of kernels run in a random order in any case. A thread of the device calls host functions.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/emulated/emulated.h"
#include "tests/emulated/internal.h"

namespace emulated {
void NotePinned(void* address, std::size_t bytes, bool there);
bool AllPinned(const void* address, std::size_t bytes);

namespace {

using Lock = std::unique_lock<std::mutex>;

struct EventState {
  std::uint64_t recorded = 0, reached = 0;
  Stream* stream = nullptr;  // on which the event was last recorded
  std::uint64_t at = 0;      // operations done before the last record
};

struct Op {
  enum class Kind { kWork, kRecord, kWait, kHost } kind = Kind::kWork;
  std::string name;
  std::function<void()> work;  // kHost: called without the lock
  std::shared_ptr<EventState> event;
  std::uint64_t generation = 0;
  bool running = false;
};

}  // namespace

struct Event {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};
struct Graph {
  std::vector<Op> ops;
};
struct GraphExec {
  std::vector<Op> ops;
};
struct Pool {};
struct Stream {
  std::deque<Op> ops;
  std::unique_ptr<Graph> capture;
  bool invalid = false;  // what is captured
};

namespace {

enum class Order { kLatest, kOthersFirst, kRandom };

struct Device {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream*> streams;
  cudaError_t failed = cudaSuccess;    // permanent
  std::uint64_t random = 0, done = 0;  // operations
  Order order = Order::kLatest;
  bool has_host_thread = false;
  std::size_t host_functions = 0;
  std::map<const void*, std::size_t> shared_asked;
  std::vector<Kernel*> kernels;
  Counts counts;
  Pool pool;
  Stream null_stream;

  Device() {
    const char* seed = std::getenv("TARN_EMULATED_SEED");
    random = seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
    order = random == 0 ? Order::kLatest : random == 1 ? Order::kOthersFirst : Order::kRandom;
  }
};
Device& device() {
  static Device& it = *new Device;
  return it;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Set(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  if (error == cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t Result() { return Set(device().failed); }

Stream& Of(cudaStream_t stream) { return stream == nullptr ? device().null_stream : *stream; }

bool Runnable(const Stream& stream) {
  if (stream.ops.empty()) return false;
  const Op& op = stream.ops.front();
  if (op.kind == Op::Kind::kHost) return false;
  return op.kind != Op::Kind::kWait || op.event->reached >= op.generation;
}

// Executes the first operation of a stream, or one that it waits for.
void RunOne(Stream& stream, Lock& lock) {
  Device& d = device();
  Op& op = stream.ops.front();
  if (op.kind == Op::Kind::kWait && op.event->reached < op.generation) {
    Stream* const other = op.event->stream;
    if (other == nullptr || other == &stream || other->ops.empty())
      Violation("a stream waits for an event that nobody records");
    return RunOne(*other, lock);
  }
  if (op.kind == Op::Kind::kHost) {
    d.changed.notify_all();
    d.changed.wait(lock);
    return;
  }
  Op now = std::move(op);
  stream.ops.pop_front();
  if (now.kind == Op::Kind::kRecord) {
    now.event->reached = std::max(now.event->reached, now.generation);
    now.event->at = device().done;
  } else if (now.kind == Op::Kind::kWork && d.failed == cudaSuccess) {
    ++device().done;
    now.work();
  }
  d.changed.notify_all();
}

// Executes up to `ops_max` operations of a random stream other than `than`, if there is one that can run.
void RunAnother(const Stream& than, std::uint64_t ops_max, Lock& lock) {
  Device& d = device();
  std::vector<Stream*> able;
  for (Stream* stream : d.streams)
    if (stream != &than && Runnable(*stream)) able.push_back(stream);
  if (able.empty()) return;
  Stream& stream = *able[Random() % able.size()];
  for (std::uint64_t i = 0; i < ops_max && Runnable(stream); ++i) RunOne(stream, lock);
}

template <typename Done>
void RunUntil(Stream& stream, Lock& lock, Done done) {
  while (!done() && !stream.ops.empty()) {
    if (device().order == Order::kOthersFirst) RunAnother(stream, ~std::uint64_t{0}, lock);
    if (device().order == Order::kRandom && Random() % 2 == 0) RunAnother(stream, 1 + Random() % 50, lock);
    if (!stream.ops.empty()) RunOne(stream, lock);
  }
}

void Drain(Stream& stream, Lock& lock) {
  RunUntil(stream, lock, [&] { return stream.ops.empty(); });
}
void DrainAll(Lock& lock) {
  for (std::size_t i = 0; i < device().streams.size(); ++i) Drain(*device().streams[i], lock);
  Drain(device().null_stream, lock);
}

// Runs on the thread that calls host functions.
void CallHostFunctions() {
  Device& d = device();
  Lock lock(d.mutex);
  while (true) {
    d.changed.wait(lock, [&] { return d.host_functions != 0; });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // usually as late as possible
    lock.lock();
    Stream* stream = nullptr;
    for (Stream* candidate : d.streams)
      for (const Op& op : candidate->ops)
        if (op.kind == Op::Kind::kHost) stream = candidate;
    if (stream == nullptr) continue;
    if (stream->ops.front().kind != Op::Kind::kHost) {
      if (stream->ops.front().kind == Op::Kind::kWait && !Runnable(*stream) &&
          stream->ops.front().event->stream->ops.front().kind == Op::Kind::kHost)
        stream = stream->ops.front().event->stream;
      else {
        RunOne(*stream, lock);
        continue;
      }
    }
    stream->ops.front().running = true;
    const std::function<void()> work = stream->ops.front().work;
    --d.host_functions;
    lock.unlock();
    work();
    lock.lock();
    stream->ops.pop_front();
    d.changed.notify_all();
  }
}

// Captures or queues an operation. The caller holds the lock.
cudaError_t Give(cudaStream_t to, Op op) {
  Stream& stream = Of(to);
  if (stream.capture != nullptr) {
    if (op.kind != Op::Kind::kWork) {
      stream.invalid = true;
      return Set(cudaErrorStreamCaptureUnsupported);
    }
    stream.capture->ops.push_back(std::move(op));
    return cudaSuccess;
  }
  stream.ops.push_back(std::move(op));
  return Result();
}

cudaError_t Give(cudaStream_t to, std::string name, std::function<void()> work) {
  return Give(to, Op{.kind = Op::Kind::kWork, .name = std::move(name), .work = std::move(work), .event = nullptr});
}

bool RefusedWhileCaptured(cudaStream_t stream) {
  Stream& s = Of(stream);
  if (s.capture == nullptr) return false;
  s.invalid = true;
  return true;
}

void Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice) CheckDevice(from, bytes, false, "a copy");
  if (kind != cudaMemcpyDeviceToHost) CheckDevice(to, bytes, true, "a copy");
  std::memmove(to, from, bytes);
}

}  // namespace

Kernel::Kernel(const char* name_) : name(name_) { device().kernels.push_back(this); }

// "ForEachRow<AddBiasTo<__half>(...)::<lambda...>>": the functions around the launch, as g++ names them.
const std::string& NameOf(const Kernel& kernel) {
  static auto& names = *new std::map<const Kernel*, std::string>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::string& name = names[&kernel];
  if (!name.empty()) return name;
  name = kernel.name;
  const std::size_t begin = name.find("Call = ");
  if (begin != std::string::npos) name = name.substr(begin + 7, name.rfind(']') - begin - 7);
  for (const char* part : {"tarn::kernels::cuda::", "{anonymous}::", "tarn::kernels::", "emulated::", "cudaStream_t, "})
    for (std::size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, std::strlen(part));
  return name;
}

void Violation(const std::string& what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

std::uint64_t Random() {
  std::uint64_t& state = device().random;
  state += 0x9e3779b97f4a7c15;
  std::uint64_t x = state;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

Counts CountsOf() {
  const std::lock_guard lock(device().mutex);
  return device().counts;
}
std::vector<KernelUse> Kernels() {
  const std::lock_guard lock(device().mutex);
  std::vector<KernelUse> uses;
  for (const Kernel* k : device().kernels)
    uses.push_back({NameOf(*k), k->where == nullptr ? "" : k->where, k->launches, k->threads, k->read_bytes,
                    k->written_bytes, k->touched_bytes});
  return uses;
}

std::uint16_t HalfOf(float v) {
  if (std::isnan(v)) return 0x7fff;
  return __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(v));
}
float FloatOf(std::uint16_t half) { return static_cast<float>(__builtin_bit_cast(_Float16, half)); }

cudaError_t Enqueue(const char* name, cudaStream_t stream, std::function<void()> work) {
  const Lock lock(device().mutex);
  return Give(stream, name, std::move(work));
}

void Enqueue(Kernel* kernel, const void* function, const Config& config, std::shared_ptr<const Body> body) {
  Device& d = device();
  const Lock lock(d.mutex);
  const std::size_t threads = std::size_t{config.block.x} * config.block.y * config.block.z;
  const auto asked = d.shared_asked.find(function);
  const std::size_t shared_max = asked == d.shared_asked.end() ? kSharedUnasked : asked->second;
  if (threads == 0 || threads > 1024 || config.grid.x == 0 || config.grid.x > 0x7fffffffu || config.grid.y == 0 ||
      config.grid.y > 65535 || config.grid.z == 0 || config.grid.z > 65535) {
    Set(cudaErrorInvalidConfiguration);
    return;
  }
  if (config.shared > shared_max) {
    Set(cudaErrorInvalidValue);
    return;
  }
  Give(config.stream, NameOf(*kernel), [kernel, config, body = std::move(body)] {
    ++device().counts.launches;
    if (!RunKernel(kernel, config, *body)) device().failed = cudaErrorLaunchFailure;
  });
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* current) {
  *current = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) { return number == 0 ? cudaSuccess : Set(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(kSharedMax); break;
    case cudaDevAttrMemoryPoolsSupported: *value = std::getenv("TARN_EMULATED_NO_POOLS") == nullptr; break;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  const Lock lock(device().mutex);
  return device().failed != cudaSuccess ? device().failed : error;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    default: return "an error of the emulated GPU";
  }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  const Lock lock(device().mutex);
  if (value < 0 || static_cast<std::size_t>(value) > kSharedMax) return Set(cudaErrorInvalidValue);
  device().shared_asked[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock(device().mutex);
  *memory = Reserve(bytes);
  if (*memory == nullptr) return Set(cudaErrorMemoryAllocation);
  Born(*memory);
  ++device().counts.allocations;
  return Result();
}
cudaError_t cudaFree(void* memory) {
  Lock lock(device().mutex);
  DrainAll(lock);
  if (memory != nullptr) Dead(memory);
  return Result();
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  if (bytes > kPinnedMax) return Set(cudaErrorMemoryAllocation);
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*memory, 0xff, bytes);
  NotePinned(*memory, bytes, true);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  Lock lock(device().mutex);
  DrainAll(lock);
  NotePinned(memory, 0, false);
  std::free(memory);
  return Result();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = kMemoryBytes;
  *free = kMemoryBytes - BytesInUse();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = &device().pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  const Lock lock(device().mutex);
  if (attribute == cudaMemPoolAttrReleaseThreshold)
    device().counts.release_threshold = *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = BytesInUse();
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (RefusedWhileCaptured(stream)) return Set(cudaErrorStreamCaptureUnsupported);
  *memory = Reserve(bytes);
  if (*memory == nullptr) return Set(cudaErrorMemoryAllocation);
  ++device().counts.allocations;
  void* const born = *memory;
  return Give(stream, "an allocation", [born] { Born(born); });
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (RefusedWhileCaptured(stream)) return Set(cudaErrorStreamCaptureUnsupported);
  return Give(stream, "freeing memory", [memory] { Dead(memory); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Device& d = device();
  const Lock lock(d.mutex);
  const void* const host = kind == cudaMemcpyHostToDevice ? from : kind == cudaMemcpyDeviceToHost ? to : nullptr;
  for (const void* p : {static_cast<const void*>(to), from})
    if (p == nullptr || (p != host && !IsWithin(p, bytes))) return Set(cudaErrorInvalidValue);
  const bool pageable = host != nullptr && !AllPinned(host, bytes);
  return Give(stream, "a copy", [=] {
    Counts& c = device().counts;
    ++c.copies;
    if (pageable) ++c.pageable_copies;
    (kind == cudaMemcpyHostToDevice   ? c.bytes_to_device
     : kind == cudaMemcpyDeviceToHost ? c.bytes_to_host
                                      : c.bytes_within) += bytes;
    Copy(to, from, bytes, kind);
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Lock lock(device().mutex);
  DrainAll(lock);
  Copy(to, from, bytes, kind);
  return Result();
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(device().mutex);
  return Give(stream, "a memset", [=] {
    CheckDevice(to, bytes, true, "a memset");
    std::memset(to, value, bytes);
  });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const Lock lock(device().mutex);
  CheckDevice(to, bytes, true, "a memset");
  std::memset(to, value, bytes);
  return Result();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(device().mutex);
  *stream = new emulated::Stream;
  device().streams.push_back(*stream);
  return Result();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(device().mutex);
  Drain(*stream, lock);
  std::erase(device().streams, stream);
  delete stream;
  return Result();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(device().mutex);
  if (RefusedWhileCaptured(stream)) return Set(cudaErrorStreamCaptureUnsupported);
  ++device().counts.waits;
  Drain(Of(stream), lock);
  return Result();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Lock lock(device().mutex);
  if (RefusedWhileCaptured(stream)) return Set(cudaErrorStreamCaptureUnsupported);
  if (Of(stream).ops.empty()) return Result();
  // Repeated queries eventually succeed.
  if (Random() % 4 == 0 && Runnable(Of(stream))) RunOne(Of(stream), lock);
  return Set(Of(stream).ops.empty() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(device().mutex);
  if (event->state->recorded == 0) return Result();
  return Give(stream, Op{.kind = Op::Kind::kWait,
                         .name = "a wait",
                         .work = {},
                         .event = event->state,
                         .generation = event->state->recorded});
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  Device& d = device();
  const Lock lock(d.mutex);
  if (!d.has_host_thread) {
    std::thread(CallHostFunctions).detach();
    d.has_host_thread = true;
  }
  const cudaError_t given = Give(
      stream,
      Op{.kind = Op::Kind::kHost, .name = "a function of the host", .work = [=] { function(data); }, .event = nullptr});
  if (given == cudaSuccess) ++d.host_functions;
  d.changed.notify_all();
  return given;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(device().mutex);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(device().mutex);
  const cudaError_t given = Give(stream, Op{.kind = Op::Kind::kRecord,
                                            .name = "an event",
                                            .work = {},
                                            .event = event->state,
                                            .generation = event->state->recorded + 1});
  if (given != cudaSuccess) return given;
  ++event->state->recorded;
  event->state->stream = &Of(stream);
  return given;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(device().mutex);
  const EventState& state = *event->state;
  if (state.reached >= state.recorded) return Result();
  if (Random() % 4 == 0 && Runnable(*state.stream)) RunOne(*state.stream, lock);
  return Set(state.reached >= state.recorded ? device().failed : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(device().mutex);
  const std::shared_ptr<EventState> state = event->state;
  ++device().counts.waits;
  if (state->reached < state->recorded)
    RunUntil(*state->stream, lock, [&] { return state->reached >= state->recorded; });
  return Result();
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(device().mutex);
  *ms = static_cast<float>(end->state->at - begin->state->at);  // one millisecond per operation, not real time
  return Result();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(device().mutex);
  if (stream->capture != nullptr) return Set(cudaErrorInvalidValue);
  stream->capture = std::make_unique<emulated::Graph>();
  stream->invalid = false;
  return Result();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(device().mutex);
  *graph = nullptr;
  if (stream->capture == nullptr) return Set(cudaErrorInvalidValue);
  const std::unique_ptr<emulated::Graph> captured = std::move(stream->capture);
  if (stream->invalid) return Set(cudaErrorStreamCaptureInvalidated);
  *graph = new emulated::Graph(*captured);
  return Result();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new GraphExec{graph->ops};
  return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  const Lock lock(device().mutex);
  if (!std::ranges::equal(exec->ops, graph->ops, {}, &Op::name, &Op::name)) return Set(cudaErrorGraphExecUpdateFailure);
  exec->ops = graph->ops;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock(device().mutex);
  ++device().counts.graphs;
  for (const Op& op : exec->ops) Give(stream, op);
  return Result();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
