// Converting a checkpoint of Kimi-K3's true size, 1.45 TiB of holes: half a
// million tensors are planned, and a disk that is too small is noticed before
// the first of them is read.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
  if (!written.ok()) GTEST_SKIP() << "no sparse files: " << written.status();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ConvertOptions options;
    options.to = ConvertTarget::kBF16;
    const auto report =
        ConvertCheckpoint(dir.Path("k3"), dir.Path("out"), options);
    dir.Write("message", std::string(report.status().message()));
    _exit(absl::IsResourceExhausted(report.status()) ? 0 : 1);
  }
  int status = 0;
  struct rusage usage = {};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  const std::string message = test::ReadFile(dir.Path("message"));
  EXPECT_EQ(status, 0) << message;
  EXPECT_THAT(message, HasSubstr("bytes of disk space"));
  // The list of tensors: about 1 KB each.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(usage.ru_maxrss / 1024, 600);
  std::printf("peak %ld MB for %ld tensors\n", usage.ru_maxrss / 1024,
              static_cast<long>(written->num_tensors));
#endif
}

}  // namespace
}  // namespace espalier
