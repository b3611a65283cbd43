#include "espalier/io/internal/convert_plan.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::internal {

namespace {

using Type = SafetensorsDType;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsPacking(ConvertTarget to) {
  return to == ConvertTarget::kFp8 || to == ConvertTarget::kInt4 ||
         to == ConvertTarget::kMxfp4;
}

Type FloatType(ConvertTarget to) {
  return to == ConvertTarget::kF32    ? Type::kF32
         : to == ConvertTarget::kBF16 ? Type::kBF16
                                      : Type::kF16;
}

// The inner config of a multimodal model, where there is one.
const JsonValue& TextConfig(const JsonValue& config) {
  const JsonValue* text = config.Find("text_config");
  return text != nullptr && text->AsObject() != nullptr ? *text : config;
}

std::string ModelType(const JsonValue& config) {
  for (const JsonValue* from : {&config, &TextConfig(config)}) {
    const JsonValue* type = from->Find("model_type");
    if (type != nullptr && type->AsString() != nullptr) {
      return *type->AsString();
    }
  }
  return "";
}

void Erase(JsonValue& value, absl::string_view key) {
  JsonValue::Object* object = value.AsObject();
  if (object == nullptr) return;
  object->erase(std::remove_if(object->begin(), object->end(),
                               [&](const JsonMember& member) {
                                 return member.key == key;
                               }),
                object->end());
}

JsonValue CompressedTensorsConfig(const std::string& format,
                                  absl::string_view type, int64_t group,
                                  JsonValue::Array ignore) {
  const JsonValue weights = JsonValue::Object{
      {"actorder", JsonValue()}, {"dynamic", false},     {"group_size", group},
      {"num_bits", 4},           {"observer", "minmax"}, {"strategy", "group"},
      {"symmetric", true},       {"type", type}};
  return JsonValue::Object{
      {"config_groups",
       JsonValue::Object{
           {"group_0",
            JsonValue::Object{{"input_activations", JsonValue()},
                              {"output_activations", JsonValue()},
                              {"targets", JsonValue::Array{"Linear"}},
                              {"weights", weights}}}}},
      {"format", format},
      {"ignore", std::move(ignore)},
      {"kv_cache_scheme", JsonValue()},
      {"quant_method", "compressed-tensors"},
      {"quantization_status", "compressed"}};
}

class Planner {
 public:
  Planner(const WeightSource& source, const ConvertOptions& options)
      : source_(source),
        options_(options),
        gpt_oss_(ModelType(source.config()) == "gpt_oss"),
        only_(options.only) {
    if (only_.empty()) {
      only_ = {"*_proj.weight", "*.w1.weight", "*.w2.weight", "*.w3.weight"};
      if (gpt_oss_) {
        only_.insert(only_.end(),
                     {"*.experts.gate_up_proj", "*.experts.down_proj"});
      }
    }
    hits_.resize(only_.size());
  }

  absl::StatusOr<ConvertPlan> Run() {
    const ExpertLayout layout =
        options_.experts == ExpertTarget::kKeep      ? ExpertLayout::kKeep
        : options_.experts == ExpertTarget::kStacked ? ExpertLayout::kStacked
                                                     : ExpertLayout::kSeparate;
    absl::StatusOr<std::vector<WeightView>> views = MakeViews(source_, layout);
    if (!views.ok()) return views.status();
    for (WeightView& view : *views) {
      if (absl::Status s = Add(std::move(view)); !s.ok()) return s;
    }
    if (IsPacking(options_.to)) {
      for (size_t i = 0; i < only_.size(); ++i) {
        if (options_.only.empty() || hits_[i] > 0) continue;
        return absl::OutOfRangeError(absl::StrCat("pattern ", Quote(only_[i]),
                                                  " names no weight to pack"));
      }
      if (plan_.report.num_packed == 0 && num_same_ == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "there is no weight to pack among ", source_.weights().size(),
            " tensors; patterns: ", absl::StrJoin(only_, ", ")));
      }
    }
    WriteConfig();
    return std::move(plan_);
  }

 private:
  // Whether the view is one whole weight of the source, as it stands there.
  bool IsWhole(const WeightView& view) const {
    return view.pieces.size() == 1 && !view.transposed &&
           view.name == source_.weights()[view.pieces[0].weight].name;
  }
  const SourceWeight& SourceOf(const WeightView& view) const {
    return source_.weights()[view.pieces[0].weight];
  }

  bool IsSelected(const WeightView& view) {
    bool selected = false;
    for (size_t i = 0; i < only_.size(); ++i) {
      if (!MatchesGlob(only_[i], view.name)) continue;
      selected = true;
      ++hits_[i];
    }
    return selected;
  }

  // Whether the stored tensors are just what packing would write the kind of.
  absl::StatusOr<bool> IsSameFormat(const WeightView& view) const {
    const SourceWeight& weight = SourceOf(view);
    if (!IsWhole(view) || !weight.copyable ||
        weight.format == WeightFormat::kDense) {
      return false;
    }
    const absl::StatusOr<TensorGroup> stored =
        source_.StoredOf(view.pieces[0].weight);
    if (!stored.ok()) return stored.status();
    if (stored->size() < 2) return false;
    const std::string& codes = stored->front().name;
    switch (options_.to) {
      case ConvertTarget::kFp8:
        return weight.format == WeightFormat::kFp8Block &&
               (*stored)[1].name == absl::StrCat(codes, "_scale_inv");
      case ConvertTarget::kInt4:
        return weight.format == WeightFormat::kInt4 &&
               weight.group == options_.int4_group && stored->size() == 3;
      case ConvertTarget::kMxfp4:
        return weight.format == WeightFormat::kMxfp4 &&
               absl::EndsWith(codes, gpt_oss_ ? "_blocks" : ".weight_packed");
      default:
        return false;
    }
  }

  absl::Status Add(WeightView view) {
    const SourceWeight& weight = SourceOf(view);
    if (!weight.is_float) return Copy(std::move(view));
    if (options_.to == ConvertTarget::kKeep) {
      if (weight.format != WeightFormat::kDense && !IsWhole(view)) {
        return absl::UnimplementedError(absl::StrCat(
            "tensor ", Quote(weight.name), " is packed as ",
            ToString(weight.format),
            "; its experts can be laid out anew only as floats: convert to "
            "bf16"));
      }
      return IsWhole(view) && weight.copyable
                 ? Copy(std::move(view))
                 : Floats(std::move(view), weight.dtype);
    }
    if (!IsPacking(options_.to)) {
      return Floats(std::move(view), FloatType(options_.to));
    }
    if (IsSelected(view)) {
      const absl::StatusOr<bool> same = IsSameFormat(view);
      if (!same.ok()) return same.status();
      if (*same) {
        ++num_same_;
        return Copy(std::move(view));
      }
      return Pack(std::move(view));
    }
    if (weight.format == WeightFormat::kDense && view.shape.size() == 2 &&
        absl::EndsWith(view.name, ".weight")) {
      dense_.push_back(std::string(absl::StripSuffix(view.name, ".weight")));
    }
    if (weight.format == WeightFormat::kDense && IsWhole(view) &&
        weight.copyable) {
      return Copy(std::move(view));
    }
    return Floats(std::move(view), weight.dtype);
  }

  absl::Status Copy(WeightView view) {
    ++plan_.report.num_copied;
    plan_.tasks.push_back({ConvertStep::kCopy, std::move(view)});
    return absl::OkStatus();
  }

  absl::Status Floats(WeightView view, Type dtype) {
    const SourceWeight& weight = SourceOf(view);
    if (weight.format == WeightFormat::kDense && weight.dtype == dtype &&
        IsWhole(view) && weight.copyable) {
      return Copy(std::move(view));
    }
    ++(weight.format == WeightFormat::kDense ? plan_.report.num_cast
                                             : plan_.report.num_decoded);
    // gpt-oss holds dense experts as x W wants them: [E, in, out].
    if (gpt_oss_ && weight.format == WeightFormat::kMxfp4 &&
        view.shape.size() == 3) {
      view.transposed = true;
      std::swap(view.shape[1], view.shape[2]);
    }
    view.dtype = dtype;
    plan_.tasks.push_back({ConvertStep::kFloats, std::move(view)});
    return absl::OkStatus();
  }

  absl::Status Pack(WeightView view) {
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quote(view.name), " [",
                       absl::StrJoin(view.shape, ", "), "] ", what));
    };
    const bool blocks = gpt_oss_ && view.shape.size() == 3 &&
                        options_.to == ConvertTarget::kMxfp4;
    if (!blocks &&
        (view.shape.size() != 2 || !absl::EndsWith(view.name, ".weight"))) {
      return bad(
          "cannot be packed: expected a linear weight [out, in] named "
          "NAME.weight; lay stacked experts out separately first");
    }
    if (blocks && SourceOf(view).format == WeightFormat::kDense) {
      view.transposed = true;
      std::swap(view.shape[1], view.shape[2]);
    }
    if (options_.to == ConvertTarget::kMxfp4 && view.columns() % 32 != 0) {
      return bad(
          "cannot be packed as mxfp4: the columns are no multiple of 32");
    }
    const ConvertStep step =
        blocks                                ? ConvertStep::kBlocks
        : options_.to == ConvertTarget::kFp8  ? ConvertStep::kFp8
        : options_.to == ConvertTarget::kInt4 ? ConvertStep::kInt4
                                              : ConvertStep::kMxfp4;
    ++plan_.report.num_packed;
    plan_.tasks.push_back({step, std::move(view)});
    return absl::OkStatus();
  }

  void SetDType(JsonValue& config) const {
    const absl::string_view name =
        options_.to == ConvertTarget::kF32    ? "float32"
        : options_.to == ConvertTarget::kBF16 ? "bfloat16"
                                              : "float16";
    const bool has_new = config.Find("dtype") != nullptr;
    if (has_new) config.Set("dtype", name);
    if (!has_new || config.Find("torch_dtype") != nullptr) {
      config.Set("torch_dtype", name);
    }
  }

  void WriteConfig() {
    JsonValue config = source_.config();
    const bool nested = &TextConfig(config) != &config;
    if (options_.to == ConvertTarget::kKeep) {
      plan_.config = std::move(config);
      return;
    }
    JsonValue text = nested ? TextConfig(config) : JsonValue();
    for (JsonValue* part : {&config, &text}) {
      Erase(*part, "quantization_config");
      Erase(*part, "compression_config");
    }
    if (!IsPacking(options_.to)) {
      SetDType(config);
      if (nested) SetDType(text);
    }
    if (nested) config.Set("text_config", std::move(text));
    JsonValue::Array dense(dense_.begin(), dense_.end());
    if (options_.to == ConvertTarget::kFp8) {
      config.Set(
          "quantization_config",
          JsonValue::Object{{"activation_scheme", "dynamic"},
                            {"fmt", "e4m3"},
                            {"modules_to_not_convert", std::move(dense)},
                            {"quant_method", "fp8"},
                            {"weight_block_size", JsonValue::Array{128, 128}}});
    } else if (options_.to == ConvertTarget::kInt4) {
      config.Set(
          "quantization_config",
          CompressedTensorsConfig("pack-quantized", "int", options_.int4_group,
                                  std::move(dense)));
    } else if (options_.to == ConvertTarget::kMxfp4 && gpt_oss_) {
      config.Set(
          "quantization_config",
          JsonValue::Object{{"modules_to_not_convert",
                             JsonValue::Array{"model.layers.*.self_attn",
                                              "model.layers.*.mlp.router",
                                              "model.embed_tokens", "lm_head"}},
                            {"quant_method", "mxfp4"}});
    } else if (options_.to == ConvertTarget::kMxfp4) {
      config.Set("quantization_config",
                 CompressedTensorsConfig("mxfp4-pack-quantized", "float", 32,
                                         std::move(dense)));
    }
    plan_.config = std::move(config);
  }

  const WeightSource& source_;
  const ConvertOptions& options_;
  const bool gpt_oss_;
  std::vector<std::string> only_;
  std::vector<int64_t> hits_;
  std::vector<std::string> dense_;  // linear modules that stay dense
  int64_t num_same_ = 0;
  ConvertPlan plan_;
};

}  // namespace

absl::StatusOr<TensorGroup> TensorsOf(const WeightSource& source,
                                      const ConvertOptions& options,
                                      const ConvertTask& task) {
  const std::string& name = task.view.name;
  const std::vector<int64_t>& shape = task.view.shape;
  const int64_t out = task.view.rows();
  const int64_t in = task.view.columns();
  switch (task.step) {
    case ConvertStep::kCopy:
      return source.StoredOf(task.view.pieces[0].weight);
    case ConvertStep::kFloats:
      break;
    case ConvertStep::kFp8:
      return TensorGroup{
          {name, Type::kF8E4M3, {out, in}},
          {absl::StrCat(name, "_scale_inv"),
           Type::kF32,
           {CeilDiv(out, kFp8BlockSide), CeilDiv(in, kFp8BlockSide)}}};
    case ConvertStep::kInt4:
      return TensorGroup{
          {absl::StrCat(name, "_packed"), Type::kI32, {out, CeilDiv(in, 8)}},
          {absl::StrCat(name, "_scale"),
           Type::kBF16,
           {out, CeilDiv(in, options.int4_group)}},
          {absl::StrCat(name, "_shape"), Type::kI64, {2}}};
    case ConvertStep::kMxfp4:
      return TensorGroup{
          {absl::StrCat(name, "_packed"), Type::kU8, {out, in / 2}},
          {absl::StrCat(name, "_scale"), Type::kU8, {out, in / 32}}};
    case ConvertStep::kBlocks:
      return TensorGroup{{absl::StrCat(name, "_blocks"),
                          Type::kU8,
                          {shape[0], shape[1], in / 32, 16}},
                         {absl::StrCat(name, "_scales"),
                          Type::kU8,
                          {shape[0], shape[1], in / 32}}};
  }
  return TensorGroup{{name, task.view.dtype, shape}};
}

bool MatchesGlob(absl::string_view pattern, absl::string_view name) {
  // Greedy from the last star that was met: linear in both for one star.
  size_t p = 0;
  size_t n = 0;
  size_t star = absl::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<ConvertPlan> PlanConversion(const WeightSource& source,
                                           const ConvertOptions& options) {
  return Planner(source, options).Run();
}

}  // namespace espalier::internal
