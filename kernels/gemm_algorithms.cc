#include "kernels/gemm_algorithms.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/file.h"
#include "core/names.h"

namespace tarn::kernels {
namespace {

constexpr std::string_view kTitle = "tarn gemm algorithms ", kVersion = "1", kSum = "crc32c ";

constexpr std::chrono::seconds kSaveLockTimeout(5);  // writing takes milliseconds

constexpr Named<Precision> kPrecisions[] = {
    {Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kTf32, "tf32"}, {Precision::kFp16, "fp16"}};
constexpr Named<Element> kElements[] = {{Element::kFp32, "fp32"}, {Element::kBf16, "bf16"}, {Element::kFp16, "fp16"}};
constexpr Named<Transpose> kTransposes[] = {{Transpose::kNo, "N"}, {Transpose::kYes, "T"}};
constexpr Named<Epilogue> kEpilogues[] = {{Epilogue::kNone, "none"},
                                          {Epilogue::kBias, "bias"},
                                          {Epilogue::kRelu, "relu"},
                                          {Epilogue::kReluBias, "relu-bias"},
                                          {Epilogue::kReluMask, "relu-mask"},
                                          {Epilogue::kReluBiasMask, "relu-bias-mask"},
                                          {Epilogue::kReluGradient, "relu-gradient"},
                                          {Epilogue::kReluBiasGradient, "relu-bias-gradient"},
                                          {Epilogue::kBiasGradient, "bias-gradient"}};

// Reads the fields of a line one by one. bad(): a field was missing or invalid.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view Text() {
    const std::size_t end = rest_.find(' ');
    bad_ |= end == std::string_view::npos;
    const std::string_view field = rest_.substr(0, end);
    rest_.remove_prefix(bad_ ? rest_.size() : end + 1);
    return field;
  }
  template <typename T>
  void Number(T* value) {
    Read(Text(), value);
  }
  void Bit(bool* value) {
    const std::string_view text = Text();
    bad_ |= text != "0" && text != "1";
    *value = text == "1";
  }
  template <typename E, std::size_t N>
  void Name(const Named<E> (&names)[N], E* value) {
    const std::string_view text = Text();
    for (const Named<E>& named : names)
      if (named.name == text) {
        *value = named.value;
        return;
      }
    bad_ = true;
  }
  void Words(std::array<std::uint64_t, 8>* words) {
    const std::string_view text = Text();
    bad_ |= text.size() != 16 * words->size();
    for (std::size_t i = 0; i < words->size() && !bad_; ++i) Read(text.substr(16 * i, 16), &(*words)[i], 16);
  }
  std::string_view rest() const { return rest_; }
  bool bad() const { return bad_; }

 private:
  template <typename T, typename... Base>
  void Read(std::string_view text, T* value, Base... base) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base...);
    bad_ |= error != std::errc() || end != text.data() + text.size();
  }

  std::string_view rest_;
  bool bad_ = false;
};

struct Entry {
  GemmKey key;
  GemmChoice choice;
  std::uint64_t library = 0;
  std::string_view gpu;
};

std::optional<Entry> Parse(std::string_view line) {
  Entry e;
  Fields fields(line);
  fields.Number(&e.key.m);
  fields.Number(&e.key.n);
  fields.Number(&e.key.k);
  fields.Name(kPrecisions, &e.key.precision);
  fields.Name(kElements, &e.key.factors);
  fields.Name(kElements, &e.key.c);
  fields.Name(kTransposes, &e.key.a_transpose);
  fields.Name(kTransposes, &e.key.b_transpose);
  fields.Number(&e.key.a_stride);
  fields.Number(&e.key.b_stride);
  fields.Number(&e.key.c_stride);
  fields.Bit(&e.key.beta);
  fields.Number(&e.key.alignment);
  fields.Name(kEpilogues, &e.key.epilogue);
  fields.Bit(&e.choice.fused);
  fields.Number(&e.choice.us);
  fields.Words(&e.choice.algorithm);
  fields.Number(&e.library);
  e.gpu = fields.rest();
  if (fields.bad() || e.gpu.empty()) return std::nullopt;
  return e;
}

// The lines between the first and the last one, as they are in `text`.
Expected<std::vector<std::string_view>> Lines(std::string_view text, const std::string& path) {
  const std::string_view title = text.substr(0, text.find('\n'));
  if (!title.starts_with(kTitle))
    return Fail(ErrorCode::kMalformed,
                fmt::format("{}: not a file of matrix product algorithms: begins with {}, expected "
                            "'{}{}'",
                            path, Quoted(title), kTitle, kVersion));
  if (title.substr(kTitle.size()) != kVersion)
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: format version {} of matrix product algorithms, expected {}",
                                                     path, Quoted(title.substr(kTitle.size())), kVersion));
  const std::size_t sum = text.rfind(kSum);
  if (sum == std::string_view::npos || text.substr(sum) != fmt::format("{}{:08x}\n", kSum, Crc32c(text.substr(0, sum))))
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: damaged: the checksum in the last line does not match the lines before it", path));
  std::vector<std::string_view> lines;
  for (std::size_t begin = title.size() + 1; begin < sum;) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

struct Contents {
  std::map<GemmKey, GemmChoice> ours;
  std::vector<std::string> others;
};

Expected<Contents> Read(const std::string& path, std::string_view gpu, std::uint64_t library) {
  const auto text = ReadFile(path, GemmAlgorithms::kFileBytesMax);
  if (!text) return std::unexpected(text.error());
  const auto lines = Lines(*text, path);
  if (!lines) return std::unexpected(lines.error());
  Contents contents;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    const auto entry = Parse((*lines)[i]);
    if (!entry) return Fail(ErrorCode::kCorrupt, fmt::format("{}: damaged: line {} is not an algorithm", path, i + 2));
    if (entry->gpu == gpu && entry->library == library)
      contents.ours.insert_or_assign(entry->key, entry->choice);
    else
      contents.others.emplace_back((*lines)[i]);
  }
  return contents;
}

}  // namespace

std::string GemmAlgorithms::Line(const GemmKey& key, const GemmChoice& choice) const {
  std::string words;
  for (const std::uint64_t word : choice.algorithm) words += fmt::format("{:016x}", word);
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {:d} {} {} {:d} {} {} {} {}\n", key.m, key.n, key.k,
                     NameIn(kPrecisions, key.precision), NameIn(kElements, key.factors), NameIn(kElements, key.c),
                     NameIn(kTransposes, key.a_transpose), NameIn(kTransposes, key.b_transpose), key.a_stride,
                     key.b_stride, key.c_stride, key.beta, key.alignment, NameIn(kEpilogues, key.epilogue),
                     choice.fused, choice.us, words, library_, gpu_);
}

Status GemmAlgorithms::Load(const std::string& path) {
  auto contents = Read(path, gpu_, library_);
  if (!contents) return std::unexpected(contents.error());
  for (const auto& [key, choice] : contents->ours) Keep(key, choice);
  changed_ = false;
  return {};
}

Status GemmAlgorithms::Save(const std::string& path) {
  std::error_code ignored;  // the lock's error is more precise
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const auto lock = FileLock::Take(path + ".lock", "another process is writing it", kSaveLockTimeout);
  if (!lock) return std::unexpected(lock.error());
  auto contents = Read(path, gpu_, library_);
  if (!contents && contents.error().code != ErrorCode::kNotFound && contents.error().code != ErrorCode::kCorrupt)
    return std::unexpected(contents.error());
  if (!contents) contents = Contents();
  for (const auto& [key, choice] : choices_) contents->ours.insert_or_assign(key, choice);
  std::string text = fmt::format("{}{}\n", kTitle, kVersion);
  for (const std::string& line : contents->others) text += line + '\n';
  for (const auto& [key, choice] : contents->ours) text += Line(key, choice);
  text += fmt::format("{}{:08x}\n", kSum, Crc32c(text));
  if (text.size() > kFileBytesMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("{}: {} bytes of matrix product algorithms, expected at most {}",
                                                  path, text.size(), kFileBytesMax));
  TARN_RETURN_IF_ERROR(WriteFileAtomic(path, text));
  changed_ = false;
  return {};
}

const GemmChoice* GemmAlgorithms::Find(const GemmKey& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmAlgorithms::Keep(const GemmKey& key, const GemmChoice& choice) {
  if (choices_.size() >= kChoicesMax && !choices_.contains(key)) return;
  choices_.insert_or_assign(key, choice);
  changed_ = true;
}

}  // namespace tarn::kernels
