#include "espalier/model/layers/decoder_layer.h"

#include <utility>

#include "espalier/ops/elementwise/elementwise.h"

namespace espalier {

DecoderLayer::DecoderLayer(std::string name,
                           const GroupedQueryAttentionOptions& attention,
                           MakeFeedForward make_feed_forward)
    : Module(std::move(name)),
      input_layernorm_(AddChild<RmsNormLayer>(
          "input_layernorm", attention.hidden_size, attention.rms_norm_eps)),
      self_attn_(AddChild<GroupedQueryAttention>("self_attn", attention)),
      post_attention_layernorm_(AddChild<RmsNormLayer>(
          "post_attention_layernorm", attention.hidden_size,
          attention.rms_norm_eps)) {
  std::unique_ptr<FeedForward> feed_forward = make_feed_forward(this->name());
  feed_forward_ = feed_forward.get();
  Adopt(std::move(feed_forward));
}

Variable DecoderLayer::Forward(const Variable& x, const ForwardPass& pass) {
  const Variable h =
      Add(x, self_attn_.Forward(input_layernorm_.Forward(x), pass));
  return Add(h, feed_forward_->Forward(post_attention_layernorm_.Forward(h)));
}

}  // namespace espalier
