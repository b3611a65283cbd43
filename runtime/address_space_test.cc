// What the allocator does under an address space limit (ulimit -v).

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/tensor.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// Bytes of address space of this process; 0 where the system does not say.
int64_t AddressSpaceInUse() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Leaves this process `bytes` more address space than it has.
class AddressSpaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_AS, &old_), 0);
#if defined(ESPALIER_ASAN) || defined(ESPALIER_TSAN)
    GTEST_SKIP() << "sanitizers need address space without limit";
#endif
  }
  void TearDown() override { setrlimit(RLIMIT_AS, &old_); }

  // False, and the test is to be skipped, where limits are not applied.
  bool Limit(int64_t bytes) {
    struct rlimit limit = old_;
    limit.rlim_cur = static_cast<rlim_t>(AddressSpaceInUse() + bytes);
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    struct rlimit now = {};
    EXPECT_EQ(getrlimit(RLIMIT_AS, &now), 0);
    return now.rlim_cur == limit.rlim_cur;
  }

 private:
  struct rlimit old_ = {};
};

#define ESPALIER_LIMIT_OR_SKIP(bytes) \
  if (!Limit(bytes)) GTEST_SKIP() << "this system sets no RLIMIT_AS"

TEST_F(AddressSpaceTest, ContextsAndTensorsFitIntoHalfAGibibyte) {
  ESPALIER_LIMIT_OR_SKIP(512 * kMiB);
  for (int i = 0; i < 3; ++i) {
    auto context = Context::Create({.num_threads = 3});
    ASSERT_TRUE(context.ok()) << context.status();
    Device& cpu = (*context)->cpu();
    const absl::Status status = internal::Guard([&] {
      // Blocks of both kinds, on both streams, more than one range of each.
      std::vector<void*> blocks;
      for (int block = 0; block < 64; ++block) {
        Stream& stream =
            block % 4 == 0 ? cpu.comm_stream() : cpu.compute_stream();
        for (const int64_t bytes : {int64_t{1000}, 3 * kMiB}) {
          blocks.push_back(
              cpu.allocator().Allocate(bytes, MemoryTag::kWeights, stream));
          static_cast<char*>(blocks.back())[bytes - 1] = 1;
        }
      }
      for (void* block : blocks) cpu.allocator().Free(block);
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(AddressSpaceTest, RefusalNamesTheLimit) {
  ESPALIER_LIMIT_OR_SKIP(512 * kMiB);
  auto context = Context::Create({.num_threads = 1});
  ASSERT_TRUE(context.ok()) << context.status();
  Device& cpu = (*context)->cpu();
  const auto allocate = [&](int64_t bytes) {
    return internal::Guard([&] {
      cpu.allocator().Free(cpu.allocator().Allocate(
          bytes, MemoryTag::kActivations, cpu.compute_stream()));
    });
  };
  const absl::Status status = allocate(600 * kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the system refuses 600 MiB"));
  EXPECT_THAT(status.message(), HasSubstr("(ulimit -v) is "));
  EXPECT_TRUE(allocate(200 * kMiB).ok());
}

}  // namespace
}  // namespace espalier
