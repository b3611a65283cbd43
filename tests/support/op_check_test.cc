#include "espalier/tests/support/op_check.h"

#include <cmath>
#include <limits>
#include <memory>

#include "espalier/autograd/node.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// x * w, whose gradients are passed through `spoil`.
using Spoil = std::function<void(std::vector<Tensor>&)>;
test::Fn Product(const Spoil& spoil) {
  return [spoil](const std::vector<Variable>& in) {
    const Tensor x = in[0].value();
    const Tensor w = in[1].value();
    const auto times = [](double a, double b) { return a * b; };
    return autograd::Record(
        test::Zip(x, w, times),
        std::make_unique<test::TinyNode>(
            "product", std::vector<Tensor>{x, w},
            [spoil, times](test::TinyNode& node, absl::Span<const Tensor> dy) {
              std::vector<Tensor> gradients(2);
              for (size_t i = 0; i < 2; ++i) {
                if (!node.needs_grad(i)) continue;
                gradients[i] = test::Zip(dy[0], node.saved[1 - i], times);
              }
              spoil(gradients);
              return gradients;
            }),
        {&in[0], &in[1]});
  };
}

std::vector<Variable> Inputs() {
  return {test::Normal({2, 3}, 1), test::Normal({2, 3}, 2)};
}
std::vector<Variable> FrozenWeight() {
  return {test::Normal({2, 3}, 1), test::Frozen(test::Normal({2, 3}, 2))};
}

TEST(GradCheckTest, PassesRightGradients) {
  EXPECT_TRUE(test::GradCheck(Product([](auto&) {}), Inputs()));
  EXPECT_TRUE(test::GradCheck(Product([](auto&) {}), FrozenWeight()));
}

TEST(GradCheckTest, FailsOnOneWrongElement) {
  const auto result = test::GradCheck(
      Product([](auto& gradients) {
        double* values = gradients[1].template mutable_data<double>();
        values[4] *= 1 + 1e-4;
      }),
      Inputs());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("gradient of input 1 element 4"));
}

TEST(GradCheckTest, FailsOnNaN) {
  const auto result = test::GradCheck(
      Product([](auto& gradients) {
        double* values = gradients[0].template mutable_data<double>();
        values[5] = kNaN;
      }),
      Inputs());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("gradient of input 0 element 5"));
}

TEST(GradCheckTest, FailsOnUnwrittenGradient) {
  const auto result = test::GradCheck(
      Product([](auto& gradients) { gradients[1] = EmptyLike(gradients[1]); }),
      Inputs());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("gradient of input 1 element 0"));
}

TEST(GradCheckTest, FailsOnMissingGradient) {
  const auto result = test::GradCheck(
      Product([](auto& gradients) { gradients[1] = Tensor(); }), Inputs());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("product: input 1 got no gradient"));
}

TEST(GradCheckTest, FailsOnGradientForFrozenInput) {
  const auto result = test::GradCheck(
      Product([](auto& gradients) { gradients[1] = ZerosLike(gradients[0]); }),
      FrozenWeight());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(),
              HasSubstr("product: input 1 needs no gradient and got one"));
}

TEST(GradCheckTest, FailsOnWrongShape) {
  const auto result =
      test::GradCheck(Product([](auto& gradients) {
                        gradients[0] = gradients[0].Reshape({3, 2});
                      }),
                      Inputs());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(),
              HasSubstr("product: gradient of input 0 is f64 [3, 2] on cpu, "
                        "expected f64 [2, 3] on cpu"));
}

TEST(GradCheckTest, FailsWhereTheValueIsNaN) {
  const test::Fn fn = [](const std::vector<Variable>& in) {
    const Tensor x = in[0].value();
    return autograd::Record(
        test::Zip(x, Tensor(), [](double, double) { return kNaN; }),
        std::make_unique<test::TinyNode>(
            "nan", std::vector<Tensor>{},
            [](test::TinyNode&, absl::Span<const Tensor> dy) {
              return std::vector<Tensor>{dy[0]};
            }),
        {&in[0]});
  };
  EXPECT_FALSE(test::GradCheck(fn, {test::Normal({3}, 1)}));
  for (const test::Target& target : test::Targets()) {
    EXPECT_FALSE(test::MatchesReference(fn, target, {Shape{3}}));
  }
}

test::Target F32() { return {"f32", DetectIsa(), kF32, 1e-5}; }

// A result that is off by `offset` in f32 alone.
test::Fn OffInF32(double offset) {
  return [offset](const std::vector<Variable>& in) {
    const bool low = in[0].dtype() == kF32;
    const Tensor x = in[0].value();
    return autograd::Record(
        test::Zip(x, Tensor(),
                  [&](double v, double) { return v + (low ? offset : 0); }),
        std::make_unique<test::TinyNode>(
            "off", std::vector<Tensor>{},
            [](test::TinyNode&, absl::Span<const Tensor> dy) {
              return std::vector<Tensor>{dy[0]};
            }),
        {&in[0]});
  };
}

TEST(MatchesReferenceTest, FailsOnWrongAndOnNaN) {
  const std::vector<Shape> shapes{Shape{5}};
  EXPECT_TRUE(test::MatchesReference(OffInF32(0), F32(), shapes));
  EXPECT_FALSE(test::MatchesReference(OffInF32(1e-3), F32(), shapes));
  EXPECT_FALSE(test::MatchesReference(OffInF32(kNaN), F32(), shapes));
  EXPECT_FALSE(test::MatchesReference(
      OffInF32(std::numeric_limits<double>::infinity()), F32(), shapes));
}

TEST(MatchesReferenceTest, FailsOnWrongGradientInF32) {
  const test::Fn fn = [](const std::vector<Variable>& in) {
    const bool low = in[0].dtype() == kF32;
    return Product([low](auto& gradients) {
      if (low) gradients[0].template mutable_data<float>()[1] += 0.01f;
    })(in);
  };
  const auto result = test::MatchesReference(fn, F32(), {Shape{3}, Shape{3}});
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("gradient of input 0 element 1"));
}

TEST(SameBitsTest, FailsOnDifferenceBetweenThreadCounts) {
  const test::Fn fn = [](const std::vector<Variable>& in) {
    const int threads = in[0].value().device().context().pool().num_threads();
    return Product([threads](auto& gradients) {
      float* values = gradients[1].template mutable_data<float>();
      if (threads == 7) values[2] = std::nextafter(values[2], 1e9f);
    })(in);
  };
  const auto result =
      test::SameBitsForAllThreads(fn, F32(), {Shape{3}, Shape{3}});
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("gradient of input 1 at 7 threads"));
}

// A product whose two passes open regions of the given numbers of tasks.
test::Fn Splitting(int64_t forward_tasks, int64_t backward_tasks) {
  return [=](const std::vector<Variable>& in) {
    ThreadPool& pool = in[0].value().device().context().pool();
    const auto region = [&pool](int64_t tasks) {
      pool.ParallelFor(tasks, 1, [](int64_t, int64_t) {});
    };
    region(forward_tasks);
    return Product([=](auto&) { region(backward_tasks); })(in);
  };
}

TEST(SameBitsTest, FailsWithoutARegionOfSeveralTasks) {
  const auto verdict = [](const test::Fn& fn) {
    const auto result =
        test::SameBitsForAllThreads(fn, F32(), {Shape{3}, Shape{3}});
    return result ? "" : std::string(result.message());
  };
  EXPECT_EQ(verdict(Splitting(2, 2)), "");
  EXPECT_THAT(verdict(Splitting(1, 2)),
              HasSubstr("several tasks in: forward;"));
  EXPECT_THAT(verdict(Splitting(2, 1)),
              HasSubstr("several tasks in: backward;"));
  EXPECT_THAT(verdict(Splitting(0, 0)),
              HasSubstr("several tasks in: forward backward;"));
}

}  // namespace
}  // namespace espalier
