#ifndef ESPALIER_MODEL_DECODER_H_
#define ESPALIER_MODEL_DECODER_H_

#include <cstdint>

#include "espalier/model/causal_lm.h"
#include "espalier/model/decoder_config.h"

namespace espalier {

// A stack of pre-norm layers of grouped-query attention and SwiGLU between
// embedding and norm: what the dense families are, each by its config.
class Decoder final : public CausalLm {
 public:
  explicit Decoder(const DecoderConfig& config);

  Variable HiddenStates(const Batch& batch) override;
  Parameter& head() override;
  bool tied_head() const override { return config_.tie_word_embeddings; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t num_layers() const override { return config_.num_hidden_layers; }

 private:
  class Body;

  const DecoderConfig config_;
  Body& body_;
  LinearLayer* lm_head_ = nullptr;  // null where tied
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_DECODER_H_
