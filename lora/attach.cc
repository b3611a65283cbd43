#include "espalier/lora/attach.h"

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "espalier/lora/lora_delta.h"

namespace espalier::lora {

namespace {

constexpr absl::string_view kAllLinear = "all-linear";

std::string LastPart(absl::string_view name) {
  const size_t dot = name.rfind('.');
  return std::string(dot == absl::string_view::npos ? name
                                                    : name.substr(dot + 1));
}

bool Matches(const LinearLayer& layer, bool is_head, absl::string_view target) {
  if (target == kAllLinear) return !is_head;
  return layer.name() == target ||
         absl::EndsWith(layer.name(), absl::StrCat(".", target));
}

struct Candidates {
  std::vector<LinearLayer*> layers;
  std::vector<std::string> kinds;  // last parts, each once
};

Candidates FindLinears(CausalLm& model) {
  Candidates found;
  model.ForEachModule([&](Module& module) {
    auto* layer = dynamic_cast<LinearLayer*>(&module);
    if (layer == nullptr) return;
    found.layers.push_back(layer);
    const std::string kind = LastPart(layer->name());
    if (std::find(found.kinds.begin(), found.kinds.end(), kind) ==
        found.kinds.end()) {
      found.kinds.push_back(kind);
    }
  });
  return found;
}

TargetRow& RowFor(std::vector<TargetRow>& rows, const std::string& kind,
                  int64_t lora_rank) {
  for (TargetRow& row : rows) {
    if (row.target == kind) return row;
  }
  rows.push_back({kind, 0, lora_rank, 0});
  return rows.back();
}

absl::Status CheckOptions(const Options& options, const Candidates& candidates,
                          const Parameter* head) {
  if (options.target_modules.empty()) {
    return absl::OutOfRangeError(
        "target_modules is empty, expected module names or \"all-linear\"");
  }
  for (const std::string& target : options.target_modules) {
    const bool any =
        std::any_of(candidates.layers.begin(), candidates.layers.end(),
                    [&](LinearLayer* l) {
                      return Matches(*l, &l->weight() == head, target);
                    });
    if (any) continue;
    return absl::OutOfRangeError(absl::StrCat(
        "target_modules: \"", target, "\" matches no linear layer; there are ",
        absl::StrJoin(candidates.kinds, ", ")));
  }
  return absl::OkStatus();
}

// A rank above every side of the weights adds nothing and may be a slip of
// digits that asks for all memory.
absl::Status CheckRank(int64_t lora_rank,
                       const std::vector<LinearLayer*>& targets) {
  int64_t most = 0;
  for (const LinearLayer* layer : targets) {
    most = std::max({most, layer->in_features(), layer->out_features()});
  }
  if (lora_rank >= 1 && lora_rank <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("lora_rank is ", lora_rank, ", expected 1 to ", most,
                   ", the most features of a target module"));
}

}  // namespace

absl::StatusOr<std::vector<TargetRow>> Attach(CausalLm& model,
                                              const Options& options,
                                              Device& device) {
  const Candidates candidates = FindLinears(model);
  const Parameter* head = &model.head();
  const absl::Status valid = CheckOptions(options, candidates, head);
  if (!valid.ok()) return valid;
  std::vector<LinearLayer*> targets;
  for (LinearLayer* layer : candidates.layers) {
    const bool is_head = &layer->weight() == head;
    if (std::any_of(options.target_modules.begin(),
                    options.target_modules.end(), [&](const std::string& t) {
                      return Matches(*layer, is_head, t);
                    })) {
      targets.push_back(layer);
    }
  }
  absl::Status rank = CheckRank(options.lora_rank, targets);
  if (!rank.ok()) return rank;
  std::vector<TargetRow> rows;
  for (LinearLayer* layer : targets) {
    layer->Attach(
        std::make_unique<LoraDelta>(layer->name(), *layer, options.lora_rank,
                                    options.lora_alpha, options.seed, device));
    TargetRow& row = RowFor(rows, LastPart(layer->name()), options.lora_rank);
    ++row.num_modules;
    row.num_parameters +=
        options.lora_rank * (layer->in_features() + layer->out_features());
  }
  return rows;
}

std::string ToString(const std::vector<TargetRow>& rows) {
  std::string table = absl::StrFormat("%-16s %8s %6s %12s\n", "target",
                                      "modules", "rank", "parameters");
  int64_t modules = 0;
  int64_t parameters = 0;
  for (const TargetRow& row : rows) {
    absl::StrAppendFormat(&table, "%-16s %8d %6d %12d\n", row.target,
                          row.num_modules, row.lora_rank, row.num_parameters);
    modules += row.num_modules;
    parameters += row.num_parameters;
  }
  absl::StrAppendFormat(&table, "%-16s %8d %6s %12d\n", "total", modules, "",
                        parameters);
  return table;
}

std::vector<Parameter*> AdapterParameters(CausalLm& model) {
  std::vector<Parameter*> parameters;
  model.ForEachModule([&](Module& module) {
    auto* delta = dynamic_cast<LoraDelta*>(&module);
    if (delta == nullptr) return;
    delta->ForEachParameter(
        [&](Parameter& parameter) { parameters.push_back(&parameter); });
  });
  return parameters;
}

}  // namespace espalier::lora
