#include "espalier/io/internal/quantization_forms.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace espalier {

namespace {

using Kind = QuantizationScheme::Kind;
using D = SafetensorsDType;

constexpr uint32_t kScaleDTypes =
    DTypeBit(D::kF32) | DTypeBit(D::kBF16) | DTypeBit(D::kF16);

// weights{num_bits, group_size, block_structure, ...} of the first group, and
// the format, which a group may override.
absl::Status ReadCompressedTensors(const JsonObject& json,
                                   QuantizationScheme* scheme) {
  std::string format;
  absl::Status status = json.GetOptional("format", &format);
  JsonObject groups;
  if (status.ok()) status = json.Get("config_groups", &groups);
  if (!status.ok()) return status;
  if (groups.keys().empty()) {
    return json.Error("config_groups", "is empty");
  }
  JsonObject group;
  JsonObject weights;
  status = groups.Get(groups.keys()[0], &group);
  if (status.ok()) status = group.GetOptional("format", &format);
  if (status.ok()) status = group.Get("weights", &weights);
  if (status.ok()) status = weights.GetOptional("num_bits", &scheme->bits);
  if (status.ok()) {
    status = weights.GetOptional("group_size", &scheme->group_size);
  }
  if (!status.ok()) return status;
  if (scheme->group_size < 0) scheme->group_size = 0;  // -1: a whole row
  scheme->name = format;
  if (format == "pack-quantized") {
    scheme->kind = Kind::kPackedInt;
    if (scheme->bits != 4 && scheme->bits != 8) {
      return absl::UnimplementedError(
          absl::StrCat(json.where(), ": pack-quantized weights of ",
                       scheme->bits, " bits; 4 and 8 are known"));
    }
  } else if (format == "mxfp4-pack-quantized") {
    scheme->kind = Kind::kMxfp4;
    scheme->group_size = 32;
  } else if (format == "nvfp4-pack-quantized") {
    scheme->kind = Kind::kNvfp4;
    scheme->group_size = 16;
  } else if (format == "float-quantized" || format == "naive-quantized") {
    scheme->kind = Kind::kFloat8;
  } else {
    return absl::UnimplementedError(
        absl::StrCat(json.where(), ": quantization_config.format is \"", format,
                     "\"; known are pack-quantized, mxfp4-pack-quantized, "
                     "nvfp4-pack-quantized, float-quantized"));
  }
  return absl::OkStatus();
}

absl::Status ReadBlockFp8(const JsonObject& json, QuantizationScheme* scheme) {
  std::vector<int64_t> block = {128, 128};
  absl::Status status = json.GetOptional("weight_block_size", &block);
  if (!status.ok()) return status;
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) {
    return json.Error("weight_block_size", "is no pair of positive numbers");
  }
  scheme->kind = Kind::kBlockFp8;
  scheme->name = "fp8";
  scheme->block_rows = block[0];
  scheme->block_cols = block[1];
  return absl::OkStatus();
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Adds the parts of one form of a linear layer [out, in].
class FormAdder {
 public:
  FormAdder(TensorRule* rule, absl::string_view form_name)
      : rule_(rule),
        stem_(absl::StripSuffix(rule->name, ".weight")),
        form_(static_cast<uint8_t>(rule->form_names.size())) {
    rule->form_names.emplace_back(form_name);
  }

  // Shape from the grain, which covers every dim.
  StoredPart& Grained(absl::string_view suffix, uint32_t dtypes,
                      std::vector<int64_t> grain) {
    std::vector<int64_t> shape;
    shape.reserve(grain.size());
    for (size_t i = 0; i < grain.size(); ++i) {
      shape.push_back(CeilDiv(rule_->shape[i], grain[i]));
    }
    StoredPart& part = Fixed(suffix, dtypes, std::move(shape));
    part.grain = std::move(grain);
    return part;
  }
  // The same for every piece.
  StoredPart& Fixed(absl::string_view suffix, uint32_t dtypes,
                    std::vector<int64_t> shape) {
    StoredPart& part = rule_->parts.emplace_back();
    part.pattern = absl::StrCat(stem_, suffix);
    part.shape = std::move(shape);
    part.dtypes = dtypes;
    part.form = form_;
    part.alternative = static_cast<uint8_t>(rule_->parts.size());
    return part;
  }

 private:
  TensorRule* const rule_;
  const std::string stem_;
  const uint8_t form_;
};

void AddBlockFp8(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  add.Grained(".weight", DTypeBit(D::kF8E4M3), {1, 1}).primary = true;
  uint8_t alternative = 0;
  for (const absl::string_view suffix :
       {".weight_scale_inv", ".weight_scale", ".scale"}) {
    StoredPart& part = add.Grained(suffix, kScaleDTypes | DTypeBit(D::kF8E8M0),
                                   {scheme.block_rows, scheme.block_cols});
    if (alternative == 0) alternative = part.alternative;
    part.alternative = alternative;
  }
}

void AddFloat8(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  add.Grained(".weight", DTypeBit(D::kF8E4M3), {1, 1}).primary = true;
  // One scale for all, one a row, or one a block: which one, tells its shape.
  StoredPart& part = add.Fixed(".weight_scale", kScaleDTypes, {1});
  part.any_shape = true;
  add.Fixed(".input_scale", kScaleDTypes, {1}).required = false;
}

void AddPackedInt(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  const int64_t per_word = 32 / scheme.bits;
  const int64_t group =
      scheme.group_size > 0 ? scheme.group_size : rule->shape[1];
  add.Grained(".weight_packed", DTypeBit(D::kI32), {1, per_word}).primary =
      true;
  add.Grained(".weight_scale", kScaleDTypes, {1, group});
  add.Fixed(".weight_shape", DTypeBit(D::kI64) | DTypeBit(D::kI32), {2});
  add.Grained(".weight_zero_point", DTypeBit(D::kI32), {per_word, group})
      .required = false;
  StoredPart& order =
      add.Fixed(".weight_g_idx", DTypeBit(D::kI32), {rule->shape[1]});
  order.required = false;
}

void AddFp4(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  const bool mx = scheme.kind == Kind::kMxfp4;
  add.Grained(".weight_packed", DTypeBit(D::kU8), {1, 2}).primary = true;
  add.Grained(
      ".weight_scale",
      mx ? DTypeBit(D::kU8) | DTypeBit(D::kF8E8M0) : DTypeBit(D::kF8E4M3),
      {1, scheme.group_size});
  if (mx) return;
  add.Fixed(".weight_global_scale", kScaleDTypes, {1});
  add.Fixed(".input_global_scale", kScaleDTypes, {1}).required = false;
}

void AddNf4(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  const int64_t bytes = CeilDiv(rule->shape[0] * rule->shape[1], 2);
  add.Fixed(".weight", DTypeBit(D::kU8), {bytes, 1}).primary = true;
  add.Fixed(".weight.quant_map", kScaleDTypes, {16});
  for (const absl::string_view suffix :
       {".weight.absmax", ".weight.quant_state.bitsandbytes__nf4"}) {
    add.Fixed(suffix, kScaleDTypes | DTypeBit(D::kU8), {}).any_shape = true;
  }
  for (const absl::string_view suffix :
       {".weight.nested_absmax", ".weight.nested_quant_map"}) {
    StoredPart& part = add.Fixed(suffix, kScaleDTypes, {});
    part.any_shape = true;
    part.required = false;
  }
}

// Stacked experts [E, out, in] of gpt-oss.
void AddGptOss(const QuantizationScheme& scheme, TensorRule* rule) {
  const std::vector<int64_t>& s = rule->shape;
  FormAdder add(rule, scheme.name);
  StoredPart& blocks =
      add.Fixed("_blocks", DTypeBit(D::kU8), {s[0], s[1], s[2] / 32, 16});
  blocks.primary = true;
  blocks.grain = {1, 1, 32};
  add.Grained("_scales", DTypeBit(D::kU8), {1, 1, 32});
}

void AddDense(absl::string_view name, bool transposed, TensorRule* rule) {
  FormAdder add(rule, name);
  StoredPart& part =
      add.Fixed(absl::EndsWith(rule->name, ".weight") ? ".weight" : "",
                FloatDTypes(), rule->shape);
  part.primary = true;
  part.grain.assign(rule->shape.size(), 1);
  part.transposed = transposed;
  part.squeeze = rule->shape.size() == 4;
  if (transposed) {
    const size_t last = rule->shape.size() - 1;
    std::swap(part.shape[last - 1], part.shape[last]);
  }
}

bool MayBePacked(const TensorRule& rule) {
  return rule.shape.size() == 2 && absl::EndsWith(rule.name, ".weight") &&
         rule.role != TensorRole::kEmbedding && rule.role != TensorRole::kNorm;
}

}  // namespace

uint32_t FloatDTypes() { return kScaleDTypes | DTypeBit(D::kF64); }

absl::StatusOr<QuantizationScheme> ReadQuantization(const JsonObject& config) {
  QuantizationScheme scheme;
  if (!config.Has("quantization_config")) return scheme;
  JsonObject json;
  std::string method;
  absl::Status status = config.Get("quantization_config", &json);
  if (status.ok()) status = json.Get("quant_method", &method);
  if (!status.ok()) return status;
  if (method == "compressed-tensors") {
    status = ReadCompressedTensors(json, &scheme);
  } else if (method == "fp8") {
    status = ReadBlockFp8(json, &scheme);
  } else if (method == "mxfp4") {
    scheme.kind = Kind::kGptOssMxfp4;
    scheme.name = method;
  } else if (method == "bitsandbytes") {
    scheme.kind = Kind::kNf4;
    scheme.name = "bitsandbytes-nf4";
  } else {
    status = absl::UnimplementedError(absl::StrCat(
        config.where(), ": quantization_config.quant_method is \"", method,
        "\"; known are compressed-tensors, fp8, mxfp4, bitsandbytes"));
  }
  if (!status.ok()) return status;
  return scheme;
}

void AddForms(const QuantizationScheme& scheme, TensorRule* rule) {
  AddDense("dense", rule->dense_transposed, rule);
  if (scheme.kind == Kind::kGptOssMxfp4) {
    if (rule->dense_transposed) AddGptOss(scheme, rule);
    return;
  }
  if (!MayBePacked(*rule)) return;
  switch (scheme.kind) {
    case Kind::kBlockFp8:
      return AddBlockFp8(scheme, rule);
    case Kind::kFloat8:
      return AddFloat8(scheme, rule);
    case Kind::kPackedInt:
      return AddPackedInt(scheme, rule);
    case Kind::kMxfp4:
    case Kind::kNvfp4:
      return AddFp4(scheme, rule);
    case Kind::kNf4:
      return AddNf4(scheme, rule);
    default:
      return;
  }
}

}  // namespace espalier
