// Shows that the two pages of a mark are written alternately, so that a torn write leaves one of them intact.
#include "server/log/log_mark.h"

#include <gtest/gtest.h>

#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

TEST(LogMarkTest, AlternatesBetweenTwoPages) {
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  ASSERT_TRUE(files->MakeDirectory("log"));
  LogMark mark(files->Create("log/mark").value(), kIdentity);
  ASSERT_TRUE(mark.Reserve());
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence)
    ASSERT_TRUE(mark.Write(LogSequence(sequence), sequence == 3));
  const auto file = files->OpenToRead("log/mark").value();
  EXPECT_EQ(file->Size(), 2 * kLogPage);
  for (const std::uint64_t slot : {0, 1}) {
    std::byte bytes[kMarkBytes];
    ASSERT_TRUE(file->Read(slot * kLogPage, bytes));
    const auto read = DecodeMark(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->durable, LogSequence(slot == 0 ? 3 : 2));
  }
}

}  // namespace
}  // namespace tarn::server
