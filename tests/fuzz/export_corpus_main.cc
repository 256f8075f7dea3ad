// Writes the first inputs of export_fuzz: a full export, a delta and one without rows.
//
//   export_corpus tests/fuzz/corpus/export
#include <cstdio>
#include <string>

#include "tests/unit/serving/small_export.h"

int main(int argc, char** argv) {
  using namespace tarn;
  using namespace tarn::serving;
  if (argc != 2 || argv[1][0] == '-') return std::fprintf(stderr, "usage: export_corpus FOLDER\n"), 2;
  const std::string folder = argv[1];
  const TableContent users{SparseSpec(), SomeRows(9, 3, 1.5f), {}};
  const TableContent layer{DenseSpec(), SomeRows(1, 2, 2), {}, ValueCodec::kBf16};
  const TableContent changed{SparseSpec(), SomeRows(2, 3, 4), {7, 8}, ValueCodec::kFp16};
  for (const auto& written :
       {WriteExport(folder + "/full", FullInfo(), {users, layer}),
        WriteExport(folder + "/delta", DeltaInfo(3, 4), {changed}), WriteExport(folder + "/empty", FullInfo(), {})})
    if (!written) return std::fprintf(stderr, "%s\n", ToString(written.error()).c_str()), 1;
  return 0;
}
