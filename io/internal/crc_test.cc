#include "espalier/io/internal/crc.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

constexpr CrcKind kKinds[] = {CrcKind::kCrc32, CrcKind::kCrc32c,
                              CrcKind::kCrc64Nvme};

uint64_t Of(CrcKind kind, absl::string_view text) {
  return CrcOf(
      kind, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                                text.size()));
}

TEST(CrcTest, CheckValues) {
  // The "check" of each in the catalogue of parametrised CRC algorithms.
  EXPECT_EQ(Of(CrcKind::kCrc32, "123456789"), 0xCBF43926u);
  EXPECT_EQ(Of(CrcKind::kCrc32c, "123456789"), 0xE3069283u);
  EXPECT_EQ(Of(CrcKind::kCrc64Nvme, "123456789"), 0xAE8B14860A799888u);
  for (const CrcKind kind : kKinds) EXPECT_EQ(Of(kind, ""), 0u);
}

TEST(CrcTest, PartsMakeTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i * i % 251));
  const absl::string_view all = text;
  for (const CrcKind kind : kKinds) {
    for (const size_t cut : {0, 1, 7, 8, 500, 999, 1000}) {
      const auto behind = static_cast<int64_t>(all.size() - cut);
      EXPECT_EQ(ShiftCrc(kind, Of(kind, all.substr(0, cut)), behind) ^
                    Of(kind, all.substr(cut)),
                Of(kind, all))
          << cut;
    }
  }
}

}  // namespace
}  // namespace espalier::internal
