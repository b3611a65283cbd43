#ifndef ESPALIER_MODEL_LAYERS_GROUPED_QUERY_ATTENTION_H_
#define ESPALIER_MODEL_LAYERS_GROUPED_QUERY_ATTENTION_H_

#include <cstdint>
#include <string>

#include "espalier/model/layers/forward_pass.h"
#include "espalier/model/layers/linear.h"
#include "espalier/model/layers/norm.h"
#include "espalier/model/module.h"

namespace espalier {

struct GroupedQueryAttentionOptions {
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // of hidden_size independent
  bool qkv_bias = false;
  bool o_bias = false;
  // q_norm and k_norm, RMSNorm [D] on each head before it is turned.
  bool head_norm = false;
  double rms_norm_eps = 0;  // of these
  int64_t window = 0;       // a token sees that many, itself too; 0: all before
};

// Causal attention of N query heads over G key/value heads of width D, each
// turned by its position (arXiv:2305.13245), inside each document. Children
// q_proj, k_proj, v_proj, o_proj and, with head_norm, q_norm and k_norm.
class GroupedQueryAttention final : public Module {
 public:
  GroupedQueryAttention(std::string name,
                        const GroupedQueryAttentionOptions& options);

  // x [T, H] -> [T, H]
  Variable Forward(const Variable& x, const ForwardPass& pass);

 private:
  // [T, H] -> [T, heads, D]
  Variable Project(LinearLayer& projection, const Variable& x);

  const GroupedQueryAttentionOptions options_;
  LinearLayer& q_proj_;
  LinearLayer& k_proj_;
  LinearLayer& v_proj_;
  LinearLayer& o_proj_;
  RmsNormLayer* q_norm_ = nullptr;  // absent without head_norm
  RmsNormLayer* k_norm_ = nullptr;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_GROUPED_QUERY_ATTENTION_H_
