#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/model/load.h"
#include "espalier/model/registry.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"

namespace espalier {
namespace {

const std::string kFixture = ESPALIER_SOURCE_DIR "/tests/fixtures/llama";

// The checkpoint of tests/oracle/llama.py, all parameters trainable, in dtype.
std::unique_ptr<CausalLm> LoadFixture(DType dtype) {
  auto model = CreateModel(kFixture);
  EXPECT_TRUE(model.ok()) << model.status();
  auto checkpoint = CheckpointReader::Open(kFixture);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto report = LoadWeights(**model, *checkpoint, test::Cpu(), dtype);
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_loaded, checkpoint->num_tensors());
  (*model)->ForEachParameter([](Parameter& parameter) {
    const Tensor value = parameter.variable().value();
    parameter.SetValue(value, /*trainable=*/true);
  });
  return *std::move(model);
}

class LlamaGoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = SafetensorsFile::Open(kFixture + "/golden.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    golden_ = std::make_unique<SafetensorsFile>(*std::move(file));
    batch_.ids = Golden("ids");
    batch_.labels = Golden("labels");
    const Tensor bounds = Golden("cu_seqlens");
    const int32_t* b = bounds.data<int32_t>();
    batch_.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
        b, b + bounds.num_elements());
    std::vector<int32_t> positions;
    for (int d = 0; d < 2; ++d) {
      for (int32_t i = b[d]; i < b[d + 1]; ++i) positions.push_back(i - b[d]);
    }
    batch_.positions = Tensor::FromHost<int32_t>(
        test::Cpu(), {static_cast<int64_t>(positions.size())}, positions);
  }

  Tensor Golden(const std::string& name) {
    auto tensor = golden_->Load(test::Cpu(), name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *std::move(tensor);
  }

  std::unique_ptr<SafetensorsFile> golden_;
  Batch batch_;
};

TEST_F(LlamaGoldenTest, LogitsLossAndEveryGradientEqualTransformers) {
  const auto model = LoadFixture(kF32);
  const Variable hidden = model->HiddenStates(batch_);
  const Variable logits = Logits(hidden, model->head().variable());
  EXPECT_LE(test::RelativeError(logits.value(), Golden("logits")), 1e-5);

  const auto result =
      LinearCrossEntropy(hidden, model->head().variable(), batch_.labels);
  EXPECT_EQ(ToDoubles(result.weight_sum)[0], 17);
  const double want = ToDoubles(Golden("loss"))[0];
  EXPECT_NEAR(ToDoubles(result.loss.value())[0] / want, 1, 1e-6);

  autograd::Backward(result.loss);
  int64_t compared = 0;
  model->ForEachParameter([&](Parameter& parameter) {
    ASSERT_TRUE(parameter.variable().grad()) << parameter.name();
    EXPECT_LE(test::RelativeError(parameter.variable().grad(),
                                  Golden("grad." + parameter.name())),
              1e-4)
        << parameter.name();
    ++compared;
  });
  EXPECT_EQ(compared, 3 + 9 * model->num_layers());
}

TEST_F(LlamaGoldenTest, OtherDocumentsDoNotChangeByOneBit) {
  const auto model = LoadFixture(kF32);
  const Tensor before =
      Logits(model->HiddenStates(batch_), model->head().variable()).value();
  std::vector<int32_t> ids(batch_.ids.data<int32_t>(),
                           batch_.ids.data<int32_t>() + 19);
  ids[3] = (ids[3] + 1) % 97;
  batch_.ids = Tensor::FromHost<int32_t>(test::Cpu(), {19}, ids);
  const Tensor after =
      Logits(model->HiddenStates(batch_), model->head().variable()).value();
  EXPECT_TRUE(test::SameBits(before.Slice(0, 13, 6), after.Slice(0, 13, 6)));
  EXPECT_FALSE(test::SameBits(before.Slice(0, 0, 13), after.Slice(0, 0, 13)));
}

}  // namespace
}  // namespace espalier
