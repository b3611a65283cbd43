#include "espalier/ops/delta_rule/delta_rule.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/kda_gate/kda_gate.h"
#include "espalier/ops/l2_norm/l2_norm.h"
#include "espalier/ops/reduce/reduce.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/ops/short_conv/short_conv.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

struct Layer {
  std::string name;
  double lower_bound;
  NormGate gate;
};

std::ostream& operator<<(std::ostream& out, const Layer& layer) {
  return out << layer.name;
}

// A linear-attention layer between its projections, as tests/oracle/
// delta_rule.py computes it token by token.
class DeltaRuleGoldenTest : public ::testing::TestWithParam<Layer> {
 protected:
  void SetUp() override {
    auto file = SafetensorsFile::Open(ESPALIER_SOURCE_DIR
                                      "/tests/fixtures/delta_rule/" +
                                      GetParam().name + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    golden_ = std::make_unique<SafetensorsFile>(*std::move(file));
    const Tensor bounds = Golden("cu_seqlens");
    const int32_t* b = bounds.data<int32_t>();
    cu_seqlens_ = std::make_shared<const std::vector<int32_t>>(
        b, b + bounds.num_elements());
  }

  Tensor Golden(const std::string& name) {
    auto tensor = golden_->Load(test::Cpu(), name);
    EXPECT_TRUE(tensor.ok()) << name << ": " << tensor.status();
    return *std::move(tensor);
  }

  Variable Input(const std::string& name, DType dtype) {
    const Tensor stored = Golden("in." + name);
    const auto [at, added] = inputs_.try_emplace(
        name, Variable(test::FromDoubles(test::Cpu(), stored.shape(), dtype,
                                         ToDoubles(stored)),
                       /*needs_grad=*/true));
    return at->second;
  }

  // Convolved, the final state held against the fixture.
  Variable Convolved(const std::string& name, DType dtype, double tolerance) {
    const ShortConvResult result =
        ShortConv(Input(name, dtype), Input(name + "_conv", dtype),
                  Input(name + "_past", dtype),
                  {cu_seqlens_, /*silu=*/true, /*final_state=*/true});
    EXPECT_LE(test::RelativeError(result.final_state.value(),
                                  Golden(name + "_final")),
              tolerance);
    return result.y;
  }

  Variable Heads(const Variable& x, int64_t width) {
    return Reshape(x, {x.shape()[0], -1, width});
  }

  void Check(DType dtype, int64_t chunk, double tolerance,
             double gradient_tolerance) {
    inputs_.clear();
    const Variable state = Input("state", dtype);
    const int64_t width = state.shape()[2];
    const Variable q =
        L2Norm(Heads(Convolved("q", dtype, tolerance), width), 1e-6);
    const Variable k =
        L2Norm(Heads(Convolved("k", dtype, tolerance), width), 1e-6);
    const Variable v =
        Heads(Convolved("v", dtype, tolerance), state.shape()[3]);
    const Variable g =
        KdaGate(Input("f", dtype), Input("A_log", dtype),
                Input("dt_bias", dtype), {GetParam().lower_bound});
    DeltaRuleOptions options;
    options.cu_seqlens = cu_seqlens_;
    options.chunk = chunk;
    options.final_state = true;
    const DeltaRuleResult result =
        DeltaRule(q, k, v, g, Input("beta", dtype), state, options);
    const Variable y =
        GatedRmsNorm(result.o, Input("norm", dtype), Input("gate", dtype), 1e-5,
                     GetParam().gate);
    EXPECT_LE(test::RelativeError(y.value(), Golden("y")), tolerance);
    EXPECT_LE(test::RelativeError(result.final_state.value(), Golden("final")),
              tolerance);
    const auto loss = [&](const Variable& x, const std::string& weights) {
      const Tensor w = Golden(weights);
      return Sum(Mul(x, Variable(test::FromDoubles(test::Cpu(), w.shape(),
                                                   dtype, ToDoubles(w)))));
    };
    autograd::Backward(Add(loss(y, "dy"), loss(result.final_state, "dfinal")),
                       test::FromDoubles(test::Cpu(), {}, dtype, {1}));
    for (const auto& [name, input] : inputs_) {
      EXPECT_LE(test::RelativeError(input.grad(), Golden("grad." + name)),
                gradient_tolerance)
          << name;
    }
    EXPECT_EQ(inputs_.size(), 16u);
  }

  std::unique_ptr<SafetensorsFile> golden_;
  CuSeqlens cu_seqlens_;
  std::map<std::string, Variable> inputs_;
};

INSTANTIATE_TEST_SUITE_P(
    Layers, DeltaRuleGoldenTest,
    ::testing::Values(Layer{"kimi_linear", 0, NormGate::kSigmoid},
                      Layer{"kimi_k3", -5, NormGate::kSigmoid},
                      Layer{"qwen3_next", 0, NormGate::kSilu}),
    [](const auto& info) { return info.param.name; });

// The fixture holds f32.
TEST_P(DeltaRuleGoldenTest, RecurrenceEqualsTorch) {
  Check(kF64, 64, 2e-7, 2e-7);
}

TEST_P(DeltaRuleGoldenTest, ChunksEqualTorch) {
  for (const int64_t chunk : {16, 32, 64}) Check(kF32, chunk, 1e-5, 1e-4);
}

}  // namespace
}  // namespace espalier
