#include "espalier/train/demo.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/autograd/backward.h"
#include "espalier/io/atomic_directory.h"
#include "espalier/io/atomic_file.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/model/registry.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/rng.h"
#include "espalier/train/internal/corpus.h"
#include "espalier/train/internal/demo_text.h"
#include "espalier/train/internal/loss.h"
#include "espalier/train/optimizer.h"
#include "espalier/train/schedule.h"

namespace espalier {

namespace {

constexpr int64_t kTales = 1500;
constexpr int64_t kRecipes = 400;
constexpr int64_t kMerges = 192;
constexpr int64_t kVocabSize = 512;
constexpr double kInitialDeviation = 0.08;
constexpr int64_t kMicroBatchTokens = 512;
constexpr int64_t kMaxSampleTokens = 256;

constexpr absl::string_view kConfigJson = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": 512,
  "hidden_size": 96,
  "intermediate_size": 256,
  "num_hidden_layers": 3,
  "num_attention_heads": 6,
  "num_key_value_heads": 2,
  "head_dim": 16,
  "hidden_act": "silu",
  "max_position_embeddings": 512,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "attention_bias": false,
  "mlp_bias": false,
  "tie_word_embeddings": true,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "torch_dtype": "bfloat16"
}
)";

constexpr absl::string_view kTokenizerConfigJson = R"({
  "bos_token": "<s>",
  "eos_token": "</s>",
  "unk_token": "<unk>",
  "tokenizer_class": "PreTrainedTokenizerFast"
}
)";

void InitialiseAll(CausalLm& model, uint64_t seed, Device& device) {
  model.ForEachParameter([&](Parameter& parameter) {
    Tensor value = Tensor::Empty(device, parameter.shape(), kF32);
    const Rng rng{seed, StreamOf(parameter.name())};
    if (parameter.shape().ndim() == 1) {
      FillUniform(value, rng, 1, 1);  // norm weights
    } else {
      FillNormal(value, rng, 0, kInitialDeviation);
    }
    parameter.SetValue(std::move(value), /*trainable=*/true);
  });
}

std::vector<Parameter*> AllParameters(CausalLm& model) {
  std::vector<Parameter*> parameters;
  model.ForEachParameter([&](Parameter& p) { parameters.push_back(&p); });
  return parameters;
}

void Pretrain(CausalLm& model, Corpus& corpus, Device& device,
              const DemoOptions& options) {
  AdamWOptimizer optimizer(AllParameters(model), AdamWOptions());
  Schedule schedule;
  schedule.peak = 3e-3;
  schedule.floor = 3e-4;
  schedule.warmup_steps = 10;
  schedule.total_steps = options.pretrain_steps;
  for (int64_t step = 1; step <= options.pretrain_steps; ++step) {
    Batch batch;
    const auto more = corpus.NextTrain(device, &batch);
    if (!more.ok()) internal::Fail(more.status());
    const LossSum sum = TokenLoss(model, batch);
    autograd::Backward(sum.value);
    optimizer.Step(schedule.At(step), sum.weight, /*max_grad_norm=*/1);
    if (options.on_step) options.on_step(step, sum.loss / sum.weight);
  }
}

absl::Status SaveModel(CausalLm& model, const std::string& path) {
  std::vector<NamedTensor> tensors;
  model.ForEachParameter([&](Parameter& parameter) {
    tensors.push_back(
        {parameter.name(), Cast(parameter.variable().value(), kBF16)});
  });
  return WriteSafetensors(path, tensors, {{"format", "pt"}});
}

absl::Status WriteTexts(const std::string& dir, uint64_t seed) {
  const std::vector<std::string> tales = demo::Tales(kTales, seed);
  const std::vector<std::string> recipes = demo::Recipes(kRecipes, seed);
  std::vector<std::string> all = tales;
  all.insert(all.end(), recipes.begin(), recipes.end());
  const auto merges = demo::LearnMerges(all, kMerges);
  const std::pair<std::string, std::string> files[] = {
      {"/pretrain.txt", demo::JoinDocuments(tales)},
      {"/finetune.txt", demo::JoinDocuments(recipes)},
      {"/model/tokenizer.json", demo::TokenizerJson(all, merges)},
      {"/model/tokenizer_config.json", std::string(kTokenizerConfigJson)},
      {"/model/config.json", std::string(kConfigJson)}};
  for (const auto& [name, text] : files) {
    absl::Status status = WriteFileAtomically(absl::StrCat(dir, name), text);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Fill(const std::string& dir, const DemoOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(dir + "/model", error);
  if (error) {
    return absl::DataLossError(absl::StrCat(dir, ": ", error.message()));
  }
  absl::Status status = WriteTexts(dir, options.seed);
  if (!status.ok()) return status;
  ContextOptions context_options;
  context_options.num_threads = options.num_threads;
  auto context = Context::Create(context_options);
  if (!context.ok()) return context.status();
  Device& device = (*context)->cpu();
  auto model = CreateModel(dir + "/model");
  if (!model.ok()) return model.status();
  CorpusOptions corpus_options;
  corpus_options.micro_batch_tokens = kMicroBatchTokens;
  corpus_options.held_out_fraction = 0;
  corpus_options.seed = options.seed;
  DataConfig data;
  data.paths = {dir + "/pretrain.txt"};
  data.max_sample_tokens = kMaxSampleTokens;
  auto corpus = Corpus::Open(dir + "/model", data, kVocabSize, corpus_options);
  if (!corpus.ok()) return corpus.status();
  const absl::Status trained = internal::Guard([&] {
    InitialiseAll(**model, options.seed, device);
    Pretrain(**model, **corpus, device, options);
    status = SaveModel(**model, dir + "/model/model.safetensors");
  });
  return trained.ok() ? status : trained;
}

}  // namespace

absl::Status WriteDemo(const std::string& dir, const DemoOptions& options) {
  if (options.pretrain_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pretrain_steps is ", options.pretrain_steps, ", expected 0 or more"));
  }
  auto target = AtomicDirectory::Create(dir);
  if (!target.ok()) return target.status();
  for (const std::string& path : target->removed()) {
    if (options.on_removed) options.on_removed(path);
  }
  absl::Status filled = Fill(target->path(), options);
  if (!filled.ok()) return filled;
  return target->Commit();
}

}  // namespace espalier
