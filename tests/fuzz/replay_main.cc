// The main function of a fuzz target in builds without libFuzzer: replays files, then mutations of them with a fixed
// seed. A finding aborts; the same seed and files give the same inputs.
//
//   job_file_fuzz [--runs N] [--seed S] [FILE or FOLDER]...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using Input = std::string;

constexpr std::size_t kInputBytesMax = 64 << 10;

void Run(const Input& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

Input ReadInput(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

// All files below the paths, in the order of their names: the same on every machine.
std::vector<Input> Corpus(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path))
      files.push_back(path);
    else
      for (const auto& entry : fs::recursive_directory_iterator(path))
        if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> inputs;
  for (const fs::path& file : files) inputs.push_back(ReadInput(file));
  if (inputs.empty()) inputs.emplace_back();
  return inputs;
}

// A range of the input; random, at most 64 bytes, possibly empty.
struct Piece {
  std::size_t at, length;
};
Piece SomePiece(const Input& input, tarn::SplitMix& random) {
  const std::size_t at = random.Below(input.size() + 1);
  return {at, random.Below(std::min<std::size_t>(input.size() - at, 64) + 1)};
}

void Mutate(Input& input, const Input& other, tarn::SplitMix& random) {
  const Piece piece = SomePiece(input, random), donor = SomePiece(other, random);
  switch (random.Below(6)) {
    case 0:
      if (piece.at < input.size()) input[piece.at] = char(input[piece.at] ^ (1 << random.Below(8)));
      break;
    case 1:
      if (piece.at < input.size()) input[piece.at] = char(random.Next());
      break;
    case 2: input.erase(piece.at, piece.length); break;
    case 3: input.insert(piece.at, Input(input, piece.at, piece.length)); break;
    case 4: input.insert(piece.at, other, donor.at, donor.length); break;
    case 5: input.replace(piece.at, piece.length, other, donor.at, donor.length); break;
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 0, seed = 1;
  std::vector<fs::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--runs" && i + 1 < argc)
      runs = std::strtoull(argv[++i], nullptr, 10);
    else if (argument == "--seed" && i + 1 < argc)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else if (fs::exists(argument))
      paths.emplace_back(argument);
    else
      return std::fprintf(stderr, "%s: no such file: %s\n", argv[0], argv[i]), 2;
  }
  const std::vector<Input> corpus = Corpus(paths);
  for (const Input& input : corpus) Run(input);
  for (std::uint64_t run = 0; run < runs; ++run) {
    tarn::SplitMix random(tarn::HashCombine(seed, run));
    Input input = corpus[random.Below(corpus.size())];
    for (std::uint64_t n = 1 + random.Below(4); n > 0; --n) Mutate(input, corpus[random.Below(corpus.size())], random);
    Run(input);
  }
  std::printf("%zu files and %llu mutations, seed %llu: no finding\n", corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
