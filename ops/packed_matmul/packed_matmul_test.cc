#include "espalier/ops/packed_matmul/packed_matmul.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/packed_encode.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

struct Packing {
  PackedFormat format;
  int64_t group;
};
constexpr Packing kPackings[] = {{PackedFormat::kMxfp4, 32},
                                 {PackedFormat::kInt4, 32},
                                 {PackedFormat::kInt4, 128},
                                 {PackedFormat::kFp8Block, 128}};

// A weight whose codes and scales all differ.
PackedWeight Weight(Device& device, const Packing& packing, int64_t out,
                    int64_t in, bool lanes) {
  std::vector<float> values;
  uint32_t state = 12345;
  for (int64_t i = 0; i < out * in; ++i) {
    state = state * 1664525u + 1013904223u;
    const auto x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    values.push_back(x * (0.1f + static_cast<float>(i / 17 % 13) * 0.03f));
  }
  PackedWeight rows =
      EncodePacked(device, packing.format, packing.group, out, in, values);
  return lanes ? PrepareLanes(rows) : rows;
}

test::Fn Apply(const Packing& packing, int64_t out, bool lanes) {
  return [=](const std::vector<Variable>& in) {
    const Variable& x = in[0];
    return PackedLinear(
        x, Weight(x.value().device(), packing, out, x.shape().dim(-1), lanes));
  };
}

// In rows, of codes(row, byte) and scales(row, group).
template <typename Codes, typename Scales>
PackedWeight Mxfp4(Device& device, int64_t out, int64_t in, const Codes& codes,
                   const Scales& scales) {
  std::vector<uint8_t> code_bytes;
  std::vector<uint8_t> scale_bytes;
  for (int64_t row = 0; row < out; ++row) {
    for (int64_t byte = 0; byte < in / 2; ++byte) {
      code_bytes.push_back(static_cast<uint8_t>(codes(row, byte)));
    }
    for (int64_t group = 0; group < in / 32; ++group) {
      scale_bytes.push_back(static_cast<uint8_t>(scales(row, group)));
    }
  }
  return *PackedWeight::Create(
      PackedFormat::kMxfp4, 32, out, in,
      Tensor::FromHost<uint8_t>(device, {out, in / 2}, code_bytes),
      Tensor::FromHost<uint8_t>(device, {out, in / 32}, scale_bytes));
}

std::vector<uint8_t> Bytes(const Tensor& tensor) {
  const Tensor host = tensor.ToHost();
  const auto* data = static_cast<const uint8_t*>(host.view().pointer);
  return {data, data + host.num_bytes()};
}

TEST(PrepareLanesTest, DecodesToTheSameValuesInAsManyBytes) {
  for (const Packing& packing : kPackings) {
    for (int64_t out : {1, 16, 37, 48, 112, 130}) {
      for (int64_t in : {32, 96, 160}) {
        const PackedWeight rows =
            Weight(test::Cpu(), packing, out, in, /*lanes=*/false);
        const PackedWeight lanes = PrepareLanes(rows);
        EXPECT_EQ(Bytes(DecodeReference(rows, kF64)),
                  Bytes(DecodeReference(lanes, kF64)))
            << ToString(lanes);
        if (out % 16 == 0) {
          EXPECT_EQ(lanes.bytes(), rows.bytes()) << ToString(lanes);
        }
      }
    }
  }
}

TEST(PrepareLanesTest, TakesRaggedInputFeatures) {
  for (const Packing& packing : {kPackings[1], kPackings[3]}) {
    for (int64_t in : {1, 7, 40, 131}) {
      const PackedWeight rows =
          Weight(test::Cpu(), packing, 19, in, /*lanes=*/false);
      EXPECT_EQ(Bytes(DecodeReference(rows, kF64)),
                Bytes(DecodeReference(PrepareLanes(rows), kF64)))
          << ToString(rows);
    }
  }
}

class PackedLinearTest : public test::OpTest {};
// bf16: one rounding of each weight, of y and of dx.
INSTANTIATE_TEST_SUITE_P(Targets, PackedLinearTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 3e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(PackedLinearTest, MatchesF64Reference) {
  for (const Packing& packing : kPackings) {
    for (bool lanes : {false, true}) {
      for (const Shape& x : {Shape{0, 32}, Shape{1, 32}, Shape{2, 3, 160},
                             Shape{3, 96}, Shape{5, 320}}) {
        EXPECT_TRUE(
            test::MatchesReference(Apply(packing, 53, lanes), GetParam(), {x}))
            << ToString(packing.format) << lanes << ToString(x);
      }
    }
  }
}

TEST_P(PackedLinearTest, MatchesF64ReferenceWithRaggedInputFeatures) {
  for (const Packing& packing : {kPackings[1], kPackings[3]}) {
    for (bool lanes : {false, true}) {
      for (const Shape& x : {Shape{1, 1}, Shape{2, 41}, Shape{9, 131}}) {
        EXPECT_TRUE(
            test::MatchesReference(Apply(packing, 130, lanes), GetParam(), {x}))
            << ToString(packing.format) << lanes << ToString(x);
      }
    }
  }
}

TEST_P(PackedLinearTest, SameBitsForAllThreads) {
  for (const Packing& packing : kPackings) {
    for (bool lanes : {false, true}) {
      for (int64_t rows : {4, 61}) {
        EXPECT_TRUE(test::SameBitsForAllThreads(Apply(packing, 410, lanes),
                                                GetParam(), {{rows, 544}}));
      }
    }
  }
}

// Value and input gradient on a target, and the same through the dense Linear
// on the decoded weight.
struct Twin {
  Tensor y, dx, dense_y, dense_dx;
};
Twin RunTwin(const test::Target& target, const PackedWeight& weight,
             int64_t rows) {
  Device& device = test::ContextFor(target.isa, 2).cpu();
  const int64_t out = weight.out_features();
  const int64_t in = weight.in_features();
  const auto input = [&](int64_t columns, uint64_t seed) {
    return test::FromDoubles(
        device, {rows, columns}, target.dtype,
        ToDoubles(test::Normal({rows, columns}, seed).value()));
  };
  const Tensor cotangent = input(out, 2);
  Twin twin;
  const Variable x(input(in, 1), /*needs_grad=*/true);
  const Variable y = PackedLinear(x, weight);
  autograd::Backward(y, cotangent);
  twin.y = y.value();
  twin.dx = x.grad();
  const Variable dense_x(input(in, 1), /*needs_grad=*/true);
  const Variable dense_y =
      Linear(dense_x, Variable(DecodeReference(weight, target.dtype)), {});
  autograd::Backward(dense_y, cotangent);
  twin.dense_y = dense_y.value();
  twin.dense_dx = dense_x.grad();
  return twin;
}
Twin RunTwin(const test::Target& target, const Packing& packing, int64_t rows,
             int64_t out, int64_t in, bool lanes) {
  Device& device = test::ContextFor(target.isa, 2).cpu();
  return RunTwin(target, Weight(device, packing, out, in, lanes), rows);
}

// Few rows, tiles with and without a rest, several tiles; fewer of them in
// instrumented builds.
#if defined(ESPALIER_ASAN) || defined(ESPALIER_EMULATED)
constexpr int64_t kTwinRows[] = {1, 4, 17, 64};
constexpr int64_t kTermRows[] = {1, 9};
#else
constexpr int64_t kTwinRows[] = {1, 2, 3, 4, 5, 17, 64, 190};
constexpr int64_t kTermRows[] = {1, 3, 9, 64};
#endif

// Both are sums of the same products in the order that K alone sets.
TEST_P(PackedLinearTest, SameBitsAsTheDecodedTwin) {
  for (const Packing& packing : kPackings) {
    for (bool lanes : {false, true}) {
      for (int64_t rows : kTwinRows) {
        const Twin twin = RunTwin(GetParam(), packing, rows, 200, 1216, lanes);
        EXPECT_EQ(Bytes(twin.y), Bytes(twin.dense_y))
            << ToString(packing.format) << lanes << " rows " << rows;
        EXPECT_EQ(Bytes(twin.dx), Bytes(twin.dense_dx))
            << ToString(packing.format) << lanes << " rows " << rows;
      }
    }
  }
}

// Results and gradients with every term, packed and dense, for one out_dtype.
// The cotangent is exact in bf16.
std::vector<std::vector<uint8_t>> WithTerms(const test::Target& target,
                                            const PackedWeight& weight,
                                            int64_t rows, DType out,
                                            bool packed) {
  Device& device = weight.device();
  const auto make = [&](const Shape& shape, DType dtype, uint64_t seed) {
    const Tensor rounded = test::FromDoubles(
        device, shape, kBF16, ToDoubles(test::Normal(shape, seed).value()));
    return test::FromDoubles(device, shape, dtype, ToDoubles(rounded));
  };
  const Shape y_shape = {rows, weight.out_features()};
  const Variable x(make({rows, weight.in_features()}, target.dtype, 1), true);
  const Variable bias(make({weight.out_features()}, kBF16, 3), true);
  const Variable dense(DecodeReference(weight, target.dtype));
  LinearOptions options = {.alpha = 0.3, .beta = -0.7, .out_dtype = out};
  const auto apply = [&](const Variable& addend) {
    return packed ? PackedLinear(x, weight, bias, options, addend)
                  : Linear(x, dense, bias, options, addend);
  };
  const Variable addend(make(y_shape, out, 4), true);
  const Variable y = apply(addend);
  // The gradient is that of the dense layer in x's own dtype.
  if (!packed) options.out_dtype = target.dtype;
  const Variable same(make(y_shape, *options.out_dtype, 4), true);
  autograd::Backward(apply(same), make(y_shape, *options.out_dtype, 5));
  return {Bytes(y.value()), Bytes(x.grad()), Bytes(bias.grad())};
}

TEST_P(PackedLinearTest, TermsHaveTheBitsOfTheDecodedTwin) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  for (const Packing& packing : kPackings) {
    for (bool lanes : {false, true}) {
      // Columns of two tasks and a ragged end; one block of K, and two.
      const PackedWeight weight = Weight(device, packing, 405, 1216, lanes);
      for (int64_t rows : kTermRows) {
        for (DType out : {kF32, kBF16}) {
          EXPECT_EQ(WithTerms(GetParam(), weight, rows, out, true),
                    WithTerms(GetParam(), weight, rows, out, false))
              << ToString(weight) << " rows " << rows << " out "
              << ToString(out);
        }
      }
    }
  }
}

// x, bias and addend.
test::Fn ApplyTerms(const Packing& packing, int64_t out) {
  return [=](const std::vector<Variable>& in) {
    return PackedLinear(in[0],
                        Weight(in[0].value().device(), packing, out,
                               in[0].shape().dim(-1), /*lanes=*/true),
                        in[1], {.alpha = 0.3, .beta = -0.7}, in[2]);
  };
}

TEST_P(PackedLinearTest, TermsMatchF64Reference) {
  for (const Packing& packing : kPackings) {
    for (const Shape& x : {Shape{0, 32}, Shape{2, 3, 160}, Shape{9, 96}}) {
      EXPECT_TRUE(test::MatchesReference(ApplyTerms(packing, 53), GetParam(),
                                         {x, {53}, x.WithDim(-1, 53)}))
          << ToString(packing.format) << ToString(x);
    }
  }
  EXPECT_TRUE(test::SameBitsForAllThreads(ApplyTerms(kPackings[0], 410),
                                          GetParam(),
                                          {{61, 544}, {410}, {61, 410}}));
}

TEST_P(PackedLinearTest, LongReductionsInBothDirections) {
  for (const Packing& packing : kPackings) {
    const Twin twin = RunTwin(GetParam(), packing, 19, 1100, 2080, true);
    EXPECT_EQ(Bytes(twin.y), Bytes(twin.dense_y)) << ToString(packing.format);
    EXPECT_EQ(Bytes(twin.dx), Bytes(twin.dense_dx)) << ToString(packing.format);
  }
}

// Pieces of one product that are decoded in two ways, the middle one for its
// odd scales, share the rows of x; so do those of several blocks of rows.
TEST_P(PackedLinearTest, OddPiecesBesideOrdinaryOnes) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const PackedWeight weight = Mxfp4(
      device, 1300, 96,
      [](int64_t row, int64_t byte) {
        // No code 1 or 9: half of the smallest scale is subnormal.
        const int64_t code = (row * 7 + byte * 3) % 6 + 2;
        return code | (code ^ 8) << 4;
      },
      [](int64_t row, int64_t group) {
        return row == 500 ? 1 : 110 + (row + group) % 9;
      });
  for (bool lanes : {false, true}) {
    for (int64_t rows : {20, 600}) {
      const Twin twin =
          RunTwin(GetParam(), lanes ? PrepareLanes(weight) : weight, rows);
      EXPECT_EQ(Bytes(twin.y), Bytes(twin.dense_y)) << lanes << " " << rows;
      EXPECT_EQ(Bytes(twin.dx), Bytes(twin.dense_dx)) << lanes << " " << rows;
    }
  }
}

// Feature o has scale o % 6 of these, and codes of zeros alone if o % 4 == 0:
// zero times an infinite scale is NaN.
TEST_P(PackedLinearTest, EveryKindOfInt4Scale) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> kinds = {1.3f, -0.7f,  kInfinity,
                                    0,    1e-30f, std::nanf("")};
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  constexpr int64_t kOut = 101;
  constexpr int64_t kIn = 72;
  std::vector<int32_t> codes;
  std::vector<float> scales;
  uint32_t state = 7;
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t word = 0; word < kIn / 8; ++word) {
      state = state * 1664525u + 1013904223u;
      codes.push_back(
          static_cast<int32_t>(o % 4 == 0 ? 0x88888888u : state ^ state >> 13));
    }
    for (int64_t g = 0; g < 3; ++g) {
      scales.push_back(g == 1 ? kinds[static_cast<size_t>(o % 6)] : 0.25f);
    }
  }
  const PackedWeight rows = *PackedWeight::Create(
      PackedFormat::kInt4, 32, kOut, kIn,
      Tensor::FromHost<int32_t>(device, {kOut, kIn / 8}, codes),
      Tensor::FromHost<float>(device, {kOut, 3}, scales));
  const Variable dense(DecodeReference(rows, GetParam().dtype));
  for (bool lanes : {false, true}) {
    for (int64_t count : {1, 3, 9, 64}) {
      const Variable x(
          test::FromDoubles(device, {count, kIn}, GetParam().dtype,
                            ToDoubles(test::Normal({count, kIn}, 3).value())));
      const std::vector<double> got =
          ToDoubles(PackedLinear(x, lanes ? PrepareLanes(rows) : rows).value());
      const std::vector<double> want = ToDoubles(Linear(x, dense, {}).value());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(got[i] == want[i] ||
                    (std::isnan(got[i]) && std::isnan(want[i])))
            << got[i] << " for " << want[i] << " at " << i << " of " << count
            << " rows, lanes " << lanes;
      }
    }
  }
}

// Every E8M0 scale next to plain ones; x picks single columns.
TEST_P(PackedLinearTest, EveryMxfp4Scale) {
  Device& device = test::ContextFor(GetParam().isa, 1).cpu();
  constexpr int64_t kOut = 256;
  constexpr int64_t kIn = 64;
  const PackedWeight rows = Mxfp4(
      device, kOut, kIn,
      [](int64_t row, int64_t byte) { return byte * 17 + row; },
      [](int64_t row, int64_t group) { return group == 0 ? row : 120; });
  const std::vector<double> want = ToDoubles(DecodeReference(rows, kF32));
  std::vector<double> eye(kIn * kIn);
  for (size_t i = 0; i < kIn; ++i) eye[i * kIn + i] = 1;
  for (bool lanes : {false, true}) {
    for (int64_t count : {int64_t{3}, kIn}) {
      const Variable x(
          test::FromDoubles(device, {kIn, kIn}, GetParam().dtype, eye)
              .Slice(0, 0, count));
      const std::vector<double> got =
          ToDoubles(PackedLinear(x, lanes ? PrepareLanes(rows) : rows).value());
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t row = 0; row < kOut; ++row) {
          const double w = want[static_cast<size_t>(row * kIn + t)];
          const double y = got[static_cast<size_t>(t * kOut + row)];
          if (std::isnan(w) || (std::isinf(w) && count == kIn)) continue;
          // Subnormal weights may count as zero; inf * 0 elsewhere in the row
          // gives NaN.
          if (row == 255) {
            EXPECT_TRUE(std::isnan(y));
          } else if (!std::isinf(w) && !std::isnan(y)) {
            EXPECT_NEAR(y, w, std::abs(w) < 0x1p-126 ? 0x1p-126 : 0)
                << "scale " << row << " column " << t;
          }
        }
      }
    }
  }
}

// The weight stays as it lies: a step takes less memory than a decoded copy, or
// a packed one, would.
TEST_P(PackedLinearTest, StepsInPlaceKeepNoCopy) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const auto tag = static_cast<size_t>(MemoryTag::kWeights);
  for (const Packing& packing : kPackings) {
    const PackedWeight weight = Weight(device, packing, 2048, 3072, false);
    const Variable x(
        test::FromDoubles(device, {2, 3072}, GetParam().dtype,
                          ToDoubles(test::Normal({2, 3072}, 1).value())),
        /*needs_grad=*/true);
    const Tensor dy =
        test::FromDoubles(device, {2, 2048}, GetParam().dtype,
                          ToDoubles(test::Normal({2, 2048}, 2).value()));
    const MemoryStats before = device.allocator().stats();
    device.allocator().ResetPeak();
    const Variable y = PackedLinear(x, weight);
    autograd::Backward(y, dy);
    const MemoryStats after = device.allocator().stats();
    EXPECT_EQ(after.peak_by_tag[tag], before.by_tag[tag]) << ToString(weight);
    EXPECT_LT(after.peak_allocated - before.allocated, weight.bytes() / 2)
        << ToString(weight);
  }
}

TEST(PackedLinearGradTest, MatchesCentralDifferenceInF64) {
  for (const Packing& packing : kPackings) {
    EXPECT_TRUE(test::GradCheck(Apply(packing, 5, /*lanes=*/false),
                                {test::Normal({3, 64}, 1)}));
    const std::vector<Variable> all = {test::Normal({3, 64}, 1),
                                       test::Normal({5}, 2),
                                       test::Normal({3, 5}, 3)};
    EXPECT_TRUE(test::GradCheck(ApplyTerms(packing, 5), all));
    for (size_t frozen = 0; frozen < all.size(); ++frozen) {
      std::vector<Variable> in = all;
      in[frozen] = test::Frozen(in[frozen]);
      EXPECT_TRUE(test::GradCheck(ApplyTerms(packing, 5), in)) << frozen;
    }
  }
}

TEST(PackedLinearCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    PackedLinear(test::Normal({2, 64}, 1),
                 Weight(test::Cpu(), kPackings[0], 48, 96, false));
  });
  EXPECT_THAT(s.message(),
              ::testing::HasSubstr("weight is mxfp4 [48, 96] group 32, rows, "
                                   "2448 bytes for x [2, 64]"));
}

TEST(PackedLinearCheckTest, RefusesWhatItCannotMultiply) {
  const PackedWeight weight = Weight(test::Cpu(), kPackings[1], 48, 64, false);
  const auto message = [](const Tensor& x, const PackedWeight& w) {
    return std::string(
        internal::Guard([&] { PackedLinear(Variable(x), w); }).message());
  };
  const Tensor x = Tensor::Zeros(test::Cpu(), {64, 3}, kF32);
  EXPECT_EQ(message(Tensor::Zeros(test::Cpu(), {64}, kF32), weight), "");
  EXPECT_THAT(message(x.Transpose(0, 1), weight),
              ::testing::HasSubstr("for x [3, 64]"));
  EXPECT_THAT(message(Tensor::Zeros(test::Cpu(), {}, kF32), weight),
              ::testing::HasSubstr("for x []"));
  EXPECT_THAT(message(Tensor::Zeros(test::Cpu(), {3, 64}, kF16), weight),
              ::testing::HasSubstr("packed_linear"));
  const auto with = [&](const Variable& bias, const LinearOptions& options,
                        const Variable& addend) {
    return std::string(
        internal::Guard([&] {
          PackedLinear(test::Normal({3, 64}, 1), weight, bias, options, addend);
        }).message());
  };
  EXPECT_EQ(with(test::Normal({48}, 2), {}, test::Normal({3, 48}, 3)), "");
  EXPECT_THAT(with(test::Normal({47}, 2), {}, {}),
              ::testing::HasSubstr("bias is f64 [47] on cpu for 48 output"));
  EXPECT_THAT(with({}, {}, test::Normal({3, 64}, 3)),
              ::testing::HasSubstr("addend is f64 [3, 64] on cpu for a result "
                                   "f64 [3, 48]"));
  EXPECT_THAT(with({}, {.beta = 2}, {}),
              ::testing::HasSubstr("beta is 2 without an addend"));
  EXPECT_THAT(with({}, {.out_dtype = kF32}, {}),
              ::testing::HasSubstr("x is f64 [3, 64] on cpu, out f32"));
  Device& sim = test::Cpu().context().sim();
  const PackedWeight away = *PackedWeight::Create(
      PackedFormat::kInt4, 32, 48, 64, weight.codes().CopyTo(sim),
      weight.scales().CopyTo(sim));
  EXPECT_THAT(message(Tensor::Zeros(test::Cpu(), {3, 64}, kF32), away),
              ::testing::HasSubstr("weight is on sim, x is f32 [3, 64]"));
  const absl::Status twice =
      internal::Guard([&] { PrepareLanes(PrepareLanes(weight)); });
  EXPECT_THAT(twice.message(),
              ::testing::HasSubstr("weight is int4 [48, 64] group 32, lanes"));
}

}  // namespace
}  // namespace espalier
