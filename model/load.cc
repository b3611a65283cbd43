#include "espalier/model/load.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "espalier/io/tied_weights.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/runtime/guard.h"

namespace espalier {

namespace {

constexpr size_t kMaxNamesShown = 8;
constexpr absl::string_view kHead = "lm_head.weight";
constexpr absl::string_view kFrequencies = ".rotary_emb.inv_freq";

std::string Shorten(const std::vector<std::string>& names) {
  const std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(
                                         names.size(), kMaxNamesShown)));
  return absl::StrCat(absl::StrJoin(shown, ", "),
                      names.size() > kMaxNamesShown ? ", ..." : "");
}

// `name` is the parameter's, or that of the head tied to it.
absl::Status LoadOne(Parameter& parameter, absl::string_view name, bool is_head,
                     CheckpointReader& checkpoint, Device& device, DType dtype,
                     LoadReport& report) {
  auto tensor = checkpoint.Take(device, name, parameter.shape());
  if (!tensor.ok()) return tensor.status();
  if (!IsFloat(tensor->dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": dtype ", ToString(tensor->dtype()),
                     ", expected f32, bf16 or f16 (", checkpoint.dir(), ")"));
  }
  ++report.num_loaded;
  // Products take f32 activations with bf16 weights; the head meets the loss in
  // the model's dtype.
  const bool in_place =
      tensor->dtype() == dtype || (dtype == kF32 && tensor->dtype() == kBF16 &&
                                   parameter.any_float() && !is_head);
  if (in_place) {
    report.mapped_bytes += tensor->num_bytes();
    parameter.SetValue(*std::move(tensor), /*trainable=*/false);
    return absl::OkStatus();
  }
  return internal::Guard([&] {
    const MemoryScope scope(device, MemoryTag::kWeights);
    Tensor converted = Cast(*tensor, dtype);
    report.converted_bytes += converted.num_bytes();
    parameter.SetValue(std::move(converted), /*trainable=*/false);
  });
}

}  // namespace

absl::StatusOr<LoadReport> LoadWeights(CausalLm& model,
                                       CheckpointReader& checkpoint,
                                       Device& device, DType dtype) {
  LoadReport report;
  absl::Status status;
  const Parameter* head = &model.head();
  if (model.tied_head()) {
    const auto tied =
        CheckTiedWeights(checkpoint, head->name(), kHead, /*tied=*/true);
    if (!tied.ok()) return tied.status();
  }
  model.ForEachParameter([&](Parameter& parameter) {
    if (!status.ok()) return;
    const bool is_head = &parameter == head;
    const bool by_head =
        is_head && model.tied_head() && !checkpoint.Contains(parameter.name());
    status = LoadOne(parameter, by_head ? kHead : parameter.name(), is_head,
                     checkpoint, device, dtype, report);
  });
  if (!status.ok()) return status;
  if (model.tied_head() && checkpoint.MarkConsumed(kHead)) ++report.num_tied;
  for (const std::string& name : checkpoint.Unused()) {
    if (absl::EndsWith(name, kFrequencies)) {
      report.num_frequencies += checkpoint.MarkConsumed(name) ? 1 : 0;
    }
  }
  const std::vector<std::string> unused = checkpoint.Unused();
  if (!unused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.dir(), ": ", unused.size(),
        " tensors that this model does not have: ", Shorten(unused)));
  }
  return report;
}

std::string ToString(const LoadReport& report) {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string line = absl::StrFormat(
      "%d tensors: %.1f MiB in place, %.1f MiB converted, %d tied",
      report.num_loaded, report.mapped_bytes / kMiB,
      report.converted_bytes / kMiB, report.num_tied);
  if (report.num_frequencies > 0) {
    absl::StrAppend(&line, ", ", report.num_frequencies,
                    " of rotary frequencies passed over");
  }
  return line;
}

}  // namespace espalier
