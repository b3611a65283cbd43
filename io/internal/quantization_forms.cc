#include "espalier/io/internal/quantization_forms.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "espalier/io/quantization_config.h"
#include "espalier/runtime/ceil_div.h"

namespace espalier {

namespace {

using Kind = QuantizationScheme::Kind;
using D = SafetensorsDType;

constexpr uint32_t kScaleDTypes =
    DTypeBit(D::kF32) | DTypeBit(D::kBF16) | DTypeBit(D::kF16);

Kind KindOf(const QuantizationGroup& group) {
  if (group.format == "pack-quantized") return Kind::kPackedInt;
  if (group.format == "mxfp4-pack-quantized") return Kind::kMxfp4;
  if (group.format == "nvfp4-pack-quantized") return Kind::kNvfp4;
  return Kind::kFloat8;
}

absl::Status ReadGroups(const QuantizationConfig& config,
                        QuantizationScheme* scheme) {
  const QuantizationGroup& first = config.groups().front();
  for (const QuantizationGroup& group : config.groups()) {
    if (group.format == first.format && group.num_bits == first.num_bits &&
        group.group_size == first.group_size) {
      continue;
    }
    return absl::UnimplementedError(absl::StrCat(
        config.where(), ": groups \"", first.name, "\" (", first.format, ", ",
        first.num_bits, " bits) and \"", group.name, "\" (", group.format, ", ",
        group.num_bits, " bits) are stored differently"));
  }
  scheme->kind = KindOf(first);
  scheme->name = first.format;
  scheme->bits = first.num_bits;
  scheme->group_size = std::max<int64_t>(first.group_size, 0);
  return absl::OkStatus();
}

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
  StoredPart& part =
      add.Fixed(".weight_scale",
                kScaleDTypes | DTypeBit(D::kU8) | DTypeBit(D::kF8E8M0), {1});
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

// NVFP4 as ModelOpt writes it.
void AddModelOpt(const QuantizationScheme& scheme, TensorRule* rule) {
  FormAdder add(rule, scheme.name);
  add.Grained(".weight", DTypeBit(D::kU8), {1, 2}).primary = true;
  add.Grained(".weight_scale", DTypeBit(D::kF8E4M3), {1, 16});
  add.Fixed(".weight_scale_2", DTypeBit(D::kF32), {}).any_shape = true;
  StoredPart& input = add.Fixed(".input_scale", DTypeBit(D::kF32), {});
  input.any_shape = true;
  input.required = false;
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
  const absl::StatusOr<QuantizationConfig> parsed =
      QuantizationConfig::Parse(config);
  if (!parsed.ok()) return parsed.status();
  QuantizationScheme scheme;
  scheme.name = std::string(ToString(parsed->method()));
  switch (parsed->method()) {
    case QuantMethod::kNone:
      scheme.name.clear();
      break;
    case QuantMethod::kFp8:
      scheme.kind = Kind::kBlockFp8;
      scheme.block_rows = parsed->block()[0];
      scheme.block_cols = parsed->block()[1];
      break;
    case QuantMethod::kCompressedTensors:
      if (absl::Status s = ReadGroups(*parsed, &scheme); !s.ok()) return s;
      break;
    case QuantMethod::kMxfp4:
      scheme.kind = Kind::kGptOssMxfp4;
      break;
    case QuantMethod::kModelOpt:
      if (parsed->algorithm() != "NVFP4") {
        return absl::UnimplementedError(
            absl::StrCat(parsed->where(), ": quant_algo is \"",
                         parsed->algorithm(), "\", expected \"NVFP4\""));
      }
      scheme.kind = Kind::kModelOpt;
      break;
    case QuantMethod::kBitsAndBytes:
      scheme.kind = Kind::kNf4;
      scheme.name = "bitsandbytes-nf4";
      break;
  }
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
    case Kind::kModelOpt:
      return AddModelOpt(scheme, rule);
    case Kind::kNf4:
      return AddNf4(scheme, rule);
    default:
      return;
  }
}

}  // namespace espalier
