// JSON text from values of nlohmann/json.
//
//   Json summary = {{"job", "flights"}, {"samples", 261878}};
//   summary["auc"] = 0.763;
//   WriteFileAtomic("summary.json", JsonText(summary, 2) + "\n");
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tarn {

// Objects keep their members in the order in which they were put in.
using Json = nlohmann::ordered_json;

// indent > 0: one member a line, indented by so many blanks a level; -1: all on one line. Numbers read back as the same
// value; NaN and infinity, which JSON lacks, become null, bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const Json& json, int indent = -1);

// The number whose text is the shortest that reads back as the same float: 0.1f is written as 0.1, and not as
// 0.10000000149011612.
double ShortestNumber(float value);

}  // namespace tarn
