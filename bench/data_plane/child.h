// Processes that a benchmark starts for its other roles. They never outlive it: the kernel kills them with their
// parent. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tarn::bench {

// A child process; the destructor kills and reaps it.
class Child {
 public:
  Child() = default;
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child();
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }

  pid_t pid() const { return pid_; }
  // Whether it has ended, by itself or another's hand; how, in words.
  bool Ended(std::string* how);
  // Waits for its end; dies unless it was a good one, or where `peer`, for which it may wait for ever, ends first.
  void WaitFor(Child* peer);
  // SIGTERM, a second for it to go, then SIGKILL. Nothing happens to one that has ended.
  void Stop();
  // Seconds of CPU of all its threads so far; 0 if it is gone.
  double CpuSeconds() const;

 private:
  pid_t pid_ = 0;  // 0: none, or reaped
};

// Runs `role` in a fork; the process ends when it returns. To be called while no other thread runs.
Child Fork(const std::function<void()>& role);

// Starts a program, searched on the PATH if it has no slash. `output`: what its stdout and stderr are appended to.
// A program that cannot be started is a child that has ended with exit code 127.
Child Spawn(const std::vector<std::string>& command, const std::string& output);

// All of a file, as of a program's output; nothing of one that cannot be read.
std::string ReadText(const std::string& path);

// A port of loopback at which nobody listens.
std::uint16_t FreePort();

// Takes the CPU time of a server and of this process, the worker, from its construction on.
class CpuMeter {
 public:
  // server_seconds: of CPU that the server has used so far.
  explicit CpuMeter(std::function<double()> server_seconds);
  // Cores that each kept busy since: "server_cores" and "worker_cores" of a figure.
  std::vector<std::pair<std::string, double>> Cores() const;

 private:
  std::function<double()> server_seconds_;
  double began_, server_, worker_;
};

// A folder of one's own under the system's temporary one, removed with all that is in it, also when the process is
// killed: a small process of its own waits for that. To be made while no other thread runs.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lifeline_ = -1;  // closed when the folder may go
  pid_t remover_ = 0;
};

}  // namespace tarn::bench
