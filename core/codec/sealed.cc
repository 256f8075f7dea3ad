#include "core/codec/sealed.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "core/crc32c.h"

namespace tarn {
namespace {

static_assert(std::endian::native == std::endian::little, "integers are stored little-endian");

constexpr std::size_t kMagicBytes = 8, kVersionAt = 8, kSumAt = 12, kSizeAt = 16;

template <typename T>
T At(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// From version whole_sum_from on the checksum covers the version, so that a damaged version is detected.
std::uint32_t SumOf(const SealedFormat& format, std::uint32_t version, std::string_view bytes) {
  const std::uint32_t head = version < format.whole_sum_from ? 0 : Crc32c(bytes.substr(0, kSumAt));
  return Crc32c(bytes.substr(kSizeAt), head);
}

std::string Versions(const SealedFormat& format) {
  if (format.oldest == format.newest) return fmt::format("{}", format.newest);
  return fmt::format("{} to {}", format.oldest, format.newest);
}

}  // namespace

void SealInPlace(const SealedFormat& format, std::span<std::byte> sealed) {
  TARN_CHECK(format.magic.size() == kMagicBytes && sealed.size() >= kSealBytes,
             "the magic has 8 bytes, and `sealed` has room for the header");
  std::string header(format.magic);
  Append(&header, format.newest);
  Append(&header, std::uint32_t{0});
  Append(&header, std::uint64_t{sealed.size() - kSealBytes});
  std::memcpy(sealed.data(), header.data(), header.size());
  const std::uint32_t sum = SumOf(format, format.newest, {reinterpret_cast<const char*>(sealed.data()), sealed.size()});
  std::memcpy(sealed.data() + kSumAt, &sum, sizeof sum);
}

std::string Seal(const SealedFormat& format, std::string_view body) {
  std::string out(kSealBytes, 0);
  out += body;
  SealInPlace(format, std::as_writable_bytes(std::span(out)));
  return out;
}

std::size_t SealedSize(std::string_view bytes) {
  if (bytes.size() < kSealBytes) return bytes.size();
  const auto body = At<std::uint64_t>(bytes, kSizeAt);
  return body > bytes.size() - kSealBytes ? bytes.size() : kSealBytes + body;
}

Expected<Unsealed> Unseal(const SealedFormat& format, std::string_view bytes, const std::string& origin) {
  const auto corrupt = [&origin](std::string_view what) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
  };
  if (bytes.size() < kSealBytes)
    return corrupt(fmt::format("{} bytes, expected at least {}", bytes.size(), kSealBytes));
  if (!bytes.starts_with(format.magic))
    return corrupt(fmt::format("not {}: expected \"{}\" at the beginning", format.what, format.magic));
  Unsealed unsealed{.version = At<std::uint32_t>(bytes, kVersionAt), .words = {}, .size = 0};
  if (unsealed.version < format.oldest || unsealed.version > format.newest)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: format version {}, expected {}{}", origin, unsealed.version, Versions(format),
                            unsealed.version > format.newest ? ": a newer tarn wrote it" : ""));
  const auto size = At<std::uint64_t>(bytes, kSizeAt);
  if (size != bytes.size() - kSealBytes)
    return corrupt(fmt::format("a body of {} bytes, expected {}", bytes.size() - kSealBytes, size));
  const auto expected = At<std::uint32_t>(bytes, kSumAt);
  const std::uint32_t sum = SumOf(format, unsealed.version, bytes);
  if (sum != expected) return corrupt(fmt::format("checksum {:08x}, expected {:08x}", sum, expected));
  unsealed.size = size;
  unsealed.words.resize(size / sizeof(std::uint64_t) + 1);
  std::memcpy(unsealed.words.data(), bytes.data() + kSealBytes, size);
  return unsealed;
}

}  // namespace tarn
