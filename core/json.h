// Converts values of nlohmann/json to text.
//
//   Json summary = {{"job", "flights"}, {"samples", 261878}};
//   summary["auc"] = 0.763;
//   WriteFileAtomic("summary.json", JsonText(summary, 2) + "\n");
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tarn {

// Objects keep the order in which their members were inserted.
using Json = nlohmann::ordered_json;

// `indent` > 0: one member per line, indented by that many spaces per level; -1: all on one line. Numbers read back as
// the same value. NaN and infinity become null; bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const Json& json, int indent = -1);

// The double with the shortest text that reads back as the same float: 0.1f is written as 0.1, not as
// 0.10000000149011612.
double ShortestNumber(float value);

}  // namespace tarn
