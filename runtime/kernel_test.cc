#include "espalier/runtime/kernel.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"

namespace espalier {
namespace {

struct CountArgs {
  int* runs;
  Isa* isa;
};

void Count(const CountArgs& args, const Exec& exec) {
  ++*args.runs;
  *args.isa = exec.isa;
}

constexpr Kernel<CountArgs> kRows[] = {
    {kCpu, kF32, Count},
    {kCpu, kBF16, nullptr},  // built without
    {kCuda, kF64, Count},
};

class KernelTest : public ::testing::Test {
 protected:
  // What launching on a tensor says; adds to runs_.
  absl::Status LaunchOn(const Tensor& key) {
    return internal::Guard([&] {
      Launch("count", kRows, key, CountArgs{&runs_, &isa_}, {&key}, {});
    });
  }
  Tensor Make(Device& device, DType dtype) {
    return Tensor::Empty(device, {2, 3}, dtype);
  }

  std::unique_ptr<Context> context_ = *Context::Create({});
  int runs_ = 0;
  Isa isa_{};
};

TEST_F(KernelTest, RunsTheRowOfTheKey) {
  EXPECT_TRUE(LaunchOn(Make(context_->cpu(), kF32)).ok());
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(isa_, context_->isa());
}

TEST_F(KernelTest, MissingRowIsUnimplementedAndNamed) {
  for (DType dtype : {kI32, kBF16, kF64}) {
    const absl::Status status = LaunchOn(Make(context_->cpu(), dtype));
    EXPECT_EQ(status,
              absl::UnimplementedError(absl::StrCat(
                  "count: no kernel for ", ToString(dtype), " [2, 3] on cpu")));
  }
  EXPECT_EQ(LaunchOn(Tensor()),
            absl::UnimplementedError("count: no kernel for absent"));
  EXPECT_EQ(runs_, 0);
}

TEST_F(KernelTest, MetaRunsNothingButWantsTheRow) {
  EXPECT_TRUE(LaunchOn(Make(context_->meta(), kF32)).ok());
  EXPECT_EQ(runs_, 0);
  EXPECT_TRUE(absl::IsUnimplemented(LaunchOn(Make(context_->meta(), kI32))));
}

TEST_F(KernelTest, EveryOperandIsOnTheDeviceOfTheKey) {
  auto other = *Context::Create({});
  const auto launch = [&](const Tensor& key, const Tensor& read,
                          const Tensor& write) {
    return internal::Guard([&] {
      Launch("count", kRows, key, CountArgs{&runs_, &isa_},
             {nullptr, &key, &read}, {&write});
    });
  };
  const Tensor cpu = Make(context_->cpu(), kF32);
  const Tensor sim = Make(context_->sim(), kF32);
  const Tensor meta = Make(context_->meta(), kF32);
  const Tensor foreign = Make(other->cpu(), kF32);
  const std::string help =
      " where the op runs; CopyTo moves a tensor within its context";
  EXPECT_EQ(launch(cpu, sim, cpu),
            absl::InternalError(absl::StrCat(
                "count: input 3 is f32 [2, 3] on sim, expected on cpu", help)));
  EXPECT_EQ(
      launch(meta, meta, cpu),
      absl::InternalError(absl::StrCat(
          "count: output 1 is f32 [2, 3] on cpu, expected on meta", help)));
  EXPECT_EQ(
      launch(cpu, foreign, cpu),
      absl::InternalError(absl::StrCat(
          "count: input 3 is f32 [2, 3] on cpu of another context, expected on "
          "cpu of the context",
          help)));
  for (const Tensor& key : {cpu, sim, meta}) {
    for (const Tensor& operand : {cpu, sim, meta, foreign}) {
      const bool same = &operand.device() == &key.device();
      EXPECT_EQ(launch(key, operand, key).ok(), same);
      EXPECT_EQ(launch(key, key, operand).ok(), same);
      EXPECT_TRUE(launch(key, Tensor(), Tensor()).ok());
    }
  }
  context_->sim().compute_stream().Synchronize();
}

TEST_F(KernelTest, WritesNoReadOnlyMemory) {
  const Tensor key = Make(context_->cpu(), kF32);
  const std::vector<float> pages(6);
  const Tensor mapped =
      Tensor::MapReadOnly(context_->cpu(), {2, 3}, kF32, pages.data(), nullptr);
  const auto launch = [&](const Tensor& read, const Tensor& write) {
    return internal::Guard([&] {
      Launch("count", kRows, key, CountArgs{&runs_, &isa_}, {&read},
             {&key, &write});
    });
  };
  EXPECT_TRUE(launch(mapped, key).ok());
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(launch(mapped, mapped.Slice(0, 1, 1)),
            absl::InternalError(
                "count: output 2 is f32 [1, 3] on cpu in read-only memory, "
                "expected memory that may be written"));
  EXPECT_EQ(runs_, 1);
}

TEST_F(KernelTest, AccessesSpanTheElementsOfAView) {
  const Tensor matrix = Tensor::Zeros(context_->cpu(), {4, 6}, kF32);
  const Tensor corner = matrix.Slice(0, 1, 2).Slice(1, 2, 3);
  const Tensor none = matrix.Slice(0, 4, 0);
  const Tensor absent;
  const std::vector<Access> accesses =
      internal::ListAccesses({&corner, &absent, nullptr, &none}, {&matrix});
  ASSERT_EQ(accesses.size(), 2u);
  EXPECT_EQ(accesses[0].data, matrix.data<float>() + 6 + 2);
  EXPECT_EQ(accesses[0].bytes, (6 + 3) * 4);
  EXPECT_FALSE(accesses[0].write);
  EXPECT_EQ(accesses[1].bytes, 4 * 6 * 4);
  EXPECT_TRUE(accesses[1].write);
}

}  // namespace
}  // namespace espalier
