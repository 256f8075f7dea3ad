// Which of cuBLASLt's algorithms was measured to be the fastest for which product, and the file that remembers it.
// Without CUDA too: it only reads and writes. One thread at a time.
//
//   GemmAlgorithms algorithms = MakeGemmAlgorithms(stream);   // kernels/device_gemm.h
//   if (Status status = algorithms.Load(path); !status) ...   // warn and go on: all is measured again
//   UseGemmAlgorithms(stream, &algorithms);
//   ... train ...
//   if (algorithms.changed()) Status status = algorithms.Save(path);
//
// The file is text, of three kinds of lines:
//
//   tarn gemm algorithms 1
//   m n k precision factors c transposes a-stride b-stride c-stride beta alignment epilogue fused us algorithm library
//   GPU crc32c 89abcdef
//
// The first tells the format, the last the sum of all bytes before it. In between, one line a product, its fields
// separated by one blank: extents; fp32, bf16, tf32 or fp16; elements of the factors and of C; N or T for A and for B;
// strides in elements; 1 if beta is not 0; bytes to which all matrices are aligned; the epilogue's name; 1 if it is
// fused; what was measured, in microseconds; cublasLtMatmulAlgo_t as 128 hexadecimal digits; cublasLtGetVersion(); the
// GPU's name to the end of the line. An algorithm means something only to the same version of the library on the same
// model of GPU: lines of others are kept as they are, so that a file can be shared by different machines.
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

// All that the choice depends on.
struct GemmKey {
  std::size_t m = 0, n = 0, k = 0;
  Precision precision = Precision::kFp32;
  Element factors = Element::kFp32, c = Element::kFp32;
  Transpose a_transpose = Transpose::kNo, b_transpose = Transpose::kNo;
  std::size_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool beta = false;                    // is not 0
  std::uint32_t alignment = 0;          // bytes, of all matrices: a power of two, at most 256
  Epilogue epilogue = Epilogue::kNone;  // none, too, where it cannot be fused
  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

struct GemmChoice {
  bool fused = false;                           // the epilogue, or it is a pass of its own
  float us = 0;                                 // measured
  std::array<std::uint64_t, 8> algorithm = {};  // a cublasLtMatmulAlgo_t
  friend bool operator==(const GemmChoice&, const GemmChoice&) = default;
};

class GemmAlgorithms {
 public:
  // Further ones are not kept. A training step has tens.
  static constexpr std::size_t kChoicesMax = 4096;
  static constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;

  // Of this model of GPU and version of cuBLASLt.
  GemmAlgorithms(std::string gpu, std::uint64_t library) : gpu_(std::move(gpu)), library_(library) {}

  // Adds the choices of the file that are for this GPU and library. kNotFound: there is no such file yet. kCorrupt:
  // damaged; kMalformed: a file of another kind; kUnsupported: of another format's version; kTooLarge. After an error
  // nothing was added; the message names the path and what was expected.
  Status Load(const std::string& path);

  // Writes the choices at once or not at all (WriteFileAtomic), beside those that the file has, of other GPUs and
  // libraries too; makes its folder. Several processes may do so: one waits for the other (FileLock on PATH.lock, some
  // seconds at most, then kUnavailable). A damaged file is replaced; a file of another kind or version is left alone:
  // kMalformed, kUnsupported.
  Status Save(const std::string& path);

  // Null: not measured yet.
  const GemmChoice* Find(const GemmKey& key) const;
  void Keep(const GemmKey& key, const GemmChoice& choice);
  // Since Load or Save.
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
