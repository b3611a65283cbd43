#include <algorithm>
#include <string>

#include "espalier/io/internal/family_builder.h"

namespace espalier {

namespace {

using R = TensorRole;
constexpr SafetensorsDType kBF = SafetensorsDType::kBF16;
constexpr SafetensorsDType kF = SafetensorsDType::kF32;

// V vocabulary, H hidden size, N heads, G key-value heads, D head dim, I width
// of the MLP, E experts, X width of an expert, S width of the shared expert.
constexpr FamilyRow kCommon[] = {
    {"@layers.{all}.self_attn.q_proj.weight", "N*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.k_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.v_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{all}.self_attn.o_proj.weight", "H,N*D", R::kAttention, "1/D"},
    {"@layers.{all}.self_attn.q_proj.bias", "N*D", R::kAttentionOther, "0/D",
     kBF, "qkv_bias"},
    {"@layers.{all}.self_attn.k_proj.bias", "G*D", R::kAttentionOther, "0/D",
     kBF, "qkv_bias"},
    {"@layers.{all}.self_attn.v_proj.bias", "G*D", R::kAttentionOther, "0/D",
     kBF, "qkv_bias"},
    {"@layers.{all}.self_attn.o_proj.bias", "H", R::kAttentionOther, "", kBF,
     "o_bias"},
    {"@layers.{all}.self_attn.q_norm.weight", "D", R::kNorm, "", kBF,
     "head_norm"},
    {"@layers.{all}.self_attn.k_norm.weight", "D", R::kNorm, "", kBF,
     "head_norm"},
    {"@layers.{all}.self_attn.q_norm.weight", "N*D", R::kNorm, "0/D", kBF,
     "wide_norm"},
    {"@layers.{all}.self_attn.k_norm.weight", "G*D", R::kNorm, "0/D", kBF,
     "wide_norm"},
    {"@layers.{all}.self_attn.rotary_emb.inv_freq", "D/2", R::kAttentionOther,
     "", kF, "", true},
};

constexpr FamilyRow kDenseMlp[] = {
    {"@layers.{dense}.mlp.gate_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.up_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.down_proj.weight", "H,I", R::kMlp, "1"},
    {"@layers.{dense}.mlp.gate_proj.bias", "I", R::kMlp, "0", kBF, "mlp_bias"},
    {"@layers.{dense}.mlp.up_proj.bias", "I", R::kMlp, "0", kBF, "mlp_bias"},
    {"@layers.{dense}.mlp.down_proj.bias", "H", R::kMlp, "", kBF, "mlp_bias"},
};

constexpr FamilyRow kQwenMoe[] = {
    {"@layers.{moe}.mlp.gate.weight", "E,H", R::kRouter},
    {"@layers.{moe}.mlp.experts.{e}.gate_proj.weight", "X,H", R::kExpert, "0"},
    {"@layers.{moe}.mlp.experts.{e}.up_proj.weight", "X,H", R::kExpert, "0"},
    {"@layers.{moe}.mlp.experts.{e}.down_proj.weight", "H,X", R::kExpert, "1"},
    {"@layers.{moe}.mlp.shared_expert.gate_proj.weight", "S,H",
     R::kSharedExpert, "0", kBF, "S"},
    {"@layers.{moe}.mlp.shared_expert.up_proj.weight", "S,H", R::kSharedExpert,
     "0", kBF, "S"},
    {"@layers.{moe}.mlp.shared_expert.down_proj.weight", "H,S",
     R::kSharedExpert, "1", kBF, "S"},
    {"@layers.{moe}.mlp.shared_expert_gate.weight", "1,H", R::kRouter, "", kBF,
     "S"},
};

constexpr FamilyRow kMixtral[] = {
    {"@layers.{moe}.block_sparse_moe.gate.weight", "E,H", R::kRouter},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w1.weight", "X,H", R::kExpert,
     "0"},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w3.weight", "X,H", R::kExpert,
     "0"},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w2.weight", "H,X", R::kExpert,
     "1"},
};

void ReadAttention(FamilyBuilder& b) {
  b.Read("N", "num_attention_heads");
  b.ReadOr("G", "num_key_value_heads", b.Get("N"));
  const int64_t heads = b.Get("N");
  b.ReadOr("D", "head_dim", heads > 0 ? b.Get("H") / heads : 0);
}

}  // namespace

void BuildLlama(FamilyBuilder& b) {
  const std::string& type = b.facts().model_type;
  ReadAttention(b);
  b.Read("I", "intermediate_size");
  const bool bias = b.ReadBool("attention_bias", false);
  b.Set("qkv_bias", bias || type == "qwen2" ? 1 : 0);
  b.Set("o_bias", bias && type != "qwen2" ? 1 : 0);
  b.Set("mlp_bias", b.ReadBool("mlp_bias", false) ? 1 : 0);
  b.Set("head_norm", type == "qwen3" ? 1 : 0);
  b.SetLayers("dense", b.Layers("all"));
  b.Label("all", "attention");
  b.Label("dense", "mlp");
  b.AddTop();
  b.Add(kCommon);
  b.Add(kDenseMlp);
}

void BuildMoe(FamilyBuilder& b) {
  const std::string& type = b.facts().model_type;
  const bool mixtral = type == "mixtral";
  ReadAttention(b);
  b.Read("E", mixtral ? "num_local_experts" : "num_experts");
  b.Read("K", "num_experts_per_tok");
  b.Read("I", "intermediate_size");
  if (type == "qwen3_moe" || type == "qwen2_moe") {
    b.Read("X", "moe_intermediate_size");
  } else {
    b.Set("X", b.Get("I"));
  }
  b.Set("S", 0);
  if (type == "qwen2_moe") b.Read("S", "shared_expert_intermediate_size");
  const bool bias = b.ReadBool("attention_bias", type == "qwen2_moe");
  b.Set("qkv_bias", bias ? 1 : 0);
  b.Set("o_bias", bias && type != "qwen2_moe" ? 1 : 0);
  b.Set("head_norm", type == "qwen3_moe" ? 1 : 0);
  b.Set("wide_norm", type == "olmoe" ? 1 : 0);
  SetSparseLayers(b);
  b.Label("all", "attention");
  b.Label("dense", "mlp");
  b.Label("moe", "moe");
  b.AddTop();
  b.Add(kCommon);
  b.Add(kDenseMlp);
  b.Add(mixtral ? absl::MakeConstSpan(kMixtral)
                : absl::MakeConstSpan(kQwenMoe));
}

void SetSparseLayers(FamilyBuilder& b) {
  b.ReadOr("sparse_step", "decoder_sparse_step", 1);
  const int64_t step = b.Get("sparse_step");
  const std::vector<int64_t> dense = b.ReadInts(b.config(), "mlp_only_layers");
  const auto sparse = [&](int32_t i) {
    return step > 0 && (i + 1) % step == 0 && b.Get("E") > 0 &&
           std::find(dense.begin(), dense.end(), i) == dense.end();
  };
  b.SetLayers("moe", b.LayersIf(sparse));
  b.SetLayers("dense", b.LayersIf([&](int32_t i) { return !sparse(i); }));
  b.SetExperts(b.Get("E"), b.Get("K"));
}

}  // namespace espalier
