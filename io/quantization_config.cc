#include "espalier/io/quantization_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/name_pattern.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

constexpr absl::string_view kFormats[] = {
    "pack-quantized",  "mxfp4-pack-quantized", "nvfp4-pack-quantized",
    "mxfp8-quantized", "float-quantized",      "naive-quantized"};

bool IsKnownFormat(absl::string_view format) {
  return std::find(std::begin(kFormats), std::end(kFormats), format) !=
         std::end(kFormats);
}

absl::Status UnknownFormat(const JsonObject& json, const std::string& format) {
  return absl::UnimplementedError(absl::StrCat(
      json.where(), ": packing method ", internal::Quote(format),
      " is not known, expected one of ", absl::StrJoin(kFormats, ", ")));
}

// Combinations of bits, type and strategy whose decoding is defined.
bool IsDefined(const QuantizationGroup& group) {
  const std::string& s = group.strategy;
  if (group.format == "pack-quantized") {
    return group.type == "int" &&
           (group.num_bits == 4 || group.num_bits == 8) &&
           (s == "group" || s == "channel");
  }
  if (group.format == "mxfp4-pack-quantized") {
    return group.type == "float" && group.num_bits == 4 && s == "group" &&
           group.group_size == 32;
  }
  if (group.format == "nvfp4-pack-quantized") {
    return group.type == "float" && group.num_bits == 4 &&
           (s == "tensor_group" || s == "group") && group.group_size == 16;
  }
  if (group.format == "mxfp8-quantized") {
    return group.type == "float" && group.num_bits == 8 && s == "group" &&
           group.group_size == 32;
  }
  return group.type == "float" && group.num_bits == 8 &&
         (s == "tensor" || s == "channel" || s == "block" ||
          (s == "group" && group.group_size == 32));
}

}  // namespace

absl::string_view ToString(QuantMethod method) {
  switch (method) {
    case QuantMethod::kNone:
      return "none";
    case QuantMethod::kFp8:
      return "fp8";
    case QuantMethod::kCompressedTensors:
      return "compressed-tensors";
    case QuantMethod::kMxfp4:
      return "mxfp4";
    case QuantMethod::kModelOpt:
      return "modelopt";
    case QuantMethod::kBitsAndBytes:
      return "bitsandbytes";
  }
  return "unknown";
}

QuantizationConfig::QuantizationConfig() = default;

absl::StatusOr<QuantizationConfig::Rule> QuantizationConfig::MakeRule(
    const std::string& text) {
  absl::string_view expression = text;
  if (!absl::ConsumePrefix(&expression, "re:")) return Rule{text, nullptr};
  auto pattern = internal::NamePattern::Compile(expression);
  if (!pattern.ok()) {
    return absl::Status(
        pattern.status().code(),
        absl::StrCat(internal::Quote(text), ": ", pattern.status().message()));
  }
  return Rule{text, *std::move(pattern)};
}

absl::StatusOr<bool> QuantizationConfig::Matches(const Rule& rule,
                                                 absl::string_view module) {
  if (rule.expression == nullptr) {
    return rule.name == "Linear" || rule.name == module;
  }
  return rule.expression->Matches(module);
}

absl::StatusOr<const QuantizationGroup*> QuantizationConfig::GroupOf(
    absl::string_view module) const {
  for (const Rule& rule : ignore_) {
    const absl::StatusOr<bool> hit = Matches(rule, module);
    if (!hit.ok()) return hit.status();
    if (*hit) return nullptr;
  }
  // A name or expression goes before a class name.
  for (const bool by_class : {false, true}) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const Rule& rule : targets_[g]) {
        if ((rule.name == "Linear") != by_class) continue;
        const absl::StatusOr<bool> hit = Matches(rule, module);
        if (!hit.ok()) return hit.status();
        if (*hit) return &groups_[g];
      }
    }
  }
  return nullptr;
}

absl::Status QuantizationConfig::ParseFp8(const JsonObject& json) {
  std::string fmt = "e4m3";
  if (auto s = json.GetOptional("fmt", &fmt); !s.ok()) return s;
  if (fmt != "e4m3") {
    return json.Error("fmt", absl::StrCat("is ", internal::Quote(fmt),
                                          ", expected \"e4m3\""));
  }
  if (auto s = json.GetOptional("weight_block_size", &block_); !s.ok()) {
    return s;
  }
  if (block_.size() != 2 || block_[0] < 1 || block_[1] < 1) {
    return json.Error("weight_block_size", "is no pair of positive numbers");
  }
  return absl::OkStatus();
}

absl::Status QuantizationConfig::ParseBitsAndBytes(const JsonObject& json) {
  std::string type = "nf4";
  bool eight = false;
  if (auto s = json.GetOptional("bnb_4bit_quant_type", &type); !s.ok()) {
    return s;
  }
  if (auto s = json.GetOptional("load_in_8bit", &eight); !s.ok()) return s;
  if (type == "nf4" && !eight) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(json.where(), ": bitsandbytes ",
                                               eight ? "in 8 bits" : type,
                                               " is not known, expected nf4"));
}

absl::Status QuantizationConfig::CheckDecodable() const {
  if (method_ == QuantMethod::kBitsAndBytes) {
    return absl::UnimplementedError(
        absl::StrCat(where_, ": bitsandbytes weights are not decoded"));
  }
  if (block_ == std::vector<int64_t>{128, 128}) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where_, ": weight_block_size is [",
                   absl::StrJoin(block_, ", "), "], expected [128, 128]"));
}

absl::Status QuantizationConfig::ParseGroup(const std::string& name,
                                            const JsonObject& json,
                                            const std::string& format) {
  QuantizationGroup group;
  group.name = name;
  group.format = format;
  group.type = "int";
  std::vector<std::string> targets;
  JsonObject weights;
  if (auto s = json.GetOptional("format", &group.format); !s.ok()) return s;
  if (auto s = json.Get("targets", &targets); !s.ok()) return s;
  if (auto s = json.Get("weights", &weights); !s.ok()) return s;
  if (!IsKnownFormat(group.format)) return UnknownFormat(json, group.format);
  if (auto s = weights.Get("num_bits", &group.num_bits); !s.ok()) return s;
  if (auto s = weights.GetOptional("type", &group.type); !s.ok()) return s;
  if (auto s = weights.GetOptional("group_size", &group.group_size); !s.ok()) {
    return s;
  }
  group.strategy = group.group_size > 0 ? "group" : "tensor";
  if (auto s = weights.GetOptional("strategy", &group.strategy); !s.ok()) {
    return s;
  }
  if (auto s = weights.GetOptional("symmetric", &group.symmetric); !s.ok()) {
    return s;
  }
  if (group.strategy == "channel") group.group_size = 0;
  // Null, false, "static" (columns in place) or "group" and "weight".
  if (const JsonValue* order = weights.GetValue("actorder"); order != nullptr) {
    const std::string* text = order->AsString();
    const bool* flag = order->AsBool();
    group.reordered =
        (text != nullptr && *text != "static") || (flag != nullptr && *flag);
  }
  std::vector<int64_t> block = {128, 128};
  if (group.strategy == "block") {
    if (auto s = weights.GetOptional("block_structure", &block); !s.ok()) {
      return s;
    }
    if (block != std::vector<int64_t>{128, 128}) {
      return weights.Error("block_structure",
                           absl::StrCat("is [", absl::StrJoin(block, ", "),
                                        "], expected [128, 128]"));
    }
  }
  if (!IsDefined(group)) {
    return absl::UnimplementedError(absl::StrCat(
        json.where(), ": group ", internal::Quote(name), ": ", group.format,
        " with ", group.num_bits, " bits of type ", internal::Quote(group.type),
        ", strategy ", internal::Quote(group.strategy), " and group size ",
        group.group_size, " is not known"));
  }
  std::vector<Rule> rules;
  for (const std::string& target : targets) {
    absl::StatusOr<Rule> rule = MakeRule(target);
    if (!rule.ok()) return rule.status();
    rules.push_back(*std::move(rule));
  }
  groups_.push_back(std::move(group));
  targets_.push_back(std::move(rules));
  return absl::OkStatus();
}

absl::Status QuantizationConfig::ParseCompressedTensors(
    const JsonObject& json) {
  std::string format;
  std::string compression = "compressed";
  JsonObject groups;
  std::vector<std::string> ignore;
  if (auto s = json.GetOptional("format", &format); !s.ok()) return s;
  if (auto s = json.GetOptional("quantization_status", &compression); !s.ok()) {
    return s;
  }
  if (compression != "compressed") {
    return json.Error("quantization_status",
                      absl::StrCat("is ", internal::Quote(compression),
                                   ", expected \"compressed\""));
  }
  if (json.Has("sparsity_config")) {
    JsonObject sparsity;
    std::string kind = "dense";
    if (auto s = json.Get("sparsity_config", &sparsity); !s.ok()) return s;
    if (auto s = sparsity.GetOptional("format", &kind); !s.ok()) return s;
    if (kind != "dense") {
      return absl::UnimplementedError(absl::StrCat(
          json.where(), ": sparsity_config.format ", internal::Quote(kind)));
    }
  }
  // "mixed-precision" only says that every group has its own.
  if (!format.empty() && format != "mixed-precision" &&
      !IsKnownFormat(format)) {
    return UnknownFormat(json, format);
  }
  if (auto s = json.Get("config_groups", &groups); !s.ok()) return s;
  for (const std::string& name : groups.keys()) {
    JsonObject group;
    if (auto s = groups.Get(name, &group); !s.ok()) return s;
    if (auto s = ParseGroup(name, group, format); !s.ok()) return s;
  }
  if (auto s = json.GetOptional("ignore", &ignore); !s.ok()) return s;
  for (const std::string& text : ignore) {
    absl::StatusOr<Rule> rule = MakeRule(text);
    if (!rule.ok()) return rule.status();
    ignore_.push_back(*std::move(rule));
  }
  if (groups_.empty()) return json.Error("config_groups", "is empty");
  return absl::OkStatus();
}

absl::StatusOr<QuantizationConfig> QuantizationConfig::Parse(
    const JsonObject& config) {
  QuantizationConfig result;
  JsonObject text;
  JsonObject json;
  const bool outer = config.Has("quantization_config");
  if (config.Has("text_config")) {
    if (auto s = config.Get("text_config", &text); !s.ok()) return s;
  }
  const bool inner = text.Has("quantization_config");
  if (!outer && !inner) return result;
  if (outer && inner) {
    return config.Error("quantization_config",
                        "stands outside and inside text_config");
  }
  const JsonObject& owner = outer ? config : text;
  if (auto s = owner.Get("quantization_config", &json); !s.ok()) return s;
  std::string method;
  if (auto s = json.Get("quant_method", &method); !s.ok()) return s;
  result.where_ = json.where();
  absl::Status status;
  if (method == "fp8") {
    result.method_ = QuantMethod::kFp8;
    status = result.ParseFp8(json);
  } else if (method == "compressed-tensors") {
    result.method_ = QuantMethod::kCompressedTensors;
    status = result.ParseCompressedTensors(json);
  } else if (method == "mxfp4") {
    result.method_ = QuantMethod::kMxfp4;
  } else if (method == "modelopt") {
    result.method_ = QuantMethod::kModelOpt;
    status = json.GetOptional("quant_algo", &result.algorithm_);
  } else if (method == "bitsandbytes") {
    result.method_ = QuantMethod::kBitsAndBytes;
    status = ParseBitsAndBytes(json);
  } else {
    status = absl::UnimplementedError(absl::StrCat(
        json.where(), ": quant_method ", internal::Quote(method),
        " is not known, expected fp8, compressed-tensors, mxfp4, modelopt or "
        "bitsandbytes"));
  }
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<QuantizationConfig> QuantizationConfig::ReadFolder(
    const std::string& dir) {
  return ReadFolder(*Folder::Local(dir));
}

absl::StatusOr<QuantizationConfig> QuantizationConfig::ReadFolder(
    const Folder& folder) {
  absl::StatusOr<JsonValue> value = folder.ReadJson("config.json");
  if (absl::IsNotFound(value.status())) return QuantizationConfig();
  if (!value.ok()) return value.status();
  const absl::StatusOr<JsonObject> json =
      JsonObject::From(*std::move(value), folder.PathOf("config.json"));
  if (!json.ok()) return json.status();
  absl::StatusOr<QuantizationConfig> config = Parse(*json);
  if (!config.ok()) return config;
  const absl::Status status = config->CheckDecodable();
  if (!status.ok()) return status;
  return config;
}

}  // namespace espalier
