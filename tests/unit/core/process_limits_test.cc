// Shows that errors name limits of the process that are too low, with the value that the job needs, and that exceptions
// of the library are caught.
#include "core/process_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

namespace tarn {
namespace {

// Runs `check` in a child process with that limit. Returns its error message, or an empty string.
template <typename Check>
std::string InProcess(__rlimit_resource resource, std::uint64_t soft, std::uint64_t hard, const Check& check) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{soft, hard};
    if (setrlimit(resource, &limit) != 0) _exit(1);
    const Status status = check();
    const std::string text = status ? "" : status.error().message;
    _exit(write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text(4096, '\0');
  const ssize_t got = read(pipe_ends[0], text.data(), text.size());
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text.substr(0, got > 0 ? static_cast<std::size_t>(got) : 0);
}

TEST(ProcessLimits, TooFewFilesAreNamed) {
  const auto check = [] { return RequireFiles(30, "2 shards"); };
  EXPECT_EQ(
      InProcess(RLIMIT_NOFILE, 24, 24, check),
      "this process may open 24 files (ulimit -Hn), expected at least 30 for 2 shards: raise the limit, such as by "
      "ulimit -n 1024, or use fewer of them");
  EXPECT_EQ(InProcess(RLIMIT_NOFILE, 30, 30, check), "");
}

TEST(ProcessLimits, TheSoftLimitOfFilesIsRaised) {
  const auto check = []() -> Status {
    TARN_RETURN_IF_ERROR(RequireFiles(30, "2 shards"));
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == 64 ? Status{} : Fail(ErrorCode::kInternal, std::to_string(limit.rlim_cur));
  };
  EXPECT_EQ(InProcess(RLIMIT_NOFILE, 24, 64, check), "");
}

TEST(ProcessLimits, InAUsersProcessItIsRaisedOnlyAsNeeded) {
  const auto check = []() -> Status {
    TARN_RETURN_IF_ERROR(RequireFiles(20, "2 shards", RaiseFiles::kAsNeeded));
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t untouched = limit.rlim_cur;
    TARN_RETURN_IF_ERROR(RequireFiles(30, "2 shards", RaiseFiles::kAsNeeded));
    getrlimit(RLIMIT_NOFILE, &limit);
    if (untouched == 24 && limit.rlim_cur == 30 && limit.rlim_max == 64) return {};
    return Fail(ErrorCode::kInternal, std::to_string(untouched) + " " + std::to_string(limit.rlim_cur));
  };
  EXPECT_EQ(InProcess(RLIMIT_NOFILE, 24, 64, check), "");
  const auto too_many = [] { return RequireFiles(65, "2 shards", RaiseFiles::kAsNeeded); };
  EXPECT_NE(InProcess(RLIMIT_NOFILE, 24, 64, too_many), "");
}

TEST(ProcessLimits, OpenFilesAreCounted) {
  const std::uint64_t before = OpenFiles();
  EXPECT_GE(before, 3u);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(OpenFiles(), before + 2);
  const auto none_left = []() -> Status {
    // UBSan needs a descriptor when it first checks an object of a type. Let it check those that OpenFiles compares
    // now.
    for (const std::error_category* category : {&std::system_category(), &std::generic_category()})
      if (std::error_code(EMFILE, *category) != std::errc::too_many_files_open)
        return Fail(ErrorCode::kInternal, category->name());
    while (dup(0) >= 0) {
    }
    return OpenFiles() == 24 ? Status{} : Fail(ErrorCode::kInternal, std::to_string(OpenFiles()));
  };
  EXPECT_EQ(InProcess(RLIMIT_NOFILE, 24, 24, none_left), "");
  close(ends[0]);
  close(ends[1]);
}

#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
TEST(ProcessLimits, TooLittleAddressSpaceIsNamed) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const auto check = [] { return RequireAddressSpace(300 * kMiB, 0, "8 shards"); };
  EXPECT_EQ(
      InProcess(RLIMIT_AS, 299 * kMiB, 299 * kMiB, check),
      "this process may have 299 MiB of address space (ulimit -v 306176), expected at least 300 MiB for 8 shards: "
      "raise the limit, such as by ulimit -v unlimited, or use fewer of them");
  EXPECT_EQ(InProcess(RLIMIT_AS, 300 * kMiB, 300 * kMiB, check), "");
}

TEST(ProcessLimits, AThreadThatCannotBeStartedIsAnError) {
  const auto check = [] {
    return CatchLimits([]() -> Status {
      // More threads than the C library keeps stacks of ended threads.
      for (int i = 0; i < 64; ++i) std::thread([] { std::this_thread::sleep_for(std::chrono::seconds(1)); }).detach();
      return {};
    });
  };
  const std::string message = InProcess(RLIMIT_AS, 1 << 20, 1 << 20, check);
  EXPECT_TRUE(message.starts_with("cannot start a thread: ")) << message;
  EXPECT_NE(message.find("limits of this process: ulimit -v 1024"), std::string::npos) << message;
}
#endif
#endif

TEST(ProcessLimits, WithoutLimitsThereIsNoError) {
  EXPECT_TRUE(CatchLimits([] { return Status{}; }));
  EXPECT_EQ(CatchLimits([]() -> Status { return Fail(ErrorCode::kIo, "its own"); }).error().message, "its own");
}

}  // namespace
}  // namespace tarn
