// Converting a checkpoint of Kimi-K3's true size, 1.45 TiB of holes: half a
// million tensors are planned, and a disk that is too small is noticed before
// the first of them is read.

#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/convert.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TEST(K3ConvertTest, PlansInLittleMemoryAndRefusesASmallDisk) {
  const test::TempDir dir;
  std::ifstream file(ESPALIER_SOURCE_DIR
                     "/tests/fixtures/configs/kimi_k3.json");
  const std::string config(std::istreambuf_iterator<char>(file), {});
  const auto written = test::WriteSparseCheckpoint(config, dir.Path("k3"));
  if (absl::IsUnavailable(written.status())) {
    GTEST_SKIP() << written.status();
  }
  ASSERT_TRUE(written.ok()) << written.status();
  const int64_t peak = test::PeakBytes([&] {
    ConvertOptions options;
    options.to = ConvertTarget::kBF16;
    const auto report =
        ConvertCheckpoint(dir.Path("k3"), dir.Path("out"), options);
    dir.Write("message", std::string(report.status().message()));
    return absl::IsResourceExhausted(report.status());
  });
  const std::string message = test::ReadFile(dir.Path("message"));
  ASSERT_GT(peak, 0) << message;
  EXPECT_THAT(message, HasSubstr("bytes of disk space"));
  // The list of tensors: about 1 KB each.
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(peak, int64_t{600} << 20);
  std::printf("peak %ld MB for %ld tensors\n", static_cast<long>(peak >> 20),
              static_cast<long>(written->num_tensors));
#endif
}

}  // namespace
}  // namespace espalier
