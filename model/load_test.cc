#include "espalier/model/load.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/model/registry.h"
#include "espalier/tests/support/env.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<NamedTensor>;

constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

std::string FixtureOf(const std::string& family) {
  return absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/", family);
}

Tensors ReadAll(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  Tensors tensors;
  for (const SafetensorsEntry& entry : file->entries()) {
    auto tensor = file->Load(test::Cpu(), entry);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    tensors.push_back({entry.name, *std::move(tensor)});
  }
  return tensors;
}

NamedTensor& Find(Tensors& tensors, const std::string& name) {
  for (NamedTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no " << name;
  return tensors.front();
}

// Loads the fixture of a family from a folder with other tensors.
class Loader {
 public:
  explicit Loader(const std::string& family)
      : tensors(ReadAll(FixtureOf(family) + "/model.safetensors")) {
    std::string pattern = ::testing::TempDir() + "/load.XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) dir_ = pattern;
    auto created = CreateModel(FixtureOf(family));
    EXPECT_TRUE(created.ok()) << created.status();
    model = *std::move(created);
  }
  ~Loader() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  absl::StatusOr<LoadReport> Load(const Tensors& with) {
    const absl::Status written =
        WriteSafetensors(dir_ + "/model.safetensors", with);
    EXPECT_TRUE(written.ok()) << written;
    auto checkpoint = CheckpointReader::Open(dir_, ReadMode::kRead);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return LoadWeights(*model, *checkpoint, test::Cpu(), kF32);
  }
  // The message that refuses them.
  std::string Refusal(const Tensors& with) {
    return std::string(Load(with).status().message());
  }

  const Tensors tensors;
  std::unique_ptr<CausalLm> model;

 private:
  std::string dir_;
};

class LoadTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LoadTest, NoTensorMayBeMissing) {
  Loader loader(GetParam());
  ASSERT_TRUE(loader.Load(loader.tensors).ok());
  for (size_t i = 0; i < loader.tensors.size(); ++i) {
    Tensors fewer = loader.tensors;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_THAT(loader.Refusal(fewer), HasSubstr(loader.tensors[i].name));
  }
}

TEST_P(LoadTest, NoTensorMayBeLeftOver) {
  Loader loader(GetParam());
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.1.self_attn.sinks", "model.layers.70.mlp.up_proj.weight",
        "model.norm.bias", "rotary_emb.inv_freq.weight"}) {
    Tensors more = loader.tensors;
    more.push_back({name, loader.tensors.front().tensor});
    EXPECT_THAT(loader.Refusal(more),
                HasSubstr(absl::StrCat(
                    "1 tensors that this model does not have: ", name)));
  }
}

TEST_P(LoadTest, ShapesAndDtypesMustBeRight) {
  Loader loader(GetParam());
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  Tensors turned = loader.tensors;
  Tensor& weight = Find(turned, name).tensor;
  weight = weight.Reshape({weight.dim(1), weight.dim(0)});
  EXPECT_THAT(loader.Refusal(turned), HasSubstr(name + ": shape ["));
  Tensors whole = loader.tensors;
  Tensor& numbers = Find(whole, name).tensor;
  numbers = Tensor::Zeros(test::Cpu(), numbers.shape(), kI32);
  EXPECT_THAT(loader.Refusal(whole), HasSubstr(name + ": dtype i32"));
}

// Older savers stored the frequencies, which follow from config.json.
TEST_P(LoadTest, StoredFrequenciesAreCounted) {
  Loader loader(GetParam());
  Tensors more = loader.tensors;
  for (const char* layer : {"0", "1"}) {
    more.push_back(
        {absl::StrCat("model.layers.", layer, ".self_attn.rotary_emb.inv_freq"),
         Tensor::Zeros(test::Cpu(), {4}, kF32)});
  }
  const auto report = loader.Load(more);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_frequencies, 2);
  EXPECT_THAT(ToString(*report),
              HasSubstr("2 of rotary frequencies passed over"));
  EXPECT_EQ(loader.Load(loader.tensors)->num_frequencies, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, LoadTest,
                         ::testing::ValuesIn(ModelFamilies()),
                         [](const auto& info) { return info.param; });

// qwen3's fixture ties its head: either name may be stored, or both alike.
TEST(LoadTiedTest, OneOfTheNamesIsEnough) {
  Loader loader("qwen3");
  ASSERT_TRUE(loader.model->tied_head());
  Tensors both = loader.tensors;
  both.push_back({kHead, Find(both, kEmbedding).tensor});
  const auto report = loader.Load(both);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_tied, 1);

  Loader fresh("qwen3");
  Tensors head_alone = fresh.tensors;
  Find(head_alone, kEmbedding).name = kHead;
  const auto other = fresh.Load(head_alone);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->num_tied, 1);
  EXPECT_EQ(ToDoubles(fresh.model->head().variable().value()),
            ToDoubles(Find(head_alone, kHead).tensor));
}

TEST(LoadTiedTest, TwoThatDifferAreRefused) {
  Loader loader("qwen3");
  Tensors both = loader.tensors;
  const Tensor embedding = Find(both, kEmbedding).tensor;
  both.push_back({kHead, Tensor::Zeros(test::Cpu(), embedding.shape(), kBF16)});
  EXPECT_THAT(loader.Refusal(both), HasSubstr("both are stored and differ"));
}

}  // namespace
}  // namespace espalier
