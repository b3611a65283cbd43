#include "espalier/model/llama/model.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/model/layers/embedding.h"
#include "espalier/model/layers/norm.h"
#include "espalier/ops/attention/attention.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/ops/swiglu/swiglu.h"

namespace espalier::llama {

namespace {

class SelfAttention final : public Module {
 public:
  SelfAttention(std::string name, const Config& c)
      : Module(std::move(name)),
        config_(c),
        q_proj_(AddChild<LinearLayer>("q_proj", c.hidden_size,
                                      c.num_attention_heads * c.head_dim,
                                      c.attention_bias)),
        k_proj_(AddChild<LinearLayer>("k_proj", c.hidden_size,
                                      c.num_key_value_heads * c.head_dim,
                                      c.attention_bias)),
        v_proj_(AddChild<LinearLayer>("v_proj", c.hidden_size,
                                      c.num_key_value_heads * c.head_dim,
                                      c.attention_bias)),
        o_proj_(AddChild<LinearLayer>("o_proj",
                                      c.num_attention_heads * c.head_dim,
                                      c.hidden_size, c.attention_bias)) {}

  Variable Forward(const Variable& x, const Batch& batch,
                   const RopeTable& rope) {
    const int64_t tokens = x.shape().dim(0);
    const int64_t heads = config_.num_attention_heads;
    const int64_t kv_heads = config_.num_key_value_heads;
    const int64_t width = config_.head_dim;
    const Variable q =
        Rope(Reshape(q_proj_.Forward(x), {tokens, heads, width}), rope);
    const Variable k =
        Rope(Reshape(k_proj_.Forward(x), {tokens, kv_heads, width}), rope);
    const Variable v = Reshape(v_proj_.Forward(x), {tokens, kv_heads, width});
    AttentionOptions options;
    options.cu_seqlens = batch.cu_seqlens;
    options.causal = true;
    options.scale = 1 / std::sqrt(static_cast<double>(width));
    const Variable o = Attention(q, k, v, options);  // [T, N, D]
    return o_proj_.Forward(Reshape(o, {tokens, heads * width}));
  }

 private:
  const Config& config_;
  LinearLayer& q_proj_;
  LinearLayer& k_proj_;
  LinearLayer& v_proj_;
  LinearLayer& o_proj_;
};

class Mlp final : public Module {
 public:
  Mlp(std::string name, const Config& c)
      : Module(std::move(name)),
        gate_proj_(AddChild<LinearLayer>("gate_proj", c.hidden_size,
                                         c.intermediate_size, c.mlp_bias)),
        up_proj_(AddChild<LinearLayer>("up_proj", c.hidden_size,
                                       c.intermediate_size, c.mlp_bias)),
        down_proj_(AddChild<LinearLayer>("down_proj", c.intermediate_size,
                                         c.hidden_size, c.mlp_bias)) {}

  Variable Forward(const Variable& x) {
    return down_proj_.Forward(
        SwiGlu(gate_proj_.Forward(x), up_proj_.Forward(x)));
  }

 private:
  LinearLayer& gate_proj_;
  LinearLayer& up_proj_;
  LinearLayer& down_proj_;
};

class Layer final : public Module {
 public:
  Layer(std::string name, const Config& c)
      : Module(std::move(name)),
        input_layernorm_(AddChild<RmsNormLayer>("input_layernorm",
                                                c.hidden_size, c.rms_norm_eps)),
        self_attn_(AddChild<SelfAttention>("self_attn", c)),
        post_attention_layernorm_(AddChild<RmsNormLayer>(
            "post_attention_layernorm", c.hidden_size, c.rms_norm_eps)),
        mlp_(AddChild<Mlp>("mlp", c)) {}

  Variable Forward(const Variable& x, const Batch& batch,
                   const RopeTable& rope) {
    const Variable h =
        Add(x, self_attn_.Forward(input_layernorm_.Forward(x), batch, rope));
    return Add(h, mlp_.Forward(post_attention_layernorm_.Forward(h)));
  }

 private:
  RmsNormLayer& input_layernorm_;
  SelfAttention& self_attn_;
  RmsNormLayer& post_attention_layernorm_;
  Mlp& mlp_;
};

class LayerList final : public Module {
 public:
  LayerList(std::string name, const Config& c) : Module(std::move(name)) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.push_back(&AddChild<Layer>(absl::StrCat(i), c));
    }
  }
  const std::vector<Layer*>& layers() const { return layers_; }

 private:
  std::vector<Layer*> layers_;
};

}  // namespace

// The part of the checkpoint under "model.".
class Body final : public Module {
 public:
  Body(std::string name, const Config& c)
      : Module(std::move(name)),
        embed_tokens(AddChild<EmbeddingLayer>("embed_tokens", c.vocab_size,
                                              c.hidden_size)),
        layers(AddChild<LayerList>("layers", c)),
        norm(AddChild<RmsNormLayer>("norm", c.hidden_size, c.rms_norm_eps)) {}

  EmbeddingLayer& embed_tokens;
  LayerList& layers;
  RmsNormLayer& norm;
};

Model::Model(const Config& config)
    : CausalLm(""), config_(config), body_(AddChild<Body>("model", config_)) {
  if (!config_.tie_word_embeddings) {
    lm_head_ = &AddChild<LinearLayer>("lm_head", config_.hidden_size,
                                      config_.vocab_size);
  }
}

Variable Model::HiddenStates(const Batch& batch) {
  Variable x = body_.embed_tokens.Forward(batch.ids);
  const RopeTable rope = MakeRopeTable(batch.positions, config_.rope,
                                       x.dtype() == kF64 ? kF64 : kF32);
  for (Layer* layer : body_.layers.layers()) {
    x = layer->Forward(x, batch, rope);
  }
  return body_.norm.Forward(x);
}

Parameter& Model::head() {
  return lm_head_ == nullptr ? body_.embed_tokens.weight() : lm_head_->weight();
}

absl::StatusOr<std::unique_ptr<CausalLm>> Create(const JsonObject& json) {
  const auto config = ParseConfig(json);
  if (!config.ok()) return config.status();
  return std::make_unique<Model>(*config);
}

}  // namespace espalier::llama
