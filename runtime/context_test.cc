#include "espalier/runtime/context.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/guard.h"
#include "espalier/runtime/tensor.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

class InlineExecutor final : public Executor {
 public:
  explicit InlineExecutor(int num_threads) : num_threads_(num_threads) {}
  int num_threads() const override { return num_threads_; }
  void Run(int num_tasks, absl::FunctionRef<void(int)> task) override {
    largest = std::max(largest, num_tasks);
    for (int i = 0; i < num_tasks; ++i) task(i);
  }
  int largest = 0;

 private:
  const int num_threads_;
};

std::unique_ptr<Context> Make(const ContextOptions& options) {
  auto context = Context::Create(options);
  EXPECT_TRUE(context.ok()) << context.status();
  return context.ok() ? *std::move(context) : nullptr;
}

std::string RefusalOf(const ContextOptions& options) {
  const absl::Status status = Context::Create(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ContextTest, DefaultsFollowTheMachine) {
  auto context = Make({});
  EXPECT_GE(context->pool().num_threads(), 1);
  EXPECT_LE(context->pool().num_threads(),
            static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(context->isa(), DetectIsa());
  EXPECT_EQ(context->cpu().type(), kCpu);
  EXPECT_EQ(context->meta().type(), kMeta);
  EXPECT_EQ(&context->cpu().context(), context.get());
}

TEST(ContextTest, MaxIsaIsHonoured) {
  auto context = Make({.max_isa = BaselineIsa()});
  EXPECT_EQ(context->isa(), BaselineIsa());
  EXPECT_EQ(context->cpu().exec(context->cpu().compute_stream()).isa,
            BaselineIsa());
}

TEST(ContextTest, RefusesBadOptions) {
  EXPECT_THAT(RefusalOf({.num_threads = -1}), HasSubstr("num_threads is -1"));
  EXPECT_THAT(RefusalOf({.num_threads = 5000}),
              HasSubstr("num_threads is 5000"));
  EXPECT_THAT(RefusalOf({.memory_budget_bytes = 0}),
              HasSubstr("memory_budget_bytes is 0"));
  const bool x86 = BaselineIsa() == Isa::kAvx2;
  EXPECT_THAT(RefusalOf({.max_isa = x86 ? Isa::kNeon : Isa::kAvx2}),
              HasSubstr("does not have"));
  InlineExecutor none(0);
  EXPECT_THAT(RefusalOf({.executor = &none}), HasSubstr("executor has 0"));
}

TEST(ContextTest, ExecutorGivesTheThreadCountUnlessOneIsAsked) {
  InlineExecutor executor(5);
  EXPECT_EQ(Make({.executor = &executor})->pool().num_threads(), 5);
  auto context = Make({.num_threads = 3, .executor = &executor});
  EXPECT_EQ(context->pool().num_threads(), 3);
  context->pool().ParallelFor(100, 1, [](int64_t, int64_t) {});
  EXPECT_EQ(executor.largest, 3);
}

TEST(ContextTest, SequenceNumbersAscend) {
  auto context = Make({});
  EXPECT_EQ(context->NextSequence(), 1u);
  EXPECT_EQ(context->NextSequence(), 2u);
}

TEST(ContextTest, TwoContextsShareNothing) {
  auto small = Make({.num_threads = 1,
                     .max_isa = BaselineIsa(),
                     .memory_budget_bytes = 1 << 20});
  auto large = Make({.num_threads = 3});
  EXPECT_EQ(small->pool().num_threads(), 1);
  EXPECT_EQ(large->pool().num_threads(), 3);
  EXPECT_EQ(small->isa(), BaselineIsa());
  EXPECT_EQ(large->isa(), DetectIsa());
  const auto allocate = [](Context& context) {
    return internal::Guard(
        [&] { Tensor::Empty(context.cpu(), {4 << 20}, kU8); });
  };
  EXPECT_TRUE(absl::IsResourceExhausted(allocate(*small)));
  EXPECT_TRUE(allocate(*large).ok());
  const Tensor held = Tensor::Empty(large->cpu(), {1000}, kF32);
  EXPECT_EQ(small->cpu().allocator().stats().allocated, 0);
  EXPECT_GE(large->cpu().allocator().stats().allocated, 4000);
  EXPECT_EQ(small->NextSequence(), large->NextSequence());
}

TEST(ContextTest, TwoContextsRunAtOnce) {
  const auto drive = [](int num_threads) {
    auto context = Make({.num_threads = num_threads});
    for (int round = 0; round < 50; ++round) {
      const Tensor x = Tensor::Zeros(context->cpu(), {64, 64}, kF32);
      float* const data = x.mutable_data<float>();
      context->pool().ParallelFor(64, 1, [&](int64_t begin, int64_t) {
        for (int64_t i = 0; i < 64; ++i) data[begin * 64 + i] += 1;
      });
      for (double value : ToDoubles(x)) ASSERT_EQ(value, 1);
    }
  };
  std::thread other([&] { drive(3); });
  drive(2);
  other.join();
}

TEST(ContextTest, MemoryScopeCountsByTag) {
  auto context = Make({});
  Device& cpu = context->cpu();
  const auto held = [&](MemoryTag tag) {
    return cpu.allocator().stats().by_tag[static_cast<size_t>(tag)];
  };
  Tensor gradient;
  {
    const MemoryScope scope(cpu, MemoryTag::kGradients);
    gradient = Tensor::Empty(cpu, {100}, kF32);
  }
  EXPECT_EQ(cpu.memory_tag(), MemoryTag::kActivations);
  EXPECT_GE(held(MemoryTag::kGradients), 400);
  EXPECT_EQ(held(MemoryTag::kActivations), 0);
  gradient = Tensor();
  EXPECT_EQ(held(MemoryTag::kGradients), 0);
}

}  // namespace
}  // namespace espalier
