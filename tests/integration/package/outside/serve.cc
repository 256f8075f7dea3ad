// Opens an export and looks a key up: what a program that serves needs.
#include <array>
#include <cstdio>

#include "serving/model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto model = tarn::serving::Model::Open(argv[1]);
  if (!model) {
    std::printf("%s\n", tarn::ToString(model.error()).c_str());
    return 1;
  }
  const auto table = model->FindTable("hello");
  if (!table) return 1;
  const std::array<tarn::Key, 2> keys = {13, 14};
  std::array<float, 4> values{};
  std::array<bool, 2> found{};
  model->Lookup(*table, keys, values, found);
  std::printf("x[13] = %.4f, %s\n", double(values[0]), found[1] ? "14 found" : "14 absent");
  return 0;
}
