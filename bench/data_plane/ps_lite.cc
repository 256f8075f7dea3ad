#include "bench/data_plane/ps_lite.h"

#include <fmt/format.h>
#include <ps/ps.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/data_plane/child.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr int kApp = 0;
constexpr float kInitial = 0.5f, kRate = 0.1f;
constexpr std::size_t kBatches = 256;
constexpr std::size_t kSmallRows = 4096, kSmallDim = 256;  // 1 KB

struct Tensor {
  const char* name;
  std::size_t megabytes;  // of 2^20 bytes
  std::size_t depth;      // whole tensors in flight
};
constexpr Tensor kTensors[] = {{"1mb", 1, 8}, {"16mb", 16, 3}};

using Keys = ps::SArray<ps::Key>;
using Values = ps::SArray<float>;

enum Table { kSparse, kSparseArray, kSmall, kFirstTensor };  // the command of a request

// A table of the server: consecutive rows, whose index is stored in a map, or is the key.
struct Rows {
  std::size_t dim = 0;
  std::vector<float> values;
  std::unordered_map<ps::Key, std::size_t> places;

  float* of(ps::Key key) { return values.data() + dim * (places.empty() ? key : places.at(key)); }
};

ps::Key KeyOf(std::uint64_t row) { return Mix64(row); }

std::vector<Rows> MakeStore(const PsLiteOptions& options) {
  std::vector<Rows> store(kFirstTensor + std::size(kTensors));
  const auto fill = [&](std::size_t table, std::size_t rows, std::size_t dim) {
    store[table].dim = dim;
    store[table].values.assign(rows * dim, kInitial);
  };
  if (options.Wants("sparse")) {
    fill(kSparse, options.rows, options.dim);
    fill(kSparseArray, options.rows, options.dim);
    store[kSparse].places.reserve(options.rows);
    for (std::uint64_t row = 0; row < options.rows; ++row) store[kSparse].places.emplace(KeyOf(row), row);
  }
  if (options.Wants("small")) fill(kSmall, kSmallRows, kSmallDim);
  for (std::size_t i = 0; options.Wants("dense") && i < std::size(kTensors); ++i)
    fill(kFirstTensor + i, 1, (kTensors[i].megabytes << 20) / sizeof(float));
  return store;
}

// Handles a request: applies a push with SGD, answers a pull with copies of the rows.
void Serve(const ps::KVMeta& request, const ps::KVPairs<float>& data, ps::KVServer<float>* server,
           std::vector<Rows>* store) {
  Rows& rows = store->at(static_cast<std::size_t>(request.cmd));
  ps::KVPairs<float> answer;
  if (request.pull) {
    answer.keys = data.keys;
    const std::size_t n = data.keys.size() * rows.dim;
    answer.vals.reset(new float[n], n, [](float* values) { delete[] values; });  // resize would first write zeros
  }
  for (std::size_t i = 0; i < data.keys.size(); ++i) {
    float* row = rows.of(data.keys.data()[i]);
    if (request.push) {
      const float* gradient = data.vals.data() + i * rows.dim;
      for (std::size_t d = 0; d < rows.dim; ++d) row[d] -= kRate * gradient[d];
    } else {
      std::memcpy(answer.vals.data() + i * rows.dim, row, rows.dim * sizeof(float));
    }
  }
  server->Response(request, answer);
}

void RunServer(const PsLiteOptions& options) {
  std::vector<Rows> store = MakeStore(options);
  ps::KVServer<float> server(kApp);
  server.set_request_handle(
      [&](const auto& request, const auto& data, ps::KVServer<float>* self) { Serve(request, data, self, &store); });
  ps::Start(kApp);
  ps::Finalize(kApp, true);
}

// The requests of one table. There is a value buffer per request in flight.
class Client {
 public:
  Client(ps::KVWorker<float>* worker, int table, std::vector<Keys> batches, std::size_t dim, std::size_t depth)
      : worker_(worker), table_(table), batches_(std::move(batches)), depth_(depth) {
    for (std::size_t i = 0; i < depth; ++i) values_.emplace_back(batches_[0].size() * dim, kInitial);
  }

  int Pull() {
    const Keys& keys = batches_[next_ % batches_.size()];
    return worker_->ZPull(keys, &values_[next_++ % depth_], nullptr, table_);
  }
  int Push() {
    const Keys& keys = batches_[next_ % batches_.size()];
    return worker_->ZPush(keys, values_[next_++ % depth_], {}, table_);
  }
  void Wait(int request) { worker_->Wait(request); }

  // Operations per second.
  double Rate(const Duration& duration, int (Client::*start)()) {
    return PerSecond(duration, depth_, [&] { return (this->*start)(); }, [&](int request) { Wait(request); });
  }
  std::vector<double> RoundTrips(const Duration& duration) {
    return Latencies(duration, [&] { Wait(Pull()); });
  }

  // Checks that pulls before any push return the initial values.
  void Check() {
    for (Values& values : values_) std::fill(values.begin(), values.end(), 0.0f);
    for (std::size_t i = 0; i < depth_; ++i) Wait(Pull());
    for (const Values& values : values_)
      if (std::ranges::any_of(values, [](float value) { return value != kInitial; }))
        Die("ps-lite: a pull did not return the initial values");
  }

 private:
  ps::KVWorker<float>* worker_;
  int table_;
  std::vector<Keys> batches_;
  std::size_t depth_, next_ = 0;
  std::vector<Values> values_;
};

std::vector<Keys> RandomBatches(std::uint64_t rows, std::size_t batch, std::size_t count, bool hashed) {
  SplitMix random(1);
  std::vector<Keys> batches;
  while (batches.size() < count) {
    std::set<ps::Key> different;  // sorted, as ps-lite requires
    while (different.size() < batch) {
      const std::uint64_t row = random.Below(rows);
      different.insert(hashed ? KeyOf(row) : row);
    }
    batches.push_back(Keys(std::vector<ps::Key>(different.begin(), different.end())));
  }
  return batches;
}

void MeasureSparse(const PsLiteOptions& options, const std::string& transport, Table table,
                   ps::KVWorker<float>* worker) {
  const bool hashed = table == kSparse;
  Client client(worker, table, RandomBatches(options.rows, options.batch, kBatches, hashed), options.dim,
                options.depth);
  client.Check();
  const auto measure = [&](const char* operation, int (Client::*start)()) {
    const double batches = client.Rate(options.duration, start);
    Print(
        {.name = fmt::format("{}.{}.{}", hashed ? "ps_lite" : "ps_lite_array", transport, operation),
         .value = batches * double(options.batch),
         .unit = "rows/s",
         .settings = {{"rows", options.rows}, {"dim", options.dim}, {"batch", options.batch}, {"depth", options.depth}},
         .more = {}});
  };
  measure("sparse_pull", &Client::Pull);
  measure("sparse_push", &Client::Push);
}

void MeasureSmall(const PsLiteOptions& options, const std::string& transport, ps::KVWorker<float>* worker) {
  Client client(worker, kSmall, RandomBatches(kSmallRows, 1, kSmallRows, false), kSmallDim, options.small_depth);
  client.Check();
  const auto settings = [](std::size_t depth) {
    return std::vector<Setting>{{"bytes", kSmallDim * sizeof(float)}, {"depth", depth}};
  };
  Print({.name = fmt::format("ps_lite.{}.small_pull_many", transport),
         .value = client.Rate(options.duration, &Client::Pull),
         .unit = "pulls/s",
         .settings = settings(options.small_depth),
         .more = {}});
  PrintLatencies({.name = fmt::format("ps_lite.{}.small_pull_one", transport),
                  .value = 0,
                  .unit = "us",
                  .settings = settings(1),
                  .more = {}},
                 client.RoundTrips(options.duration));
}

void MeasureDense(const PsLiteOptions& options, const std::string& transport, ps::KVWorker<float>* worker) {
  int table = kFirstTensor;
  for (const Tensor& tensor : kTensors) {
    const std::size_t bytes = tensor.megabytes << 20;
    Client client(worker, table++, {Keys(1, 0)}, bytes / sizeof(float), tensor.depth);
    client.Check();
    const auto measure = [&](const char* verb, int (Client::*start)()) {
      const double tensors = client.Rate(options.duration, start);
      Print({.name = fmt::format("ps_lite.{}.dense_{}_{}", transport, verb, tensor.name),
             .value = 1e-9 * tensors * double(bytes),
             .unit = "GB/s",
             .settings = {{"bytes", bytes}, {"depth", tensor.depth}},
             .more = {}});
    };
    measure("pull", &Client::Pull);
    measure("push", &Client::Push);
  }
}

void RunWorker(const PsLiteOptions& options, const std::string& transport) {
  ps::Start(kApp);
  ps::KVWorker<float> worker(kApp, kApp);
  if (options.Wants("sparse"))
    for (const Table table : {kSparse, kSparseArray}) MeasureSparse(options, transport, table, &worker);
  if (options.Wants("dense")) MeasureDense(options, transport, &worker);
  if (options.Wants("small")) MeasureSmall(options, transport, &worker);
  std::_Exit(0);  // without ps::Finalize, which waits for the other processes; the parent ends them
}

void RunScheduler() {
  ps::Start(kApp);
  ps::Finalize(kApp, true);
}

// A role as a separate process. Chooses its port, so that the destructor can remove the socket file that ps-lite leaves
// at /tmp/PORT with DMLC_LOCAL.
class Role {
 public:
  Role(const char* name, const std::function<void()>& run) : port_(std::to_string(FreePort())) {
    if (std::string_view(name) == "scheduler") setenv("DMLC_PS_ROOT_PORT", port_.c_str(), 1);
    process_ = Fork([&] {
      setenv("DMLC_ROLE", name, 1);
      setenv("PORT", port_.c_str(), 1);
      run();
    });
  }
  ~Role() {
    process_.Stop();
    unlink(("/tmp/" + port_).c_str());
  }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

  Child& process() { return process_; }

 private:
  std::string port_;
  Child process_;
};

}  // namespace

bool HasPsLite() { return true; }

void MeasurePsLite(const PsLiteOptions& options, const std::string& transport) {
  const std::pair<const char*, const char*> environment[] = {{"DMLC_NUM_WORKER", "1"},
                                                             {"DMLC_NUM_SERVER", "1"},
                                                             {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                                             {"DMLC_NODE_HOST", "127.0.0.1"},
                                                             {"DMLC_LOCAL", transport == "ipc" ? "1" : "0"}};
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  Role scheduler("scheduler", RunScheduler);
  Role server("server", [&] { RunServer(options); });
  Role worker("worker", [&] { RunWorker(options, transport); });
  worker.process().WaitFor(&server.process());
}

}  // namespace tarn::bench
