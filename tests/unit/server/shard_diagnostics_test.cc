// Shows what a shard writes to the program's log about checkpoints, a stalled log disk and gradients that are not
// finite.
#include "server/shard_diagnostics.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/log.h"

namespace tarn::server {
namespace {

class ShardDiagnosticsTest : public testing::Test {
 protected:
  std::string Logged(const std::function<void()>& what) {
    testing::internal::CaptureStderr();
    what();
    strand_.Drain();
    return testing::internal::GetCapturedStderr();
  }

  DiskPool pool_;
  DiskPool::Strand strand_{&pool_, "notes"};
  ShardDiagnostics diagnostics_{ShardId(3), &strand_};
};

TEST_F(ShardDiagnosticsTest, AFailedPartOfACheckpointIsAnError) {
  const std::string text = Logged([&] {
    diagnostics_.OnCheckpointPart({.id = CheckpointId(7), .code = ErrorCode::kIo, .message = "no space left"});
    diagnostics_.OnCheckpointPart({.id = CheckpointId(8), .code = ErrorCode::kCancelled, .message = "replaced"});
  });
  EXPECT_NE(text.find("shard 3: checkpoint 7: no space left"), std::string::npos) << text;
  EXPECT_EQ(text.find("replaced"), std::string::npos) << text;
}

TEST_F(ShardDiagnosticsTest, ALogDiskThatDoesNotRespondIsLogged) {
  const std::string text = Logged([&] {
    for (TimeUs now = 0; now <= kWaitNotePeriodUs; now += 100'000) diagnostics_.WatchLog(now, false, LogSequence(4));
  });
  EXPECT_NE(text.find("shard 3: the disk of its log has not answered for 10 s"), std::string::npos) << text;
}

TEST_F(ShardDiagnosticsTest, GradientsThatAreNotFiniteAreLoggedAtALimitedRate) {
  EXPECT_FALSE(diagnostics_.NotFiniteIsDue(0, 0));
  EXPECT_TRUE(diagnostics_.NotFiniteIsDue(0, 2));
  const NotFiniteRows rows{.table = "users", .rows = 2, .key = 9};
  const std::string text = Logged([&] { diagnostics_.LogNotFinite(std::span(&rows, 1)); });
  EXPECT_NE(text.find("table 'users': 2 gradients"), std::string::npos) << text;
  EXPECT_FALSE(diagnostics_.NotFiniteIsDue(kWaitNotePeriodUs - 1, 3));
  EXPECT_TRUE(diagnostics_.NotFiniteIsDue(kWaitNotePeriodUs, 3));
  EXPECT_FALSE(diagnostics_.NotFiniteIsDue(9 * kWaitNotePeriodUs, 3)) << "no more than before";
}

}  // namespace
}  // namespace tarn::server
