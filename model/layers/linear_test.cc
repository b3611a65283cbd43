#include "espalier/model/layers/linear.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/rng.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"

namespace espalier {
namespace {

Tensor Normal(const Shape& shape, uint64_t stream) {
  Tensor value = Tensor::Empty(test::Cpu(), shape, kBF16);
  FillNormal(value, Rng{3, stream}, 0, 1);
  return value;
}

void Fill(Module& module, bool trainable) {
  module.ForEachParameter([&](Parameter& parameter) {
    parameter.SetValue(Normal(parameter.shape(),
                              static_cast<uint64_t>(parameter.shape().ndim())),
                       trainable);
  });
}

std::vector<std::vector<double>> Step(LinearLayer& layer) {
  const Variable x(Normal({7, 40}, 11), /*needs_grad=*/true);
  const Variable y = layer.Forward(x);
  autograd::Backward(y, Normal({7, 24}, 12));
  return {ToDoubles(y.value()), ToDoubles(x.grad())};
}

TEST(LinearLayerTest, PreparedHasTheSameBits) {
  LinearLayer layer("proj", 40, 24, /*bias=*/true);
  Fill(layer, /*trainable=*/false);
  const auto in_place = Step(layer);
  EXPECT_FALSE(layer.prepared().has_value());
  layer.Prepare();
  ASSERT_TRUE(layer.prepared().has_value());
  EXPECT_GT(layer.prepared()->resident_bytes(), 0);
  EXPECT_EQ(Step(layer), in_place);
}

TEST(LinearLayerTest, PreparedNeverMultipliesWithAnotherValue) {
  LinearLayer layer("proj", 40, 24);
  Fill(layer, /*trainable=*/false);
  layer.Prepare();
  Fill(layer, /*trainable=*/false);
  const absl::Status stale = internal::Guard([&] { Step(layer); });
  EXPECT_THAT(std::string(stale.message()),
              ::testing::HasSubstr("proj.weight has another value than the one "
                                   "prepared: prepare it again"));
  layer.Prepare();
  EXPECT_TRUE(internal::Guard([&] { Step(layer); }).ok());
}

TEST(LinearLayerTest, TrainableWeightsAreNotPrepared) {
  LinearLayer layer("proj", 40, 24);
  Fill(layer, /*trainable=*/true);
  const absl::Status s = internal::Guard([&] { layer.Prepare(); });
  EXPECT_THAT(std::string(s.message()),
              ::testing::HasSubstr("proj.weight is trainable"));
}

}  // namespace
}  // namespace espalier
