#include "espalier/train/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/json_object.h"
#include "espalier/io/mapped_files.h"
#include "espalier/io/output_place.h"
#include "espalier/lora/attach.h"
#include "espalier/lora/peft_files.h"
#include "espalier/model/load.h"
#include "espalier/model/registry.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/train/internal/corpus.h"
#include "espalier/train/internal/loss.h"
#include "espalier/train/optimizer.h"
#include "espalier/train/schedule.h"

namespace espalier {

namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// Whatever stands there, a dangling link too, is not the adapter's place.
absl::Status CheckFree(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code error;
  const auto found = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(found)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("output_dir: ", path,
                   " is there already, expected the name of a new folder"));
}

absl::Status OfOutputDir(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("output_dir: ", status.message()));
}

// "" where samples fit the positions that the model was made for, or where it
// does not say.
std::string PositionWarning(const SessionConfig& config) {
  const auto json = JsonObject::ReadFile(config.model_dir + "/config.json");
  int64_t most = 0;
  if (!json.ok() || !json->GetOptional("max_position_embeddings", &most).ok() ||
      most < 1 || config.data.max_sample_tokens <= most) {
    return "";
  }
  return absl::StrCat("warning: data.max_sample_tokens is ",
                      config.data.max_sample_tokens,
                      ", the model's max_position_embeddings ", most,
                      ": it has not met the positions beyond");
}

Schedule MakeSchedule(const SessionConfig& config) {
  Schedule schedule;
  schedule.peak = config.learning_rate;
  schedule.total_steps = config.max_steps;
  schedule.warmup_steps = static_cast<int64_t>(
      std::ceil(config.warmup_ratio * static_cast<double>(config.max_steps)));
  return schedule;
}

}  // namespace

class Session::Impl {
 public:
  explicit Impl(const SessionConfig& config)
      : config_(config), schedule_(MakeSchedule(config)) {}

  absl::Status Open();
  // The micro-batches of one step.
  absl::StatusOr<std::vector<Batch>> NextBatches();
  StepResult Step(const std::vector<Batch>& batches);
  EvalResult Evaluate();
  absl::Status SaveAdapter(const std::string& dir);
  // Whether the weights' files are what was mapped.
  absl::Status CheckWeights() const { return mapped_.CheckUnchanged(); }

  // When a computation has ended: what ended the session is kept, and the
  // workers sleep until the next, whatever the host does in between.
  void EndCall(const absl::Status& status) {
    failed = status;
    context_->pool().Park();
  }

  absl::Status failed;  // what ended the session
  std::vector<std::string> summary;
  const DataReport& data_report() const { return corpus_->report(); }
  int64_t peak_bytes() const {
    return context_->cpu().allocator().stats().peak_allocated;
  }

 private:
  absl::Status OpenModel();
  absl::Status OpenData();

  const SessionConfig config_;
  const Schedule schedule_;
  std::optional<OutputPlace> output_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<CausalLm> model_;
  MappedFiles mapped_;  // that model_ points into
  lora::Options lora_options_;
  std::unique_ptr<AdamWOptimizer> optimizer_;
  std::unique_ptr<Corpus> corpus_;
};

absl::Status Session::Impl::Open() {
  if (!config_.output_dir.empty()) {
    absl::Status free = CheckFree(config_.output_dir);
    if (!free.ok()) return free;
    auto place = OutputPlace::Hold(config_.output_dir);
    if (!place.ok()) return OfOutputDir(place.status());
    output_.emplace(*std::move(place));
  }
  ContextOptions options;
  options.num_threads = config_.num_threads;
  auto context = Context::Create(options);
  if (!context.ok()) return context.status();
  context_ = *std::move(context);
  absl::Status model = OpenModel();
  if (!model.ok()) return model;
  return OpenData();
}

absl::Status Session::Impl::OpenModel() {
  auto model = CreateModel(config_.model_dir);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  auto checkpoint = CheckpointReader::Open(config_.model_dir, ReadMode::kAuto);
  if (!checkpoint.ok()) return checkpoint.status();
  const DType dtype = config_.dtype == "f32" ? kF32 : kBF16;
  Device& device = context_->cpu();
  const auto report = LoadWeights(*model_, *checkpoint, device, dtype);
  if (!report.ok()) return report.status();
  mapped_ = checkpoint->catalog().Mapped();
  summary.push_back(
      absl::StrCat("model ", config_.model_dir, ": ", ToString(*report)));

  lora_options_.lora_rank = config_.lora_rank;
  lora_options_.lora_alpha = config_.lora_alpha;
  lora_options_.target_modules = config_.target_modules;
  lora_options_.seed = config_.seed;
  const auto rows = lora::Attach(*model_, lora_options_, device);
  if (!rows.ok()) return rows.status();
  summary.push_back(lora::ToString(*rows));
  if (output_) {
    absl::Status space = output_->CheckSpace(lora::SavedBytes(*model_));
    if (!space.ok()) return OfOutputDir(space);
  }
  AdamWOptions adamw;
  adamw.weight_decay = config_.weight_decay;
  optimizer_ =
      std::make_unique<AdamWOptimizer>(lora::AdapterParameters(*model_), adamw);
  return absl::OkStatus();
}

absl::Status Session::Impl::OpenData() {
  CorpusOptions options;
  options.micro_batch_tokens = config_.micro_batch_tokens;
  options.held_out_paths = config_.held_out_paths;
  options.held_out_fraction = config_.held_out_fraction;
  options.max_held_out_tokens = config_.max_held_out_tokens;
  options.seed = config_.seed;
  auto corpus = Corpus::Open(config_.model_dir, config_.data,
                             model_->vocab_size(), options);
  if (!corpus.ok()) return corpus.status();
  corpus_ = *std::move(corpus);
  for (std::string& line : corpus_->Summary()) {
    summary.push_back(std::move(line));
  }
  std::string warning = PositionWarning(config_);
  if (!warning.empty()) summary.push_back(std::move(warning));
  return CheckWeights();
}

absl::StatusOr<std::vector<Batch>> Session::Impl::NextBatches() {
  std::vector<Batch> batches(static_cast<size_t>(config_.grad_accum_steps));
  for (Batch& batch : batches) {
    const auto more = corpus_->NextTrain(context_->cpu(), &batch);
    if (!more.ok()) return more.status();
    ESPALIER_CHECK(*more, "training data without end has ended");
  }
  return batches;
}

StepResult Session::Impl::Step(const std::vector<Batch>& batches) {
  StepResult result;
  double loss = 0;
  double weight = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    const LossSum sum = TokenLoss(*model_, batch);
    if (!std::isfinite(sum.loss)) {
      internal::Fail(absl::FailedPreconditionError(
          absl::StrCat("loss is ", sum.loss, " at step ",
                       optimizer_->num_steps() + 1, ", micro-batch ", i)));
    }
    autograd::Backward(sum.value);
    loss += sum.loss;
    weight += sum.weight;
    result.num_tokens += batch.ids.num_elements();
    result.num_trained_tokens += batch.num_trained;
  }
  result.step = optimizer_->num_steps() + 1;
  result.learning_rate = schedule_.At(result.step);
  result.grad_norm =
      optimizer_->Step(result.learning_rate, weight, config_.max_grad_norm);
  result.loss = loss / weight;
  return result;
}

EvalResult Session::Impl::Evaluate() {
  const NoGrad no_grad;
  EvalResult result;
  double loss = 0;
  double weight = 0;
  for (int64_t i = 0; i < corpus_->num_held_out_batches(); ++i) {
    const Batch batch = corpus_->HeldOut(context_->cpu(), i);
    const LossSum sum = TokenLoss(*model_, batch);
    loss += sum.loss;
    weight += sum.weight;
    result.num_tokens += batch.num_trained;
    result.num_samples += static_cast<int64_t>(batch.cu_seqlens->size()) - 1;
  }
  result.loss = weight > 0 ? loss / weight : 0;
  if (!std::isfinite(result.loss)) {
    internal::Fail(absl::FailedPreconditionError(
        absl::StrCat("held-out loss is ", result.loss, " after step ",
                     optimizer_->num_steps())));
  }
  return result;
}

absl::Status Session::Impl::SaveAdapter(const std::string& dir) {
  return lora::SaveAdapter(*model_, lora_options_, config_.model_dir, dir)
      .status();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Open(
    const SessionConfig& config) {
  const absl::Status valid = Validate(config);
  if (!valid.ok()) return valid;
  auto impl = std::make_unique<Impl>(config);
  absl::Status opened;
  const absl::Status guarded = internal::Guard([&] { opened = impl->Open(); });
  if (!guarded.ok()) return guarded;
  if (!opened.ok()) return opened;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

absl::StatusOr<StepResult> Session::Step() {
  if (!impl_->failed.ok()) return impl_->failed;
  const auto start = std::chrono::steady_clock::now();
  if (absl::Status same = impl_->CheckWeights(); !same.ok()) return same;
  absl::StatusOr<std::vector<Batch>> batches = std::vector<Batch>();
  const absl::Status guarded =
      internal::Guard([&] { batches = impl_->NextBatches(); });
  if (!guarded.ok()) return guarded;
  if (!batches.ok()) return batches.status();
  auto result =
      internal::GuardValue<StepResult>([&] { return impl_->Step(*batches); });
  impl_->EndCall(result.status());
  if (result.ok()) result->seconds = SecondsSince(start);
  return result;
}

absl::StatusOr<EvalResult> Session::Evaluate() {
  if (!impl_->failed.ok()) return impl_->failed;
  if (absl::Status same = impl_->CheckWeights(); !same.ok()) return same;
  auto result =
      internal::GuardValue<EvalResult>([&] { return impl_->Evaluate(); });
  impl_->EndCall(result.status());
  return result;
}

absl::Status Session::SaveAdapter(const std::string& dir) {
  if (!impl_->failed.ok()) return impl_->failed;
  absl::Status saved;
  const absl::Status guarded =
      internal::Guard([&] { saved = impl_->SaveAdapter(dir); });
  return guarded.ok() ? saved : guarded;
}

const std::vector<std::string>& Session::summary() const {
  return impl_->summary;
}

const DataReport& Session::data_report() const { return impl_->data_report(); }

int64_t Session::peak_bytes() const { return impl_->peak_bytes(); }

}  // namespace espalier
