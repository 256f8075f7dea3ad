// Keeps oneDNN to the calling thread.
#pragma once

// OpenMP functions, declared here because not every compiler includes the header; oneDNN links the runtime anyway.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace tarn::kernels {

// oneDNN uses as many threads as OpenMP would give the caller. The setting applies to the calling thread and is
// restored, because other libraries in the process (Python's) use it too.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace tarn::kernels
