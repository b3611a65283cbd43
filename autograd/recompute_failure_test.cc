#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/memo.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/recompute.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using autograd::Recompute;
using autograd::RecomputeOne;
using autograd::RecomputePolicy;
using test::Leaf;
using test::TinySin;
using ::testing::HasSubstr;

using Inputs = absl::Span<const Variable>;
constexpr auto kFull = RecomputePolicy::kFull;

absl::Status BackwardFrom(const Variable& y) {
  return internal::Guard([&] { autograd::Backward(y); });
}

TEST(RecomputeFailureTest, FailureOfTheSecondRunPassesThrough) {
  const Variable x = Leaf(1, 1);
  const Variable y = RecomputeOne(kFull, "r", {&x, 1}, [](Inputs in) {
    if (autograd::Recomputing()) {
      internal::Fail(absl::ResourceExhaustedError("no room"));
    }
    return TinySin(in[0]);
  });
  const absl::Status status = BackwardFrom(y);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "no room");
  EXPECT_FALSE(x.grad());
  // The mode is what it was.
  EXPECT_FALSE(autograd::Recomputing());
  const Variable again = Leaf(1, 1);
  EXPECT_TRUE(BackwardFrom(TinySin(again)).ok());
  EXPECT_TRUE(again.grad());
  EXPECT_THAT(BackwardFrom(y).message(), HasSubstr("walked before"));
}

TEST(RecomputeFailureTest, FailureOfTheFirstRunPassesThrough) {
  const Variable x = Leaf(1, 1);
  const absl::Status status = internal::Guard([&] {
    RecomputeOne(kFull, "r", {&x, 1}, [](Inputs) -> Variable {
      internal::Fail(absl::UnavailableError("gone"));
    });
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(TinySin(x).needs_grad());
  EXPECT_TRUE(BackwardFrom(TinySin(x)).ok());
}

// What a second run that differs is answered with.
std::string Differs(const autograd::RegionFn& first,
                    const autograd::RegionFn& second) {
  const Variable x = Leaf(1, 1);
  const std::vector<Variable> out =
      Recompute(kFull, "odd", {&x, 1}, [first, second](Inputs in) {
        return autograd::Recomputing() ? second(in) : first(in);
      });
  const absl::Status status = BackwardFrom(out[0]);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(x.grad());
  return std::string(status.message());
}

std::vector<Variable> Sin(Inputs in) { return {TinySin(in[0])}; }

autograd::RegionFn Memos(const std::vector<std::string>& names) {
  return [names](Inputs in) {
    for (const std::string& name : names) {
      autograd::MemoOne(name, [&] { return in[0].value(); });
    }
    return Sin(in);
  };
}

TEST(RecomputeFailureTest, DifferentSecondRunIsRefused) {
  EXPECT_THAT(Differs(Memos({"a", "b"}), Memos({"a", "c"})),
              HasSubstr("recompute region 'odd' runs differently: c in place "
                        "of b"));
  EXPECT_THAT(Differs(Memos({"a"}), Memos({"a", "b"})),
              HasSubstr("b in place of the end"));
  EXPECT_THAT(Differs(Memos({"a", "b"}), Memos({"a"})),
              HasSubstr("it ends before b"));
  EXPECT_THAT(Differs(Sin,
                      [](Inputs in) {
                        return std::vector<Variable>{TinySin(in[0]), in[0]};
                      }),
              HasSubstr("2 results, before 1"));
  EXPECT_THAT(
      Differs(Sin,
              [](Inputs in) { return std::vector<Variable>{in[0].Detach()}; }),
      HasSubstr("result 0 is f64 [1] on cpu without gradient"));
  EXPECT_THAT(Differs(Sin,
                      [](Inputs) {
                        return std::vector<Variable>{TinySin(Leaf(2, 1))};
                      }),
              HasSubstr("result 0 is f64 [2] on cpu, before f64 [1]"));
  autograd::RngStream rng({1, 1});
  const auto take = [&rng](int count) {
    return [&rng, count](Inputs in) {
      for (int i = 0; i < count; ++i) (void)rng.Take(4);
      return Sin(in);
    };
  };
  EXPECT_THAT(Differs(take(1), take(2)), HasSubstr("more random numbers"));
  EXPECT_THAT(Differs(take(2), take(1)),
              HasSubstr("it ends before its last random numbers"));
}

TEST(RecomputeFailureTest, EscapedVariableIsRefused) {
  const Variable x = Leaf(1, 1);
  Variable escaped;
  const Variable y = RecomputeOne(kFull, "layer 3", {&x, 1}, [&](Inputs in) {
    const Variable h = TinySin(in[0]);
    if (!autograd::Recomputing()) escaped = h;
    return TinySin(h);
  });
  EXPECT_FALSE(escaped.is_leaf());
  const absl::Status used = internal::Guard([&] { TinySin(escaped); });
  EXPECT_EQ(used.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(used.message(),
              HasSubstr("made in recompute region 'layer 3' is used outside"));
  EXPECT_FALSE(internal::Guard([&] {
                 RecomputeOne(kFull, "next", {&escaped, 1},
                              [](Inputs in) { return TinySin(in[0]); });
               }).ok());
  EXPECT_FALSE(internal::Guard([&] {
                 RecomputeOne(kFull, "next", {},
                              [&](Inputs) { return TinySin(escaped); });
               }).ok());
  EXPECT_FALSE(BackwardFrom(escaped).ok());
  // Its value may be looked at.
  const NoGrad no_grad;
  EXPECT_FALSE(TinySin(escaped).needs_grad());
}

TEST(RecomputeFailureTest, BackwardInsideARegionIsRefused) {
  const Variable x = Leaf(1, 1);
  const absl::Status status = internal::Guard([&] {
    RecomputeOne(kFull, "r", {&x, 1}, [](Inputs in) {
      const Variable own = Leaf(1, 2);
      autograd::Backward(own);
      return TinySin(in[0]);
    });
  });
  EXPECT_THAT(status.message(), HasSubstr("backward inside a recompute"));
}

}  // namespace
}  // namespace espalier
