// Keeps oneDNN to the calling thread.
#pragma once

// Of OpenMP, whose header not every compiler brings along; the library's runtime is linked anyway.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace tarn::kernels {

// oneDNN takes as many threads as OpenMP would give the caller. The setting is the calling thread's own, and is put
// back: others in the process (Python's libraries) use it too.
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
