#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/io/json.h"
#include "espalier/io/json_object.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/lora/attach.h"
#include "espalier/lora/lora_delta.h"
#include "espalier/lora/peft_files.h"
#include "espalier/model/registry.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/runtime/rng.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"

namespace espalier::lora {
namespace {

using ::testing::HasSubstr;

constexpr absl::string_view kConfig = R"({
  "model_type": "llama", "vocab_size": 23, "hidden_size": 10,
  "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 6, "rms_norm_eps": 1e-5,
  "tie_word_embeddings": false})";

void FillAll(Module& module, DType dtype, bool trainable) {
  module.ForEachParameter([&](Parameter& parameter) {
    Tensor value = Tensor::Empty(test::Cpu(), parameter.shape(), dtype);
    FillNormal(value, Rng{7, StreamOf(parameter.name())}, 0.1, 0.4);
    parameter.SetValue(std::move(value), trainable);
  });
}

// A frozen llama with random weights.
std::unique_ptr<CausalLm> TinyModel(DType dtype,
                                    absl::string_view config = kConfig) {
  auto json = JsonObject::Parse(config, "config");
  EXPECT_TRUE(json.ok()) << json.status();
  auto model = CreateModel(*json);
  EXPECT_TRUE(model.ok()) << model.status();
  FillAll(**model, dtype, /*trainable=*/false);
  return *std::move(model);
}

Batch TinyBatch() {
  const auto tensor = [](const std::vector<int32_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    return Tensor::FromHost<int32_t>(test::Cpu(), {count}, values);
  };
  Batch batch;
  batch.ids = tensor({3, 1, 22, 7, 7, 0, 12});
  batch.positions = tensor({0, 1, 2, 3, 0, 1, 2});
  batch.labels = tensor({1, 22, 7, -100, 0, 12, -100});
  batch.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, 4, 7});
  return batch;
}

Variable Loss(CausalLm& model) {
  const Batch batch = TinyBatch();
  return LinearCrossEntropy(model.HiddenStates(batch), model.head().variable(),
                            batch.labels)
      .loss;
}

Options Rank3() {
  Options options;
  options.lora_rank = 3;
  options.lora_alpha = 7;
  return options;
}

TEST(LoraGradientTest, EveryFactorMatchesCentralDifferencesInF64) {
  const auto model = TinyModel(kF64);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  const std::vector<Parameter*> parameters = AdapterParameters(*model);
  ASSERT_EQ(parameters.size(), 2u * 7u * 2u);
  for (Parameter* parameter : parameters) {
    Tensor value = Tensor::Empty(test::Cpu(), parameter->shape(), kF64);
    FillNormal(value, Rng{5, StreamOf(parameter->name())}, 0, 0.3);
    parameter->SetValue(std::move(value), /*trainable=*/true);
  }
  autograd::Backward(Loss(*model));
  constexpr double kStep = 1e-6;
  for (Parameter* parameter : parameters) {
    const std::vector<double> got = ToDoubles(parameter->variable().grad());
    double* values = parameter->variable().value().mutable_data<double>();
    for (size_t i = 0; i < got.size(); i += 5) {
      const double saved = values[i];
      values[i] = saved + kStep;
      const double above = ToDoubles(Loss(*model).value())[0];
      values[i] = saved - kStep;
      const double below = ToDoubles(Loss(*model).value())[0];
      values[i] = saved;
      const double want = (above - below) / (2 * kStep);
      EXPECT_NEAR(got[i], want, 1e-6 + 1e-6 * std::abs(want))
          << parameter->name() << " element " << i;
    }
  }
}

TEST(LoraGradientTest, FreshAdapterChangesNothingAndHasNoGradientInA) {
  const auto plain = TinyModel(kF32);
  const auto adapted = TinyModel(kF32);
  ASSERT_TRUE(Attach(*adapted, Rank3(), test::Cpu()).ok());
  const Variable loss = Loss(*adapted);
  EXPECT_TRUE(test::SameBits(loss.value(), Loss(*plain).value()));
  autograd::Backward(loss);
  for (Parameter* parameter : AdapterParameters(*adapted)) {
    double largest = 0;
    for (const double g : ToDoubles(parameter->variable().grad())) {
      largest = std::max(largest, std::abs(g));
    }
    if (parameter->name().find("lora_A") != std::string::npos) {
      EXPECT_EQ(largest, 0) << parameter->name();
    } else {
      EXPECT_GT(largest, 0) << parameter->name();
    }
  }
}

TEST(LoraGradientTest, FrozenWeightsGetNoGradientBuffer) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  autograd::Backward(Loss(*model));
  int64_t frozen = 0;
  model->ForEachParameter([&](Parameter& parameter) {
    if (parameter.variable().needs_grad()) return;
    ++frozen;
    EXPECT_FALSE(parameter.variable().grad()) << parameter.name();
  });
  EXPECT_EQ(frozen, 3 + 2 * 9);
}

int64_t GradientBytes(bool peak) {
  const MemoryStats stats = test::Cpu().allocator().stats();
  constexpr auto kAt = static_cast<size_t>(MemoryTag::kGradients);
  return peak ? stats.peak_by_tag[kAt] : stats.by_tag[kAt];
}

// By the allocator's account: what stays is the adapter's gradients to the
// byte, and on the way there was never room for that of one frozen matrix, the
// smallest of which (k_proj) is larger than the gradients of all activations
// that live at once.
TEST(LoraGradientTest, NoFrozenMatrixGetsGradientMemoryEvenForAMoment) {
  constexpr absl::string_view kWideConfig = R"({
    "model_type": "llama", "vocab_size": 300, "hidden_size": 256,
    "intermediate_size": 260, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 128, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false})";
  constexpr int64_t kSmallestMatrix = int64_t{128} * 256 * 4;
  const auto model = TinyModel(kF32, kWideConfig);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  const Variable loss = Loss(*model);
  test::Cpu().allocator().ResetPeak();
  const int64_t before = GradientBytes(/*peak=*/false);
  autograd::Backward(loss);
  const int64_t held = GradientBytes(/*peak=*/false) - before;
  const int64_t most = GradientBytes(/*peak=*/true) - before;

  const int64_t before_twins = GradientBytes(/*peak=*/false);
  std::vector<Tensor> twins;
  const MemoryScope scope(test::Cpu(), MemoryTag::kGradients);
  for (Parameter* parameter : AdapterParameters(*model)) {
    twins.push_back(EmptyLike(parameter->variable().value()));
  }
  EXPECT_EQ(held, GradientBytes(/*peak=*/false) - before_twins);
  EXPECT_LT(most - held, kSmallestMatrix);
}

TEST(LoraAttachTest, TableCountsModulesAndParameters) {
  const auto model = TinyModel(kF32);
  Options options = Rank3();
  options.target_modules = {"q_proj", "mlp.down_proj"};
  const auto rows = Attach(*model, options, test::Cpu());
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].target, "q_proj");
  EXPECT_EQ((*rows)[0].num_modules, 2);
  EXPECT_EQ((*rows)[0].num_parameters, 2 * 3 * (10 + 12));
  EXPECT_EQ((*rows)[1].num_parameters, 2 * 3 * (14 + 10));
}

TEST(LoraAttachTest, AnEntryThatMatchesNothingIsAnError) {
  const auto model = TinyModel(kF32);
  Options options = Rank3();
  options.target_modules = {"q_proj", "query"};
  const auto rows = Attach(*model, options, test::Cpu());
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(rows.status().message(),
              HasSubstr("\"query\" matches no linear layer; there are q_proj"));
  EXPECT_TRUE(AdapterParameters(*model).empty());
}

TEST(LoraAttachTest, ARankAboveTheWidestTargetIsAnError) {
  for (const int64_t rank : {0, 15, 14}) {
    const auto model = TinyModel(kF32);
    Options options = Rank3();
    options.target_modules = {"q_proj", "mlp.down_proj"};  // 10, 12; 14, 10
    options.lora_rank = rank;
    const auto rows = Attach(*model, options, test::Cpu());
    EXPECT_EQ(rows.ok(), rank == 14) << rows.status();
    EXPECT_EQ(AdapterParameters(*model).empty(), rank != 14);
    if (rank == 14) continue;
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(
        rows.status().message(),
        HasSubstr(absl::StrCat("lora_rank is ", rank, ", expected 1 to 14")));
  }
}

class LoraFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/lora.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(LoraFilesTest, ReloadedAdapterGivesTheSameBits) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  for (Parameter* parameter : AdapterParameters(*model)) {
    FillNormal(parameter->variable().value(),
               Rng{9, StreamOf(parameter->name())}, 0, 0.3);
  }
  const auto report =
      SaveAdapter(*model, Rank3(), "some/model", dir_ + "/adapter");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_tensors, 28);

  const auto again = TinyModel(kF32);
  ASSERT_TRUE(Attach(*again, Rank3(), test::Cpu()).ok());
  const absl::Status loaded = LoadAdapterValues(*again, dir_ + "/adapter");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(test::SameBits(Loss(*again).value(), Loss(*model).value()));

  const auto file =
      SafetensorsFile::Open(dir_ + "/adapter/adapter_model.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_NE(file->Find("base_model.model.model.layers.1.mlp.up_proj."
                       "lora_B.weight"),
            nullptr);
}

TEST_F(LoraFilesTest, RefusesAnExistingFolderAndOtherShapes) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  ASSERT_TRUE(SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").ok());
  EXPECT_EQ(
      SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").status().code(),
      absl::StatusCode::kAlreadyExists);

  const auto other = TinyModel(kF32);
  Options options = Rank3();
  options.lora_rank = 4;
  ASSERT_TRUE(Attach(*other, options, test::Cpu()).ok());
  const absl::Status loaded = LoadAdapterValues(*other, dir_ + "/adapter");
  EXPECT_THAT(loaded.message(),
              HasSubstr("f32 [3, 10] on cpu, expected f32 [4, 10]"));
}

// A run that diverged leaves no adapter behind that looks like one.
TEST_F(LoraFilesTest, RefusesNumbersThatAreNotFinite) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  Parameter* last = AdapterParameters(*model).back();
  for (const float bad : {NAN, INFINITY}) {
    last->variable().value().mutable_data<float>()[1] = bad;
    const absl::Status saved =
        SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").status();
    EXPECT_EQ(saved.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(saved.message(), HasSubstr(last->name() + ": element 1 is "));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/adapter"));
  }
}

// Case F11: an adapter without elements, or of fragments, is no adapter.
TEST_F(LoraFilesTest, RefusesFactorsThatAreNoMatrices) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  Parameter* last = AdapterParameters(*model).back();
  const Tensor whole = last->variable().value();
  for (const Shape& shape :
       {Shape{0}, Shape{0, 3}, Shape{10, 0}, Shape{30}, Shape{2, 5, 3}}) {
    Tensor fragment = Tensor::Empty(test::Cpu(), shape, kF32);
    FillNormal(fragment, Rng{1, 2}, 0, 1);
    last->variable() = Variable(std::move(fragment), /*needs_grad=*/true);
    const absl::Status saved =
        SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").status();
    EXPECT_EQ(saved.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(saved.message(), HasSubstr(last->name() + ": is f32 "));
    EXPECT_THAT(saved.message(), HasSubstr(ToString(shape)));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/adapter"));
  }
  last->variable() = Variable(whole, /*needs_grad=*/true);
  EXPECT_TRUE(SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").ok());
}

TEST_F(LoraFilesTest, RefusesAModelWithoutAdapters) {
  const auto model = TinyModel(kF32);
  EXPECT_EQ(
      SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").status().code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/adapter"));
}

// Case K3: the adapter and nothing of the base; what is foretold is enough.
TEST_F(LoraFilesTest, HoldsTwoMatricesAModuleAndNothingElse) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  const int64_t foretold = SavedBytes(*model);
  ASSERT_TRUE(SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").ok());
  const auto file =
      SafetensorsFile::Open(dir_ + "/adapter/adapter_model.safetensors");
  ASSERT_TRUE(file.ok());
  int64_t elements = 0;
  for (const SafetensorsEntry& entry : file->entries()) {
    EXPECT_THAT(entry.name, ::testing::HasSubstr(".lora_"));
    EXPECT_EQ(entry.shape.size(), 2u);
    elements += entry.shape[0] * entry.shape[1];
  }
  EXPECT_EQ(file->entries().size(), 2u * 7u * 2u);
  // q, k, v, o, gate, up, down: in + out features.
  EXPECT_EQ(elements, 2 * 3 * (22 + 16 + 16 + 22 + 24 + 24 + 24));
  int64_t written = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_ + "/adapter")) {
    written += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_LE(written, foretold);
  EXPECT_GE(written, elements * 4);
  EXPECT_LE(foretold, elements * 4 + 16384);
}

// docs/formats/adapter.md has the keys that are written, and no others.
TEST_F(LoraFilesTest, ThePageListsTheKeys) {
  const auto model = TinyModel(kF32);
  ASSERT_TRUE(Attach(*model, Rank3(), test::Cpu()).ok());
  ASSERT_TRUE(SaveAdapter(*model, Rank3(), "m", dir_ + "/adapter").ok());
  const auto config = ReadJsonFile(dir_ + "/adapter/adapter_config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  std::vector<std::string> keys;
  for (const auto& [key, value] : *config->AsObject()) keys.push_back(key);
  std::ifstream page(
      absl::StrCat(ESPALIER_SOURCE_DIR, "/docs/formats/adapter.md"));
  std::vector<std::string> listed;
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.substr(0, 3) == "## ") in_table = line == "## adapter_config.json";
    if (!in_table || line.substr(0, 3) != "| `") continue;
    listed.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(listed, keys);
}

}  // namespace
}  // namespace espalier::lora
