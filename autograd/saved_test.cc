#include "espalier/autograd/saved.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/recompute.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using autograd::CountSaved;
using autograd::RecomputeOne;
using autograd::RecomputePolicy;
using autograd::Region;
using autograd::SavedReport;
using test::Leaf;
using test::TinyAdd;
using test::TinyExpensive;
using test::TinyMul;
using test::TinyNode;
using test::TinySin;

using Inputs = absl::Span<const Variable>;

constexpr int64_t kCount = 1 << 13;
constexpr int64_t kBytes = kCount * 8;

int64_t HeldActivations() {
  return test::Cpu().allocator().stats().by_tag[static_cast<size_t>(
      MemoryTag::kActivations)];
}
int64_t PeakActivations() {
  return test::Cpu().allocator().stats().peak_by_tag[static_cast<size_t>(
      MemoryTag::kActivations)];
}

SavedReport Count(const Variable& root) { return CountSaved({&root, 1}); }

TEST(SavedTest, EachStorageOnceAndLeavesApart) {
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 1, false);
  const Variable a = TinySin(x);              // saves x, a leaf
  const Variable b = TinyMul(a, a);           // saves a twice
  const Variable c = TinyMul(b, w);           // saves w, frozen
  const Variable d = TinyMul(TinySin(c), a);  // saves c, sin(c), and a again
  const SavedReport report = Count(d);
  EXPECT_EQ(report.total.leaves, 2 * kBytes);
  EXPECT_EQ(report.total.activations, 3 * kBytes);
  EXPECT_EQ(report.total.mapped, 0);
  EXPECT_EQ(report.total.moved, 0);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].region, "");
  EXPECT_EQ(report.rows[0].num_nodes, 5);
}

TEST(SavedTest, EqualsWhatTheAllocatorHolds) {
  const Variable x = Leaf(kCount, 1);
  Variable y;
  const int64_t before = HeldActivations();
  {
    Variable h = x;
    for (int i = 0; i < 7; ++i) h = TinyMul(TinyAdd(h, x), TinySin(h));
    y = TinySin(h);
  }
  // The root itself is not saved.
  EXPECT_EQ(Count(y).total.activations + kBytes, HeldActivations() - before);
  autograd::Backward(y, y.value());
  EXPECT_EQ(Count(y).total.activations, 0);
  EXPECT_EQ(HeldActivations() - before, kBytes);
}

TEST(SavedTest, MappedAndLentMemoryApart) {
  std::vector<double> host(kCount, 1.0);
  const Variable mapped(
      Tensor::MapReadOnly(test::Cpu(), {kCount}, kF64, host.data(), nullptr));
  const Variable lent(
      Tensor::Borrow(test::Cpu(), {kCount}, kF64, host.data(), nullptr));
  const Variable x = Leaf(kCount, 1);
  const SavedReport report = Count(TinyMul(TinyMul(x, mapped), lent));
  EXPECT_EQ(report.total.mapped, kBytes);
  EXPECT_EQ(report.total.lent, kBytes);
  EXPECT_EQ(report.total.leaves, 0);
  EXPECT_EQ(report.total.activations, 0);
}

// What a frozen op makes of a frozen leaf is an activation that stays; a view
// of a leaf is the leaf's.
TEST(SavedTest, ConstantResultsAreActivationsAndViewsOfLeavesAreNot) {
  const Variable frozen = Leaf(kCount, 1, false);
  const Variable constant = TinySin(frozen);
  EXPECT_TRUE(constant.is_leaf());
  const Variable x = Leaf(kCount, 1);
  EXPECT_EQ(Count(TinyMul(x, constant)).total.activations, kBytes);
  EXPECT_EQ(Count(TinyMul(x, constant.Detach())).total.activations, kBytes);
  const Variable view = autograd::Record(
      frozen.value().Reshape({2, kCount / 2}),
      std::make_unique<TinyNode>("view", std::vector<Tensor>{}, nullptr),
      {&frozen});
  const Variable y(Tensor::Zeros(test::Cpu(), {2, kCount / 2}, kF64), true);
  EXPECT_EQ(Count(TinyMul(y, view)).total.leaves, kBytes);
  EXPECT_EQ(Count(TinyMul(y, view)).total.activations, 0);
}

TEST(SavedTest, ViewsCountTheirWholeStorage) {
  const Variable x = Leaf(kCount, 1);
  const Variable a = TinySin(x);
  const Variable half = autograd::Record(
      a.value().Slice(0, 0, kCount / 2),
      std::make_unique<TinyNode>("slice", std::vector<Tensor>{}, nullptr),
      {&a});
  EXPECT_EQ(Count(TinySin(half)).total.activations, kBytes);
}

TEST(SavedTest, RegionsNest) {
  const Variable x = Leaf(kCount, 1);
  Variable y = TinySin(x);
  for (int layer = 0; layer < 2; ++layer) {
    const Region region(layer == 0 ? "layer 0" : "layer 1");
    y = TinySin(y);
    {
      const Region inner("mlp");
      y = TinyMul(TinySin(y), TinySin(y));
    }
    y = TinySin(y);
  }
  const SavedReport report = Count(y);
  ASSERT_EQ(report.rows.size(), 5u);
  EXPECT_EQ(report.rows[0].region, "");
  EXPECT_EQ(report.rows[0].bytes.leaves, kBytes);
  EXPECT_EQ(report.rows[1].region, "layer 0");
  EXPECT_EQ(report.rows[1].bytes.activations, 2 * kBytes);
  EXPECT_EQ(report.rows[1].num_nodes, 2);
  EXPECT_EQ(report.rows[2].region, "layer 0/mlp");
  EXPECT_EQ(report.rows[2].bytes.activations, 3 * kBytes);
  EXPECT_EQ(report.rows[4].region, "layer 1/mlp");
  int64_t sum = 0;
  for (const SavedReport::Row& row : report.rows) sum += row.bytes.activations;
  EXPECT_EQ(sum, report.total.activations);
}

Variable ThreeLayers(RecomputePolicy policy, const Variable& x,
                     const Variable& w) {
  Variable y = TinySin(x);
  for (int layer = 0; layer < 3; ++layer) {
    y = RecomputeOne(policy, "layer", {&y, 1}, [w](Inputs in) {
      int runs = 0;
      const Variable a = TinyExpensive(TinySin(in[0]), w, &runs);
      const Variable b = TinySin(TinySin(TinySin(a)));
      return TinyMul(TinyAdd(a, b), TinySin(b));
    });
  }
  return y;
}

TEST(SavedTest, RecomputedRegionsKeepLess) {
  // Saved in a layer: its input, sin(input), a, sin(a), sin(sin(a)), b, a + b
  // and sin(b); what is a sine can be made again.
  const std::vector<std::pair<RecomputePolicy, int64_t>> expected{
      {RecomputePolicy::kNone, 8},
      {RecomputePolicy::kSelective, 3},
      {RecomputePolicy::kFull, 1}};
  int64_t last_peak = 0;
  for (const auto& [policy, per_layer] : expected) {
    const Variable x = Leaf(kCount, 1);
    const Variable w = Leaf(kCount, 2);
    const int64_t before = HeldActivations();
    test::Cpu().allocator().ResetPeak();
    const Variable y = ThreeLayers(policy, x, w);
    const SavedReport report = Count(y);
    EXPECT_EQ(report.total.activations, 3 * per_layer * kBytes);
    EXPECT_EQ(report.total.recomputed,
              policy == RecomputePolicy::kSelective ? 15 * kBytes : 0);
    EXPECT_EQ(HeldActivations() - before,
              report.total.activations + kBytes);  // the root
    ASSERT_EQ(report.rows.size(), 2u);
    EXPECT_EQ(report.rows[1].region, "layer");
    EXPECT_EQ(report.rows[1].bytes.activations, 3 * per_layer * kBytes);
    autograd::Backward(y, y.value());
    const int64_t peak = PeakActivations() - before;
    if (last_peak != 0) {
      EXPECT_LT(peak, last_peak);
    }
    last_peak = peak;
    // Only the root is left.
    EXPECT_EQ(HeldActivations() - before, kBytes);
  }
}

// In the second run activations count as activations, gradients as gradients.
TEST(SavedTest, SecondRunIsTaggedLikeTheFirst) {
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 2, false);
  const Variable y = ThreeLayers(RecomputePolicy::kFull, x, w);
  test::Cpu().allocator().ResetPeak();
  const auto gradients = [] {
    return test::Cpu().allocator().stats().peak_by_tag[static_cast<size_t>(
        MemoryTag::kGradients)];
  };
  const int64_t before = gradients();
  autograd::Backward(y, y.value());
  EXPECT_LE(gradients() - before, 5 * kBytes);
  EXPECT_GT(PeakActivations(), 8 * kBytes);
}

}  // namespace
}  // namespace espalier
