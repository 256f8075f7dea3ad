// Child processes of a benchmark, each with one role. The kernel kills them when their parent ends. One thread.
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
  // Returns whether the process has ended. The first call that returns true writes "exit code N" or "killed by signal
  // N" to `how`; later calls write "exit code 0".
  bool Ended(std::string* how);
  // Waits for the end of the process. Exits with status 1 if it failed, or if `peer`, for which it may be waiting, ends
  // first.
  void WaitFor(Child* peer);
  // Sends SIGTERM and, if the process has not ended after a second, SIGKILL. Does nothing if it was reaped before.
  void Stop();
  // CPU seconds of all threads of the process so far; 0 once it has been reaped.
  double CpuSeconds() const;

 private:
  pid_t pid_ = 0;  // 0: none, or reaped
};

// Runs `role` in a forked process, which exits with 0 when `role` returns. No other thread may run.
Child Fork(const std::function<void()>& role);

// Starts a program, searched in PATH if its name has no slash. `output`: file to which its stdout and stderr are
// appended. If the program cannot be started, the child ends with exit code 127.
Child Spawn(const std::vector<std::string>& command, const std::string& output);

// The contents of a file; empty if it cannot be read.
std::string ReadText(const std::string& path);

// An unused port on loopback.
std::uint16_t FreePort();

// Measures the CPU time of a server and of this process, the worker, since its construction.
class CpuMeter {
 public:
  // `server_seconds`: returns the CPU seconds of the server so far.
  explicit CpuMeter(std::function<double()> server_seconds);
  // Average number of busy cores of each: "server_cores" and "worker_cores" of a figure.
  std::vector<std::pair<std::string, double>> Cores() const;

 private:
  std::function<double()> server_seconds_;
  double began_, server_, worker_;
};

// A temporary directory, removed with its contents even if this process is killed: a separate process waits for the end
// of this one and removes it. No other thread may run during construction.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lifeline_ = -1;  // write end of a pipe; the remover deletes the directory when it is closed
  pid_t remover_ = 0;
};

}  // namespace tarn::bench
