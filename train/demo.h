#ifndef ESPALIER_TRAIN_DEMO_H_
#define ESPALIER_TRAIN_DEMO_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

#include "espalier/runtime/export.h"

namespace espalier {

struct DemoOptions {
  uint64_t seed = 1;
  int64_t pretrain_steps = 150;
  int num_threads = 0;
  // Called after every pre-training step with its number and its mean loss.
  std::function<void(int64_t step, double loss)> on_step;
  // Called with a folder that a killed run for `dir` left and this one removed.
  std::function<void(const std::string& path)> on_removed;
};

// Makes everything the first run needs, out of nothing: texts written by two
// little grammars (pretrain.txt: tales; finetune.txt: recipes), a byte-fallback
// BPE vocabulary learned on them (tokenizer.json), and a Llama checkpoint of
// 0.3 M parameters (model/config.json, model/model.safetensors, bf16) trained
// on the tales only. `dir` must not exist. Same options, same bytes.
ESPALIER_EXPORT absl::Status WriteDemo(const std::string& dir,
                                       const DemoOptions& options);

}  // namespace espalier

#endif  // ESPALIER_TRAIN_DEMO_H_
