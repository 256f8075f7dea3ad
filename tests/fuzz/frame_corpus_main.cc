// Writes the first inputs of frame_fuzz: every body as one frame, and those with payloads as three.
//
//   frame_corpus tests/fuzz/corpus/frame
#include <cstdio>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "core/hash.h"
#include "net/frame.h"
#include "tests/unit/net/random_message.h"

namespace {

std::string InputOf(const std::vector<tarn::Buffer>& frames) {
  std::string input(1, static_cast<char>(frames.size()));
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i + 1 < frames.size()) {
      input += static_cast<char>(frames[i].size() & 0xff);
      input += static_cast<char>(frames[i].size() >> 8);
    }
    input.append(reinterpret_cast<const char*>(frames[i].data()), frames[i].size());
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') return std::fprintf(stderr, "usage: frame_corpus FOLDER\n"), 2;
  tarn::SplitMix random(42);
  for (std::size_t body = 0; body < std::variant_size_v<tarn::Body>; ++body)
    for (const std::size_t size : {std::size_t{3}, std::size_t{40}}) {  // frames of less than 64 KiB
      const tarn::Message message = tarn::net::testing::RandomMessage(&random, body, size);
      const auto frames = tarn::net::Encode(message);
      if (!frames) return std::fprintf(stderr, "%s\n", tarn::ToString(frames.error()).c_str()), 1;
      if (size > 3 && frames->size() == 1) continue;
      const std::string name = std::string(tarn::BodyName(message.body)) + (size > 3 ? "-split" : "");
      std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary) << InputOf(*frames);
    }
  return 0;
}
