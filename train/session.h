#ifndef ESPALIER_TRAIN_SESSION_H_
#define ESPALIER_TRAIN_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/runtime/export.h"

namespace espalier {

// What a training run is made of. Paths are files of the local system.
struct SessionConfig {
  std::string model_dir;   // config.json, safetensors, tokenizer.json
  std::string data_path;   // plain text, or JSON lines with a "text" field
  std::string output_dir;  // where SaveAdapter writes, by the tools

  // "f32": parity. "bf16": bf16 activations, f32 accumulation and adapters.
  std::string dtype = "bf16";
  int64_t lora_rank = 8;
  double lora_alpha = 16;
  std::vector<std::string> target_modules = {"all-linear"};

  double learning_rate = 2e-4;
  double weight_decay = 0;
  double warmup_ratio = 0.03;  // of max_steps
  double max_grad_norm = 1;    // 0: no clipping
  int64_t max_steps = 100;
  int64_t micro_batch_tokens = 512;
  int64_t grad_accum_steps = 1;
  int64_t max_sample_tokens = 256;  // longer documents are cut into several
  double held_out_fraction = 0.1;   // of the documents
  uint64_t seed = 0;
  int num_threads = 0;  // 0: as many as the process may use
};

// OK, or INVALID_ARGUMENT naming the field, what it is and what is expected.
// Looks at no file. Open checks it first.
ESPALIER_EXPORT absl::Status Validate(const SessionConfig& config);

struct StepResult {
  int64_t step = 0;  // from 1
  double loss = 0;   // weighted mean over the step's trained tokens
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  int64_t num_tokens = 0;
  int64_t num_trained_tokens = 0;
  double seconds = 0;
};

struct EvalResult {
  double loss = 0;  // weighted mean over all held-out tokens
  int64_t num_tokens = 0;
  int64_t num_documents = 0;
};

// One fine-tuning run inside a host application. Nothing is printed and
// nothing is read from the environment; several sessions live side by side.
// Driven by one thread at a time. After a failed Step the session is failed and
// every later call returns the same Status.
class ESPALIER_EXPORT Session {
 public:
  // Reads the model and the data, attaches the adapters. Fails, with what,
  // where, got and expected: NOT_FOUND and INVALID_ARGUMENT on files and
  // settings, RESOURCE_EXHAUSTED on memory.
  static absl::StatusOr<std::unique_ptr<Session>> Open(
      const SessionConfig& config);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // One optimizer step over grad_accum_steps micro-batches.
  absl::StatusOr<StepResult> Step();
  // Mean loss over the held-out documents; trains nothing.
  absl::StatusOr<EvalResult> Evaluate();
  // Writes adapter_config.json and adapter_model.safetensors (PEFT's layout)
  // into a new folder; all or nothing.
  absl::Status SaveAdapter(const std::string& dir);

  // What was read, attached and counted, for people: one line each.
  const std::vector<std::string>& summary() const;
  int64_t peak_bytes() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_SESSION_H_
