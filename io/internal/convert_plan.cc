#include "espalier/io/internal/convert_plan.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::internal {

namespace {

using Type = SafetensorsDType;

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

// What becomes of one weight.
struct Decision {
  enum class Kind : uint8_t { kCopied, kCast, kDecoded, kPacked };
  Kind kind = Kind::kCopied;
  bool same_format = false;  // packed already as it is to be packed
  bool selected = false;     // its name is among those to pack
  bool stays_dense = false;  // a linear weight that is not packed
  ConvertTask task;
};

class Decider {
 public:
  Decider(const WeightSource& source, const ConvertOptions& options,
          const std::vector<std::string>& only)
      : source_(source),
        options_(options),
        gpt_oss_(ModelType(source.config()) == "gpt_oss"),
        only_(only) {}

  absl::StatusOr<Decision> Decide(WeightView view) const {
    const absl::StatusOr<SourceWeight> found =
        source_.Weight(view.pieces[0].weight);
    if (!found.ok()) return found.status();
    const SourceWeight& weight = *found;
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
                 : Floats(std::move(view), weight, weight.dtype);
    }
    if (!IsPacking(options_.to)) {
      return Floats(std::move(view), weight, FloatType(options_.to));
    }
    if (IsSelected(view.name)) {
      const absl::StatusOr<bool> same = IsSameFormat(view, weight);
      if (!same.ok()) return same.status();
      absl::StatusOr<Decision> decision =
          *same ? Copy(std::move(view)) : Pack(std::move(view), weight);
      if (!decision.ok()) return decision;
      decision->same_format = *same;
      decision->selected = true;
      return decision;
    }
    const bool stays_dense = weight.format == WeightFormat::kDense &&
                             view.shape.size() == 2 &&
                             absl::EndsWith(view.name, ".weight");
    Decision decision = weight.format == WeightFormat::kDense &&
                                IsWhole(view) && weight.copyable
                            ? Copy(std::move(view))
                            : Floats(std::move(view), weight, weight.dtype);
    decision.stays_dense = stays_dense;
    return decision;
  }

 private:
  // Whether the view is one whole weight of the source, as it stands there.
  bool IsWhole(const WeightView& view) const {
    return view.pieces.size() == 1 && !view.transposed &&
           view.name == source_.names()[view.pieces[0].weight];
  }

  bool IsSelected(absl::string_view name) const {
    return std::any_of(
        only_.begin(), only_.end(),
        [&](const std::string& pattern) { return MatchesGlob(pattern, name); });
  }

  // Whether the stored tensors are just what packing would write the kind of.
  absl::StatusOr<bool> IsSameFormat(const WeightView& view,
                                    const SourceWeight& weight) const {
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

  static Decision Copy(WeightView view) {
    return {Decision::Kind::kCopied,
            false,
            false,
            false,
            {ConvertStep::kCopy, std::move(view)}};
  }

  Decision Floats(WeightView view, const SourceWeight& weight,
                  Type dtype) const {
    const bool dense = weight.format == WeightFormat::kDense;
    if (dense && weight.dtype == dtype && IsWhole(view) && weight.copyable) {
      return Copy(std::move(view));
    }
    // gpt-oss holds dense experts as x W wants them: [E, in, out].
    if (gpt_oss_ && weight.format == WeightFormat::kMxfp4 &&
        view.shape.size() == 3) {
      view.transposed = true;
      std::swap(view.shape[1], view.shape[2]);
    }
    view.dtype = dtype;
    return {dense ? Decision::Kind::kCast : Decision::Kind::kDecoded,
            false,
            false,
            false,
            {ConvertStep::kFloats, std::move(view)}};
  }

  absl::StatusOr<Decision> Pack(WeightView view,
                                const SourceWeight& weight) const {
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
    if (blocks && weight.format == WeightFormat::kDense) {
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
    return Decision{
        Decision::Kind::kPacked, false, false, false, {step, std::move(view)}};
  }

  const WeightSource& source_;
  const ConvertOptions& options_;
  const bool gpt_oss_;
  const std::vector<std::string>& only_;
};

void SetDType(ConvertTarget to, JsonValue& config) {
  const absl::string_view name = to == ConvertTarget::kF32    ? "float32"
                                 : to == ConvertTarget::kBF16 ? "bfloat16"
                                                              : "float16";
  const bool has_new = config.Find("dtype") != nullptr;
  if (has_new) config.Set("dtype", name);
  if (!has_new || config.Find("torch_dtype") != nullptr) {
    config.Set("torch_dtype", name);
  }
}

// config.json of what is written; `dense` are the linear modules that stay so.
JsonValue ConfigOf(const WeightSource& source, const ConvertOptions& options,
                   JsonValue::Array dense) {
  JsonValue config = source.config();
  const bool gpt_oss = ModelType(config) == "gpt_oss";
  const bool nested = &TextConfig(config) != &config;
  if (options.to == ConvertTarget::kKeep) return config;
  JsonValue text = nested ? TextConfig(config) : JsonValue();
  for (JsonValue* part : {&config, &text}) {
    Erase(*part, "quantization_config");
    Erase(*part, "compression_config");
  }
  if (!IsPacking(options.to)) {
    SetDType(options.to, config);
    if (nested) SetDType(options.to, text);
  }
  if (nested) config.Set("text_config", std::move(text));
  if (options.to == ConvertTarget::kFp8) {
    config.Set(
        "quantization_config",
        JsonValue::Object{{"activation_scheme", "dynamic"},
                          {"fmt", "e4m3"},
                          {"modules_to_not_convert", std::move(dense)},
                          {"quant_method", "fp8"},
                          {"weight_block_size", JsonValue::Array{128, 128}}});
  } else if (options.to == ConvertTarget::kInt4) {
    config.Set("quantization_config",
               CompressedTensorsConfig("pack-quantized", "int",
                                       options.int4_group, std::move(dense)));
  } else if (options.to == ConvertTarget::kMxfp4 && gpt_oss) {
    config.Set(
        "quantization_config",
        JsonValue::Object{{"modules_to_not_convert",
                           JsonValue::Array{"model.layers.*.self_attn",
                                            "model.layers.*.mlp.router",
                                            "model.embed_tokens", "lm_head"}},
                          {"quant_method", "mxfp4"}});
  } else if (options.to == ConvertTarget::kMxfp4) {
    config.Set("quantization_config",
               CompressedTensorsConfig("mxfp4-pack-quantized", "float", 32,
                                       std::move(dense)));
  }
  return config;
}

// What is packed where no pattern says so.
std::vector<std::string> DefaultPatterns(const WeightSource& source) {
  std::vector<std::string> only = {"*_proj.weight", "*.w1.weight",
                                   "*.w2.weight", "*.w3.weight"};
  if (ModelType(source.config()) == "gpt_oss") {
    only.insert(only.end(), {"*.experts.gate_up_proj", "*.experts.down_proj"});
  }
  return only;
}

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

absl::StatusOr<ConvertPlan> ConvertPlan::Make(const WeightSource& source,
                                              const ConvertOptions& options) {
  const ExpertLayout layout =
      options.experts == ExpertTarget::kKeep      ? ExpertLayout::kKeep
      : options.experts == ExpertTarget::kStacked ? ExpertLayout::kStacked
                                                  : ExpertLayout::kSeparate;
  absl::StatusOr<WeightViews> views = WeightViews::Make(source, layout);
  if (!views.ok()) return views.status();
  ConvertPlan plan(source, options, *std::move(views));
  plan.only_ = options.only.empty() ? DefaultPatterns(source) : options.only;
  std::vector<bool> hit(options.only.size());
  JsonValue::Array dense;
  int64_t num_same = 0;
  const Decider decider(source, options, plan.only_);
  for (size_t i = 0; i < plan.size(); ++i) {
    absl::StatusOr<WeightView> view = plan.views_.Get(i);
    if (!view.ok()) return view.status();
    const absl::StatusOr<Decision> decision = decider.Decide(*std::move(view));
    if (!decision.ok()) return decision.status();
    const std::string& name = decision->task.view.name;
    ConvertReport& report = plan.report_;
    ++(decision->kind == Decision::Kind::kCopied    ? report.num_copied
       : decision->kind == Decision::Kind::kCast    ? report.num_cast
       : decision->kind == Decision::Kind::kDecoded ? report.num_decoded
                                                    : report.num_packed);
    if (decision->same_format) ++num_same;
    if (decision->stays_dense) {
      dense.emplace_back(absl::StripSuffix(name, ".weight"));
    }
    for (size_t p = 0; decision->selected && p < hit.size(); ++p) {
      if (!hit[p]) hit[p] = MatchesGlob(options.only[p], name);
    }
  }
  if (IsPacking(options.to)) {
    for (size_t p = 0; p < hit.size(); ++p) {
      if (hit[p]) continue;
      return absl::OutOfRangeError(
          absl::StrCat("only holds ", Quote(options.only[p]),
                       ", which names no weight to pack"));
    }
    if (plan.report_.num_packed == 0 && num_same == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no weight to pack among ", source.names().size(),
          " tensors; patterns: ", absl::StrJoin(plan.only_, ", ")));
    }
  }
  plan.config_ = ConfigOf(source, options, std::move(dense));
  return plan;
}

absl::StatusOr<ConvertTask> ConvertPlan::Task(size_t index) const {
  absl::StatusOr<WeightView> view = views_.Get(index);
  if (!view.ok()) return view.status();
  absl::StatusOr<Decision> decision =
      Decider(*source_, *options_, only_).Decide(*std::move(view));
  if (!decision.ok()) return decision.status();
  return std::move(decision->task);
}

absl::StatusOr<TensorGroup> ConvertPlan::Tensors(size_t index) const {
  const absl::StatusOr<ConvertTask> task = Task(index);
  if (!task.ok()) return task.status();
  return TensorsOf(*source_, *options_, *task);
}

}  // namespace espalier::internal
