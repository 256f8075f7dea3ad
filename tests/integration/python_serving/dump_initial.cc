// Prints the bits of five initial values of rows, for comparison with those of python/tarn/export.py:
//
//   dump_initial zero|constant|uniform|normal A B SALT KEY...
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/initialize.h"

int main(int argc, char** argv) {
  using namespace tarn;
  if (argc < 6) return std::fprintf(stderr, "usage: dump_initial KIND A B SALT KEY...\n"), 2;
  InitializerSpec spec{InitializerKind::kZero, std::strtof(argv[2], nullptr), std::strtof(argv[3], nullptr)};
  const std::string_view kind = argv[1];
  if (kind == "constant") spec.kind = InitializerKind::kConstant;
  if (kind == "uniform") spec.kind = InitializerKind::kUniform;
  if (kind == "normal") spec.kind = InitializerKind::kNormal;
  for (int i = 5; i < argc; ++i) {
    float row[5];
    kernels::InitializeRow(spec, std::strtoull(argv[4], nullptr, 10), std::strtoull(argv[i], nullptr, 10), row);
    for (const float value : row) std::printf("%u ", std::bit_cast<std::uint32_t>(value));
    std::printf("\n");
  }
  return 0;
}
