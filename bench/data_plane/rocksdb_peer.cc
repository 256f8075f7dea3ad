// RocksDB as a peer of push_pull's sparse operations: see --help and README.md. It has no transport costs: rows are
// read and changed within the process.
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/measure.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr int kExitUsage = 2;
constexpr std::size_t kBatches = 256;
constexpr std::size_t kLoadBatch = 4096;
constexpr double kProgressSeconds = 2;
constexpr std::size_t kBufferBytes = std::size_t{64} << 20;

struct Options {
  std::uint64_t rows = 10'000'000;
  std::uint64_t dim = 16;
  std::size_t batch = 10'000;
  Duration duration;
};

// Keys in big-endian byte order, so that RocksDB sorts them like the numbers.
using Keys = std::vector<std::uint64_t>;

rocksdb::Slice SliceOf(const std::uint64_t& key) { return {reinterpret_cast<const char*>(&key), sizeof key}; }

class Table {
 public:
  // Writes no log and compresses nothing; the block cache has room for all rows.
  Table(const Options& options, const std::string& folder) : options_(options) {
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(2 * options.rows * (RowBytes() + 64) + kBufferBytes);
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    rocksdb::Options db;
    db.create_if_missing = true;
    db.compression = rocksdb::kNoCompression;
    db.write_buffer_size = kBufferBytes;
    db.IncreaseParallelism(2);
    db.optimize_filters_for_hits = true;
    db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* opened = nullptr;
    Check(rocksdb::DB::Open(db, folder + "/rows", &opened));
    db_.reset(opened);
    writes_.disableWAL = true;
  }

  void Load() {
    double last = Now();
    Keys keys(options_.rows);
    for (std::uint64_t row = 0; row < options_.rows; ++row) keys[row] = Mix64(row);
    std::ranges::sort(keys);
    for (std::uint64_t& key : keys) key = __builtin_bswap64(key);
    const std::vector<float> values(kLoadBatch * options_.dim, 0.5f);
    for (std::uint64_t first = 0; first < keys.size(); first += kLoadBatch) {
      const std::size_t count = std::min<std::size_t>(kLoadBatch, keys.size() - first);
      Write({keys.data() + first, count}, values.data());
      if (Now() - last < kProgressSeconds) continue;
      last = Now();
      fmt::print(stderr, "rocksdb_peer: {} of {} rows written\n", first + count, keys.size());
    }
    Check(db_->CompactRange({}, nullptr, nullptr));
  }

  // The rows of sorted keys.
  void Read(std::span<const std::uint64_t> keys, float* rows) {
    slices_.clear();
    for (const std::uint64_t& key : keys) slices_.push_back(SliceOf(key));
    found_.resize(keys.size());
    statuses_.resize(keys.size());
    db_->MultiGet({}, db_->DefaultColumnFamily(), keys.size(), slices_.data(), found_.data(), statuses_.data(), true);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      Check(statuses_[i]);
      std::memcpy(rows + i * options_.dim, found_[i].data(), RowBytes());
      found_[i].Reset();
    }
  }

  void Write(std::span<const std::uint64_t> keys, const float* rows) {
    rocksdb::WriteBatch batch;
    for (std::size_t i = 0; i < keys.size(); ++i)
      Check(batch.Put(SliceOf(keys[i]), {reinterpret_cast<const char*>(rows + i * options_.dim), RowBytes()}));
    Check(db_->Write(writes_, &batch));
  }

 private:
  std::size_t RowBytes() const { return options_.dim * sizeof(float); }
  static void Check(const rocksdb::Status& status) {
    if (!status.ok()) Die("RocksDB: " + status.ToString());
  }

  const Options& options_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions writes_;
  std::vector<rocksdb::Slice> slices_;
  std::vector<rocksdb::PinnableSlice> found_;
  std::vector<rocksdb::Status> statuses_;
};

void Run(const Options& options) {
  const TemporaryFolder folder;
  Table table(options, folder.path());
  table.Load();
  SplitMix random(1);
  std::vector<Keys> batches(kBatches);
  for (Keys& keys : batches) {
    std::set<std::uint64_t> different;  // sorted before the measurement, as push_pull's plans are made before it
    while (different.size() < options.batch) different.insert(Mix64(random.Below(options.rows)));
    keys.assign(different.begin(), different.end());
    for (std::uint64_t& key : keys) key = __builtin_bswap64(key);
  }
  std::vector<float> rows(options.batch * options.dim), gradients(rows.size(), 0.5f);
  std::size_t next = 0;
  const auto measure = [&](const char* name, const auto& operation) {
    const auto start = [&] { return operation(batches[next++ % kBatches]), 0; };
    const double batches_per_second = PerSecond(options.duration, 1, start, [](int) {});
    Print({.name = name,
           .value = batches_per_second * double(options.batch),
           .unit = "rows/s",
           .settings =
               {{"rows", options.rows}, {"dim", options.dim}, {"batch", options.batch}, {"depth", std::uint64_t{1}}},
           .more = {}});
  };
  measure("rocksdb.sparse_pull", [&](const Keys& keys) {
    table.Read(keys, rows.data());
    Keep(rows.data());
  });
  measure("rocksdb.sparse_push", [&](const Keys& keys) {
    table.Read(keys, rows.data());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] -= 0.1f * gradients[i];
    table.Write(keys, rows.data());
  });
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measures RocksDB for comparison with push_pull's sparse operations, without a transport: fills a database in a\n"
      "temporary folder, with a cache for all rows and without a log, and prints one line of JSON for each of\n\n"
      "  rocksdb.sparse_pull   random rows/s with MultiGet of sorted keys\n"
      "  rocksdb.sparse_push   the same, updated (SGD) and written back as one WriteBatch\n\n"
      "  rocksdb_peer --rows 1000000\n\n"
      "Exit status: 0 done, 1 failed, 2 bad usage."};
  std::size_t depth = 1;
  app.add_option("--rows", options.rows, "rows")->capture_default_str()->check(CLI::Range(1L, 1L << 40));
  app.add_option("--dim", options.dim, "fp32 values per row")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--batch", options.batch, "keys per request")->capture_default_str()->check(CLI::Range(1, 1'000'000));
  app.add_option("--depth", depth, "ignored, because calls are synchronous")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.duration.seconds,
                 "seconds per measurement; a warm-up of a quarter of this time precedes it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  try {
    app.parse(argc, argv);
    if (options.batch > options.rows)
      throw CLI::ValidationError(
          "--batch", fmt::format("{} distinct keys of {} rows: expected at most --rows", options.batch, options.rows));
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  Run(options);
  return 0;
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) { return tarn::bench::Main(argc, argv); }
