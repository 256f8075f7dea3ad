// A thread for what may take long and nobody waits for, such as a write to a disk that stalls: whoever must be heard by
// others leaves it to this one. Jobs are done one after the other, in the order in which they came.
//
//   Background disk("metrics", 64);
//   disk.Do([line] { file.Append(line); });
//
// Any thread may call it. The thread begins with the first job.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tarn {

class Background {
 public:
  using Job = std::move_only_function<void()>;

  // name: of the thread, 15 letters at most. waiting_max: jobs behind the one that is being done.
  Background(std::string name, std::size_t waiting_max) : name_(std::move(name)), waiting_max_(waiting_max) {}
  ~Background();  // when all are done
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False: as many as may wait do, and this one will not be done.
  bool Do(Job job);
  // Waits until all that came before are done.
  void Drain();

 private:
  void Run();

  const std::string name_;
  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace tarn
