#include "espalier/io/internal/family_builder.h"

namespace espalier {

namespace {

using R = TensorRole;

constexpr FamilyRow kRows[] = {
    {"@layers.{all}.self_attn.q_proj.weight", "N*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.k_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.v_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.o_proj.weight", "H,N*D", R::kAttention, "1/D"},
    {"@layers.{all}.self_attn.q_proj.bias", "N*D", R::kAttentionOther, "0/D"},
    {"@layers.{all}.self_attn.k_proj.bias", "G*D", R::kAttentionOther, "0/D"},
    {"@layers.{all}.self_attn.v_proj.bias", "G*D", R::kAttentionOther, "0/D"},
    {"@layers.{all}.self_attn.o_proj.bias", "H", R::kAttentionOther},
    {"@layers.{all}.self_attn.sinks", "N", R::kAttentionOther, "0"},
    {"@layers.{all}.mlp.router.weight", "E,H", R::kRouter},
    {"@layers.{all}.mlp.router.bias", "E", R::kRouter},
    // Gate and up rows take turns, so a cut keeps pairs together.
    {"@layers.{all}.mlp.experts.gate_up_proj", "E,2*I,H", R::kExpert, "1/2"},
    {"@layers.{all}.mlp.experts.gate_up_proj_bias", "E,2*I", R::kExpert, "1/2"},
    {"@layers.{all}.mlp.experts.down_proj", "E,H,I", R::kExpert, "2"},
    {"@layers.{all}.mlp.experts.down_proj_bias", "E,H", R::kExpert},
};

}  // namespace

void BuildGptOss(FamilyBuilder& b) {
  b.Read("N", "num_attention_heads");
  b.Read("G", "num_key_value_heads");
  b.Read("D", "head_dim");
  b.Read("I", "intermediate_size");
  b.Read("E", "num_local_experts");
  b.ReadOr("K", "num_experts_per_tok", 4);
  b.SetExperts(b.Get("E"), b.Get("K"));
  b.SetTransposedExperts();
  b.Label("all", "attention, moe");
  b.AddTop();
  b.Add(kRows);
}

}  // namespace espalier
