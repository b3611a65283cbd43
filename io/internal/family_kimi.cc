#include <algorithm>
#include <string>

#include "espalier/io/internal/family_builder.h"

namespace espalier {

namespace {

using R = TensorRole;
constexpr SafetensorsDType kBF = SafetensorsDType::kBF16;
constexpr SafetensorsDType kF = SafetensorsDType::kF32;

// As in family_deepseek.cc; W is the width that routed experts see, A the
// length of A_log in the file. "k3" and "k1" tell the releases apart where
// they keep other dtypes.
constexpr FamilyRow kRows[] = {
    {"@output_attn_res_norm.weight", "H", R::kResidual, "", kBF, "res"},
    {"@output_attn_res_proj.weight", "1,H", R::kResidual, "", kBF, "res"},
    {"@layers.{all}.self_attention_res_norm.weight", "H", R::kResidual, "", kBF,
     "res"},
    {"@layers.{all}.self_attention_res_proj.weight", "1,H", R::kResidual, "",
     kBF, "res"},
    {"@layers.{all}.mlp_res_norm.weight", "H", R::kResidual, "", kBF, "res"},
    {"@layers.{all}.mlp_res_proj.weight", "1,H", R::kResidual, "", kBF, "res"},
    {"@layers.{kda}.self_attn.q_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.k_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.v_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.q_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kF, "k3"},
    {"@layers.{kda}.self_attn.k_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kF, "k3"},
    {"@layers.{kda}.self_attn.v_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kF, "k3"},
    {"@layers.{kda}.self_attn.q_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kBF, "k1"},
    {"@layers.{kda}.self_attn.k_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kBF, "k1"},
    {"@layers.{kda}.self_attn.v_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK", kBF, "k1"},
    // Not cut: in K3 its length is padded beyond the heads.
    {"@layers.{kda}.self_attn.A_log", "A", R::kAttentionOther, "", kF, "k3"},
    {"@layers.{kda}.self_attn.A_log", "1,1,A,1", R::kAttentionOther, "", kF,
     "k1"},
    {"@layers.{kda}.self_attn.dt_bias", "NK*DK", R::kAttentionOther, "0/DK",
     kF},
    {"@layers.{kda}.self_attn.f_a_proj.weight", "DK,H", R::kAttentionOther},
    {"@layers.{kda}.self_attn.f_b_proj.weight", "NK*DK,DK", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.b_proj.weight", "NK,H", R::kAttentionOther, "0"},
    {"@layers.{kda}.self_attn.g_proj.weight", "NK*DK,H", R::kAttention, "0/DK",
     kBF, "full_gate"},
    {"@layers.{kda}.self_attn.g_a_proj.weight", "DK,H", R::kAttentionOther, "",
     kBF, "low_gate"},
    {"@layers.{kda}.self_attn.g_b_proj.weight", "NK*DK,DK", R::kAttentionOther,
     "0/DK", kBF, "low_gate"},
    {"@layers.{kda}.self_attn.o_norm.weight", "DK", R::kNorm, "", kF, "k3"},
    {"@layers.{kda}.self_attn.o_norm.weight", "DK", R::kNorm, "", kBF, "k1"},
    {"@layers.{kda}.self_attn.o_proj.weight", "H,NK*DK", R::kAttention, "1/DK"},
    {"@layers.{mla}.self_attn.q_proj.weight", "N*QK,H", R::kAttention, "0/QK",
     kBF, "one_q"},
    {"@layers.{mla}.self_attn.q_a_proj.weight", "DQ,H", R::kAttention, "", kBF,
     "DQ"},
    {"@layers.{mla}.self_attn.q_a_layernorm.weight", "DQ", R::kNorm, "", kBF,
     "DQ"},
    {"@layers.{mla}.self_attn.q_b_proj.weight", "N*QK,DQ", R::kAttention,
     "0/QK", kBF, "DQ"},
    {"@layers.{mla}.self_attn.kv_a_proj_with_mqa.weight", "DC+DR,H",
     R::kAttention},
    {"@layers.{mla}.self_attn.kv_a_layernorm.weight", "DC", R::kNorm},
    {"@layers.{mla}.self_attn.kv_b_proj.weight", "N*KV,DC", R::kAttention,
     "0/KV"},
    {"@layers.{mla}.self_attn.g_proj.weight", "N*DV,H", R::kAttention, "0/DV",
     kBF, "mla_gate"},
    {"@layers.{mla}.self_attn.o_proj.weight", "H,N*DV", R::kAttention, "1/DV"},
    {"@layers.{dense}.mlp.gate_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.up_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.down_proj.weight", "H,I", R::kMlp, "1"},
    {"@layers.{moe}.block_sparse_moe.gate.weight", "E,H", R::kRouter},
    {"@layers.{moe}.block_sparse_moe.gate.e_score_correction_bias", "E",
     R::kRouter, "", kF, "k3"},
    {"@layers.{moe}.block_sparse_moe.gate.e_score_correction_bias", "E",
     R::kRouter, "", kBF, "k1"},
    {"@layers.{moe}.block_sparse_moe.routed_expert_down_proj.weight", "W,H",
     R::kLatent, "", kBF, "latent"},
    {"@layers.{moe}.block_sparse_moe.routed_expert_norm.weight", "W",
     R::kLatent, "", kBF, "latent_norm"},
    {"@layers.{moe}.block_sparse_moe.routed_expert_up_proj.weight", "H,W",
     R::kLatent, "", kBF, "latent"},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w1.weight", "X,W", R::kExpert,
     "0"},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w3.weight", "X,W", R::kExpert,
     "0"},
    {"@layers.{moe}.block_sparse_moe.experts.{e}.w2.weight", "W,X", R::kExpert,
     "1"},
    {"@layers.{moe}.block_sparse_moe.shared_experts.gate_proj.weight", "S,H",
     R::kSharedExpert, "0", kBF, "S"},
    {"@layers.{moe}.block_sparse_moe.shared_experts.up_proj.weight", "S,H",
     R::kSharedExpert, "0", kBF, "S"},
    {"@layers.{moe}.block_sparse_moe.shared_experts.down_proj.weight", "H,S",
     R::kSharedExpert, "1", kBF, "S"},
};

// M hidden size, Z width of the attention, F of the MLP, U of the text model;
// M4 = 4 M, after merging 2 x 2 patches.
constexpr FamilyRow kVisionRows[] = {
    {"vision_tower.patch_embed.proj.weight", "M,3,patch,patch", R::kVision},
    {"vision_tower.patch_embed.pos_emb.weight", "pos_h,pos_w,M", R::kVision},
    {"vision_tower.encoder.blocks.{v}.norm0.weight", "M", R::kVision},
    {"vision_tower.encoder.blocks.{v}.norm1.weight", "M", R::kVision},
    {"vision_tower.encoder.blocks.{v}.wqkv.weight", "3*Z,M", R::kVision},
    {"vision_tower.encoder.blocks.{v}.wo.weight", "M,Z", R::kVision},
    {"vision_tower.encoder.blocks.{v}.mlp.fc0.weight", "F,M", R::kVision},
    {"vision_tower.encoder.blocks.{v}.mlp.fc1.weight", "M,F", R::kVision},
    {"vision_tower.encoder.final_layernorm.weight", "M", R::kVision},
    {"mm_projector.proj.{0}.weight", "M4,M4", R::kVision},
    {"mm_projector.proj.{2}.weight", "U,M4", R::kVision},
    {"mm_projector.post_norm.weight", "U", R::kVision},
};

void AddVision(FamilyBuilder& b) {
  if (!b.outer().Has("vision_config")) return;
  const JsonObject json = b.ReadObject(b.outer(), "vision_config");
  b.Read(json, "M", "vt_hidden_size");
  b.Read(json, "Z", "qkv_hidden_size");
  b.Read(json, "F", "vt_intermediate_size");
  b.Read(json, "blocks", "vt_num_hidden_layers");
  b.Read(json, "patch", "patch_size");
  b.Read(json, "pos_h", "init_pos_emb_height");
  b.Read(json, "pos_w", "init_pos_emb_width");
  b.ReadOr(json, "U", "text_hidden_size", b.Get("H"));
  const std::vector<int64_t> merge = b.ReadInts(json, "merge_kernel_size");
  int64_t patches = 4;
  if (merge.size() == 2) {
    patches = std::clamp<int64_t>(merge[0], 0, 1024) *
              std::clamp<int64_t>(merge[1], 0, 1024);
  }
  b.Set("M4", std::min<int64_t>(b.Get("M"), 1 << 20) *
                  std::min<int64_t>(patches, 1024));
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i < std::min<int64_t>(b.Get("blocks"), 10'000); ++i) {
    blocks.push_back(i);
  }
  b.SetLayers("v", std::move(blocks));
  b.AddGroup(kVisionRows);
}

// Layer numbers of the config count from 1.
void SetAttentionLayers(FamilyBuilder& b, const JsonObject& linear) {
  const std::vector<int64_t> kda = b.ReadInts(linear, "kda_layers");
  const auto is_kda = [&](int32_t i) {
    return std::find(kda.begin(), kda.end(), i + 1) != kda.end();
  };
  b.SetLayers("kda", b.LayersIf(is_kda));
  b.SetLayers("mla", b.LayersIf([&](int32_t i) { return !is_kda(i); }));
  b.ReadOr("first_dense", "first_k_dense_replace", 0);
  b.ReadOr("freq", "moe_layer_freq", 1);
  const int64_t first = b.Get("first_dense");
  const int64_t freq = std::max<int64_t>(b.Get("freq"), 1);
  const auto dense = [&](int32_t i) { return i < first || i % freq != 0; };
  b.SetLayers("dense", b.LayersIf(dense));
  b.SetLayers("moe", b.LayersIf([&](int32_t i) { return !dense(i); }));
  b.Label("kda", "kda");
  b.Label("mla", "mla");
  b.Label("dense", "mlp");
  b.Label("moe", "moe");
}

void ReadMla(FamilyBuilder& b) {
  b.Read("N", "num_attention_heads");
  b.ReadOr("DQ", "q_lora_rank", 0);
  b.Set("one_q", b.Get("DQ") == 0 ? 1 : 0);
  b.Read("DC", "kv_lora_rank");
  b.Read("nope", "qk_nope_head_dim");
  b.Read("DR", "qk_rope_head_dim");
  b.Read("DV", "v_head_dim");
  b.Set("QK", b.Get("nope") + b.Get("DR"));
  b.Set("KV", b.Get("nope") + b.Get("DV"));
  b.Set("mla_gate", b.ReadBool("mla_use_output_gate", false) ? 1 : 0);
}

}  // namespace

void BuildKimi(FamilyBuilder& b) {
  const bool k3 = b.facts().model_type == "kimi_k3";
  if (k3) b.SetPrefix("language_model.model.", "language_model.");
  ReadMla(b);
  const JsonObject linear = b.ReadObject(b.config(), "linear_attn_config");
  b.Read(linear, "NK", "num_heads");
  b.Read(linear, "DK", "head_dim");
  b.Read(linear, "C", "short_conv_kernel_size");
  bool full_gate = false;
  absl::Status status = linear.GetOptional("use_full_rank_gate", &full_gate);
  if (!status.ok()) b.Fail(std::move(status));
  b.Set("full_gate", full_gate ? 1 : 0);
  b.Set("low_gate", full_gate ? 0 : 1);
  // The release with the bounded decay pads A_log to whole lanes of 128.
  const bool bounded = linear.Has("gate_lower_bound");
  b.Set("k3", bounded ? 1 : 0);
  b.Set("k1", bounded ? 0 : 1);
  b.Set("A", bounded ? (b.Get("NK") + 127) / 128 * 128 : b.Get("NK"));
  SetAttentionLayers(b, linear);
  b.Read("I", "intermediate_size");
  b.Read("X", "moe_intermediate_size");
  b.Read("E", "num_experts");
  b.Read("K", "num_experts_per_token");
  b.ReadOr("num_shared", "num_shared_experts", 0);
  b.Set("S", b.Get("num_shared") * b.Get("X"));
  b.SetExperts(b.Get("E"), b.Get("K"));
  b.ReadOr("W", "routed_expert_hidden_size", b.Get("H"));
  const bool latent = b.config().Has("routed_expert_hidden_size");
  b.Set("latent", latent ? 1 : 0);
  const bool norm = b.ReadBool("latent_moe_use_norm", false);
  b.Set("latent_norm", latent && norm ? 1 : 0);
  b.ReadOr("res", "attn_res_block_size", 0);
  if (b.Get("res") > 0) b.facts().pipeline_block = b.Get("res");
  b.AddTop();
  b.Add(kRows);
  if (k3) AddVision(b);
}

}  // namespace espalier
