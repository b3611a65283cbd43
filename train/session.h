#ifndef ESPALIER_TRAIN_SESSION_H_
#define ESPALIER_TRAIN_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/data_report.h"
#include "espalier/runtime/export.h"
#include "espalier/train/data_config.h"

namespace espalier {

// Bounds of settings. A rank is also at most the most features that one of the
// target modules has.
inline constexpr int64_t kMaxLoraRank = 65536;
inline constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 24;
inline constexpr int64_t kMaxGradAccumSteps = int64_t{1} << 20;

// What a training run is made of. Paths are files of the local system.
struct SessionConfig {
  std::string model_dir;  // config.json, safetensors, the tokenizer
  DataConfig data;        // what is trained on
  // What Evaluate reads; empty: the records of `data` whose content hash is
  // below held_out_fraction of all hashes, which are not trained on then.
  std::vector<std::string> held_out_paths;
  double held_out_fraction = 0.1;
  // Evaluate reads the first micro-batches that have this many tokens.
  int64_t max_held_out_tokens = 65536;
  // Where the adapter will be saved, or empty. Open makes sure that nothing is
  // there, not even an empty folder or a symbolic link, that a folder can be
  // made there and that the disk has room for the adapter, so that none that
  // is trained is without a place. Held until the session ends: another one is
  // refused meanwhile (".NAME.lock" beside it).
  std::string output_dir;

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
  // Samples are packed into micro-batches of at most this many tokens; at
  // least data.max_sample_tokens.
  int64_t micro_batch_tokens = 2048;
  int64_t grad_accum_steps = 1;
  uint64_t seed = 0;    // of the adapters and the order of the data
  int num_threads = 0;  // to 1024; 0: as many as the process may use
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
  double seconds = 0;  // with waiting for data
};

struct EvalResult {
  double loss = 0;  // weighted mean over all held-out tokens
  int64_t num_tokens = 0;
  int64_t num_samples = 0;  // pieces of long ones each
};

// One fine-tuning run inside a host application. Nothing is printed and
// nothing is read from the environment; several sessions live side by side.
// Driven by one thread at a time; another of its own reads and tokenises a few
// micro-batches ahead. After a Step or an Evaluate that failed while computing
// the session is failed and every later call returns the same Status. A
// SaveAdapter that failed may be tried again. Between calls its threads sleep.
class ESPALIER_EXPORT Session {
 public:
  // Reads the model and the data, attaches the adapters. Fails, with what,
  // where, got and expected: NOT_FOUND and INVALID_ARGUMENT on files and
  // settings, OUT_OF_RANGE on lora_rank and target_modules that do not suit the
  // model, ALREADY_EXISTS on output_dir, ABORTED while another session has it,
  // RESOURCE_EXHAUSTED on memory and disk space.
  static absl::StatusOr<std::unique_ptr<Session>> Open(
      const SessionConfig& config);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // One optimizer step over grad_accum_steps micro-batches. The loss is the sum
  // of the weighted token losses of all of them over the sum of the weights.
  // Fails, naming the place, on a bad record (data.skip_bad_records): nothing
  // was computed then, and what was trained can be evaluated and saved. Fails
  // DATA_LOSS, naming it, when a model file was changed where it lies: its
  // pages are the weights, and touching those that it lost ends the process,
  // which one that shrinks during the step still does. Then, too, what was
  // trained can be saved.
  absl::StatusOr<StepResult> Step();
  // Mean loss over the held-out data; trains nothing. Fails FAILED_PRECONDITION
  // when it is not finite, and on changed model files, as Step does.
  absl::StatusOr<EvalResult> Evaluate();
  // Writes adapter_config.json and adapter_model.safetensors (PEFT's layout)
  // into a new folder; all or nothing.
  absl::Status SaveAdapter(const std::string& dir);

  // What was read, attached and counted, for people: one line each.
  const std::vector<std::string>& summary() const;
  // What became of the data up to the last micro-batch of Step. Samples are
  // read a few packs before they are trained on.
  const DataReport& data_report() const;
  int64_t peak_bytes() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_SESSION_H_
