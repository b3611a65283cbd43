#include <string>

#include "espalier/io/internal/family_builder.h"

namespace espalier {

namespace {

using R = TensorRole;
constexpr SafetensorsDType kBF = SafetensorsDType::kBF16;

// N, G, D of attention; KH, VH heads of keys and values, KD, VD their widths,
// Q = VH / KH, C taps, of the gated delta rule.
constexpr FamilyRow kCommon[] = {
    // One head's rows: query, then output gate.
    {"@layers.{full}.self_attn.q_proj.weight", "2*N*D,H", R::kAttention,
     "0/2*D"},
    {"@layers.{full}.self_attn.k_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{full}.self_attn.v_proj.weight", "G*D,H", R::kAttention, "0/D"},
    {"@layers.{full}.self_attn.o_proj.weight", "H,N*D", R::kAttention, "1/D"},
    {"@layers.{full}.self_attn.q_norm.weight", "D", R::kNorm},
    {"@layers.{full}.self_attn.k_norm.weight", "D", R::kNorm},
    {"@layers.{linear}.linear_attn.conv1d.weight", "2*KH*KD+VH*VD,1,C",
     R::kAttentionOther, "0/1|KH*KD,KH*KD,VH*VD"},
    {"@layers.{linear}.linear_attn.A_log", "VH", R::kAttentionOther, "0/Q"},
    {"@layers.{linear}.linear_attn.dt_bias", "VH", R::kAttentionOther, "0/Q"},
    {"@layers.{linear}.linear_attn.norm.weight", "VD", R::kNorm},
    {"@layers.{linear}.linear_attn.out_proj.weight", "H,VH*VD", R::kAttention,
     "1/Q*VD"},
};

// Rows grouped by key head: q, k, v, z and b, a.
constexpr FamilyRow kGrouped[] = {
    {"@layers.{linear}.linear_attn.in_proj_qkvz.weight", "2*KH*KD+2*VH*VD,H",
     R::kAttention, "0/2*KD+2*Q*VD"},
    {"@layers.{linear}.linear_attn.in_proj_ba.weight", "2*VH,H",
     R::kAttentionOther, "0/2*Q"},
};

constexpr FamilyRow kUngrouped[] = {
    {"@layers.{linear}.linear_attn.in_proj_qkv.weight", "2*KH*KD+VH*VD,H",
     R::kAttention, "0/1|KH*KD,KH*KD,VH*VD"},
    {"@layers.{linear}.linear_attn.in_proj_z.weight", "VH*VD,H", R::kAttention,
     "0/Q*VD"},
    {"@layers.{linear}.linear_attn.in_proj_b.weight", "VH,H",
     R::kAttentionOther, "0/Q"},
    {"@layers.{linear}.linear_attn.in_proj_a.weight", "VH,H",
     R::kAttentionOther, "0/Q"},
};

constexpr FamilyRow kDenseMlp[] = {
    {"@layers.{dense}.mlp.gate_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.up_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.down_proj.weight", "H,I", R::kMlp, "1"},
};

constexpr FamilyRow kMoe[] = {
    {"@layers.{moe}.mlp.gate.weight", "E,H", R::kRouter},
    {"@layers.{moe}.mlp.experts.{e}.gate_proj.weight", "X,H", R::kExpert, "0",
     kBF, "per_expert"},
    {"@layers.{moe}.mlp.experts.{e}.up_proj.weight", "X,H", R::kExpert, "0",
     kBF, "per_expert"},
    {"@layers.{moe}.mlp.experts.{e}.down_proj.weight", "H,X", R::kExpert, "1",
     kBF, "per_expert"},
    // Gate rows, then up rows.
    {"@layers.{moe}.mlp.experts.gate_up_proj", "E,2*X,H", R::kExpert, "1/1|X,X",
     kBF, "stacked"},
    {"@layers.{moe}.mlp.experts.down_proj", "E,H,X", R::kExpert, "2", kBF,
     "stacked"},
    {"@layers.{moe}.mlp.shared_expert.gate_proj.weight", "S,H",
     R::kSharedExpert, "0"},
    {"@layers.{moe}.mlp.shared_expert.up_proj.weight", "S,H", R::kSharedExpert,
     "0"},
    {"@layers.{moe}.mlp.shared_expert.down_proj.weight", "H,S",
     R::kSharedExpert, "1"},
    {"@layers.{moe}.mlp.shared_expert_gate.weight", "1,H", R::kRouter},
};

void SetAttentionLayers(FamilyBuilder& b) {
  const std::vector<std::string> types = b.ReadStrings("layer_types");
  b.ReadOr("interval", "full_attention_interval", 4);
  const int64_t interval = b.Get("interval");
  if (!types.empty() &&
      static_cast<int64_t>(types.size()) != b.facts().num_layers) {
    b.Fail(b.config().Error("layer_types", "is not as long as the model"));
    return;
  }
  const auto full = [&](int32_t i) {
    return types.empty() ? interval > 0 && (i + 1) % interval == 0
                         : types[static_cast<size_t>(i)] == "full_attention";
  };
  b.SetLayers("full", b.LayersIf(full));
  b.SetLayers("linear", b.LayersIf([&](int32_t i) { return !full(i); }));
  b.Label("full", "gated attention");
  b.Label("linear", "gated delta rule");
}

}  // namespace

void BuildQwenHybrid(FamilyBuilder& b) {
  const std::string& type = b.facts().model_type;
  const bool next = type == "qwen3_next";
  b.Read("N", "num_attention_heads");
  b.Read("G", "num_key_value_heads");
  b.Read("D", "head_dim");
  b.Read("KH", "linear_num_key_heads");
  b.Read("VH", "linear_num_value_heads");
  b.Read("KD", "linear_key_head_dim");
  b.Read("VD", "linear_value_head_dim");
  b.Read("C", "linear_conv_kernel_dim");
  const int64_t key_heads = b.Get("KH");
  b.Set("Q", key_heads > 0 ? b.Get("VH") / key_heads : 0);
  b.Set("E", 0);
  b.Set("K", 0);
  const bool moe = type != "qwen3_5";
  if (moe) {
    b.Read("E", "num_experts");
    b.Read("K", "num_experts_per_tok");
    b.Read("X", "moe_intermediate_size");
    b.Read("S", "shared_expert_intermediate_size");
    b.ReadOr("I", "intermediate_size", b.Get("X"));
  } else {
    b.Read("I", "intermediate_size");
  }
  b.Set("per_expert", next ? 1 : 0);
  b.Set("stacked", next ? 0 : 1);
  if (!next) b.SetPrefix("model.language_model.", "");
  SetAttentionLayers(b);
  SetSparseLayers(b);
  b.Label("dense", "mlp");
  b.Label("moe", "moe");
  b.AddTop();
  b.Add(kCommon);
  b.Add(next ? absl::MakeConstSpan(kGrouped) : absl::MakeConstSpan(kUngrouped));
  b.Add(kDenseMlp);
  if (moe) b.Add(kMoe);
  b.AddBeside("mtp.");
  b.AddBeside("model.visual.");
}

}  // namespace espalier
