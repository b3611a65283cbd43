#include <algorithm>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/node.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using test::Leaf;
using test::TinyAdd;
using test::TinyMul;
using test::TinyNode;
using test::TinySin;

constexpr int64_t kCount = 1 << 16;
constexpr int64_t kBytes = kCount * 8;

int64_t Held(MemoryTag tag) {
  return test::Cpu().allocator().stats().by_tag[static_cast<size_t>(tag)];
}
int64_t Peak(MemoryTag tag) {
  return test::Cpu().allocator().stats().peak_by_tag[static_cast<size_t>(tag)];
}

Tensor Ones() {
  return test::Zip(Leaf(kCount, 0, false).value(), Tensor(),
                   [](double, double) { return 1.0; });
}

TEST(GradientMemoryTest, FrozenInputGetsNoBuffer) {
  const Tensor ones = Ones();
  for (const bool frozen : {true, false}) {
    const Variable x = Leaf(kCount, 1);
    const Variable w = Leaf(kCount, 2, !frozen);
    const Variable y = TinyMul(x, w);
    test::Cpu().allocator().ResetPeak();
    const int64_t before = Held(MemoryTag::kGradients);
    autograd::Backward(y, ones);
    const int64_t expected = frozen ? kBytes : 2 * kBytes;
    EXPECT_EQ(Held(MemoryTag::kGradients) - before, expected);
    EXPECT_EQ(Peak(MemoryTag::kGradients) - before, expected);
  }
}

TEST(GradientMemoryTest, NothingIsAllocatedForAFrozenBranch) {
  const Tensor ones = Ones();
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 2, false);
  const Variable branch = TinyMul(TinySin(w), w);  // not recorded
  EXPECT_FALSE(branch.needs_grad());
  const Variable y = TinyAdd(x, branch);
  const int64_t before = Held(MemoryTag::kGradients);
  test::Cpu().allocator().ResetPeak();
  autograd::Backward(y, ones);
  EXPECT_EQ(Peak(MemoryTag::kGradients) - before, kBytes);
}

// The last of two takers gets dy itself, not a copy.
TEST(GradientMemoryTest, SharedGradientIsCopiedOnceLess) {
  const Tensor ones = Ones();
  const Variable a = Leaf(kCount, 1);
  const Variable b = Leaf(kCount, 1);
  const Variable y = TinySin(TinyAdd(a, b));
  test::Cpu().allocator().ResetPeak();
  const int64_t before = Held(MemoryTag::kGradients);
  autograd::Backward(y, ones);
  EXPECT_EQ(Peak(MemoryTag::kGradients) - before, 2 * kBytes);
}

TEST(GradientMemoryTest, GradientsAndSavedTensorsGoAsTheWalkProceeds) {
  constexpr int kNodes = 20;
  const Tensor ones = Ones();
  const int64_t activations = Held(MemoryTag::kActivations);
  const Variable x = Leaf(kCount, 1);
  Variable y = x;
  for (int i = 0; i < kNodes; ++i) y = TinySin(y);
  EXPECT_EQ(Held(MemoryTag::kActivations) - activations, (kNodes + 1) * kBytes);
  const int64_t before = Held(MemoryTag::kGradients);
  test::Cpu().allocator().ResetPeak();
  autograd::Backward(y, ones);
  // One on its way in, one on its way out.
  EXPECT_EQ(Peak(MemoryTag::kGradients) - before, 2 * kBytes);
  EXPECT_EQ(Held(MemoryTag::kGradients) - before, kBytes);
  // x and the root are held here; everything between is gone.
  EXPECT_EQ(Held(MemoryTag::kActivations) - activations, 2 * kBytes);
}

TEST(GradientMemoryTest, DroppedGraphFreesItsTensors) {
  const int64_t before = Held(MemoryTag::kActivations);
  {
    const Variable x = Leaf(kCount, 1);
    const Variable y = TinyMul(TinySin(x), TinySin(x));
    EXPECT_GT(Held(MemoryTag::kActivations), before);
  }
  EXPECT_EQ(Held(MemoryTag::kActivations), before);
}

TEST(GradientMemoryTest, LeafGradientHasMemoryOfItsOwn) {
  const Tensor cotangent = Ones();
  const Variable a = Leaf(kCount, 1);
  const Variable b = Leaf(kCount, 1);
  const Variable sum = TinyAdd(a, b);  // hands out dy twice
  const std::vector<Variable> roots{sum, a};
  const std::vector<Tensor> cotangents{cotangent, cotangent};
  autograd::Backward(roots, cotangents);
  const Variable c = Leaf(kCount, 1);
  autograd::Backward(c, cotangent);
  const std::vector<Tensor> all{a.grad(),  b.grad(),  c.grad(),
                                cotangent, a.value(), b.value()};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      EXPECT_FALSE(all[i].SharesStorage(all[j])) << i << " " << j;
    }
  }
  EXPECT_EQ(ToDoubles(cotangent)[3], 1);
  EXPECT_EQ(ToDoubles(a.grad())[3], 2);
}

// A gradient that is a view, or lent or mapped memory, is copied.
TEST(GradientMemoryTest, LeafGradientIsNeverAViewNorForeignMemory) {
  std::vector<double> host(2 * kCount, 4.0);
  const std::vector<std::function<Tensor()>> makers{
      [] {
        return Tensor::Zeros(test::Cpu(), {2 * kCount}, kF64)
            .Slice(0, kCount, kCount);
      },
      [&] {
        return Tensor::Borrow(test::Cpu(), {kCount}, kF64, host.data(),
                              nullptr);
      },
      [&] {
        return Tensor::MapReadOnly(test::Cpu(), {kCount}, kF64, host.data(),
                                   nullptr);
      },
  };
  for (const auto& make : makers) {
    const Variable x = Leaf(kCount, 1);
    const Variable y = autograd::Record(
        x.value(),
        std::make_unique<TinyNode>("foreign", std::vector<Tensor>{},
                                   [&](TinyNode&, absl::Span<const Tensor>) {
                                     return std::vector<Tensor>{make()};
                                   }),
        {&x});
    autograd::Backward(TinyAdd(y, y), Ones());
    EXPECT_EQ(x.grad().storage_kind(), StorageKind::kHeap);
    EXPECT_EQ(x.grad().storage_bytes(), kBytes);
    autograd::Backward(x, Ones());
    EXPECT_EQ(host[7], 4.0);
  }
}

// The handle a caller took of a gradient keeps its values.
TEST(GradientMemoryTest, LaterCallsLeaveATakenGradientAlone) {
  const Variable x = Leaf(kCount, 1);
  autograd::Backward(x, Ones());
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): its purpose
  const Tensor taken = x.grad();
  autograd::Backward(x, Ones());
  EXPECT_EQ(ToDoubles(taken)[0], 1);
  EXPECT_EQ(ToDoubles(x.grad())[0], 2);
}

}  // namespace
}  // namespace espalier
