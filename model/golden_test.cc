// Every family against transformers in f64: tests/oracle/dense.py wrote
// tests/fixtures/<family>. Prints the table of docs/numerics.md.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/model/load.h"
#include "espalier/model/registry.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"

namespace espalier {
namespace {

// Sums of squares of differences and of what is wanted.
struct Distance {
  double off = 0;
  double all = 0;

  void Add(const Tensor& got, const Tensor& want) {
    const std::vector<double> a = ToDoubles(got);
    const std::vector<double> b = ToDoubles(want);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      off += (a[i] - b[i]) * (a[i] - b[i]);
      all += b[i] * b[i];
    }
  }
  double relative() const { return std::sqrt(off / all); }
};

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    std::printf(
        "| family | logits | loss | worst gradient | of | bf16 logits, "
        "transformers' | bf16 gradients, transformers' |\n"
        "|---|---|---|---|---|---|---|\n");
  }

  void SetUp() override {
    auto file = SafetensorsFile::Open(Folder() + "/golden.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    golden_ = std::make_unique<SafetensorsFile>(*std::move(file));
    batch_.ids = Golden("ids");
    batch_.labels = Golden("labels");
    const Tensor bounds = Golden("cu_seqlens");
    const int32_t* b = bounds.data<int32_t>();
    bounds_.assign(b, b + bounds.num_elements());
    batch_.cu_seqlens = std::make_shared<const std::vector<int32_t>>(bounds_);
    std::vector<int32_t> positions;
    for (size_t d = 0; d + 1 < bounds_.size(); ++d) {
      for (int32_t i = bounds_[d]; i < bounds_[d + 1]; ++i) {
        positions.push_back(i - bounds_[d]);
      }
    }
    batch_.positions = Tensor::FromHost<int32_t>(
        test::Cpu(), {static_cast<int64_t>(positions.size())}, positions);
  }

  static std::string Folder() {
    return absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/", GetParam());
  }

  Tensor Golden(const std::string& name) const {
    auto tensor = golden_->Load(test::Cpu(), name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *std::move(tensor);
  }

  // As a training run has it, all frozen.
  std::unique_ptr<CausalLm> Load(DType dtype) const {
    auto model = CreateModel(Folder());
    EXPECT_TRUE(model.ok()) << model.status();
    auto checkpoint = CheckpointReader::Open(Folder());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto report = LoadWeights(**model, *checkpoint, test::Cpu(), dtype);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->num_loaded, checkpoint->num_tensors());
    return *std::move(model);
  }

  std::unique_ptr<CausalLm> LoadTrainable(DType dtype) const {
    auto model = Load(dtype);
    model->ForEachParameter([dtype](Parameter& parameter) {
      parameter.SetValue(Cast(parameter.variable().value(), dtype),
                         /*trainable=*/true);
    });
    return model;
  }

  Tensor LogitsOf(CausalLm& model) const {
    return Logits(model.HiddenStates(batch_), model.head().variable()).value();
  }

  LinearCrossEntropyResult LossOf(CausalLm& model) const {
    return LinearCrossEntropy(model.HiddenStates(batch_),
                              model.head().variable(), batch_.labels);
  }

  // Of the loss, in declaration order.
  std::vector<Tensor> GradientsOf(CausalLm& model) const {
    autograd::Backward(LossOf(model).loss);
    std::vector<Tensor> gradients;
    model.ForEachParameter([&](Parameter& parameter) {
      gradients.push_back(parameter.variable().grad());
      parameter.variable().ClearGrad();
    });
    return gradients;
  }

  void CompareInF32();
  void CompareInBf16();

  std::unique_ptr<SafetensorsFile> golden_;
  std::vector<int32_t> bounds_;
  Batch batch_;
};

// The first half of the row.
void GoldenTest::CompareInF32() {
  const Tensor want_logits = Golden("logits");
  EXPECT_LE(test::RelativeError(LogitsOf(*Load(kF32)), want_logits), 1e-5);
  const auto model = LoadTrainable(kF32);
  const double logits = test::RelativeError(LogitsOf(*model), want_logits);
  EXPECT_LE(logits, 1e-5);

  const auto result = LossOf(*model);
  const double loss = std::abs(
      ToDoubles(result.loss.value())[0] / ToDoubles(Golden("loss"))[0] - 1);
  EXPECT_LE(loss, 1e-6);

  autograd::Backward(result.loss);
  double worst = 0;
  std::string worst_name;
  int64_t compared = 0;
  model->ForEachParameter([&](Parameter& parameter) {
    const double error =
        test::RelativeError(parameter.variable().grad(),
                            Golden(absl::StrCat("grad.", parameter.name())));
    EXPECT_LE(error, 1e-4) << parameter.name();
    if (!(error <= worst)) {
      worst = error;
      worst_name = parameter.name();
    }
    ++compared;
  });
  // Beside ids, labels, cu_seqlens, logits, loss and what is of bf16.
  EXPECT_EQ(compared, static_cast<int64_t>(golden_->entries().size()) - 9);
  std::printf("| %s | %.1e | %.1e | %.1e | `%s` |", GetParam().c_str(), logits,
              loss, worst, worst_name.c_str());
}

// The second half: distances from f32 over several batches together.
void GoldenTest::CompareInBf16() {
  const auto exact = LoadTrainable(kF32);
  const auto near = LoadTrainable(kBF16);
  const Tensor ids = Golden("bf16.ids");
  const Tensor labels = Golden("bf16.labels");
  Distance logits;
  Distance gradients;
  for (int64_t i = 0; i < ids.dim(0); ++i) {
    batch_.ids = ids.Slice(0, i, 1).Reshape({ids.dim(1)});
    batch_.labels = labels.Slice(0, i, 1).Reshape({ids.dim(1)});
    logits.Add(LogitsOf(*near), LogitsOf(*exact));
    const std::vector<Tensor> want = GradientsOf(*exact);
    const std::vector<Tensor> got = GradientsOf(*near);
    for (size_t p = 0; p < want.size(); ++p) gradients.Add(got[p], want[p]);
  }
  const double their_logits = ToDoubles(Golden("bf16.logits"))[0];
  const double their_gradients = ToDoubles(Golden("bf16.gradients"))[0];
  EXPECT_LE(logits.relative(), their_logits);
  EXPECT_LE(gradients.relative(), their_gradients);
  std::printf(" %.2e, %.2e | %.2e, %.2e |\n", logits.relative(), their_logits,
              gradients.relative(), their_gradients);
}

// In f32; and in bf16 no farther from it than transformers in bf16.
TEST_P(GoldenTest, EqualsTransformers) {
  CompareInF32();
  CompareInBf16();
}

TEST_P(GoldenTest, AnotherDocumentChangesNoBit) {
  const auto model = Load(kF32);
  const Tensor logits = LogitsOf(*model);
  const Tensor losses = LossOf(*model).token_losses;
  const auto same = [&](const Tensor& a, const Tensor& b, size_t d) {
    const int64_t length = bounds_[d + 1] - bounds_[d];
    return test::SameBits(a.Slice(0, bounds_[d], length),
                          b.Slice(0, bounds_[d], length));
  };
  const Tensor ids = batch_.ids;
  const size_t num_documents = bounds_.size() - 1;
  for (size_t changed = 0; changed < num_documents; ++changed) {
    const int32_t* before = ids.data<int32_t>();
    std::vector<int32_t> other(before, before + ids.num_elements());
    // Near the end, where the next document is within every window.
    int32_t& id = other[static_cast<size_t>(bounds_[changed + 1]) - 3];
    id = id == 0 ? 1 : id - 1;
    batch_.ids = Tensor::FromHost<int32_t>(test::Cpu(), ids.shape(), other);
    const Tensor other_logits = LogitsOf(*model);
    const Tensor other_losses = LossOf(*model).token_losses;
    for (size_t d = 0; d < num_documents; ++d) {
      EXPECT_EQ(same(logits, other_logits, d), d != changed);
      EXPECT_EQ(same(losses, other_losses, d), d != changed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest,
                         ::testing::ValuesIn(ModelFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace espalier
