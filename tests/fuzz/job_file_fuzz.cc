// Shows that the reader of job files returns a job or an error for any bytes, and that a job is unchanged after it is
// written and read again. An input is the file's text, then overrides, each after a zero byte.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find('\0'));
  std::vector<std::string> overrides;
  for (std::size_t at = text.size(); at < input.size() && overrides.size() < 8;) {
    const std::string_view rest = input.substr(at + 1);
    overrides.emplace_back(rest.substr(0, rest.find('\0')));
    at += 1 + overrides.back().size();
  }
  const auto job = tarn::ParseJob(text, "job.toml", "/jobs", overrides);
  if (!job) {
    TARN_CHECK(!job.error().message.empty(), "an error says something");
    return 0;
  }
  const std::string written = tarn::ToToml(*job);
  const auto again = tarn::ParseJob(written, "job.toml", "/jobs");
  TARN_CHECK(again.has_value(), "a job that was written can be read");
  TARN_CHECK(*again == *job, "a job that was read again is the same");
  TARN_CHECK(tarn::ToToml(*again) == written, "a job is written one way");
  return 0;
}
