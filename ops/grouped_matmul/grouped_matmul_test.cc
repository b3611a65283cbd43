#include "espalier/ops/grouped_matmul/grouped_matmul.h"

#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/packed_matmul/packed_matmul.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/packed_encode.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// A large group, two empty ones, one of a single row.
const std::vector<int64_t> kOffsets = {0, 3, 3, 61, 62, 62, 75};
constexpr int64_t kExperts = 6;
constexpr int64_t kRows = 75;

Variable Dense(const std::vector<Variable>& in) {
  return GroupedMatMul(in[0], in[1], kOffsets);
}

std::vector<PackedWeight> PackedExperts(Device& device, int64_t out,
                                        int64_t in) {
  std::vector<PackedWeight> weights;
  for (int64_t e = 0; e < kExperts; ++e) {
    std::vector<float> values;
    for (double v : ToDoubles(
             test::Normal({out, in}, static_cast<uint64_t>(e + 9)).value())) {
      values.push_back(static_cast<float>(0.2 * v));
    }
    const PackedFormat format = e < 2   ? PackedFormat::kMxfp4
                                : e < 4 ? PackedFormat::kInt4
                                        : PackedFormat::kFp8Block;
    const int64_t group = e < 4 ? 32 : 128;
    const PackedWeight rows =
        EncodePacked(device, format, group, out, in, values);
    weights.push_back(e % 2 == 0 ? rows : PrepareLanes(rows));
  }
  return weights;
}

test::Fn Packed(int64_t out) {
  return [=](const std::vector<Variable>& in) {
    return GroupedMatMul(
        in[0], PackedExperts(in[0].value().device(), out, in[0].shape().dim(1)),
        kOffsets);
  };
}

class GroupedMatMulTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, GroupedMatMulTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 3e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(GroupedMatMulTest, MatchesF64Reference) {
  for (int64_t in : {1, 7, 33, 130}) {
    EXPECT_TRUE(test::MatchesReference(Dense, GetParam(),
                                       {{kRows, in}, {kExperts, 53, in}}))
        << in;
  }
}

TEST_P(GroupedMatMulTest, PackedMatchesF64Reference) {
  EXPECT_TRUE(test::MatchesReference(Packed(53), GetParam(), {{kRows, 160}}));
}

TEST_P(GroupedMatMulTest, NoRowsAtAll) {
  const test::Fn fn = [](const std::vector<Variable>& in) {
    return GroupedMatMul(in[0], in[1], std::vector<int64_t>{0, 0, 0});
  };
  EXPECT_TRUE(test::MatchesReference(fn, GetParam(), {{0, 8}, {2, 5, 8}}));
}

TEST_P(GroupedMatMulTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(
      Dense, GetParam(), {{kRows, 130}, {kExperts, 410, 130}}));
  EXPECT_TRUE(
      test::SameBitsForAllThreads(Packed(410), GetParam(), {{kRows, 160}}));
}

std::vector<uint8_t> Bytes(const Tensor& tensor) {
  const Tensor host = tensor.ToHost();
  const auto* data = static_cast<const uint8_t*>(host.view().pointer);
  return {data, data + host.num_bytes()};
}

// A row does not know which rows came along.
TEST_P(GroupedMatMulTest, SameBitsAsOneLinearPerExpert) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const auto input = [&](const Shape& shape, uint64_t seed) {
    return test::FromDoubles(device, shape, GetParam().dtype,
                             ToDoubles(test::Normal(shape, seed).value()));
  };
  constexpr int64_t kIn = 1120;  // two cuts of K
  constexpr int64_t kOut = 100;
  const Variable x(input({kRows, kIn}, 1), /*needs_grad=*/true);
  const Variable w(input({kExperts, kOut, kIn}, 2), /*needs_grad=*/true);
  const Tensor dy = input({kRows, kOut}, 3);
  const Variable y = GroupedMatMul(x, w, kOffsets);
  autograd::Backward(y, dy);
  for (size_t e = 0; e < kExperts; ++e) {
    const int64_t begin = kOffsets[e];
    const int64_t count = kOffsets[e + 1] - begin;
    const auto expert = static_cast<int64_t>(e);
    const Variable xe(x.value().Slice(0, begin, count), true);
    const Variable we(w.value().Slice(0, expert, 1).Reshape({kOut, kIn}), true);
    const Variable ye = Linear(xe, we, {});
    autograd::Backward(ye, dy.Slice(0, begin, count));
    EXPECT_EQ(Bytes(y.value().Slice(0, begin, count)), Bytes(ye.value())) << e;
    EXPECT_EQ(Bytes(x.grad().Slice(0, begin, count)), Bytes(xe.grad())) << e;
    EXPECT_EQ(Bytes(w.grad().Slice(0, expert, 1)), Bytes(we.grad())) << e;
  }
}

// Gradients that go past the caches equal those of one expert alone, which do
// not.
TEST_P(GroupedMatMulTest, LargeWeightGradientsMatch) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  constexpr int64_t kOut = 2048;
  constexpr int64_t kIn = 2080;  // no whole number of tasks
  const auto input = [&](const Shape& shape, uint64_t seed) {
    return test::FromDoubles(device, shape, GetParam().dtype,
                             ToDoubles(test::Normal(shape, seed).value()));
  };
  const Variable x(input({20, kIn}, 1), /*needs_grad=*/false);
  const Variable w(Tensor::Zeros(device, {2, kOut, kIn}, GetParam().dtype),
                   /*needs_grad=*/true);
  const Tensor dy = input({20, kOut}, 3);
  ASSERT_GE(w.value().num_bytes(), kStreamBytes);
  autograd::Backward(GroupedMatMul(x, w, std::vector<int64_t>{0, 3, 20}), dy);
  const Variable we(Tensor::Zeros(device, {kOut, kIn}, GetParam().dtype),
                    /*needs_grad=*/true);
  autograd::Backward(Linear(Variable(x.value().Slice(0, 3, 17)), we, {}),
                     dy.Slice(0, 3, 17));
  EXPECT_EQ(Bytes(w.grad().Slice(0, 1, 1)), Bytes(we.grad()));
}

TEST_P(GroupedMatMulTest, AdaptersInF32BesideTheRowsDType) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const Variable x(
      test::FromDoubles(device, {kRows, 40}, GetParam().dtype,
                        ToDoubles(test::Normal({kRows, 40}, 1).value())),
      true);
  const Variable w(
      test::FromDoubles(device, {kExperts, 9, 40}, kF32,
                        ToDoubles(test::Normal({kExperts, 9, 40}, 2).value())),
      true);
  const Variable y = GroupedMatMul(x, w, kOffsets, kF32);
  EXPECT_EQ(y.dtype(), kF32);
  autograd::Backward(y, ZerosLike(y.value()));
  EXPECT_EQ(x.grad().dtype(), GetParam().dtype);
  EXPECT_EQ(w.grad().dtype(), kF32);
  const std::vector<double> got = ToDoubles(y.value());
  const std::vector<double> want = ToDoubles(
      Dense({Variable(test::FromDoubles(test::Cpu(), {kRows, 40}, kF64,
                                        ToDoubles(x.value()))),
             Variable(test::FromDoubles(test::Cpu(), {kExperts, 9, 40}, kF64,
                                        ToDoubles(w.value())))})
          .value());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
}

TEST(GroupedMatMulGradTest, MatchesCentralDifferenceInF64) {
  const std::vector<int64_t> offsets = {0, 2, 2, 5};
  const test::Fn fn = [&](const std::vector<Variable>& in) {
    return GroupedMatMul(in[0], in[1], offsets);
  };
  EXPECT_TRUE(test::GradCheck(
      fn, {test::Normal({5, 4}, 1), test::Normal({3, 2, 4}, 2)}));
  EXPECT_TRUE(test::GradCheck(
      fn, {test::Normal({5, 4}, 1), test::Frozen(test::Normal({3, 2, 4}, 2))}));
  EXPECT_TRUE(test::GradCheck(
      fn, {test::Frozen(test::Normal({5, 4}, 1)), test::Normal({3, 2, 4}, 2)}));
  EXPECT_TRUE(test::GradCheck(Packed(3), {test::Normal({kRows, 32}, 1)}));
}

TEST(GroupedMatMulCheckTest, RefusesWhatDoesNotFit) {
  const auto message = [](const std::vector<int64_t>& offsets,
                          const Shape& weight) {
    return std::string(internal::Guard([&] {
                         GroupedMatMul(test::Normal({5, 4}, 1),
                                       test::Normal(weight, 2), offsets);
                       }).message());
  };
  EXPECT_THAT(message({0, 2, 5}, {2, 3, 6}),
              ::testing::HasSubstr("weight is [2, 3, 6] for x [5, 4]"));
  EXPECT_THAT(message({0, 5}, {2, 3, 4}),
              ::testing::HasSubstr("2 offsets for 2 experts"));
  EXPECT_THAT(message({0, 2, 4}, {2, 3, 4}),
              ::testing::HasSubstr("offsets from 0 to 4 for 5 rows"));
  EXPECT_THAT(message({0, 6, 5}, {2, 3, 4}),
              ::testing::HasSubstr("offset 2 is 5 after 6"));
}

TEST(GroupedMatMulCheckTest, RefusesDTypesThatDoNotMix) {
  const auto message = [](DType x, DType weight, DType out) {
    return std::string(
        internal::Guard([&] {
          GroupedMatMul(Variable(Tensor::Zeros(test::Cpu(), {5, 4}, x)),
                        Variable(Tensor::Zeros(test::Cpu(), {2, 3, 4}, weight)),
                        std::vector<int64_t>{0, 2, 5}, out);
        }).message());
  };
  EXPECT_EQ(message(kF32, kBF16, kBF16), "");
  EXPECT_THAT(message(kF64, kF32, kF64),
              ::testing::HasSubstr("x is f64 [5, 4] on cpu, weight is f32"));
  EXPECT_THAT(message(kF32, kF16, kF32),
              ::testing::HasSubstr("weight is f16 [2, 3, 4] on cpu, out f32"));
  EXPECT_THAT(message(kI32, kF32, kF32),
              ::testing::HasSubstr("x is i32 [5, 4] on cpu"));
  EXPECT_THAT(message(kF32, kF32, kF64), ::testing::HasSubstr("out f64"));
}

TEST(GroupedMatMulCheckTest, RefusesPackedWeightsThatDoNotFit) {
  const auto message = [](const std::vector<PackedWeight>& weights,
                          const std::vector<int64_t>& offsets, DType dtype) {
    return std::string(
        internal::Guard([&] {
          GroupedMatMul(Variable(Tensor::Zeros(test::Cpu(), {5, 64}, dtype)),
                        weights, offsets);
        }).message());
  };
  const auto weight = [](int64_t out, int64_t in) {
    return EncodePacked(
        test::Cpu(), PackedFormat::kInt4, 32, out, in,
        std::vector<float>(static_cast<size_t>(out * in), 1.0f));
  };
  const PackedWeight fits = weight(7, 64);
  EXPECT_EQ(message({fits, fits}, {0, 2, 5}, kF32), "");
  EXPECT_THAT(message({}, {0}, kF32),
              ::testing::HasSubstr("no weights for x [5, 64]"));
  EXPECT_THAT(message({fits, weight(8, 64)}, {0, 2, 5}, kF32),
              ::testing::HasSubstr("weight is int4 [8, 64]"));
  EXPECT_THAT(message({fits, weight(7, 32)}, {0, 2, 5}, kF32),
              ::testing::HasSubstr("weight is int4 [7, 32]"));
  EXPECT_THAT(message({fits, fits}, {0, 5}, kF32),
              ::testing::HasSubstr("2 offsets for 2 experts"));
  EXPECT_THAT(message({fits, fits}, {0, 2, 5}, kI32),
              ::testing::HasSubstr("grouped_matmul"));
  Device& sim = test::Cpu().context().sim();
  const PackedWeight away = *PackedWeight::Create(PackedFormat::kInt4, 32, 7,
                                                  64, fits.codes().CopyTo(sim),
                                                  fits.scales().CopyTo(sim));
  EXPECT_THAT(
      message({fits, away}, {0, 2, 5}, kF32),
      ::testing::HasSubstr("weight is on sim, x is f32 [5, 64] on cpu"));
}

TEST(HostOffsetsTest, ReadsATensor) {
  const Tensor offsets = Tensor::FromHost<int64_t>(
      test::Cpu(), {3}, std::vector<int64_t>{0, 2, 5});
  EXPECT_THAT(HostOffsets(offsets), ::testing::ElementsAre(0, 2, 5));
}

}  // namespace
}  // namespace espalier
