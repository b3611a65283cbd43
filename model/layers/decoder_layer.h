#ifndef ESPALIER_MODEL_LAYERS_DECODER_LAYER_H_
#define ESPALIER_MODEL_LAYERS_DECODER_LAYER_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"

#include "espalier/model/layers/feed_forward.h"
#include "espalier/model/layers/forward_pass.h"
#include "espalier/model/layers/grouped_query_attention.h"
#include "espalier/model/layers/norm.h"
#include "espalier/model/module.h"

namespace espalier {

// Pre-norm: h = x + self_attn(input_layernorm(x)),
// y = h + feed_forward(post_attention_layernorm(h)).
class DecoderLayer final : public Module {
 public:
  // The feed-forward part of the layer of this name; never null.
  using MakeFeedForward = absl::FunctionRef<std::unique_ptr<FeedForward>(
      const std::string& layer_name)>;

  // The norms' eps is that of `attention`.
  DecoderLayer(std::string name, const GroupedQueryAttentionOptions& attention,
               MakeFeedForward make_feed_forward);

  // x [T, H] -> [T, H]
  Variable Forward(const Variable& x, const ForwardPass& pass);

 private:
  RmsNormLayer& input_layernorm_;
  GroupedQueryAttention& self_attn_;
  RmsNormLayer& post_attention_layernorm_;
  FeedForward* feed_forward_;  // a child
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_DECODER_LAYER_H_
