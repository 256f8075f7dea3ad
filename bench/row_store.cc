// Measures time and memory per row: look-up-and-copy and optimizer steps of random rows through the row store, compared
// with the limit (a loop over an array of the same rows at known addresses, in the same order and with the same
// kernels) and with std::unordered_map. Figures are CPU time of one thread; by default with 10 million rows.
//
//   row_store --rows 10000000 --dim 16
#include <fmt/format.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"
#include "server/store/arena.h"
#include "server/store/store.h"

namespace tarn::server {
namespace {

constexpr std::uint32_t kBits = 6;
constexpr std::size_t kMessageKeys = 4096;
constexpr std::size_t kMessages = 256;
constexpr std::size_t kPasses = 8;  // over all messages; the result is the fastest

double CpuNow() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

std::size_t ResidentBytes() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

Key KeyOf(std::uint64_t i) { return Mix64(i); }

// A message's keys in the order in which clients send them, by partition; `index` is the row of each in a plain array.
struct Message {
  std::vector<Key> keys;
  std::vector<Section> sections;
  std::vector<std::uint32_t> index;
};

struct Setting {
  const char* name;
  const char* optimizer;
  bool apply;
  bool life;
};

class Bench {
 public:
  Bench(const Setting& setting, std::uint32_t dim, std::uint32_t rows) : setting_(setting), row_count_(rows) {
    spec_.id = TableId(1);
    spec_.name = "embeddings";
    spec_.dim = dim;
    spec_.optimizer.kind = setting.optimizer;
    spec_.life.on = setting.life;
    if (setting.life) spec_.life.expire_clocks = 1000;
    const RowLayout layout = LayoutOf(spec_);
    row_floats_ = layout.value_words + layout.slot_words;
    gradients_.assign(kMessageKeys * dim, 0.001f);
    out_.resize(kMessageKeys * dim);
    for (std::size_t m = 0; m < kMessages; ++m) messages_.push_back(MakeMessage(m));
  }

  void Run() {
    const double store = OfStore();
    malloc_trim(0);
    const double plain = OfArray();
    malloc_trim(0);
    const double map = OfMap();
    malloc_trim(0);
    fmt::print(
        "{:<28} dim {:>2}: store {:6.2f} M rows/s, array {:6.2f} ({:3.0f}%), unordered_map {:6.2f} ({:4.1f}x), {}\n",
        setting_.name, spec_.dim, store, plain, 100 * store / plain, map, store / map, memory_);
    std::fflush(stdout);
  }

 private:
  Message MakeMessage(std::uint64_t seed) const {
    const Positioner position(spec_, TableSalt(1, spec_.name));
    SplitMix random(seed);
    std::vector<std::pair<PartitionId, std::uint32_t>> chosen;
    for (std::size_t i = 0; i < kMessageKeys; ++i) {
      const auto row = static_cast<std::uint32_t>(random.Below(row_count_));
      chosen.emplace_back(PartitionOf(position(KeyOf(row)), kBits), row);
    }
    std::ranges::stable_sort(chosen, {}, &std::pair<PartitionId, std::uint32_t>::first);
    Message message;
    for (const auto& [partition, row] : chosen) {
      if (message.sections.empty() || message.sections.back().partition != partition)
        message.sections.push_back({partition, 0, {}});
      ++message.sections.back().count;
      message.keys.push_back(KeyOf(row));
      message.index.push_back(row);
    }
    return message;
  }

  // Millions of rows per second in the best pass.
  double Best(const std::function<void(const Message&)>& step) const {
    double best = 0;
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
      const double start = CpuNow();
      for (const Message& message : messages_) step(message);
      best = std::max(best, double(kMessages * kMessageKeys) * 1e-6 / (CpuNow() - start));
    }
    return best;
  }

  double OfStore() {
    const std::size_t before = ResidentBytes();
    StoreOptions options{.job_seed = 1, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));
    Store rows(options);
    if (!rows.AddTable(spec_)) std::abort();
    const Positioner position(spec_, TableSalt(1, spec_.name));
    const std::byte* gradients = reinterpret_cast<const std::byte*>(gradients_.data());
    for (std::uint32_t i = 0; i < row_count_; ++i) {
      const Key key = KeyOf(i);
      const Section section{PartitionOf(position(key), kBits), 1, {}};
      rows.Apply(spec_.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32, gradients, Clock(0));
    }
    const double payload = double(row_floats_ * sizeof(float));
    memory_ = fmt::format("{:.1f} bytes per row in addition to its {:.0f} ({:.1f} by RSS)",
                          double(rows.memory_bytes()) / row_count_ - payload, payload,
                          double(ResidentBytes() - before) / row_count_ - payload);
    return Best([&](const Message& m) {
      if (setting_.apply)
        rows.Apply(spec_.id, m.sections, m.keys, ValueCodec::kFp32, gradients, Clock(1));
      else
        rows.Gather(spec_.id, m.sections, m.keys, ValueCodec::kFp32, reinterpret_cast<std::byte*>(out_.data()));
    });
  }

  // What the array and the map do with the rows at these addresses: copies them, or applies the optimizer.
  void Work(std::vector<float*>* values) {
    if (!setting_.apply) return kernels::GatherRows(spec_.dim, values->size(), values->data(), out_.data());
    slots_.resize(values->size());
    for (std::size_t i = 0; i < values->size(); ++i) slots_[i] = (*values)[i] + spec_.dim;
    kernels::ApplyOptimizer(spec_.optimizer, Clock(1), spec_.dim, values->size(), values->data(), slots_.data(),
                            gradients_.data());
  }

  double OfArray() {
    const std::size_t bytes = std::size_t{row_count_} * row_floats_ * sizeof(float);
    std::unique_ptr<void, decltype(&std::free)> memory(AllocateLarge(bytes), &std::free);
    auto* all = static_cast<float*>(memory.get());
    std::fill_n(all, std::size_t{row_count_} * row_floats_, 0.5f);
    std::vector<float*> values(kMessageKeys);
    return Best([&](const Message& m) {
      for (std::size_t i = 0; i < m.index.size(); ++i) values[i] = all + std::size_t{m.index[i]} * row_floats_;
      Work(&values);
    });
  }

  double OfMap() {
    std::unordered_map<Key, std::vector<float>> all;
    all.reserve(row_count_);
    for (std::uint32_t i = 0; i < row_count_; ++i) all.try_emplace(KeyOf(i), row_floats_, 0.5f);
    std::vector<float*> values(kMessageKeys);
    return Best([&](const Message& m) {
      for (std::size_t i = 0; i < m.keys.size(); ++i) values[i] = all.find(m.keys[i])->second.data();
      Work(&values);
    });
  }

  Setting setting_;
  std::uint32_t row_count_;
  TableSpec spec_;
  std::uint32_t row_floats_ = 0;
  std::vector<Message> messages_;
  std::vector<float> gradients_, out_;
  std::vector<float*> slots_;
  std::string memory_;
};

// Calls `run` in a separate process with fresh memory. Returns its exit status; 1 if it was killed.
int InChild(const std::function<void()>& run) {
  const pid_t child = fork();
  if (child < 0) return std::perror("row_store: fork"), 1;
  if (child == 0) {
    run();
    std::_Exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures time and memory per row of the row store");
  std::uint32_t rows = 10'000'000, only_dim = 0;
  std::string only;
  app.add_option("--rows", rows, "rows of the table")->check(CLI::Range(1L, 1L << 40));
  app.add_option("--dim", only_dim, "values per row: 16 or 64; 0: both")->check(CLI::IsMember({0, 16, 64}));
  app.add_option("--only", only, "only settings whose names contain this text");
  CLI11_PARSE(app, argc, argv);
  constexpr Setting kSettings[] = {{"look up and copy", "sgd", false, false},
                                   {"look up and copy, with a life", "sgd", false, true},
                                   {"row-wise Adagrad", "row_wise_adagrad", true, false},
                                   {"Adam", "adam", true, false},
                                   {"Adam, with a life", "adam", true, true}};
  for (const std::uint32_t dim : {16u, 64u})
    for (const Setting& setting : kSettings)
      if ((only_dim == 0 || only_dim == dim) && std::string_view(setting.name).contains(only))
        if (const int failed = InChild([&] { Bench(setting, dim, rows).Run(); }); failed != 0) return failed;
  return 0;
}

}  // namespace
}  // namespace tarn::server

int main(int argc, char** argv) { return tarn::server::Main(argc, argv); }
