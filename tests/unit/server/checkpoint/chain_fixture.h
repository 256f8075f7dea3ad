// Checkpoint directories with several generations, written like those of shards, and their expected state. Three
// tables: sparse with Adam, sparse with 16-bit values and a life, dense.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "core/hash.h"
#include "core/job/job.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "server/checkpoint/rocksdb_checkpoint_reader.h"
#include "server/checkpoint/rocksdb_checkpoint_writer.h"
#include "server/checkpoint/row_loader.h"
#include "server/store/store.h"

namespace tarn::server {

constexpr std::uint64_t kChainSeed = 3;

inline std::vector<TableSpec> ChainTables() {
  TableSpec adam;
  adam.id = TableId(1);
  adam.name = "adam";
  adam.dim = 3;
  adam.optimizer.kind = "adam";
  adam.initializer = {InitializerKind::kNormal, 0, 1};
  TableSpec aging;
  aging.id = TableId(2);
  aging.name = "aging";
  aging.dim = 5;
  aging.row_codec = ValueCodec::kBf16;
  aging.life.on = true;
  aging.life.admit_count = 3;
  TableSpec dense = adam;
  dense.id = TableId(3);
  dense.name = "dense";
  dense.kind = TableKind::kDense;
  dense.rows = 100;
  return {adam, aging, dense};
}

// The rows of one table, and the keys that are counted but have no row yet.
struct TableState {
  std::map<Key, std::vector<std::uint32_t>> rows;
  std::map<Key, std::uint32_t> seen;
  friend bool operator==(const TableState&, const TableState&) = default;
};
using State = std::map<TableId, TableState>;

// Reads a whole checkpoint into a State.
class StateSink : public RowSink {
 public:
  bool Wants(PartitionId, std::uint32_t) const override { return true; }
  Status OnTable(const TableSpec& spec) override {
    table_ = &state[spec.id];
    words_ = RowWords(spec);
    return {};
  }
  Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) override {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto record = rows.subspan(i * words_, words_);
      table_->rows[keys[i]] = {record.begin(), record.end()};
    }
    return {};
  }
  Status OnRemoved(std::span<const Key> keys) override {
    for (const Key key : keys) table_->rows.erase(key);
    return {};
  }
  Status OnSeen(std::span<const Seen> seen) override {
    table_->seen.insert(seen.begin(), seen.end());
    return {};
  }
  State state;

 private:
  TableState* table_ = nullptr;
  std::uint32_t words_ = 0;
};

class ChainFixture : public testing::Test {
 protected:
  ChainFixture() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) / fmt::format("tarn-chain-{}-{}", getpid(), test->name());
    std::filesystem::create_directories(root_ / "checkpoints");
    for (const TableSpec& table : tables_) state_[table.id];
  }
  ~ChainFixture() override { std::filesystem::remove_all(root_); }

  std::string Directory(std::uint64_t id) const {
    return (root_ / "checkpoints" / fmt::format("ckpt-{}", id)).string();
  }
  static std::uint64_t SaltOf(const TableSpec& table) { return TableSalt(kChainSeed, table.name); }
  PartitionId PartitionOfKey(const TableSpec& table, Key key) const {
    return PartitionOf(Positioner(table, SaltOf(table))(key), bits_);
  }

  // Changes rows at random and records their keys in changed_.
  void Change(SplitMix* random, std::size_t changes) {
    for (std::size_t i = 0; i < changes; ++i) {
      const TableSpec& table = tables_[random->Below(tables_.size())];
      TableState& state = state_[table.id];
      const bool dense = table.kind == TableKind::kDense;
      const Key key = dense ? random->Below(table.rows) : Mix64(random->Below(keys_));
      if (!dense && random->Chance(0.25)) {
        state.rows.erase(key);
        changed_[table.id].insert(key);
        if (table.life.on && random->Chance(0.5)) state.seen[key] = std::uint32_t(1 + random->Below(2));
        continue;
      }
      std::vector<std::uint32_t>& row = state.rows[key];
      row.resize(RowWords(table));
      for (std::uint32_t& word : row) word = std::uint32_t(random->Next());
      if (table.life.on) row.back() = std::bit_cast<std::uint32_t>(float(1 + random->Below(1000)) * 1.25f);  // a score
      state.seen.erase(key);
      changed_[table.id].insert(key);
    }
  }

  // The part of shard `shard` of `shards`: all its rows, or those changed since the base.
  CheckpointPart WritePart(std::uint64_t id, std::uint64_t base, std::uint32_t shard, std::uint32_t shards,
                           SplitMix* random) {
    Snapshot head{.id = CheckpointId(id), .shard = ShardId(shard), .partition_bits = bits_, .max_clock = Clock(id)};
    head.base = CheckpointId(base);
    head.base_directory = base == 0 ? "" : Directory(base);
    head.shards = shards;
    std::vector<CutRows> chunks;
    for (const TableSpec& table : tables_) {
      head.tables.push_back({table, SaltOf(table), RowWords(table), 0, {}});
      for (std::uint32_t p = 0; p < 1u << bits_; ++p)
        if (p * shards >> bits_ == shard) PutPartition(table, PartitionId(p), base != 0, random, &chunks, &head);
    }
    RocksDbCheckpointWriter writer(head, Directory(id), run_bytes_);
    Status status = writer.Begin();
    for (CutRows& chunk : chunks)
      if (status) status = writer.Put(std::move(chunk));
    return status ? writer.Finish({}) : writer.Failed(status.error());
  }

  void PutPartition(const TableSpec& table, PartitionId partition, bool changes, SplitMix* random,
                    std::vector<CutRows>* chunks, Snapshot* head) {
    const TableState& state = state_[table.id];
    std::vector<std::pair<std::uint64_t, Key>> order;  // cuts have no particular order of rows
    for (const auto& [key, row] : state.rows)
      if (PartitionOfKey(table, key) == partition) {
        ++head->tables.back().state_rows;
        if (!changes || changed_[table.id].contains(key)) order.emplace_back(random->Next(), key);
      }
    std::sort(order.begin(), order.end());
    CutRows lists{table.id, {.partition = partition}};
    for (const auto& [key, count] : state.seen)
      if (PartitionOfKey(table, key) == partition) lists.rows.seen.emplace_back(key, count);
    if (changes)
      for (const Key key : changed_[table.id])
        if (!state.rows.contains(key) && PartitionOfKey(table, key) == partition) lists.rows.removed.push_back(key);
    if (!lists.rows.seen.empty() || !lists.rows.removed.empty()) chunks->push_back(lists);
    for (std::size_t i = 0; i < order.size();) {
      CutRows chunk{table.id, {.partition = partition}};
      for (const std::size_t end = std::min(order.size(), i + 1 + random->Below(5)); i < end; ++i) {
        const auto& row = state.rows.at(order[i].second);
        chunk.rows.keys.push_back(order[i].second);
        chunk.rows.rows.insert(chunk.rows.rows.end(), row.begin(), row.end());
      }
      chunks->push_back(std::move(chunk));
    }
  }

  // Cuts a whole checkpoint and clears the changes.
  Status Cut(std::uint64_t id, std::uint64_t base, std::uint32_t shards, SplitMix* random) {
    Manifest manifest;
    Job job;
    job.job.seed = kChainSeed;
    manifest.job_text = ToToml(job);
    manifest.id = CheckpointId(id);
    manifest.resume_clock = Clock(id * 10);
    manifest.partition_bits = bits_;
    manifest.tables = tables_;
    if (base != 0) manifest.generations = manifests_.at(base).generations;
    for (Generation& generation : manifest.generations) {
      std::erase_if(generation.files, [](const CheckpointFile& file) { return file.seen != 0; });
      for (CheckpointTable& table : generation.tables) table.seen = 0;
    }
    Generation own{CheckpointId(id), Clock(id * 10), {}, {}, 0};
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      const CheckpointPart part = WritePart(id, base, shard, shards, random);
      if (part.code != ErrorCode::kOk) return Fail(part.code, part.message);
      own.files.insert(own.files.end(), part.files.begin(), part.files.end());
      own.state_hash += part.state_hash;
      own.tables.resize(part.tables.size());
      for (std::size_t i = 0; i < part.tables.size(); ++i) {
        own.tables[i].table = part.tables[i].table;
        own.tables[i].rows += part.tables[i].rows;
        own.tables[i].removed += part.tables[i].removed;
        own.tables[i].seen += part.tables[i].seen;
        own.tables[i].state_rows += part.tables[i].state_rows;
      }
    }
    manifest.generations.push_back(own);
    manifest.state_hash = HashOfState();
    TARN_RETURN_IF_ERROR(WriteManifest(Directory(id), manifest));
    manifests_[id] = manifest;
    changed_.clear();
    return {};
  }

  std::uint64_t HashOfState() const {
    std::uint64_t hash = 0;
    for (const TableSpec& table : tables_) {
      for (const auto& [key, row] : state_.at(table.id).rows) hash += RowHash(SaltOf(table), key, row);
      for (const auto& seen : state_.at(table.id).seen) hash += SeenHash(SaltOf(table), {seen.first, seen.second});
    }
    return hash;
  }

  // The expected state of the checkpoint.
  Expected<State> Read(std::uint64_t id) const {
    StateSink sink;
    if (auto status = ReadCheckpoint(Directory(id), sink); !status) return std::unexpected(status.error());
    return sink.state;
  }

  std::filesystem::path root_;
  std::vector<TableSpec> tables_ = ChainTables();
  std::uint32_t bits_ = 3;
  std::uint64_t keys_ = 400;
  std::size_t run_bytes_ = limits::kCheckpointRunBytes;
  State state_;
  std::map<TableId, std::set<Key>> changed_;  // since the newest checkpoint
  std::map<std::uint64_t, Manifest> manifests_;
};

}  // namespace tarn::server
