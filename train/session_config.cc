#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/thread_pool.h"
#include "espalier/train/session.h"

namespace espalier {

namespace {

absl::Status OutOfRange(absl::string_view field, double got,
                        absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", got, ", expected ", expected));
}

// Of the whole numbers. The bounds are far beyond what is of use; without them
// a slip of digits takes all memory.
absl::Status CheckCounts(const SessionConfig& config) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  struct Bounds {
    absl::string_view field;
    int64_t value;
    int64_t min;
    int64_t max;
  };
  const Bounds all[] = {
      {"lora_rank", config.lora_rank, 1, kMaxLoraRank},
      {"max_steps", config.max_steps, 1, kAny},
      {"micro_batch_tokens", config.micro_batch_tokens, 1,
       kMaxMicroBatchTokens},
      {"max_held_out_tokens", config.max_held_out_tokens, 1, kAny},
      {"grad_accum_steps", config.grad_accum_steps, 1, kMaxGradAccumSteps},
      {"num_threads", config.num_threads, 0, ThreadPool::kMaxThreads}};
  for (const Bounds& each : all) {
    if (each.value >= each.min && each.value <= each.max) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        each.field, " is ", each.value, ", expected ", each.min,
        each.max == kAny ? " or more" : absl::StrCat(" to ", each.max)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SessionConfig& config) {
  if (config.model_dir.empty()) {
    return absl::InvalidArgumentError("model_dir is empty");
  }
  if (absl::Status data = Validate(config.data); !data.ok()) return data;
  if (config.dtype != "f32" && config.dtype != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype is \"", config.dtype, "\", expected \"f32\" or \"bf16\""));
  }
  if (!(config.learning_rate > 0) || !std::isfinite(config.learning_rate)) {
    return OutOfRange("learning_rate", config.learning_rate,
                      "a number above 0");
  }
  if (!(config.weight_decay >= 0) || !std::isfinite(config.weight_decay)) {
    return OutOfRange("weight_decay", config.weight_decay, "0 or more");
  }
  if (!(config.max_grad_norm >= 0) || !std::isfinite(config.max_grad_norm)) {
    return OutOfRange("max_grad_norm", config.max_grad_norm, "0 or more");
  }
  if (!(config.lora_alpha > 0) || !std::isfinite(config.lora_alpha)) {
    return OutOfRange("lora_alpha", config.lora_alpha, "a number above 0");
  }
  if (!(config.warmup_ratio >= 0 && config.warmup_ratio <= 1)) {
    return OutOfRange("warmup_ratio", config.warmup_ratio, "from 0 to 1");
  }
  for (const std::string& path : config.held_out_paths) {
    if (path.empty()) {
      return absl::InvalidArgumentError("held_out_paths holds an empty path");
    }
  }
  if (!(config.held_out_fraction >= 0 && config.held_out_fraction < 1)) {
    return OutOfRange("held_out_fraction", config.held_out_fraction,
                      "at least 0 and below 1");
  }
  if (absl::Status counts = CheckCounts(config); !counts.ok()) return counts;
  if (config.data.max_sample_tokens > config.micro_batch_tokens) {
    return OutOfRange("data.max_sample_tokens",
                      static_cast<double>(config.data.max_sample_tokens),
                      absl::StrCat("at most micro_batch_tokens = ",
                                   config.micro_batch_tokens));
  }
  return absl::OkStatus();
}

}  // namespace espalier
