#include "espalier/model/layers/grouped_query_attention.h"

#include <cmath>
#include <utility>

#include "espalier/ops/attention/attention.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/ops/rope/rope.h"

namespace espalier {

GroupedQueryAttention::GroupedQueryAttention(
    std::string name, const GroupedQueryAttentionOptions& options)
    : Module(std::move(name)),
      options_(options),
      q_proj_(AddChild<LinearLayer>(
          "q_proj", options.hidden_size,
          options.num_attention_heads * options.head_dim, options.qkv_bias)),
      k_proj_(AddChild<LinearLayer>(
          "k_proj", options.hidden_size,
          options.num_key_value_heads * options.head_dim, options.qkv_bias)),
      v_proj_(AddChild<LinearLayer>(
          "v_proj", options.hidden_size,
          options.num_key_value_heads * options.head_dim, options.qkv_bias)),
      o_proj_(AddChild<LinearLayer>(
          "o_proj", options.num_attention_heads * options.head_dim,
          options.hidden_size, options.o_bias)) {
  if (options.head_norm) {
    q_norm_ = &AddChild<RmsNormLayer>("q_norm", options.head_dim,
                                      options.rms_norm_eps);
    k_norm_ = &AddChild<RmsNormLayer>("k_norm", options.head_dim,
                                      options.rms_norm_eps);
  }
}

Variable GroupedQueryAttention::Project(LinearLayer& projection,
                                        const Variable& x) {
  const int64_t width = options_.head_dim;
  return Reshape(projection.Forward(x),
                 {x.shape().dim(0), projection.out_features() / width, width});
}

Variable GroupedQueryAttention::Forward(const Variable& x,
                                        const ForwardPass& pass) {
  Variable q = Project(q_proj_, x);        // [T, N, D]
  Variable k = Project(k_proj_, x);        // [T, G, D]
  const Variable v = Project(v_proj_, x);  // [T, G, D]
  if (options_.head_norm) {
    q = q_norm_->Forward(q);
    k = k_norm_->Forward(k);
  }
  AttentionOptions attention;
  attention.cu_seqlens = pass.batch.cu_seqlens;
  attention.causal = true;
  attention.window = options_.window;
  attention.scale = 1 / std::sqrt(static_cast<double>(options_.head_dim));
  const Variable o =
      Attention(Rope(q, pass.rope), Rope(k, pass.rope), v, attention);
  return o_proj_.Forward(Reshape(
      o, {x.shape().dim(0), options_.num_attention_heads * options_.head_dim}));
}

}  // namespace espalier
