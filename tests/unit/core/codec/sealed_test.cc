// Shows that a sealed body opens unchanged, in every version that is read, and that any damaged byte of the envelope is
// refused; the version matters most, because it decides how the body is read.
#include "core/codec/sealed.h"

#include <gtest/gtest.h>

#include "tests/unit/core/codec/old_seal.h"

namespace tarn {
namespace {

constexpr SealedFormat kFormat{"TARNTEST", "a test's file", 1, 4, 3};

std::string TextOf(const Unsealed& unsealed) {
  return {reinterpret_cast<const char*>(unsealed.body().data()), unsealed.size};
}

TEST(Sealed, OpensInEveryVersionThatIsRead) {
  for (const char* body : {"", "x", "eight by", "a body of more than one word"}) {
    const std::string bytes = Seal(kFormat, body);
    EXPECT_EQ(SealedSize(bytes + "more"), bytes.size());
    const auto newest = Unseal(kFormat, bytes, "f");
    ASSERT_TRUE(newest) << newest.error().message;
    EXPECT_EQ(newest->version, 4u);
    EXPECT_EQ(TextOf(*newest), body);
    for (const std::uint32_t version : {1u, 2u}) {
      const auto old = Unseal(kFormat, SealedBefore(bytes, version), "f");
      ASSERT_TRUE(old) << old.error().message;
      EXPECT_EQ(old->version, version);
      EXPECT_EQ(TextOf(*old), body);
    }
  }
}

TEST(Sealed, ADamagedEnvelopeIsRefused) {
  ForEveryDamagedHeader(Seal(kFormat, "body"), [](const std::string& damaged, std::size_t at) {
    EXPECT_FALSE(Unseal(kFormat, damaged, "f")) << "byte " << at << ": " << int(damaged[at]);
  });
}

// A version with the kind of checksum that belongs to another version is damage.
TEST(Sealed, ASumOfTheOtherKindIsRefused) {
  const std::string bytes = Seal(kFormat, "body");
  EXPECT_FALSE(Unseal(kFormat, SealedBefore(bytes, 3), "f"));
  std::string older = bytes;
  older[8] = 2;
  EXPECT_FALSE(Unseal(kFormat, older, "f"));
}

TEST(Sealed, TheErrorNamesANewerVersion) {
  const auto newer = Unseal({"TARNTEST", "a test's file", 1, 3, 3}, Seal(kFormat, "body"), "f");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(newer.error().message, "f: format version 4, expected 1 to 3: a newer tarn wrote it");
}

}  // namespace
}  // namespace tarn
