// Shows that a damaged checkpoint is refused with an error that names the file, and that no row of it is loaded: any
// byte flipped; files missing, shorter, longer, swapped, from another checkpoint or in a newer format.
#include <fstream>

#include "core/file.h"
#include "server/checkpoint/rocksdb_sorted_file.h"
#include "tests/unit/server/checkpoint/chain_fixture.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

class CheckpointDamageTest : public ChainFixture {
 protected:
  void SetUp() override {
    SplitMix random(9);
    keys_ = 30;
    Change(&random, 60);
    ASSERT_TRUE(Cut(1, 0, 2, &random));
    Change(&random, 10);
    ASSERT_TRUE(Cut(2, 1, 2, &random));
    for (const auto& entry : fs::directory_iterator(Directory(2)))
      bytes_[entry.path().filename().string()] = ReadFile(entry.path().string(), 1 << 20).value();
    ASSERT_GE(bytes_.size(), 6u);
  }
  // Checkpoints share files by hard links. A damaged file is a new file, so that other checkpoints stay intact.
  void Put(const std::string& name, const std::string& bytes) {
    fs::remove(fs::path(Directory(2)) / name);
    std::ofstream((fs::path(Directory(2)) / name).string(), std::ios::binary) << bytes;
  }
  // Reading fails with an error that names the file, and no row was passed to the sink.
  void ExpectRefused(const std::string& name, const std::string& what) {
    StateSink sink;
    const Status status = ReadCheckpoint(Directory(2), sink);
    ASSERT_FALSE(status) << what;
    EXPECT_NE(status.error().message.find("/" + name), std::string::npos) << what << ": " << status.error().message;
    for (const auto& [table, state] : sink.state) {
      EXPECT_TRUE(state.rows.empty()) << what;
      EXPECT_TRUE(state.seen.empty()) << what;
    }
  }
  std::map<std::string, std::string> bytes_;  // of checkpoint 2, by file
};

TEST_F(CheckpointDamageTest, AFlippedByteInAnyFileIsRefused) {
  for (const auto& [name, good] : bytes_) {
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (at % 2 == 0 ? '\x01' : '\x80'));
      Put(name, bad);
      ExpectRefused(name, fmt::format("byte {} of {}", at, name));
      if (HasFatalFailure()) return;
    }
    Put(name, good);
  }
  EXPECT_EQ(Read(2).value(), state_);
}

// The byte flips between the writer's buffer and the disk. The manifest must have the checksum of the good bytes.
TEST_F(CheckpointDamageTest, AByteThatFlipsWhileItIsWrittenIsDetected) {
  for (const bool flips : {false, true}) {
    SortedFile file(Directory(2), "3-shard-0.sst");
    ASSERT_TRUE(file.Open());
    const std::vector<std::byte> row(1024, std::byte{7});
    for (Key key = 0; key < 8192; ++key) ASSERT_TRUE(file.Put({TableId(1), PartitionId(0), key}, row));
    const std::string path = Directory(2) + "/3-shard-0.sst";
    ASSERT_GT(fs::file_size(path), 4096u) << "some of it is on its way to the disk";
    if (flips) {
      std::fstream bytes(path, std::ios::binary | std::ios::in | std::ios::out);
      bytes.seekp(2000).put('\x08');
    }
    const auto closed = file.Close();
    ASSERT_EQ(closed.has_value(), !flips);
    if (flips) {
      EXPECT_EQ(closed.error().code, ErrorCode::kCorrupt);
      EXPECT_TRUE(closed.error().message.starts_with(path + ": damaged while it was written"))
          << closed.error().message;
    }
    file.Remove();
  }
}

TEST_F(CheckpointDamageTest, MissingShorterAndLongerFilesAreRefused) {
  for (const auto& [name, good] : bytes_) {
    for (const std::size_t size : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      Put(name, good.substr(0, size));
      ExpectRefused(name, "cut");
    }
    Put(name, good + "x");
    ExpectRefused(name, "longer");
    fs::remove(fs::path(Directory(2)) / name);
    ExpectRefused(name, "missing");
    fs::create_directory(fs::path(Directory(2)) / name);
    ExpectRefused(name, "a directory in its place");
    fs::remove(fs::path(Directory(2)) / name);
    Put(name, good);
  }
}

TEST_F(CheckpointDamageTest, SwappedFilesAreRefused) {
  for (const auto& [a, bytes_of_a] : bytes_)
    for (const auto& [b, bytes_of_b] : bytes_) {
      if (a >= b) continue;
      Put(a, bytes_of_b);
      Put(b, bytes_of_a);
      StateSink sink;
      const Status status = ReadCheckpoint(Directory(2), sink);
      ASSERT_FALSE(status) << a << " and " << b;
      const std::string& text = status.error().message;
      EXPECT_TRUE(text.find("/" + a) != std::string::npos || text.find("/" + b) != std::string::npos) << text;
      Put(a, bytes_of_a);
      Put(b, bytes_of_b);
    }
}

TEST_F(CheckpointDamageTest, FilesOfTheSameSizeFromAnotherRunAreRefused) {
  for (const auto& [name, good] : bytes_) {
    if (name == kManifestName) continue;
    std::string other = good;
    std::reverse(other.begin(), other.end());
    Put(name, other);
    ExpectRefused(name, "of another run");
    Put(name, good);
  }
}

TEST_F(CheckpointDamageTest, AManifestOfAnotherCheckpointIsRefused) {
  Put(kManifestName, ReadFile(Directory(1) + "/" + kManifestName, 1 << 20).value());
  ExpectRefused(kManifestName, "the base's: whole, but not this one");
}

TEST_F(CheckpointDamageTest, TheErrorNamesANewerFormat) {
  std::string newer = bytes_[kManifestName];
  newer[8] = static_cast<char>(kManifestVersion + 1);
  Put(kManifestName, newer);
  StateSink sink;
  const Status status = ReadCheckpoint(Directory(2), sink);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(status.error().message.find("newer"), std::string::npos);
}

}  // namespace
}  // namespace tarn::server
