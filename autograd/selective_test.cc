// What selective regions give up and make again.

#include <pthread.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/memo.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/recompute.h"
#include "espalier/autograd/saved.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using autograd::CountSaved;
using autograd::RecomputeOne;
using autograd::RecomputePolicy;
using test::Leaf;
using test::TinyAdd;
using test::TinyMul;
using test::TinyNode;
using test::TinySin;
using ::testing::HasSubstr;

using Inputs = absl::Span<const Variable>;
constexpr auto kNone = RecomputePolicy::kNone;
constexpr auto kSelective = RecomputePolicy::kSelective;

constexpr int64_t kCount = 1 << 13;
constexpr int64_t kBytes = kCount * 8;

int64_t HeldActivations() {
  return test::Cpu().allocator().stats().by_tag[static_cast<size_t>(
      MemoryTag::kActivations)];
}
autograd::SavedBytes Count(const Variable& y) {
  return CountSaved({&y, 1}).total;
}

// 2 x, made again from x; *runs counts how often it was computed.
Variable Double(const Variable& x, int* runs) {
  const auto twice = [runs](const Tensor& v) {
    ++*runs;
    return test::Zip(v, v, [](double a, double b) { return a + b; });
  };
  return autograd::Record(
      twice(x.value()),
      std::make_unique<TinyNode>(
          "double", std::vector<Tensor>{x.value()},
          [](TinyNode&, absl::Span<const Tensor> dy) {
            return std::vector<Tensor>{test::Zip(
                dy[0], dy[0], [](double a, double b) { return a + b; })};
          },
          [twice](TinyNode& node) { return twice(node.saved[0]); }),
      {&x});
}

// A view of x in another shape.
Variable View(const Variable& x, std::initializer_list<int64_t> dims) {
  const Shape shape = x.shape();
  return autograd::Record(
      x.value().Reshape(dims),
      std::make_unique<TinyNode>(
          "view", std::vector<Tensor>{},
          [shape](TinyNode&, absl::Span<const Tensor> dy) {
            return std::vector<Tensor>{dy[0].Reshape(shape.dims())};
          }),
      {&x});
}

TEST(SelectiveTest, SharedResultIsMadeAgainOnceAndLetGo) {
  for (const RecomputePolicy policy : {kNone, kSelective}) {
    int runs = 0;
    const Variable x = Leaf(kCount, 1);
    const Variable w = Leaf(kCount, 2);
    const int64_t before = HeldActivations();
    const Variable y = RecomputeOne(policy, "r", {&x, 1}, [&](Inputs in) {
      const Variable h = Double(in[0], &runs);
      return TinyAdd(TinyMul(h, w), TinyMul(TinyMul(h, w), w));
    });
    EXPECT_EQ(runs, 1);
    // h and h w, of which h is made again.
    const bool selective = policy == kSelective;
    EXPECT_EQ(Count(y).activations, (selective ? 1 : 2) * kBytes);
    EXPECT_EQ(Count(y).recomputed, (selective ? 1 : 0) * kBytes);
    EXPECT_EQ(HeldActivations() - before, Count(y).activations + kBytes);
    autograd::Backward(y, y.value());
    EXPECT_EQ(runs, selective ? 2 : 1);
    EXPECT_EQ(HeldActivations() - before, kBytes);
  }
}

TEST(SelectiveTest, ViewsOfAResultAreGivenUpWithIt) {
  std::vector<std::vector<double>> want;
  for (const RecomputePolicy policy : {kNone, kSelective}) {
    int runs = 0;
    const Variable x(test::Normal({4, 6}, 1).value(), true);
    const Variable w(test::Normal({3, 8}, 2).value(), true);
    const Variable y = RecomputeOne(policy, "r", {&x, 1}, [&](Inputs in) {
      return TinyMul(View(Double(in[0], &runs), {3, 8}), w);
    });
    EXPECT_EQ(Count(y).activations, policy == kNone ? 24 * 8 : 0);
    autograd::Backward(y, y.value());
    EXPECT_EQ(runs, policy == kNone ? 1 : 2);
    const std::vector<std::vector<double>> got{ToDoubles(x.grad()),
                                               ToDoubles(w.grad())};
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
}

// The maker of a result that needs no gradient is no part of the graph, and
// still makes it again.
TEST(SelectiveTest, ResultsOfFrozenInputsAreGivenUp) {
  int runs = 0;
  const Variable x = Leaf(kCount, 1, false);
  const Variable w = Leaf(kCount, 2);
  const int64_t before = HeldActivations();
  const Variable y = RecomputeOne(kSelective, "r", {&x, 1}, [&](Inputs in) {
    return TinyMul(Double(Double(in[0], &runs), &runs), w);
  });
  EXPECT_EQ(Count(y).activations, 0);
  EXPECT_EQ(Count(y).recomputed, 2 * kBytes);
  EXPECT_EQ(Count(y).leaves, kBytes);
  EXPECT_EQ(HeldActivations() - before, kBytes);
  autograd::Backward(y, y.value());
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(ToDoubles(w.grad())[5], 4 * 6 * (4 * 6 * 7));
  EXPECT_EQ(HeldActivations() - before, kBytes);
}

TEST(SelectiveTest, OnlyWhatIsRecordedInTheRegionIsGivenUp) {
  int runs = 0;
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 2);
  const Variable outside = Double(x, &runs);
  const Variable y =
      RecomputeOne(kSelective, "r", {&outside, 1}, [&](Inputs in) {
        EXPECT_TRUE(autograd::SavesForRecompute());
        {
          const NoGrad no_grad;
          EXPECT_FALSE(autograd::SavesForRecompute());
        }
        const Variable kept =
            RecomputeOne(kNone, "inner", in, [&](Inputs inner) {
              EXPECT_FALSE(autograd::SavesForRecompute());
              return TinyMul(Double(inner[0], &runs), w);
            });
        return TinyMul(kept, w);
      });
  EXPECT_FALSE(autograd::SavesForRecompute());
  EXPECT_EQ(Count(y).recomputed, 0);
  EXPECT_EQ(Count(y).activations, 3 * kBytes);
  autograd::Backward(y, y.value());
  EXPECT_EQ(runs, 2);
}

// A detached value may outlive the walk of the graph that made it.
TEST(SelectiveTest, DetachedResultsAreSaved) {
  int runs = 0;
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 2);
  Variable detached;
  const Variable first = RecomputeOne(kSelective, "r", {&x, 1}, [&](Inputs in) {
    const Variable h = Double(in[0], &runs);
    detached = h.Detach();
    return TinyMul(h, w);
  });
  const Variable second =
      RecomputeOne(kSelective, "r", {&detached, 1},
                   [&](Inputs in) { return TinyMul(in[0], w); });
  autograd::Backward(first, first.value());
  autograd::Backward(second, second.value());
  EXPECT_EQ(runs, 2);
}

TEST(SelectiveTest, LongChainOfCheapOps) {
  // On a thread that recursion over the chain would not fit.
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 18), 0);
  pthread_t thread = {};
  const auto body = [](void*) -> void* {
    for (const bool walk : {true, false}) {
      const Variable x = Leaf(1, 1);
      const Variable y = RecomputeOne(kSelective, "r", {&x, 1}, [](Inputs in) {
        Variable h = in[0];
        for (int i = 0; i < 50'000; ++i) h = TinySin(h);
        return h;
      });
      EXPECT_EQ(Count(y).activations, 0);
      if (walk) autograd::Backward(y);
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(SelectiveTest, WrongResultMadeAgainIsRefusedByName) {
  const Variable x = Leaf(8, 1);
  const Variable w = Leaf(8, 2);
  const Variable y = RecomputeOne(kSelective, "r", {&x, 1}, [&](Inputs in) {
    return TinyMul(
        autograd::Record(test::Zip(in[0].value(), Tensor(),
                                   [](double v, double) { return v; }),
                         std::make_unique<TinyNode>(
                             "odd", std::vector<Tensor>{in[0].value()},
                             [](TinyNode&, absl::Span<const Tensor> dy) {
                               return std::vector<Tensor>{dy[0]};
                             },
                             [](TinyNode&) { return Leaf(7, 1).value(); }),
                         {&in[0]}),
        w);
  });
  const absl::Status status =
      internal::Guard([&] { autograd::Backward(y, y.value()); });
  EXPECT_THAT(status.message(),
              HasSubstr("odd: result 0 made again is f64 [7] on cpu, expected "
                        "64 bytes on cpu"));
}

}  // namespace
}  // namespace espalier
