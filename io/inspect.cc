#include "espalier/io/inspect.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/machine_memory.h"
#include "espalier/io/tensor_catalog.h"

namespace espalier {

namespace {

using Sum = InspectReport::Sum;
using Layer = InspectReport::Layer;

Sum& SumOf(std::vector<Sum>& sums, absl::string_view name) {
  const auto found = std::find_if(sums.begin(), sums.end(),
                                  [&](const Sum& s) { return s.name == name; });
  if (found != sums.end()) return *found;
  sums.push_back({std::string(name)});
  return sums.back();
}

// The number behind "layers." in a name of an unknown family; -1 without one.
int64_t GuessLayer(absl::string_view name) {
  std::string pattern;
  absl::InlinedVector<int32_t, 4> numbers;
  if (!ToPattern(name, &pattern, &numbers) || numbers.empty() ||
      !absl::StrContains(pattern, "layers.#")) {
    return -1;
  }
  const size_t at = pattern.find("layers.#");
  const auto before = std::count(
      pattern.begin(), pattern.begin() + static_cast<ptrdiff_t>(at), '#');
  return numbers[static_cast<size_t>(before)];
}

int64_t ElementsOf(absl::Span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

// Adds tensors to the report one by one.
class Counter {
 public:
  Counter(const TensorCatalog& catalog, const FamilyTable* table,
          InspectReport* report)
      : catalog_(catalog), table_(table), report_(*report) {
    if (table != nullptr) {
      layers_.resize(static_cast<size_t>(table->facts().num_layers));
    }
  }

  void Add(const TensorCatalog::Tensor& tensor) {
    const absl::string_view name = catalog_.NameOf(tensor);
    FamilyTable::Match match;
    const bool known =
        table_ != nullptr && table_->Find(name, tensor.dtype, &match);
    int64_t parameters = ElementsOf(catalog_.ShapeOf(tensor));
    absl::string_view role = "other";
    absl::string_view form = "dense";
    int64_t layer = -1;
    if (known) {
      const TensorRule& rule = table_->rules()[match.rule];
      const StoredPart& part = rule.parts[match.part];
      parameters = part.primary ? rule.num_elements() : 0;
      role = ToString(rule.role);
      form = rule.form_names[part.form];
      if (rule.layer_hole >= 0) {
        layer = match.numbers[static_cast<size_t>(rule.layer_hole)];
      }
      if (part.primary) AddFacts(rule, parameters);
      if (rule.role == TensorRole::kExpert) expert_bytes_ += tensor.num_bytes;
    } else {
      if (table_ == nullptr) layer = GuessLayer(name);
      ++report_.other_tensors;
    }
    Count(SumOf(report_.roles, role), parameters, tensor.num_bytes);
    Count(SumOf(report_.forms, form), parameters, tensor.num_bytes);
    Count(SumOf(report_.dtypes, ToString(tensor.dtype)), parameters,
          tensor.num_bytes);
    report_.parameters += parameters;
    AddToLayer(layer,
               known && table_->rules()[match.rule].role == TensorRole::kExpert,
               parameters, tensor.num_bytes);
  }

  void Finish() {
    int64_t most_expert_bytes = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i].layer;
      if (layer.num_tensors == 0 && table_ == nullptr) continue;
      layer.index = static_cast<int64_t>(i);
      if (table_ != nullptr) {
        const auto& kinds = table_->facts().layer_kinds;
        layer.kind = i < kinds.size() ? kinds[i] : "prediction";
      }
      report_.layers.push_back(layer);
      most_expert_bytes = std::max(most_expert_bytes, layers_[i].expert_bytes);
    }
    report_.resident_bytes = report_.total_bytes;
    report_.streamed_bytes =
        report_.total_bytes - expert_bytes_ + most_expert_bytes;
    if (table_ != nullptr) {
      const FamilyFacts& facts = table_->facts();
      report_.active_parameters =
          active_ + (facts.num_experts > 0
                         ? expert_parameters_ / facts.num_experts * facts.top_k
                         : 0);
    }
    const auto by_bytes = [](const Sum& a, const Sum& b) {
      return a.bytes > b.bytes;
    };
    std::sort(report_.roles.begin(), report_.roles.end(), by_bytes);
    std::sort(report_.dtypes.begin(), report_.dtypes.end(), by_bytes);
    std::sort(report_.forms.begin(), report_.forms.end(), by_bytes);
  }

 private:
  struct LayerSum {
    Layer layer;
    int64_t expert_bytes = 0;
  };

  static void Count(Sum& sum, int64_t parameters, int64_t bytes) {
    ++sum.num_tensors;
    sum.parameters += parameters;
    sum.bytes += bytes;
  }

  void AddFacts(const TensorRule& rule, int64_t parameters) {
    const FamilyFacts& facts = table_->facts();
    switch (rule.role) {
      case TensorRole::kExpert:
        // All experts are counted, so the sums divide.
        expert_parameters_ += parameters;
        break;
      case TensorRole::kEmbedding:
        if (facts.tied_head) active_ += parameters;
        break;
      case TensorRole::kVision:
      case TensorRole::kPrediction:
        break;
      default:
        active_ += parameters;
    }
    const size_t ndim = rule.shape.size();
    const bool bias = absl::EndsWith(rule.name, "bias");
    if (ndim < 2 || bias) return;
    const int64_t copies =
        rule.expert_dim >= 0 && ndim == 3 ? rule.shape[0] : 1;
    const int64_t lora = copies * (rule.shape[ndim - 1] + rule.shape[ndim - 2]);
    if (rule.role == TensorRole::kAttention) report_.lora_attention += lora;
    if (rule.role == TensorRole::kExpert) report_.lora_experts += lora;
  }

  void AddToLayer(int64_t index, bool expert, int64_t parameters,
                  int64_t bytes) {
    constexpr int64_t kMaxLayers = 100'000;
    if (index < 0 || index > kMaxLayers) return;
    const size_t at = static_cast<size_t>(index);
    if (at >= layers_.size()) layers_.resize(at + 1);
    Layer& layer = layers_[at].layer;
    ++layer.num_tensors;
    layer.parameters += parameters;
    layer.bytes += bytes;
    if (expert) layers_[at].expert_bytes += bytes;
  }

  const TensorCatalog& catalog_;
  const FamilyTable* const table_;
  InspectReport& report_;
  std::vector<LayerSum> layers_;
  int64_t active_ = 0;
  int64_t expert_parameters_ = 0;
  int64_t expert_bytes_ = 0;
};

}  // namespace

absl::StatusOr<InspectReport> InspectCheckpoint(const std::string& dir) {
  return InspectCheckpoint(Folder::Local(dir));
}

absl::StatusOr<InspectReport> InspectCheckpoint(
    std::shared_ptr<const Folder> folder) {
  InspectReport report;
  report.dir = folder->path();
  ProblemList problems;
  const absl::StatusOr<TensorCatalog> catalog =
      TensorCatalog::Scan(std::move(folder), &problems, &report.notes);
  if (!catalog.ok()) return catalog.status();
  if (!problems.empty()) return TensorCatalog::FirstProblem(problems);
  report.num_files = static_cast<int64_t>(catalog->files().size());
  report.num_tensors = static_cast<int64_t>(catalog->tensors().size());
  report.total_bytes = catalog->total_bytes();
  report.machine_bytes = internal::MachineMemoryBytes();
  const absl::StatusOr<FamilyTable> table =
      FamilyTable::Load(*catalog->folder());
  if (IsTransportError(table.status())) return table.status();
  report.family_known = table.ok();
  if (table.ok()) {
    report.facts = table->facts();
  } else {
    report.family_message = std::string(table.status().message());
  }
  Counter counter(*catalog, table.ok() ? &*table : nullptr, &report);
  for (const TensorCatalog::Tensor& tensor : catalog->tensors()) {
    counter.Add(tensor);
  }
  counter.Finish();
  return report;
}

}  // namespace espalier
