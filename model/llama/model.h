#ifndef ESPALIER_MODEL_LLAMA_MODEL_H_
#define ESPALIER_MODEL_LLAMA_MODEL_H_

#include <memory>

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/causal_lm.h"
#include "espalier/model/llama/config.h"

namespace espalier::llama {

class Body;

// The Llama architecture (arXiv:2302.13971, released configs of meta-llama):
// pre-norm, half-split rotary embedding, grouped-query attention, SwiGLU.
class Model final : public CausalLm {
 public:
  explicit Model(const Config& config);

  Variable HiddenStates(const Batch& batch) override;
  Parameter& head() override;
  bool tied_head() const override { return config_.tie_word_embeddings; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t num_layers() const override { return config_.num_hidden_layers; }

 private:
  const Config config_;
  Body& body_;
  LinearLayer* lm_head_ = nullptr;  // null where tied
};

// For the registry.
absl::StatusOr<std::unique_ptr<CausalLm>> Create(const JsonObject& json);

}  // namespace espalier::llama

#endif  // ESPALIER_MODEL_LLAMA_MODEL_H_
