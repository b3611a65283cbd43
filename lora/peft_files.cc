#include "espalier/lora/peft_files.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/atomic_file.h"
#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/json.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"

namespace espalier::lora {

namespace {

constexpr absl::string_view kPrefix = "base_model.model.";
constexpr absl::string_view kWeightsFile = "adapter_model.safetensors";
constexpr absl::string_view kConfigFile = "adapter_config.json";

JsonValue ConfigJson(const Options& options, const std::string& base_model) {
  JsonValue::Array targets;
  for (const std::string& target : options.target_modules) {
    targets.emplace_back(target);
  }
  JsonValue config;
  config.Set("base_model_name_or_path", base_model);
  config.Set("bias", "none");
  config.Set("fan_in_fan_out", false);
  config.Set("inference_mode", true);
  config.Set("init_lora_weights", true);
  config.Set("lora_alpha", options.lora_alpha);
  config.Set("lora_dropout", 0.0);
  config.Set("modules_to_save", JsonValue());
  config.Set("peft_type", "LORA");
  config.Set("r", options.lora_rank);
  const bool all_linear = options.target_modules.size() == 1 &&
                          options.target_modules[0] == "all-linear";
  config.Set("target_modules", all_linear ? JsonValue(options.target_modules[0])
                                          : std::move(targets));
  config.Set("task_type", "CAUSAL_LM");
  config.Set("use_dora", false);
  config.Set("use_rslora", false);
  return config;
}

// An adapter that is empty, not a matrix or not finite was not trained.
absl::Status CheckFactor(const std::string& name, const Tensor& value) {
  if (value.shape().ndim() != 2 || value.num_elements() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": is ", ToString(value),
                     ", expected a matrix with elements; nothing was saved"));
  }
  const std::vector<double> values = ToDoubles(value);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": element ", i, " is ", values[i],
                     ", expected finite numbers; nothing was saved"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SaveReport> SaveAdapter(CausalLm& model, const Options& options,
                                       const std::string& base_model,
                                       const std::string& dir) {
  std::vector<NamedTensor> tensors;
  SaveReport report;
  for (const Parameter* parameter : AdapterParameters(model)) {
    const Tensor& value = parameter->variable().value();
    if (const absl::Status valid = CheckFactor(parameter->name(), value);
        !valid.ok()) {
      return valid;
    }
    tensors.push_back({absl::StrCat(kPrefix, parameter->name()), value});
    report.bytes += value.num_bytes();
  }
  report.num_tensors = static_cast<int64_t>(tensors.size());
  if (tensors.empty()) {
    return absl::FailedPreconditionError("the model has no adapters to save");
  }
  auto config = WriteJson(ConfigJson(options, base_model));
  if (!config.ok()) return config.status();
  auto target = AtomicDirectory::Create(dir);
  if (!target.ok()) return target.status();
  absl::Status status = WriteSafetensors(
      target->Path(std::string(kWeightsFile)), tensors, {{"format", "pt"}});
  if (status.ok()) {
    status =
        WriteFileAtomically(target->Path(std::string(kConfigFile)), *config);
  }
  if (status.ok()) status = target->Commit();
  if (!status.ok()) return status;
  return report;
}

int64_t SavedBytes(CausalLm& model) {
  constexpr int64_t kConfigBytes = 8192;
  constexpr int64_t kEntryBytes = 128;  // of a header, beside the name
  int64_t bytes = kConfigBytes;
  for (const Parameter* parameter : AdapterParameters(model)) {
    bytes += parameter->variable().value().num_bytes() + kEntryBytes +
             static_cast<int64_t>(kPrefix.size() + parameter->name().size());
  }
  return bytes;
}

absl::Status LoadAdapterValues(CausalLm& model, const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", kWeightsFile);
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const std::vector<Parameter*> parameters = AdapterParameters(model);
  std::vector<Tensor> values;
  for (const Parameter* parameter : parameters) {
    const Tensor& old = parameter->variable().value();
    auto value =
        file->Load(old.device(), absl::StrCat(kPrefix, parameter->name()));
    if (!value.ok()) return value.status();
    if (value->shape() != old.shape() || value->dtype() != old.dtype()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", parameter->name(), " is ", ToString(*value),
                       ", expected ", ToString(old)));
    }
    values.push_back(*std::move(value));
  }
  if (file->entries().size() != parameters.size()) {
    std::vector<absl::string_view> names;
    names.reserve(parameters.size());
    for (const Parameter* parameter : parameters) {
      names.push_back(parameter->name());
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file->entries().size(), " tensors, expected ",
                     parameters.size(), ": ", absl::StrJoin(names, ", ")));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->variable().value().CopyFrom(values[i]);
  }
  return absl::OkStatus();
}

}  // namespace espalier::lora
