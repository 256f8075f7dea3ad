// A table larger than its memory budget: pulls and pushes (Adam) of one shard's row store on a Zipf trace, whose
// batches are known in advance, as with Prefetch. For comparison: the hit rate of the best possible eviction (Belady);
// plain RocksDB with the same memory (block cache, MultiGet, WriteBatch) on the same trace; and the store with all rows
// in memory, without a budget and with one that they all fit in. Only the second half of the trace is measured.
//
//   tiered --rows 20000000 --dir /somewhere/with/room
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <semaphore>
#include <vector>

#include "bench/trace.h"
#include "core/limits.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "kernels/optimizer.h"
#include "server/memory_meter.h"
#include "server/store/store.h"
#include "server/tier/rocksdb_cold_store.h"

namespace tarn::bench {
namespace {

namespace fs = std::filesystem;
using server::Residency;
using server::Store;

constexpr std::uint32_t kBits = 6;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Options {
  std::uint32_t rows = 20'000'000, dim = 32;
  double exponent = 1.05, share = 0.25;
  std::size_t batch = 4096, accesses = 20'000'000, ahead = 4;
  std::string dir = ".";
  bool plain = true, fits = true;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void Die(const std::string& what) {
  fmt::print(stderr, "tiered: {}\n", what);
  std::exit(1);
}

TableSpec Spec(const Options& options) {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "embeddings";
  spec.dim = options.dim;
  spec.optimizer.kind = "adam";
  return spec;
}

// One batch as a message: keys by partition.
struct Batch {
  std::vector<Key> keys;
  std::vector<Section> sections;
};

class Messages {
 public:
  Messages(const TableSpec& spec, const Trace& trace) : position_(spec, TableSalt(1, spec.name)), trace_(trace) {}
  std::size_t size() const { return trace_.ends.size(); }
  std::span<const std::uint32_t> Rows(std::size_t n) const {
    const std::size_t begin = n == 0 ? 0 : trace_.ends[n - 1];
    return std::span(trace_.accesses).subspan(begin, trace_.ends[n] - begin);
  }
  Batch Make(std::span<const std::uint32_t> rows) const {
    std::vector<std::pair<PartitionId, Key>> order;
    for (std::uint32_t row : rows) order.emplace_back(PartitionOf(position_(Mix64(row)), kBits), Mix64(row));
    std::ranges::sort(order);
    Batch batch;
    for (const auto& [partition, key] : order) {
      if (batch.sections.empty() || batch.sections.back().partition != partition)
        batch.sections.push_back({partition, 0, {}});
      ++batch.sections.back().count;
      batch.keys.push_back(key);
    }
    return batch;
  }

 private:
  Positioner position_;
  const Trace& trace_;
};

// Measurements of the second half of the trace.
struct Figures {
  std::vector<double> pulls;  // seconds each
  double seconds = 0;
  std::size_t rows = 0;
  double hit_rate = 1;

  void Print(const char* what) {
    std::ranges::sort(pulls);
    const auto at = [this](double share) { return pulls[static_cast<std::size_t>(share * double(pulls.size() - 1))]; };
    fmt::print("{:<22} {:>8.0f} {:>12.0f} {:>10.3f} {:>10.3f} {:>10.3f} {:>9.4f}\n", what,
               double(pulls.size()) / seconds, double(rows) / seconds, at(0.5) * 1e3, at(0.99) * 1e3, at(1) * 1e3,
               hit_rate);
    std::fflush(stdout);
  }
};

// A row store, and a disk if it has a budget.
class TieredStore {
 public:
  TieredStore(const Options& options, std::size_t limit_bytes) : options_(options), spec_(Spec(options)) {
    server::StoreOptions rows{.job_seed = 1, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) rows.owned.push_back(PartitionId(p));
    std::unique_ptr<Residency> tier;
    if (limit_bytes != 0) {
      auto cold = server::RocksDbColdStore::Open(&disk_, {.directory = options.dir + "/tier", .file_system = nullptr},
                                                 [this] { events_.release(); });
      if (!cold) Die(cold.error().message);
      tier = std::make_unique<Residency>(server::ResidencyOptions{.limit_bytes = limit_bytes, .places = 1u << kBits},
                                         std::move(*cold));
    }
    rows_ = std::make_unique<Store>(std::move(rows), std::move(tier));
    if (const Status added = rows_->AddTable(spec_); !added) Die(added.error().message);
  }

  void Fill() {
    constexpr std::uint32_t kAtOnce = 4096;
    const std::size_t words = RowWords(spec_);
    std::vector<std::uint32_t> records(kAtOnce * words, 0x3c000000);
    std::vector<Key> keys;
    for (std::uint32_t first = 0; first < options_.rows; first += kAtOnce) {
      keys.clear();
      // Inserts the most frequent rows last, as if they had been used.
      for (std::uint32_t i = first; i < std::min(options_.rows, first + kAtOnce); ++i)
        keys.push_back(Mix64(options_.rows - 1 - i));
      const Status loaded = rows_->Load(spec_.id, keys, std::span(records).first(keys.size() * words));
      if (!loaded) Die(loaded.error().message);
    }
  }

  Figures Run(const Messages& messages) {
    std::deque<std::pair<Batch, server::FetchTicket>> known;
    std::vector<std::byte> out(options_.batch * options_.dim * sizeof(float));
    const std::vector<float> gradients(options_.batch * options_.dim, 0.01f);
    const std::size_t half = messages.size() / 2;
    Figures figures;
    std::uint64_t uses = 0, misses = 0;
    double begin = 0;
    for (std::size_t n = 0, next = 0; n < messages.size(); ++n) {
      if (n == half) {
        begin = Now();
        uses = Uses();
        misses = Misses();
      }
      for (; next < messages.size() && next <= n + options_.ahead; ++next) {
        Batch batch = messages.Make(messages.Rows(next));
        const auto ticket = rows_->FetchCold(spec_.id, batch.sections, batch.keys);
        known.emplace_back(std::move(batch), ticket);
      }
      const auto [batch, ticket] = std::move(known.front());
      known.pop_front();
      const double start = Now();
      rows_->Maintain(0);
      while (rows_->tier() != nullptr && !rows_->tier()->Ended(ticket)) {
        events_.acquire();
        rows_->Maintain(0);
      }
      rows_->Gather(spec_.id, batch.sections, batch.keys, ValueCodec::kFp32, out.data());
      if (n >= half) {
        figures.pulls.push_back(Now() - start);
        figures.rows += batch.keys.size();
      }
      rows_->Apply(spec_.id, batch.sections, batch.keys, ValueCodec::kFp32,
                   reinterpret_cast<const std::byte*>(gradients.data()), Clock(n));
    }
    figures.seconds = Now() - begin;
    // Each row is used twice, by a pull and by a push; only the pull can miss.
    if (rows_->tier() != nullptr) figures.hit_rate = 1 - 2 * double(Misses() - misses) / double(Uses() - uses);
    return figures;
  }
  const Store& rows() const { return *rows_; }

 private:
  std::uint64_t Uses() const { return rows_->tier() == nullptr ? 0 : rows_->tier()->counters().uses; }
  std::uint64_t Misses() const {
    if (rows_->tier() == nullptr) return 0;
    return rows_->tier()->counters().read_waiting + rows_->tier()->counters().fetched;
  }

  const Options& options_;
  TableSpec spec_;
  std::counting_semaphore<> events_{0};
  DiskPool disk_;
  std::unique_ptr<Store> rows_;
};

// The plain alternative: rows as values of RocksDB, with the same memory for its cache and buffers.
class PlainRocksDb {
 public:
  PlainRocksDb(const Options& options, std::size_t memory_bytes) : options_(options), spec_(Spec(options)) {
    const std::size_t buffers = std::clamp(memory_bytes / 8, 8 * kMiB, 256 * kMiB);
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(memory_bytes - std::min(memory_bytes / 2, buffers));
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.cache_index_and_filter_blocks = true;
    table.pin_l0_filter_and_index_blocks_in_cache = true;
    rocksdb::Options db;
    db.create_if_missing = true;
    db.compression = rocksdb::kNoCompression;
    db.write_buffer_size = buffers / 2;
    db.max_write_buffer_number = 2;
    db.IncreaseParallelism(2);
    db.optimize_filters_for_hits = true;
    db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* opened = nullptr;
    fs::remove_all(directory());
    if (const auto status = rocksdb::DB::Open(db, directory(), &opened); !status.ok()) Die(status.ToString());
    db_.reset(opened);
    writes_.disableWAL = true;
  }
  ~PlainRocksDb() {
    db_.reset();
    fs::remove_all(directory());
  }

  void Fill() {
    const std::vector<float> row(RowWords(spec_), 0.01f);
    rocksdb::WriteBatch batch;
    std::vector<std::uint64_t> keys;
    for (std::uint32_t i = 0; i < options_.rows; ++i) keys.push_back(__builtin_bswap64(Mix64(i)));
    std::ranges::sort(keys, {}, [](std::uint64_t key) { return __builtin_bswap64(key); });
    for (std::size_t i = 0; i < keys.size(); ++i) {
      Put(&batch, keys[i], row.data());
      if (i % 4096 == 4095 || i + 1 == keys.size()) Write(&batch);
    }
    if (const auto status = db_->CompactRange({}, nullptr, nullptr); !status.ok()) Die(status.ToString());
  }

  Figures Run(const Messages& messages) {
    const std::size_t words = RowWords(spec_), half = messages.size() / 2;
    std::vector<float> rows(options_.batch * words), out(options_.batch * options_.dim);
    const std::vector<float> gradients(options_.batch * options_.dim, 0.01f);
    std::vector<std::uint64_t> keys;
    Figures figures;
    double begin = 0;
    for (std::size_t n = 0; n < messages.size(); ++n) {
      if (n == half) begin = Now();
      keys.clear();
      for (std::uint32_t row : messages.Rows(n)) keys.push_back(Mix64(row));
      const double start = Now();
      Read(&keys, rows.data());
      for (std::size_t i = 0; i < keys.size(); ++i)
        std::memcpy(out.data() + i * options_.dim, rows.data() + i * words, options_.dim * sizeof(float));
      if (n >= half) {
        figures.pulls.push_back(Now() - start);
        figures.rows += keys.size();
      }
      Push(&keys, rows.data(), gradients.data(), n);
    }
    figures.seconds = Now() - begin;
    figures.hit_rate = std::numeric_limits<double>::quiet_NaN();  // RocksDB counts blocks, not rows
    return figures;
  }

 private:
  std::string directory() const { return options_.dir + "/plain-rocksdb"; }
  static void Put(rocksdb::WriteBatch* batch, std::uint64_t key, const float* row, std::size_t bytes) {
    (void)batch->Put({reinterpret_cast<const char*>(&key), sizeof(key)}, {reinterpret_cast<const char*>(row), bytes});
  }
  void Put(rocksdb::WriteBatch* batch, std::uint64_t key, const float* row) const {
    Put(batch, key, row, RowWords(spec_) * sizeof(float));
  }
  void Write(rocksdb::WriteBatch* batch) {
    if (const auto status = db_->Write(writes_, batch); !status.ok()) Die(status.ToString());
    batch->Clear();
  }
  void Read(std::vector<std::uint64_t>* keys, float* rows) {
    std::ranges::sort(*keys);
    std::vector<std::uint64_t> stored;
    for (std::uint64_t key : *keys) stored.push_back(__builtin_bswap64(key));
    std::vector<rocksdb::Slice> slices;
    for (const std::uint64_t& key : stored) slices.emplace_back(reinterpret_cast<const char*>(&key), sizeof(key));
    std::vector<rocksdb::PinnableSlice> values(slices.size());
    std::vector<rocksdb::Status> statuses(slices.size());
    db_->MultiGet({}, db_->DefaultColumnFamily(), slices.size(), slices.data(), values.data(), statuses.data(), true);
    const std::size_t words = RowWords(spec_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!statuses[i].ok()) Die(statuses[i].ToString());
      std::memcpy(rows + i * words, values[i].data(), words * sizeof(float));
    }
  }
  void Push(std::vector<std::uint64_t>* keys, float* rows, const float* gradients, std::uint64_t clock) {
    const std::size_t words = RowWords(spec_);
    Read(keys, rows);  // a push is a separate message
    std::vector<float*> values, slots;
    for (std::size_t i = 0; i < keys->size(); ++i) {
      values.push_back(rows + i * words);
      slots.push_back(rows + i * words + options_.dim);
    }
    kernels::ApplyOptimizer(spec_.optimizer, Clock(clock), options_.dim, keys->size(), values.data(), slots.data(),
                            gradients);
    rocksdb::WriteBatch batch;
    for (std::size_t i = 0; i < keys->size(); ++i) Put(&batch, __builtin_bswap64((*keys)[i]), rows + i * words);
    Write(&batch);
  }

  const Options& options_;
  TableSpec spec_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions writes_;
};

void RunAll(const Options& options) {
  const TableSpec spec = Spec(options);
  const std::size_t row_bytes = RowWords(spec) * sizeof(float);
  const auto limit = static_cast<std::size_t>(options.share * double(options.rows) * double(row_bytes));
  if (limit == 0) Die("the budget is 0: use more rows or a larger --share");
  const Trace trace = MakeTrace(options.rows, options.exponent, 0, options.batch, options.accesses);
  const Messages messages(spec, trace);
  fmt::print("{} rows of {} bytes, {:.0f} MiB, budget {:.0f} MiB; Zipf {}, {} batches of {:.0f} rows\n", options.rows,
             row_bytes, double(options.rows) * double(row_bytes) / double(kMiB), double(limit) / double(kMiB),
             options.exponent, messages.size(), double(trace.accesses.size()) / double(messages.size()));
  fmt::print("{:<22} {:>8} {:>12} {:>10} {:>10} {:>10} {:>9}\n", "", "pulls/s", "rows/s", "p50 ms", "p99 ms", "max ms",
             "hit rate");
  {
    TieredStore store(options, limit);
    double start = Now();
    store.Fill();
    const double filled = Now() - start;
    Figures figures = store.Run(messages);
    figures.Print("budget");
    const Residency& tier = *store.rows().tier();
    fmt::print(
        "  filled in {:.1f} s; {:.0f} MiB in memory of {:.0f}, process {:.0f}, {:.0f} on disk; {} rows in memory, {} "
        "fetched, {} read synchronously\n",
        filled, double(store.rows().memory_bytes()) / double(kMiB), double(limit) / double(kMiB),
        double(server::ResidentBytes()) / double(kMiB), double(tier.disk_bytes()) / double(kMiB), tier.resident_rows(),
        tier.counters().fetched, tier.counters().read_waiting);
    fmt::print("  optimum: {:.4f} with that many rows, {:.4f} if the budget held only rows\n",
               Belady(trace, tier.resident_rows(), true),
               Belady(trace, static_cast<std::size_t>(options.share * options.rows), true));
  }
  if (options.plain) {
    PlainRocksDb plain(options, limit);
    plain.Fill();
    plain.Run(messages).Print("plain RocksDB");
  }
  if (!options.fits) return;
  {
    TieredStore store(options, 0);
    store.Fill();
    store.Run(messages).Print("no budget");
  }
  TieredStore store(options, 2 * options.rows * row_bytes + 512 * kMiB);
  store.Fill();
  store.Run(messages).Print("budget, all fits");
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) {
  tarn::bench::Options options;
  const CLI::Range at_least_one(1u, std::numeric_limits<std::uint32_t>::max());
  CLI::App app{"Measures a table larger than its memory, and compares it with the optimum and with plain RocksDB."};
  app.add_option("--rows", options.rows, "rows of the table")->capture_default_str()->check(at_least_one);
  app.add_option("--dim", options.dim, "values per row; Adam stores two more for each")
      ->capture_default_str()
      ->check(CLI::Range(1u, tarn::limits::kRowDimMax));
  app.add_option("--share", options.share, "memory budget, as a share of the bytes of all rows")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 10.0));
  app.add_option("--zipf", options.exponent, "exponent")->capture_default_str();
  app.add_option("--batch", options.batch, "look-ups per message, including duplicates")
      ->capture_default_str()
      ->check(at_least_one);
  app.add_option("--accesses", options.accesses, "approximate number of pulled rows")
      ->capture_default_str()
      ->check(at_least_one);
  app.add_option("--ahead", options.ahead, "batches known in advance")->capture_default_str();
  app.add_option("--dir", options.dir, "folder for rows on disk; needs twice the bytes of the rows")
      ->capture_default_str();
  app.add_flag("!--no-plain", options.plain, "skip plain RocksDB");
  app.add_flag("!--no-fits", options.fits, "skip the runs in which everything fits");
  CLI11_PARSE(app, argc, argv);
  tarn::bench::RunAll(options);
  return 0;
}
