#include "bench/data_plane/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>

#include "bench/data_plane/measure.h"

namespace tarn::bench {
namespace {

constexpr double kGraceSeconds = 20;  // also enough under valgrind
constexpr auto kWatchInterval = std::chrono::milliseconds(20);
constexpr int kExitNotStarted = 127;

void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitNotStarted);  // the parent died between fork and prctl
}

pid_t Reap(pid_t pid, int* status, int options) {
  pid_t reaped = 0;
  do reaped = waitpid(pid, status, options);
  while (reaped < 0 && errno == EINTR);
  return reaped;
}

std::string InWords(int status) {
  return WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                             : fmt::format("exit code {}", WEXITSTATUS(status));
}

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

}  // namespace

Child::~Child() { Stop(); }

bool Child::Ended(std::string* how) {
  int status = 0;
  if (pid_ != 0 && Reap(pid_, &status, WNOHANG) == 0) return false;
  pid_ = 0;
  *how = InWords(status);
  return true;
}

void Child::WaitFor(Child* peer) {
  int status = 0;
  std::string how;
  while (Reap(pid_, &status, WNOHANG) == 0) {
    if (peer->Ended(&how)) Die("a process of the benchmark has ended: " + how);
    std::this_thread::sleep_for(kWatchInterval);
  }
  pid_ = 0;
  if (status != 0) Die("a process of the benchmark has ended: " + InWords(status));
}

void Child::Stop() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  std::string ignored;
  for (const double begin = Now(); Now() - begin < kGraceSeconds;) {
    if (Ended(&ignored)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(pid_, SIGKILL);
  int status = 0;
  Reap(std::exchange(pid_, 0), &status, 0);
}

double Child::CpuSeconds() const {
  const std::string line = ReadText(fmt::format("/proc/{}/stat", pid_));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string ignored;
  for (int field = 3; field < 14; ++field) fields >> ignored;  // proc(5): utime and stime are the 14th and 15th
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / double(sysconf(_SC_CLK_TCK));
}

std::uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Require(fd >= 0 && bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0,
          "cannot bind a port of 127.0.0.1");
  close(fd);
  return ntohs(address.sin_port);
}

CpuMeter::CpuMeter(std::function<double()> server_seconds)
    : server_seconds_(std::move(server_seconds)),
      began_(Now()),
      server_(server_seconds_()),
      worker_(ProcessCpuSeconds()) {}

std::vector<std::pair<std::string, double>> CpuMeter::Cores() const {
  const double seconds = Now() - began_;
  return {{"server_cores", (server_seconds_() - server_) / seconds},
          {"worker_cores", (ProcessCpuSeconds() - worker_) / seconds}};
}

Child Fork(const std::function<void()>& role) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  Require(pid >= 0, "fork");
  if (pid == 0) {
    DieWithParent(parent);
    role();
    _exit(0);
  }
  return Child(pid);
}

Child Spawn(const std::vector<std::string>& command, const std::string& output) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return Fork([&] {
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(kExitNotStarted);
    execvp(argv[0], argv.data());
    _exit(kExitNotStarted);
  });
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "tarn-bench-XXXXXX").string();
  Require(mkdtemp(path_.data()) != nullptr, "cannot create the folder " + path_);
  int ends[2];
  Require(pipe2(ends, O_CLOEXEC) == 0, "pipe");
  remover_ = fork();
  Require(remover_ >= 0, "fork");
  if (remover_ == 0) {
    setsid();  // so that Ctrl-C in the terminal does not reach it
    close(STDOUT_FILENO);
    close(ends[1]);
    char nothing = 0;
    while (read(ends[0], &nothing, 1) < 0 && errno == EINTR) continue;
    // Retries, because other processes of the benchmark, which are being killed, may still write to the folder.
    for (const double begin = Now(); Now() - begin < kGraceSeconds;) {
      std::error_code error;
      std::filesystem::remove_all(path_, error);
      if (!error) break;
    }
    _exit(0);
  }
  close(ends[0]);
  lifeline_ = ends[1];
}

TemporaryFolder::~TemporaryFolder() {
  close(lifeline_);
  int status = 0;
  Reap(remover_, &status, 0);
}

}  // namespace tarn::bench
