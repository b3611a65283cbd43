#include "espalier/model/decoder.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/model/layers/decoder_layer.h"
#include "espalier/model/layers/embedding.h"
#include "espalier/model/layers/norm.h"

namespace espalier {

namespace {

GroupedQueryAttentionOptions AttentionOf(const DecoderConfig& c, size_t layer) {
  GroupedQueryAttentionOptions options;
  options.hidden_size = c.hidden_size;
  options.num_attention_heads = c.num_attention_heads;
  options.num_key_value_heads = c.num_key_value_heads;
  options.head_dim = c.head_dim;
  options.qkv_bias = c.qkv_bias;
  options.o_bias = c.o_bias;
  options.head_norm = c.head_norm;
  options.rms_norm_eps = c.rms_norm_eps;
  options.window = c.windows[layer];
  return options;
}

class LayerList final : public Module {
 public:
  LayerList(std::string name, const DecoderConfig& c)
      : Module(std::move(name)) {
    const auto mlp = [&c](const std::string& layer) {
      return std::make_unique<SwiGluMlp>(absl::StrCat(layer, ".mlp"),
                                         c.hidden_size, c.intermediate_size,
                                         c.mlp_bias);
    };
    for (size_t i = 0; i < c.windows.size(); ++i) {
      layers_.push_back(
          &AddChild<DecoderLayer>(absl::StrCat(i), AttentionOf(c, i), mlp));
    }
  }
  const std::vector<DecoderLayer*>& layers() const { return layers_; }

 private:
  std::vector<DecoderLayer*> layers_;
};

}  // namespace

// The part of the checkpoint under "model.".
class Decoder::Body final : public Module {
 public:
  Body(std::string name, const DecoderConfig& c)
      : Module(std::move(name)),
        embed_tokens(AddChild<EmbeddingLayer>("embed_tokens", c.vocab_size,
                                              c.hidden_size)),
        layers(AddChild<LayerList>("layers", c)),
        norm(AddChild<RmsNormLayer>("norm", c.hidden_size, c.rms_norm_eps)) {}

  EmbeddingLayer& embed_tokens;
  LayerList& layers;
  RmsNormLayer& norm;
};

Decoder::Decoder(const DecoderConfig& config)
    : CausalLm(""), config_(config), body_(AddChild<Body>("model", config_)) {
  if (!config_.tie_word_embeddings) {
    lm_head_ = &AddChild<LinearLayer>("lm_head", config_.hidden_size,
                                      config_.vocab_size);
  }
}

Variable Decoder::HiddenStates(const Batch& batch) {
  Variable x = body_.embed_tokens.Forward(batch.ids);
  const RopeTable rope = MakeRopeTable(batch.positions, config_.rope,
                                       x.dtype() == kF64 ? kF64 : kF32);
  const ForwardPass pass{batch, rope};
  for (DecoderLayer* layer : body_.layers.layers()) {
    x = layer->Forward(x, pass);
  }
  return body_.norm.Forward(x);
}

Parameter& Decoder::head() {
  return lm_head_ == nullptr ? body_.embed_tokens.weight() : lm_head_->weight();
}

}  // namespace espalier
