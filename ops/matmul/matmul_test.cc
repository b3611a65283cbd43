#include "espalier/ops/matmul/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/autograd/backward.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

test::Fn Form(bool transpose_a, bool transpose_b, double alpha = 1) {
  return [=](const std::vector<Variable>& in) {
    return MatMul(in[0], in[1],
                  {.transpose_a = transpose_a,
                   .transpose_b = transpose_b,
                   .alpha = alpha});
  };
}

Variable Project(const std::vector<Variable>& in) {
  return Linear(in[0], in[1], in.size() > 2 ? in[2] : Variable());
}

// alpha op(a) op(b) + beta c
test::Fn Accumulate(bool transpose_a, bool transpose_b, double beta) {
  return [=](const std::vector<Variable>& in) {
    return MatMul(in[0], in[1],
                  {.transpose_a = transpose_a,
                   .transpose_b = transpose_b,
                   .alpha = 0.5,
                   .beta = beta},
                  in[2]);
  };
}

Variable ProjectOnto(const std::vector<Variable>& in) {
  return Linear(in[0], in[1], in[2], {.alpha = -0.25, .beta = 3}, in[3]);
}

struct FormShapes {
  bool transpose_a, transpose_b;
  Shape a, b;
};

std::vector<FormShapes> Shapes() {
  return {{false, false, {3, 5}, {5, 2}},
          {false, false, {0, 5}, {5, 2}},
          {false, false, {3, 0}, {0, 2}},
          {true, false, {37, 20}, {37, 50}},
          {false, true, {1, 7}, {4, 7}},
          {true, true, {9, 33}, {18, 9}},
          {false, false, {2, 3, 4, 5}, {2, 3, 5, 6}},
          {true, true, {3, 5, 4}, {3, 6, 5}},
          {false, true, {2, 3, 21}, {19, 21}},
          {false, false, {0, 3, 21}, {21, 19}}};
}

Shape ResultShape(const FormShapes& f) {
  std::vector<int64_t> dims(f.a.dims().begin(), f.a.dims().end());
  dims[dims.size() - 2] = f.a[f.transpose_a ? -1 : -2];
  dims.back() = f.b[f.transpose_b ? -2 : -1];
  return Shape(dims);
}

class MatMulTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, MatMulTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(MatMulTest, MatchesF64Reference) {
  for (const FormShapes& f : Shapes()) {
    EXPECT_TRUE(test::MatchesReference(Form(f.transpose_a, f.transpose_b, 0.5),
                                       GetParam(), {f.a, f.b}))
        << ToString(f.a) << ToString(f.b);
  }
}

TEST_P(MatMulTest, LinearMatchesF64Reference) {
  for (const Shape& x :
       {Shape{0, 8}, Shape{1, 1}, Shape{17, 33}, Shape{2, 3, 16}}) {
    for (int64_t out : {1, 50}) {
      EXPECT_TRUE(test::MatchesReference(Project, GetParam(),
                                         {x, {out, x[-1]}, {out}}));
    }
  }
}

TEST_P(MatMulTest, AddsToTheAddend) {
  std::vector<FormShapes> shapes = Shapes();
  shapes.push_back({false, false, {5, 1300}, {1300, 33}});  // blocks of K
  for (const FormShapes& f : shapes) {
    for (double beta : {-1.5, 1.0, 0.0}) {
      EXPECT_TRUE(
          test::MatchesReference(Accumulate(f.transpose_a, f.transpose_b, beta),
                                 GetParam(), {f.a, f.b, ResultShape(f)}))
          << ToString(f.a) << ToString(f.b) << beta;
    }
  }
  for (const Shape& x : {Shape{0, 8}, Shape{17, 33}, Shape{2, 3, 16}}) {
    EXPECT_TRUE(test::MatchesReference(
        ProjectOnto, GetParam(), {x, {50, x[-1]}, {50}, x.WithDim(-1, 50)}));
  }
}

// As the f32 result rounded: no rounding on the way.
TEST_P(MatMulTest, RoundsOnceWithAnAddend) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const auto make = [&](const Shape& shape, DType dtype, uint64_t seed) {
    const Tensor rounded = test::FromDoubles(
        device, shape, kBF16, ToDoubles(test::Normal(shape, seed).value()));
    return Variable(
        test::FromDoubles(device, shape, dtype, ToDoubles(rounded)));
  };
  const Variable x = make({20, 1100}, kBF16, 1);
  const Variable weight = make({35, 1100}, kBF16, 2);
  const Variable bias = make({35}, kBF16, 3);
  const auto y = [&](DType out) {
    return Linear(x, weight, bias,
                  {.alpha = 0.3, .beta = 0.7, .out_dtype = out},
                  make({20, 35}, out, 4))
        .value();
  };
  EXPECT_EQ(ToDoubles(y(kBF16)),
            ToDoubles(test::FromDoubles(device, {20, 35}, kBF16,
                                        ToDoubles(y(kF32)))));
}

TEST_P(MatMulTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(
      ProjectOnto, GetParam(), {{301, 130}, {270, 130}, {270}, {301, 270}}));
  EXPECT_TRUE(test::SameBitsForAllThreads(Project, GetParam(),
                                          {{301, 130}, {270, 130}, {270}}));
  EXPECT_TRUE(test::SameBitsForAllThreads(Form(true, false), GetParam(),
                                          {{40, 30, 20}, {40, 30, 10}}));
}

// By hand: x w^T is [[17, 39], [53, 123]].
TEST(MatMulValueTest, IsAlphaTimesTheProductPlusBetaTimesTheAddendPlusBias) {
  const auto matrix = [](const std::vector<double>& values) {
    const auto rows = static_cast<int64_t>(values.size()) / 2;
    return Variable(test::FromDoubles(test::Cpu(), {rows, 2}, kF64, values));
  };
  const Variable x = matrix({1, 3, 5, 7});
  const Variable w = matrix({5, 4, 12, 9});
  const Variable addend = matrix({10, 20, 30, 40});
  const Variable bias(test::FromDoubles(test::Cpu(), {2}, kF64, {1000, 2000}));
  const LinearOptions options = {.alpha = 2, .beta = -0.5};
  EXPECT_EQ(ToDoubles(Linear(x, w, bias, options, addend).value()),
            (std::vector<double>{1029, 2068, 1091, 2226}));
  EXPECT_EQ(
      ToDoubles(
          MatMul(x, w, {.transpose_b = true, .alpha = 2, .beta = -0.5}, addend)
              .value()),
      (std::vector<double>{29, 68, 91, 226}));
}

TEST(MatMulGradTest, MatchesCentralDifferenceInF64) {
  for (const FormShapes& f : Shapes()) {
    if (f.a.num_elements() > 200) continue;
    EXPECT_TRUE(test::GradCheck(Form(f.transpose_a, f.transpose_b, 0.5),
                                {test::Normal(f.a, 1), test::Normal(f.b, 2)}))
        << ToString(f.a) << ToString(f.b);
  }
  EXPECT_TRUE(test::GradCheck(
      Project, {test::Normal({2, 3, 4}, 1), test::Normal({5, 4}, 2),
                test::Normal({5}, 3)}));
}

TEST(MatMulGradTest, OfAddendMatchesCentralDifferenceInF64) {
  for (const FormShapes& f : Shapes()) {
    if (f.a.num_elements() > 200) continue;
    for (double beta : {-1.5, 1.0}) {
      EXPECT_TRUE(
          test::GradCheck(Accumulate(f.transpose_a, f.transpose_b, beta),
                          {test::Normal(f.a, 1), test::Normal(f.b, 2),
                           test::Normal(ResultShape(f), 3)}))
          << ToString(f.a) << ToString(f.b) << beta;
    }
  }
  const std::vector<Variable> all = {
      test::Normal({2, 3, 4}, 1), test::Normal({5, 4}, 2), test::Normal({5}, 3),
      test::Normal({2, 3, 5}, 4)};
  EXPECT_TRUE(test::GradCheck(ProjectOnto, all));
  for (size_t frozen = 0; frozen < all.size(); ++frozen) {
    std::vector<Variable> in = all;
    in[frozen] = test::Frozen(in[frozen]);
    EXPECT_TRUE(test::GradCheck(ProjectOnto, in)) << frozen;
  }
}

TEST(MatMulGradTest, BetaZeroReadsNoAddend) {
  const Variable x = test::Normal({3, 4}, 1);
  const Variable weight = test::Normal({4, 5}, 2);
  const Variable nan(test::FromDoubles(test::Cpu(), {3, 5}, kF64,
                                       std::vector<double>(15, std::nan(""))),
                     /*needs_grad=*/true);
  const Variable c = MatMul(x, weight, {.beta = 0}, nan);
  EXPECT_EQ(ToDoubles(c.value()), ToDoubles(MatMul(x, weight).value()));
  autograd::Backward(c, test::Normal({3, 5}, 3).value());
  EXPECT_EQ(ToDoubles(nan.grad()), std::vector<double>(15, 0.0));
}

TEST(MatMulGradTest, FrozenInputsGetNoGradient) {
  const Variable x = test::Normal({3, 4}, 1);
  const Variable weight = test::Normal({5, 4}, 2);
  const Variable bias = test::Normal({5}, 3);
  EXPECT_TRUE(test::GradCheck(Project, {x, test::Frozen(weight), bias}));
  EXPECT_TRUE(
      test::GradCheck(Project, {test::Frozen(x), weight, test::Frozen(bias)}));
}

TEST(MatMulMemoryTest, FrozenWeightIsSavedButNeverGetsABuffer) {
  Device& cpu = test::Cpu();
  const Variable x(Tensor::Zeros(cpu, {64, 256}, kBF16), /*needs_grad=*/true);
  const Variable weight(Tensor::Zeros(cpu, {4096, 256}, kBF16));
  const Variable y = Linear(x, weight);
  const Variable seed(Tensor::Zeros(cpu, y.shape(), kBF16));
  const int64_t before = cpu.allocator().stats().allocated;
  cpu.allocator().ResetPeak();
  autograd::Backward(y, seed.value());
  const MemoryStats stats = cpu.allocator().stats();
  const int64_t tag = static_cast<int64_t>(MemoryTag::kWorkspace);
  const int64_t workspace = stats.peak_by_tag[static_cast<size_t>(tag)];
  EXPECT_LT(stats.peak_allocated - before - workspace,
            weight.value().num_bytes() / 2);
  EXPECT_TRUE(x.grad());
  EXPECT_FALSE(weight.grad());
}

TEST(MatMulTypeTest, MixedOperandsAndChosenResult) {
  Device& cpu = test::Cpu();
  const std::vector<double> av = {1, 2, 3, 4, 5, 6};
  const Tensor a = test::FromDoubles(cpu, {2, 3}, kBF16, av);
  const Tensor b = test::FromDoubles(cpu, {3, 2}, kF32,
                                     {1 + 0x1p-20, 0, 0, 1 + 0x1p-20, 1, 1});
  const Variable c = MatMul(Variable(a), Variable(b), {.out_dtype = kF32});
  EXPECT_EQ(c.dtype(), kF32);
  EXPECT_EQ(ToDoubles(c.value()),
            (std::vector<double>{4 + 0x1p-20, 5 + 0x1p-19, 10 + 0x1p-18,
                                 11 + 5 * 0x1p-20}));
  EXPECT_EQ(MatMul(Variable(a), Variable(b)).dtype(), kBF16);
}

TEST(MatMulTypeTest, GradientsHaveTheirOperandsDType) {
  Device& cpu = test::Cpu();
  const Variable x(test::FromDoubles(cpu, {1, 2}, kBF16, {1, 2}), true);
  const Variable w(test::FromDoubles(cpu, {3, 2}, kF32, {1, 2, 3, 4, 5, 6}),
                   true);
  const Variable y = Linear(x, w, {}, {.out_dtype = kF32});
  autograd::Backward(y, test::FromDoubles(cpu, {1, 3}, kF32, {1, 1, 1}));
  EXPECT_EQ(x.grad().dtype(), kBF16);
  EXPECT_EQ(ToDoubles(x.grad()), (std::vector<double>{9, 12}));
  EXPECT_EQ(w.grad().dtype(), kF32);
  EXPECT_EQ(ToDoubles(w.grad()), (std::vector<double>{1, 2, 1, 2, 1, 2}));
}

TEST(MatMulViewTest, TakesStridedOperands) {
  const Tensor wide = test::Normal({6, 4, 10}, 1).value();
  const Variable a(wide.Transpose(0, 1).Slice(2, 3, 5));  // [4, 6, 5]
  const Variable b(wide.Transpose(0, 1).Slice(2, 1, 5));
  const Variable got = MatMul(a, b, {.transpose_b = true});
  const std::vector<double> flat = ToDoubles(wide);
  const std::vector<double> c = ToDoubles(got.value());
  for (int64_t g = 0; g < 4; ++g) {
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 6; ++j) {
        double want = 0;
        for (int64_t k = 0; k < 5; ++k) {
          want += flat[static_cast<size_t>((i * 4 + g) * 10 + 3 + k)] *
                  flat[static_cast<size_t>((j * 4 + g) * 10 + 1 + k)];
        }
        EXPECT_NEAR(c[static_cast<size_t>((g * 6 + i) * 6 + j)], want, 1e-12);
      }
    }
  }
}

TEST(MatMulCheckTest, NamesBothShapes) {
  const auto message = [](auto fn) {
    return std::string(internal::Guard(fn).message());
  };
  const Variable x = test::Normal({2, 8}, 1);
  EXPECT_THAT(message([&] {
                MatMul(x, test::Normal({4, 3}, 2));
              }),
              ::testing::HasSubstr("a is [2, 8], b is [4, 3]"));
  EXPECT_THAT(message([&] {
                MatMul(x, test::Normal({2, 8, 3}, 2));
              }),
              ::testing::HasSubstr("a [2, 8] and b [2, 8, 3]"));
  EXPECT_THAT(message([&] {
                Linear(x, test::Normal({4, 3}, 2));
              }),
              ::testing::HasSubstr("weight is [4, 3] for x [2, 8]"));
  EXPECT_THAT(
      message([&] {
        Linear(x, test::Normal({4, 8}, 2), test::Normal({5}, 3));
      }),
      ::testing::HasSubstr("bias is f64 [5] on cpu for 4 output features"));
  const Variable square = test::Normal({2, 2}, 3);
  const auto with = [&](double beta, const Variable& addend) {
    return message(
        [&] { MatMul(x, x, {.transpose_b = true, .beta = beta}, addend); });
  };
  EXPECT_EQ(with(2, square), "");
  EXPECT_THAT(with(2, {}), ::testing::HasSubstr("beta is 2 without an addend"));
  EXPECT_THAT(with(1, test::Normal({2, 3}, 3)),
              ::testing::HasSubstr("addend is f64 [2, 3] on cpu for a result "
                                   "f64 [2, 2]"));
  EXPECT_THAT(with(1, Variable(square.value().Transpose(0, 1))),
              ::testing::HasSubstr("addend is f64 [2, 2]"));
  EXPECT_THAT(with(1, Variable(Tensor::Zeros(test::Cpu(), {2, 2}, kF32))),
              ::testing::HasSubstr("addend is f32 [2, 2]"));
  EXPECT_THAT(message([&] {
                Linear(x, test::Normal({4, 8}, 2), {}, {}, square);
              }),
              ::testing::HasSubstr("addend is f64 [2, 2]"));
  const Variable narrow(Tensor::Zeros(test::Cpu(), {2, 8}, kBF16));
  const Variable weight(Tensor::Zeros(test::Cpu(), {4, 8}, kF32));
  for (const DType dtype : {kF64, kF16, kI32, kU8}) {
    const Variable bias(Tensor::Zeros(test::Cpu(), {4}, dtype));
    EXPECT_THAT(message([&] { Linear(narrow, weight, bias); }),
                ::testing::HasSubstr(absl::StrCat(
                    "bias is ", ToString(dtype),
                    " [4] on cpu for 4 output features of x bf16 [2, 8]")));
  }
  EXPECT_THAT(message([&] { MatMul(x, x, {.out_dtype = kF32}); }),
              ::testing::HasSubstr("a is [2, 8], b is [2, 8]"));
  EXPECT_THAT(
      message([&] { MatMul(x, x, {.transpose_b = true, .out_dtype = kF32}); }),
      ::testing::HasSubstr("out f32"));
}

}  // namespace
}  // namespace espalier
