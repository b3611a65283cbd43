#include "espalier/runtime/cpu_count.h"

#include <sys/stat.h>

#include <cstdio>
#include <thread>

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(CpuCountTest, NoMoreThanTheMachineHas) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(),
            static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(CpuCountTest, CpuMaxFiles) {
  EXPECT_EQ(internal::ParseCpuMax("200000 100000\n"), 2.0);
  EXPECT_EQ(internal::ParseCpuMax("50000 100000"), 0.5);
  for (const char* text :
       {"", "max 100000\n", "1", "-1 100000", "5 0", "1 2 3", "nan 1"}) {
    EXPECT_EQ(internal::ParseCpuMax(text), std::nullopt) << text;
  }
}

void Write(const std::string& folder, const char* text) {
  mkdir(folder.c_str(), 0700);
  std::FILE* const file = std::fopen((folder + "/cpu.max").c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(text, file);
  std::fclose(file);
}

TEST(CpuCountTest, LowestQuotaOnTheWayUpCounts) {
  const std::string root = ::testing::TempDir() + "cpu_count_test_cgroup";
  Write(root, "max 100000\n");
  Write(root + "/pod", "150000 100000\n");
  Write(root + "/pod/container", "400000 100000\n");
  mkdir((root + "/pod/container/plain").c_str(), 0700);
  EXPECT_EQ(internal::CgroupCpus(root, "/pod/container/plain"), 1.5);
  EXPECT_EQ(internal::CgroupCpus(root, "/pod"), 1.5);
  EXPECT_EQ(internal::CgroupCpus(root, "/"), std::nullopt);
  EXPECT_EQ(internal::CgroupCpus(root, "/absent"), std::nullopt);
  Write(root, "100000 100000\n");
  EXPECT_EQ(internal::CgroupCpus(root, "/pod/container"), 1.0);
  EXPECT_EQ(internal::CgroupCpus(root, "/"), 1.0);
}

}  // namespace
}  // namespace espalier
