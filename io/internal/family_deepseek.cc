#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

#include "espalier/io/internal/family_builder.h"

namespace espalier {

namespace {

using R = TensorRole;
constexpr SafetensorsDType kBF = SafetensorsDType::kBF16;
constexpr SafetensorsDType kF = SafetensorsDType::kF32;

// N heads; QK = nope + rope and DV, widths of a head; DQ, DC, DR latents and
// rope; HI heads of DI in the indexer, P its pool; E experts of width X, S of
// the shared one; HC residual streams; NK heads of DK in linear attention.
constexpr FamilyRow kMla[] = {
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
    {"@layers.{mla}.self_attn.o_proj.weight", "H,N*DV", R::kAttention, "1/DV"},
};

constexpr FamilyRow kIndexer[] = {
    {"@layers.{full}.self_attn.indexer.wq_b.weight", "HI*DI,DQ",
     R::kAttentionOther},
    {"@layers.{full}.self_attn.indexer.wk.weight", "DI,H", R::kAttentionOther},
    {"@layers.{full}.self_attn.indexer.k_norm.weight", "DI",
     R::kAttentionOther},
    {"@layers.{full}.self_attn.indexer.k_norm.bias", "DI", R::kAttentionOther},
    {"@layers.{full}.self_attn.indexer.weights_proj.weight", "HI,H",
     R::kAttentionOther},
    {"@layers.{full}.self_attn.indexer.index_kpool_compress_ape", "P,DI",
     R::kAttentionOther, "", kBF, "P"},
    {"@layers.{full}.self_attn.indexer.index_kpool_compress_gate", "DI,H",
     R::kAttentionOther, "", kBF, "P"},
};

constexpr FamilyRow kMlp[] = {
    {"@layers.{dense}.mlp.gate_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.up_proj.weight", "I,H", R::kMlp, "0"},
    {"@layers.{dense}.mlp.down_proj.weight", "H,I", R::kMlp, "1"},
    {"@layers.{moe}.mlp.gate.weight", "E,H", R::kRouter},
    {"@layers.{moe}.mlp.gate.e_score_correction_bias", "E", R::kRouter, "", kF},
    {"@layers.{moe}.mlp.experts.{e}.gate_proj.weight", "X,H", R::kExpert, "0"},
    {"@layers.{moe}.mlp.experts.{e}.up_proj.weight", "X,H", R::kExpert, "0"},
    {"@layers.{moe}.mlp.experts.{e}.down_proj.weight", "H,X", R::kExpert, "1"},
    {"@layers.{moe}.mlp.shared_experts.gate_proj.weight", "S,H",
     R::kSharedExpert, "0", kBF, "S"},
    {"@layers.{moe}.mlp.shared_experts.up_proj.weight", "S,H", R::kSharedExpert,
     "0", kBF, "S"},
    {"@layers.{moe}.mlp.shared_experts.down_proj.weight", "H,S",
     R::kSharedExpert, "1", kBF, "S"},
};

constexpr FamilyRow kPredictionRows[] = {
    {"@layers.{mtp}.enorm.weight", "H", R::kPrediction},
    {"@layers.{mtp}.hnorm.weight", "H", R::kPrediction},
    {"@layers.{mtp}.eh_proj.weight", "H,2*H", R::kPrediction},
    {"@layers.{mtp}.shared_head.norm.weight", "H", R::kPrediction},
    {"@layers.{mtp}.embed_tokens.weight", "V,H", R::kPrediction, "0", kBF, "",
     true},
    {"@layers.{mtp}.shared_head.head.weight", "V,H", R::kPrediction, "0", kBF,
     "", true},
};

constexpr FamilyRow kHyperConnections[] = {
    {"@layers.{all}.hc_attn_fn", "2*HC+HC*HC,HC*H", R::kResidual},
    {"@layers.{all}.hc_attn_base", "2*HC+HC*HC", R::kResidual, "", kF},
    {"@layers.{all}.hc_attn_scale", "3", R::kResidual, "", kF},
    {"@layers.{all}.hc_ffn_fn", "2*HC+HC*HC,HC*H", R::kResidual},
    {"@layers.{all}.hc_ffn_base", "2*HC+HC*HC", R::kResidual, "", kF},
    {"@layers.{all}.hc_ffn_scale", "3", R::kResidual, "", kF},
};

constexpr FamilyRow kKda[] = {
    {"@layers.{kda}.self_attn.q_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.k_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.v_proj.weight", "NK*DK,H", R::kAttention, "0/DK"},
    {"@layers.{kda}.self_attn.q_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.k_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.v_conv1d.weight", "NK*DK,1,C", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.f_a_proj.weight", "DK,H", R::kAttentionOther},
    {"@layers.{kda}.self_attn.f_b_proj.weight", "NK*DK,DK", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.g_a_proj.weight", "DK,H", R::kAttentionOther},
    {"@layers.{kda}.self_attn.g_b_proj.weight", "NK*DK,DK", R::kAttentionOther,
     "0/DK"},
    {"@layers.{kda}.self_attn.b_proj.weight", "NK,H", R::kAttentionOther, "0"},
    {"@layers.{kda}.self_attn.A_log", "NK", R::kAttentionOther, "0", kF},
    {"@layers.{kda}.self_attn.dt_bias", "NK*DK", R::kAttentionOther, "0/DK",
     kF},
    {"@layers.{kda}.self_attn.o_norm.weight", "DK", R::kNorm},
    {"@layers.{kda}.self_attn.o_proj.weight", "H,NK*DK", R::kAttention, "1/DK"},
};

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
  b.Read("I", "intermediate_size");
  b.Read("X", "moe_intermediate_size");
  b.Read("E", "n_routed_experts");
  b.Read("K", "num_experts_per_tok");
  b.ReadOr("num_shared", "n_shared_experts", 0);
  b.Set("S", b.Get("num_shared") * b.Get("X"));
  b.SetExperts(b.Get("E"), b.Get("K"));
  b.Set("P", 0);
  b.ReadOr("num_mtp", "num_nextn_predict_layers", 1);
  const int64_t num_mtp = std::min<int64_t>(b.Get("num_mtp"), 16);
  b.facts().num_mtp_layers = num_mtp;
  std::vector<int32_t> mtp;
  for (int64_t i = 0; i < num_mtp; ++i) {
    mtp.push_back(static_cast<int32_t>(b.facts().num_layers + i));
  }
  b.SetLayers("mtp", std::move(mtp));
}

void SetMlpLayers(FamilyBuilder& b) {
  const std::vector<std::string> types = b.ReadStrings("mlp_layer_types");
  b.ReadOr("first_dense", "first_k_dense_replace", 0);
  b.ReadOr("moe_freq", "moe_layer_freq", 1);
  const int64_t first = b.Get("first_dense");
  const int64_t freq = std::max<int64_t>(b.Get("moe_freq"), 1);
  if (!types.empty() &&
      static_cast<int64_t>(types.size()) != b.facts().num_layers) {
    b.Fail(b.config().Error("mlp_layer_types", "is not as long as the model"));
    return;
  }
  const auto dense = [&](int32_t i) {
    return types.empty() ? i < first || i % freq != 0
                         : types[static_cast<size_t>(i)] == "dense";
  };
  b.SetLayers("dense", b.LayersIf(dense));
  b.SetLayers("moe", b.LayersIf([&](int32_t i) { return !dense(i); }));
  b.Label("dense", "mlp");
  b.Label("moe", "moe");
}

// Layers of `among` that have an indexer of their own.
void SetIndexerLayers(FamilyBuilder& b, absl::string_view among) {
  b.Read("HI", "index_n_heads");
  b.Read("DI", "index_head_dim");
  const std::vector<std::string> types = b.ReadStrings("indexer_types");
  std::string pattern;
  absl::Status status = b.config().GetOptional("index_topk_pattern", &pattern);
  if (!status.ok()) b.Fail(std::move(status));
  b.ReadOr("freq", "index_topk_freq", 1);
  b.ReadOr("offset", "index_skip_topk_offset", 2);
  const int64_t freq = std::max<int64_t>(b.Get("freq"), 1);
  const int64_t offset = b.Get("offset");
  std::vector<int32_t> full;
  for (const int32_t i : b.Layers(among)) {
    const size_t at = static_cast<size_t>(i);
    bool is_full = std::max<int64_t>(i - offset + 1, 0) % freq == 0;
    if (at < types.size()) {
      is_full = types[at] == "full";
    } else if (at < pattern.size()) {
      is_full = pattern[at] == 'F';
    }
    if (is_full) full.push_back(i);
  }
  b.SetLayers("full", std::move(full));
}

void AddPredictionLayers(FamilyBuilder& b) {
  constexpr absl::string_view kSets[] = {"all", "mla", "full", "moe", "mtp"};
  std::vector<FamilyRow> rows(std::begin(kTopRows), std::end(kTopRows));
  rows.insert(rows.end(), std::begin(kMla), std::end(kMla));
  if (b.Get("HI") > 0) {
    rows.insert(rows.end(), std::begin(kIndexer), std::end(kIndexer));
  }
  rows.insert(rows.end(), std::begin(kMlp), std::end(kMlp));
  rows.insert(rows.end(), std::begin(kPredictionRows),
              std::end(kPredictionRows));
  b.AddPrediction(rows, kSets);
}

}  // namespace

void BuildDeepseek(FamilyBuilder& b) {
  const std::string& type = b.facts().model_type;
  const bool sparse = type == "deepseek_v32" || type == "glm_moe_dsa";
  ReadMla(b);
  b.SetLayers("mla", b.Layers("all"));
  b.Label("mla", sparse ? "sparse mla" : "mla");
  SetMlpLayers(b);
  b.AddTop();
  b.Add(kMla);
  if (sparse) {
    SetIndexerLayers(b, "mla");
    b.Add(kIndexer);
  }
  b.Add(kMlp);
  AddPredictionLayers(b);
}

void BuildGlm5Next(FamilyBuilder& b) {
  b.SetPrefix("model.language_model.", "");
  ReadMla(b);
  b.ReadOr("P", "index_kpool", 16);
  b.ReadOr("HC", "hc_mult", 4);
  const JsonObject linear = b.ReadObject(b.config(), "linear_attn_config");
  if (b.config().Has("linear_attn_config")) {
    b.Read(linear, "NK", "num_heads");
    b.Read(linear, "DK", "head_dim");
    b.Read(linear, "C", "short_conv_kernel_size");
  } else {
    b.Read("NK", "linear_num_heads");
    b.Read("DK", "linear_head_dim");
    b.Read("C", "linear_conv_kernel_dim");
  }
  const std::vector<std::string> types = b.ReadStrings("layer_types");
  const auto sparse = [&](int32_t i) {
    const size_t at = static_cast<size_t>(i);
    return at < types.size() ? types[at] != "linear_attention" : i % 4 == 3;
  };
  b.SetLayers("mla", b.LayersIf(sparse));
  b.SetLayers("kda", b.LayersIf([&](int32_t i) { return !sparse(i); }));
  b.Label("mla", "sparse mla");
  b.Label("kda", "kda");
  SetMlpLayers(b);
  SetIndexerLayers(b, "mla");
  b.AddTop();
  b.Add(kHyperConnections);
  b.Add(kKda);
  b.Add(kMla);
  b.Add(kIndexer);
  b.Add(kMlp);
  AddPredictionLayers(b);
  b.AddBeside("model.visual.");
  b.AddBeside("model.vision_tower.");
}

}  // namespace espalier
