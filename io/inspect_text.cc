#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/inspect.h"
#include "espalier/io/units.h"

namespace espalier {

namespace {

constexpr int64_t kExampleRank = 16;
// f32 factors, gradients and two moments of AdamW.
constexpr int64_t kBytesPerTrained = 16;

using Sum = InspectReport::Sum;
using Layer = InspectReport::Layer;

JsonValue ToJson(const std::vector<Sum>& sums) {
  JsonValue::Array array;
  for (const Sum& sum : sums) {
    array.push_back(JsonValue::Object{{"name", sum.name},
                                      {"tensors", sum.num_tensors},
                                      {"parameters", sum.parameters},
                                      {"bytes", sum.bytes}});
  }
  return array;
}

JsonValue ToJson(const std::vector<Layer>& layers) {
  JsonValue::Array array;
  for (const Layer& layer : layers) {
    array.push_back(JsonValue::Object{{"layer", layer.index},
                                      {"kind", layer.kind},
                                      {"tensors", layer.num_tensors},
                                      {"parameters", layer.parameters},
                                      {"bytes", layer.bytes}});
  }
  return array;
}

bool SameRow(const Layer& a, const Layer& b) {
  return a.kind == b.kind && a.num_tensors == b.num_tensors &&
         a.parameters == b.parameters && a.bytes == b.bytes;
}

void AddSums(absl::string_view title, const std::vector<Sum>& sums,
             std::string* text) {
  absl::StrAppendFormat(text, "\n%-22s %9s %12s %12s\n", title, "tensors",
                        "parameters", "bytes");
  for (const Sum& sum : sums) {
    absl::StrAppendFormat(text, "  %-20s %9d %12s %12s\n", sum.name,
                          sum.num_tensors, CountText(sum.parameters),
                          BytesText(sum.bytes));
  }
}

// One line for all layers that are alike, in the order of the first.
void AddLayers(const std::vector<Layer>& layers, std::string* text) {
  absl::StrAppendFormat(text, "\n%-22s %9s %12s %12s  %s\n", "layers (each)",
                        "tensors", "parameters", "bytes", "kind");
  std::vector<bool> shown(layers.size(), false);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (shown[i]) continue;
    std::string numbers;
    size_t count = 0;
    for (size_t j = i; j < layers.size(); ++j) {
      if (shown[j] || !SameRow(layers[i], layers[j])) continue;
      shown[j] = true;
      ++count;
      size_t last = j;
      while (last + 1 < layers.size() && SameRow(layers[i], layers[last + 1])) {
        ++last;
      }
      for (size_t k = j; k <= last; ++k) shown[k] = true;
      count += last - j;
      absl::StrAppend(&numbers, numbers.empty() ? "" : " ", layers[j].index);
      if (last > j) absl::StrAppend(&numbers, "-", layers[last].index);
    }
    constexpr size_t kMaxNumbers = 20;
    if (numbers.size() > kMaxNumbers) {
      numbers = absl::StrCat(count, " from ", layers[i].index);
    }
    absl::StrAppendFormat(text, "  %-20s %9d %12s %12s  %s\n", numbers,
                          layers[i].num_tensors,
                          CountText(layers[i].parameters),
                          BytesText(layers[i].bytes), layers[i].kind);
  }
}

void AddMemory(const InspectReport& report, std::string* text) {
  absl::StrAppend(text, "\nmemory\n  all weights resident  ",
                  BytesText(report.resident_bytes), " of ",
                  BytesText(report.machine_bytes), ": ",
                  report.resident_bytes <= report.machine_bytes
                      ? "fits this machine\n"
                      : "does not fit this machine\n");
  if (report.facts.num_experts > 0) {
    absl::StrAppend(text, "  experts layer by layer ",
                    BytesText(report.streamed_bytes), ": ",
                    report.streamed_bytes <= report.machine_bytes
                        ? "fits this machine\n"
                        : "does not fit this machine\n");
  }
  const auto line = [&](absl::string_view what, int64_t per_rank) {
    if (per_rank == 0) return;
    absl::StrAppend(text, "  LoRA rank ", kExampleRank, " on ", what, " ",
                    CountText(per_rank * kExampleRank), " parameters, ",
                    BytesText(per_rank * kExampleRank * kBytesPerTrained),
                    " with gradients and AdamW in f32\n");
  };
  line("attention", report.lora_attention);
  line("every expert", report.lora_experts);
}

}  // namespace

JsonValue ToJson(const InspectReport& report) {
  const FamilyFacts& facts = report.facts;
  JsonValue json = JsonValue::Object{};
  json.Set("dir", report.dir);
  json.Set("family",
           report.family_known ? JsonValue(facts.model_type) : JsonValue());
  if (!report.family_known) json.Set("family_error", report.family_message);
  json.Set("layers", facts.num_layers);
  json.Set("hidden_size", facts.hidden_size);
  json.Set("vocab_size", facts.vocab_size);
  json.Set("experts", facts.num_experts);
  json.Set("experts_per_token", facts.top_k);
  json.Set("tied_head", facts.tied_head);
  json.Set("quantization", facts.quantization);
  json.Set("files", report.num_files);
  json.Set("tensors", report.num_tensors);
  json.Set("other_tensors", report.other_tensors);
  json.Set("bytes", report.total_bytes);
  json.Set("parameters", report.parameters);
  json.Set("active_parameters", report.active_parameters < 0
                                    ? JsonValue()
                                    : JsonValue(report.active_parameters));
  json.Set("by_role", ToJson(report.roles));
  json.Set("by_dtype", ToJson(report.dtypes));
  json.Set("by_form", ToJson(report.forms));
  json.Set("by_layer", ToJson(report.layers));
  json.Set("memory", JsonValue::Object{
                         {"machine_bytes", report.machine_bytes},
                         {"resident_bytes", report.resident_bytes},
                         {"experts_by_layer_bytes", report.streamed_bytes},
                         {"lora_attention_per_rank", report.lora_attention},
                         {"lora_experts_per_rank", report.lora_experts},
                         {"bytes_per_trained_parameter", kBytesPerTrained}});
  json.Set("notes", report.notes.ToJson());
  return json;
}

std::string ToText(const InspectReport& report) {
  const FamilyFacts& facts = report.facts;
  std::string text = absl::StrCat(report.dir, "\n");
  if (report.family_known) {
    absl::StrAppend(&text, "family      ", facts.model_type, ": ",
                    facts.num_layers, " layers, hidden size ",
                    facts.hidden_size, ", vocabulary ", facts.vocab_size);
    if (facts.num_experts > 0) {
      absl::StrAppend(&text, ", ", facts.num_experts, " experts, ", facts.top_k,
                      " a token");
    }
    absl::StrAppend(&text, facts.tied_head ? ", tied head" : "",
                    facts.quantization.empty() ? "" : ", ", facts.quantization,
                    "\n");
  } else {
    absl::StrAppend(&text, "family      not known (", report.family_message,
                    ")\n");
  }
  absl::StrAppend(&text, "parameters  ", CountText(report.parameters));
  if (report.active_parameters >= 0) {
    absl::StrAppend(&text, ", active per token ",
                    CountText(report.active_parameters),
                    " beside the embedding");
  }
  absl::StrAppend(&text, "\nstored      ", report.num_tensors, " tensors, ",
                  BytesText(report.total_bytes), ", ", report.num_files,
                  report.num_files == 1 ? " file\n" : " files\n");
  AddSums("role", report.roles, &text);
  AddSums("dtype", report.dtypes, &text);
  if (report.forms.size() > 1) AddSums("form", report.forms, &text);
  if (!report.layers.empty()) AddLayers(report.layers, &text);
  AddMemory(report, &text);
  for (const ProblemList::Kind& kind : report.notes.kinds()) {
    absl::StrAppend(
        &text, "\nnote: ", kind.first[0],
        kind.count > 1 ? absl::StrCat(" (", kind.count, " like this)") : "",
        "\n");
  }
  return text;
}

}  // namespace espalier
