// The fastest measured cuBLASLt algorithm for each matrix product, and the file that stores them. Works in builds
// without CUDA too: it only reads and writes the file. One thread at a time.
//
//   GemmAlgorithms algorithms = MakeGemmAlgorithms(stream);   // kernels/device_gemm.h
//   if (Status status = algorithms.Load(path); !status) ...   // warn and continue: everything is measured again
//   UseGemmAlgorithms(stream, &algorithms);
//   ... train ...
//   if (algorithms.changed()) Status status = algorithms.Save(path);
//
// The file is text with three kinds of lines:
//
//   tarn gemm algorithms 1
//   m n k precision factors c transposes a-stride b-stride c-stride beta alignment epilogue fused us algorithm library
//   GPU crc32c 89abcdef
//
// The first line names the format; the last has the checksum of all bytes before it. Each line in between is one
// product. Its fields, separated by one blank: extents; fp32, bf16, tf32 or fp16; element types of the factors and of
// C; N or T for A and for B; strides in elements; 1 if beta is not 0; bytes to which all matrices are aligned; the
// epilogue's name; 1 if it is fused; the measured microseconds; cublasLtMatmulAlgo_t as 128 hexadecimal digits;
// cublasLtGetVersion(); the GPU's name, to the end of the line. An algorithm is valid only for the same version of the
// library and the same GPU model. Lines of other versions and models are kept, so that different machines can share a
// file.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"
#include "kernels/device_gemm.h"

namespace tarn::kernels {

// Everything that the choice depends on.
struct GemmKey {
  std::size_t m = 0, n = 0, k = 0;
  Precision precision = Precision::kFp32;
  Element factors = Element::kFp32, c = Element::kFp32;
  Transpose a_transpose = Transpose::kNo, b_transpose = Transpose::kNo;
  std::size_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool beta = false;                    // whether beta is not 0
  std::uint32_t alignment = 0;          // bytes, of all matrices: a power of two, at most 256
  Epilogue epilogue = Epilogue::kNone;  // also kNone if it cannot be fused
  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

struct GemmChoice {
  bool fused = false;                           // the epilogue; false: it is a separate pass
  float us = 0;                                 // measured
  std::array<std::uint64_t, 8> algorithm = {};  // a cublasLtMatmulAlgo_t
  friend bool operator==(const GemmChoice&, const GemmChoice&) = default;
};

class GemmAlgorithms {
 public:
  // Maximum number of choices: Keep ignores further products. A training step has some tens.
  static constexpr std::size_t kChoicesMax = 4096;
  static constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;

  // For this GPU model and version of cuBLASLt.
  GemmAlgorithms(std::string gpu, std::uint64_t library) : gpu_(std::move(gpu)), library_(library) {}

  // Adds the file's choices for this GPU and library. kNotFound: no such file. kCorrupt: damaged. kMalformed: another
  // kind of file. kUnsupported: another version of the format. kTooLarge. After an error nothing was added; the message
  // names the path and what was expected.
  Status Load(const std::string& path);

  // Merges the choices into the file atomically (WriteFileAtomic) and keeps those of other GPUs and libraries; creates
  // its folder. Concurrent processes wait for each other (FileLock on PATH.lock; kUnavailable after some seconds). A
  // damaged file is replaced. A file of another kind or version is not changed: kMalformed, kUnsupported.
  Status Save(const std::string& path);

  // Null: not measured yet.
  const GemmChoice* Find(const GemmKey& key) const;
  // Adds the choice, or replaces an earlier one of the same key.
  void Keep(const GemmKey& key, const GemmChoice& choice);
  // Whether Keep was called since the last Load or Save.
  bool changed() const { return changed_; }
  std::size_t size() const { return choices_.size(); }

 private:
  std::string Line(const GemmKey& key, const GemmChoice& choice) const;

  std::string gpu_;
  std::uint64_t library_;
  std::map<GemmKey, GemmChoice> choices_;
  bool changed_ = false;
};

}  // namespace tarn::kernels
