// Shows that files are replaced atomically, that locks have one holder, and that errors name the path and the reason.
#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

namespace tarn {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tarn-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t FilesHere() const {
    return std::size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, WritesAndReadsBack) {
  for (std::size_t size : {0u, 1u, 65536u, 200000u}) {
    const std::string bytes(size, 'x');
    ASSERT_TRUE(WriteFileAtomic(Path("a"), bytes));
    EXPECT_EQ(*ReadFile(Path("a"), size), bytes);
  }
  EXPECT_EQ(FilesHere(), 1u) << "nothing temporary is left";
}

TEST_F(FileTest, ReplacesTheWholeFile) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "long old text"));
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "new"));
  EXPECT_EQ(*ReadFile(Path("a"), 100), "new");
}

TEST_F(FileTest, PiecesReplaceTheFileTogether) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "old"));
  auto file = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->WriteAt(bytes("world"), 6));
  ASSERT_TRUE(file->WriteAt(bytes("hello "), 0));
  EXPECT_EQ(*ReadFile(Path("a"), 100), "old");
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(*ReadFile(Path("a"), 100), "hello world");
  EXPECT_EQ(FilesHere(), 1u);
}

TEST_F(FileTest, PiecesWithoutCommitAreRemoved) {
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file);
    AtomicFile moved = std::move(*file);
    EXPECT_EQ(FilesHere(), 0u) << "whoever is killed now leaves nothing";
  }
  EXPECT_EQ(FilesHere(), 0u);
  EXPECT_EQ(AtomicFile::Create(Path("no/folder")).error().code, ErrorCode::kNotFound);
}

TEST_F(FileTest, LimitAndOnePast) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "12345"));
  EXPECT_TRUE(ReadFile(Path("a"), 5));
  const auto over = ReadFile(Path("a"), 4);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(over.error().message, Path("a") + ": more than 4 bytes");
}

TEST_F(FileTest, MissingFile) {
  const auto missing = ReadFile(Path("nothing"), 10);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, Path("nothing") + ": cannot open: No such file or directory");
}

TEST_F(FileTest, AFolderIsNotReadAsAFile) {
  const auto folder = ReadFile(folder_.string(), 10);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_EQ(folder.error().message, folder_.string() + ": cannot read: Is a directory");
}

TEST_F(FileTest, FailedWriteLeavesTheOldFile) {
  fs::create_directory(folder_ / "taken");
  const auto onto_folder = WriteFileAtomic(Path("taken"), "x");
  ASSERT_FALSE(onto_folder);
  EXPECT_EQ(onto_folder.error().message, Path("taken") + ": cannot rename into place: Is a directory");
  EXPECT_EQ(FilesHere(), 1u) << "nothing temporary is left";

  const auto no_folder = WriteFileAtomic(Path("no/file"), "x");
  ASSERT_FALSE(no_folder);
  EXPECT_NE(no_folder.error().message.find(Path("no/file")), std::string::npos);
  EXPECT_NE(no_folder.error().message.find("cannot create: No such file or directory"), std::string::npos);
}

TEST_F(FileTest, FullDisk) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 4, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto full = WriteFileAtomic(Path("a"), "12345");
  const auto fits = WriteFileAtomic(Path("b"), "1234");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_TRUE(fits);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kIo);
  EXPECT_EQ(full.error().message, Path("a") + ": cannot write: File too large");
  EXPECT_EQ(FilesHere(), 1u);
}

TEST_F(FileTest, ALeftoverTemporaryFileIsReplacedAndRemoved) {
  std::ofstream(Path("a") + ".tmp-" + std::to_string(::getpid())) << "of an earlier process";
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "new"));
  EXPECT_EQ(*ReadFile(Path("a"), 100), "new");
  EXPECT_EQ(FilesHere(), 1u);
  for (const char* name : {"a.tmp-1", "a.tmp-23", "a.tmp-x", "ab.tmp-1"}) std::ofstream(Path(name)) << "x";
  RemoveUnfinished(Path("a"));
  EXPECT_EQ(FilesHere(), 3u);
  EXPECT_TRUE(fs::exists(Path("a.tmp-x")));
  EXPECT_TRUE(fs::exists(Path("ab.tmp-1")));
}

TEST(SystemError, NamesPathActionAndReason) {
  const Error error = SystemError("/x/y", "bind", EACCES);
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_EQ(error.message, "/x/y: cannot bind: Permission denied");
}

TEST_F(FileTest, ALockIsWaitedForWithPatience) {
  const std::string path = Path("lock");
  std::optional<Expected<FileLock>> held(FileLock::Take(path, "somebody has it"));
  ASSERT_TRUE(held->has_value());
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held.reset();
  });
  const auto second = FileLock::Take(path, "somebody has it", std::chrono::minutes(5));
  holder.join();
  EXPECT_TRUE(second);
}

TEST_F(FileTest, ALockHasOneHolderUntilItIsReleased) {
  const std::string path = Path("lock");
  {
    const auto lock = FileLock::Take(path, "somebody has it");
    ASSERT_TRUE(lock);
    const auto second = FileLock::Take(path, "somebody has it");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(second.error().message, path + ": somebody has it");
  }
  EXPECT_TRUE(FileLock::Take(path, "somebody has it"));
  EXPECT_EQ(FileLock::Take(path + "/in/no/folder", "").error().code, ErrorCode::kIo);
  EXPECT_EQ(FileLock::Take(Path("no/lock"), "").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tarn
