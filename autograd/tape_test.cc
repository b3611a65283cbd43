#include <pthread.h>

#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/node.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using test::Leaf;
using test::TinyAdd;
using test::TinyFan;
using test::TinyMul;
using test::TinyNode;
using test::TinySin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> GradOf(const Variable& leaf) {
  return ToDoubles(leaf.grad());
}

Tensor Cotangent(const std::vector<double>& values) {
  return Tensor::FromHost<double>(
      test::Cpu(), {static_cast<int64_t>(values.size())}, values);
}

TEST(TapeTest, ChainOf100000Nodes) {
  constexpr int kNodes = 100'000;
  const Variable x = Leaf(1, 1);
  Variable y = x;
  for (int i = 0; i < kNodes; ++i) y = TinyAdd(y, x);
  EXPECT_THAT(ToDoubles(y.value()), ElementsAre(kNodes + 1));
  autograd::Backward(y);
  EXPECT_THAT(GradOf(x), ElementsAre(kNodes + 1));
}

TEST(TapeTest, ChainOf100000NodesIsDroppedUnwalked) {
  Variable y = Leaf(1, 1);
  for (int i = 0; i < 100'000; ++i) y = TinySin(y);
  y = Variable();
}

TEST(TapeTest, ChainOwnedThroughNodeMembersIsDropped) {
  Variable y = Leaf(1, 1);
  for (int i = 0; i < 100'000; ++i) {
    // The closure, not only the edge, owns the node before it.
    auto node =
        std::make_unique<TinyNode>("owner", std::vector<Tensor>{},
                                   [y](TinyNode&, absl::Span<const Tensor>) {
                                     return std::vector<Tensor>{Tensor()};
                                   });
    y = autograd::Record(y.value(), std::move(node), {&y});
  }
  y = Variable();
}

TEST(TapeTest, DoubleUseOfAValue) {
  const Variable x = Leaf(3, 1);
  autograd::Backward(TinyMul(x, x), Cotangent({1, 10, 100}));
  EXPECT_THAT(GradOf(x), ElementsAre(2, 40, 600));
}

TEST(TapeTest, Diamond) {
  EXPECT_TRUE(test::GradCheck(
      [](const std::vector<Variable>& in) {
        const Variable a = TinySin(in[0]);
        const Variable left = TinyMul(a, in[1]);
        const Variable right = TinySin(a);
        return TinyMul(TinyAdd(left, right), TinyAdd(right, a));
      },
      {test::Normal({2, 3}, 1), test::Normal({2, 3}, 2)}));
}

TEST(TapeTest, DetachedValueStopsTheGradient) {
  const Variable x = Leaf(2, 1);
  const Variable a = TinyMul(x, x);
  const Variable y = TinyMul(a.Detach(), x);  // d = a
  EXPECT_FALSE(a.Detach().needs_grad());
  autograd::Backward(y, Cotangent({1, 1}));
  EXPECT_THAT(GradOf(x), ElementsAre(1, 4));
}

TEST(TapeTest, NoGradAndEnableGradNest) {
  const Variable x = Leaf(1, 2);
  EXPECT_TRUE(TinySin(x).needs_grad());
  {
    const NoGrad off;
    EXPECT_FALSE(TinySin(x).needs_grad());
    {
      const EnableGrad on;
      EXPECT_TRUE(TinySin(x).needs_grad());
      const NoGrad off_again;
      EXPECT_FALSE(TinySin(x).needs_grad());
    }
    EXPECT_FALSE(TinySin(x).needs_grad());
    EXPECT_FALSE(autograd::NeedsGrad(x));
  }
  EXPECT_TRUE(TinySin(x).needs_grad());
}

TEST(TapeTest, NoGradEndsWithAFailure) {
  const absl::Status status = internal::Guard([] {
    const NoGrad off;
    internal::Fail(absl::InternalError("stop"));
  });
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(TinySin(Leaf(1, 2)).needs_grad());
}

TEST(TapeTest, EachInputIsAskedForAlone) {
  for (const bool first : {true, false}) {
    const Variable a = Leaf(1, 3, first);
    const Variable b = Leaf(1, 5, !first);
    autograd::Backward(TinyMul(a, b));
    EXPECT_EQ(static_cast<bool>(a.grad()), first);
    EXPECT_EQ(static_cast<bool>(b.grad()), !first);
    EXPECT_THAT(GradOf(first ? a : b), ElementsAre(first ? 5 : 3));
  }
}

TEST(TapeTest, NothingIsRecordedWithoutAWantedGradient) {
  const Variable y = TinyMul(Leaf(1, 3, false), Leaf(1, 4, false));
  EXPECT_FALSE(y.needs_grad());
  EXPECT_TRUE(y.is_leaf());
  autograd::Backward(y);  // nothing to do
}

// 1 + 2^-53 rounds to 1, so the order of these sums shows in the last bit.
TEST(TapeTest, CallsAddTheirTotalsInOrder) {
  constexpr double kTiny = 0x1p-53;
  const Variable x = Leaf(1, 0);
  autograd::Backward(x, Cotangent({1}));
  // One call whose two terms are tiny: 1 + (tiny + tiny), not (1 + tiny) + tiny
  autograd::Backward(TinyAdd(x, x), Cotangent({kTiny}));
  EXPECT_EQ(GradOf(x)[0], 1 + 2 * kTiny);
  // Two calls: each is lost against what is there.
  autograd::Backward(x, Cotangent({2}));
  const double before = GradOf(x)[0];
  autograd::Backward(x, Cotangent({kTiny}));
  autograd::Backward(x, Cotangent({kTiny}));
  EXPECT_EQ(GradOf(x)[0], before);
}

TEST(TapeTest, TermsOfOneCallAddInReverseOrderOfRecording) {
  constexpr double kTiny = 0x1p-53;
  const auto times = [](const Variable& x, double factor) {
    return TinyMul(x, Variable(Cotangent({factor})));
  };
  const Variable x = Leaf(1, 1);
  // Terms come as tiny, tiny, 1: the sum keeps them.
  Variable y = times(x, 1);
  y = TinyAdd(y, times(x, kTiny));
  y = TinyAdd(y, times(x, kTiny));
  autograd::Backward(y);
  EXPECT_EQ(GradOf(x)[0], 2 * kTiny + 1);
  // And as 1, tiny, tiny: it loses them.
  const Variable z = Leaf(1, 1);
  y = times(z, kTiny);
  y = TinyAdd(y, times(z, kTiny));
  y = TinyAdd(y, times(z, 1));
  autograd::Backward(y);
  EXPECT_EQ(GradOf(z)[0], 1);
}

TEST(TapeTest, SeveralRootsInOneWalk) {
  const Variable x = Leaf(2, 1);
  const Variable a = TinyMul(x, x);
  const Variable b = TinySin(a);
  const std::vector<Variable> roots{a, b, x, Leaf(2, 0, false), a};
  const std::vector<Tensor> cotangents{Cotangent({1, 1}), Cotangent({1, 1}),
                                       Cotangent({5, 7}), Cotangent({1, 1}),
                                       Cotangent({2, 2})};
  autograd::Backward(roots, cotangents);
  EXPECT_THAT(GradOf(x),
              ElementsAre(::testing::DoubleEq(2 * (3 + std::cos(1)) + 5),
                          ::testing::DoubleEq(4 * (3 + std::cos(4)) + 7)));
}

// Each context numbers its own nodes, so two graphs cannot share a walk.
TEST(TapeTest, RootsOfTwoContextsAreRefused) {
  auto a = *Context::Create({.num_threads = 1});
  auto b = *Context::Create({.num_threads = 1});
  const std::vector<double> one{1};
  const auto fan = [&](Context& context) {
    return TinyFan(
        Variable(Tensor::FromHost<double>(context.cpu(), {1}, one), true));
  };
  const std::vector<Variable> of_a = fan(*a), of_b = fan(*b);
  const absl::Status status = internal::Guard([&] {
    autograd::Backward({of_a[0], of_b[1]}, {Tensor(), Tensor()});
  });
  EXPECT_THAT(status.message(), HasSubstr("nodes of two contexts"));
}

// A leaf whose gradient someone else holds gets a new one; where there is no
// memory for it, no leaf has changed.
TEST(TapeTest, OutOfMemoryLeavesEveryGradient) {
  constexpr int64_t kCount = 1 << 17;  // 1 MiB
  // y, its cotangent, the gradient that is held and the next one; not their
  // sum.
  auto context = *Context::Create(
      {.num_threads = 1, .memory_budget_bytes = int64_t{9} << 19});
  const auto filled = [&](int64_t count) {
    const std::vector<double> values(static_cast<size_t>(count), 1);
    return Tensor::FromHost<double>(context->cpu(), {count}, values);
  };
  const Variable x(filled(1), true), y(filled(kCount), true);
  const Tensor cotangents[] = {filled(1), filled(kCount)};
  const auto walk = [&] {
    return internal::Guard([&] { autograd::Backward({x, y}, cotangents); });
  };
  ASSERT_TRUE(walk().ok());
  Tensor held = y.grad();
  EXPECT_EQ(walk().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GradOf(x)[0], 1);
  EXPECT_EQ(y.grad().data<double>()[0], 1);
  held = Tensor();
  EXPECT_TRUE(walk().ok());
  EXPECT_EQ(GradOf(x)[0], 2);
  EXPECT_EQ(y.grad().data<double>()[0], 2);
}

TEST(TapeTest, SecondWalkIsRefused) {
  const Variable x = Leaf(1, 1);
  const Variable y = TinySin(x);
  const Variable z = TinyMul(y, y);
  autograd::Backward(z);
  const double before = GradOf(x)[0];
  for (const Variable& root : {z, y, TinySin(y)}) {
    const absl::Status status =
        internal::Guard([&] { autograd::Backward(root); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("walked before"));
  }
  EXPECT_EQ(GradOf(x)[0], before);
}

TEST(TapeTest, UnusedOutputHasAbsentCotangent) {
  for (const size_t used : {size_t{0}, size_t{1}}) {
    const Variable x = Leaf(1, 1);
    autograd::Backward(TinyFan(x)[used]);
    EXPECT_THAT(GradOf(x), ElementsAre(used == 0 ? 2 : 3));
  }
  const Variable x = Leaf(1, 1);
  const std::vector<Variable> both = TinyFan(x);
  autograd::Backward(TinyAdd(both[0], both[1]));
  EXPECT_THAT(GradOf(x), ElementsAre(5));
}

TEST(TapeTest, IntegerResultsNeedNoGradient) {
  const Variable x = Leaf(2, 1);
  std::vector<Tensor> values{
      x.value().CopyTo(test::Cpu()),
      Tensor::Zeros(test::Cpu(), {2}, kI32),
  };
  const std::vector<Variable> results = autograd::RecordMany(
      values,
      std::make_unique<TinyNode>("top", std::vector<Tensor>{},
                                 [](TinyNode&, absl::Span<const Tensor> dy) {
                                   return std::vector<Tensor>{dy[0]};
                                 }),
      {&x, 1});
  EXPECT_TRUE(results[0].needs_grad());
  EXPECT_FALSE(results[1].needs_grad());
}

TEST(TapeTest, AbsentInputIsLegal) {
  const Variable x = Leaf(1, 1);
  const Variable absent;
  const Variable y =
      autograd::Record(x.value(),
                       std::make_unique<TinyNode>(
                           "optional", std::vector<Tensor>{},
                           [](TinyNode& node, absl::Span<const Tensor> dy) {
                             EXPECT_FALSE(node.needs_grad(0));
                             return std::vector<Tensor>{Tensor(), dy[0]};
                           }),
                       {&absent, &x});
  autograd::Backward(y);
  EXPECT_THAT(GradOf(x), ElementsAre(1));
}

// What a wrong backward is answered with.
std::string MessageFor(std::vector<Tensor> gradients) {
  const Variable x = Leaf(2, 1);
  const Variable frozen = Leaf(2, 1, false);
  const Variable y = autograd::Record(
      test::Zip(x.value(), Tensor(), [](double v, double) { return v; }),
      std::make_unique<TinyNode>(
          "bad", std::vector<Tensor>{},
          [&](TinyNode&, absl::Span<const Tensor>) { return gradients; }),
      {&x, &frozen});
  const absl::Status status = internal::Guard([&] {
    autograd::Backward(y, Cotangent({1, 1}));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(x.grad());
  return std::string(status.message());
}

TEST(TapeTest, WrongGradientsAreRefusedByName) {
  const Tensor good = Cotangent({1, 1});
  EXPECT_THAT(MessageFor({good}),
              HasSubstr("bad: backward gave 1 gradients for 2 inputs"));
  EXPECT_THAT(MessageFor({Tensor(), Tensor()}),
              HasSubstr("bad: input 0 got no gradient"));
  EXPECT_THAT(MessageFor({good, good}),
              HasSubstr("bad: input 1 needs no gradient and got one"));
  EXPECT_THAT(MessageFor({Cotangent({1, 1, 1}), Tensor()}),
              HasSubstr("bad: gradient of input 0 is f64 [3] on cpu, expected "
                        "f64 [2] on cpu"));
  EXPECT_THAT(
      MessageFor({Tensor::Zeros(test::Cpu(), {2}, kF32), Tensor()}),
      HasSubstr("bad: gradient of input 0 is f32 [2] on cpu, expected f64"));
  EXPECT_THAT(MessageFor({Tensor::Zeros(test::Cpu(), {2, 2}, kF64)
                              .Slice(1, 0, 1)
                              .Transpose(0, 1)
                              .Slice(0, 0, 1),
                          Tensor()}),
              HasSubstr("bad: gradient of input 0 is f64 [1, 2]"));
}

TEST(TapeTest, StridedGradientIsRefused) {
  const Variable x(Tensor::Zeros(test::Cpu(), {2, 3}, kF64), true);
  const Variable y =
      autograd::Record(Tensor::Zeros(test::Cpu(), {3, 2}, kF64),
                       std::make_unique<TinyNode>(
                           "turn", std::vector<Tensor>{},
                           [](TinyNode&, absl::Span<const Tensor> dy) {
                             return std::vector<Tensor>{dy[0].Transpose(0, 1)};
                           }),
                       {&x});
  const absl::Status status = internal::Guard([&] {
    autograd::Backward(y, Tensor::Zeros(test::Cpu(), {3, 2}, kF64));
  });
  EXPECT_THAT(status.message(), HasSubstr("turn: gradient of input 0 is a"));
}

TEST(TapeTest, WrongCotangentIsRefused) {
  const Variable y = TinySin(Leaf(2, 1));
  for (const Tensor& cotangent :
       {Tensor(), Cotangent({1}), Tensor::Zeros(test::Cpu(), {2}, kF32)}) {
    EXPECT_FALSE(
        internal::Guard([&] { autograd::Backward(y, cotangent); }).ok());
  }
}

TEST(TapeTest, GradientsAreKeptForLeavesOnly) {
  const Variable y = TinySin(Leaf(1, 1));
  EXPECT_FALSE(internal::Guard([&] { (void)y.grad(); }).ok());
  EXPECT_FALSE(internal::Guard([] {
                 Variable(Tensor::Zeros(test::Cpu(), {1}, kI32), true);
               }).ok());
}

}  // namespace
}  // namespace espalier
