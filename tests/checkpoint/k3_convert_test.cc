// Converting a checkpoint of Kimi-K3's true size, 1.45 TiB of holes: half a
// million tensors are planned in little memory, and a disk that is too small is
// noticed before the first of them is read.

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

// What convert promises, whatever the model's size.
[[maybe_unused]] constexpr int64_t kMaxBytes = int64_t{256} << 20;

void ExpectBounded(const char* what, int64_t peak) {
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(peak, kMaxBytes);
#endif
  std::printf("%s: peak %ld MB\n", what, static_cast<long>(peak >> 20));
}

TEST(K3ConvertTest, PlansInBoundedMemoryAndRefusesASmallDisk) {
  const test::TempDir dir;
  std::ifstream file(ESPALIER_SOURCE_DIR
                     "/tests/fixtures/configs/kimi_k3.json");
  const std::string config(std::istreambuf_iterator<char>(file), {});
  const auto written = test::WriteSparseCheckpoint(config, dir.Path("k3"));
  if (absl::IsUnavailable(written.status())) {
    GTEST_SKIP() << written.status();
  }
  ASSERT_TRUE(written.ok()) << written.status();
  const auto convert = [&](ConvertTarget to, bool dry_run) {
    ConvertOptions options;
    options.to = to;
    options.dry_run = dry_run;
    return ConvertCheckpoint(dir.Path("k3"), dir.Path("out"), options);
  };
  int64_t peak = test::PeakBytes([&] {
    const auto report = convert(ConvertTarget::kBF16, true);
    return report.ok() && report->num_decoded == 247'296 &&
           report->num_shards == static_cast<int64_t>(report->shards.size()) &&
           report->total_bytes > int64_t{5'000'000'000'000};
  });
  EXPECT_GT(peak, 0);
  ExpectBounded("to bf16", peak);
  // Three tensors a weight.
  peak = test::PeakBytes([&] {
    const auto report = convert(ConvertTarget::kInt4, true);
    return report.ok() && report->num_packed > 247'296;
  });
  EXPECT_GT(peak, 0);
  ExpectBounded("to int4", peak);
  peak = test::PeakBytes([&] {
    const auto report = convert(ConvertTarget::kKeep, true);
    return report.ok() && report->total_bytes == 1'560'860'324'864;
  });
  EXPECT_GT(peak, 0);
  ExpectBounded("as it is", peak);
  peak = test::PeakBytes([&] {
    const auto report = convert(ConvertTarget::kBF16, false);
    dir.Write("message", std::string(report.status().message()));
    return absl::IsResourceExhausted(report.status());
  });
  const std::string message = test::ReadFile(dir.Path("message"));
  ASSERT_GT(peak, 0) << message;
  ExpectBounded("no space", peak);
  EXPECT_THAT(message, HasSubstr("bytes of disk space"));
}

}  // namespace
}  // namespace espalier
