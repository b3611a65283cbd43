#include "espalier/io/internal/weight_source.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/gguf_checkpoint.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/manifest.h"

namespace espalier::internal {

namespace {

bool IsFloatType(SafetensorsDType dtype) {
  return dtype == SafetensorsDType::kF64 || dtype == SafetensorsDType::kF32 ||
         dtype == SafetensorsDType::kBF16 || dtype == SafetensorsDType::kF16;
}

class FolderSource final : public WeightSource {
 public:
  explicit FolderSource(CheckpointReader reader) : reader_(std::move(reader)) {}

  absl::Status Read() {
    absl::StatusOr<QuantizationConfig> config =
        QuantizationConfig::ReadFolder(*folder());
    if (!config.ok()) return config.status();
    absl::StatusOr<JsonValue> json = folder()->ReadJson("config.json");
    if (json.ok()) {
      config_ = *std::move(json);
    } else if (!absl::IsNotFound(json.status())) {
      return json.status();
    }
    weight_reader_.emplace(reader_, *std::move(config));
    names_ = weight_reader_->Names();
    for (const TensorCatalog::File& file : reader_.catalog().files()) {
      const absl::StatusOr<std::string> version =
          VersionOf(*folder(), file.name);
      if (!version.ok()) return version.status();
      fingerprint_ += *version;
    }
    notes_ = reader_.warnings();
    return ListFiles();
  }

  const TensorCatalog* catalog() const override { return &reader_.catalog(); }

  absl::StatusOr<SourceWeight> Weight(size_t weight) const override {
    const absl::StatusOr<WeightInfo> info =
        weight_reader_->Describe(names_[weight]);
    if (!info.ok()) return info.status();
    SourceWeight result;
    result.name = names_[weight];
    result.shape = info->shape;
    result.format = info->format;
    result.group = info->group;
    if (info->format == WeightFormat::kDense) {
      result.dtype = reader_.Find(info->codes)->dtype;
      result.is_float = IsFloatType(result.dtype);
    }
    return result;
  }

  absl::Status ReadRows(size_t weight, int64_t start, int64_t count,
                        absl::Span<float> out) const override {
    absl::StatusOr<WeightInfo> info = weight_reader_->Describe(names_[weight]);
    if (!info.ok()) return info.status();
    // Rows of one element: any number of them at a time.
    if (info->format == WeightFormat::kDense && info->shape.size() <= 1) {
      info->shape = {info->columns(), 1};
    }
    return weight_reader_->DecodeRows(*info, start, count, out);
  }

  absl::StatusOr<TensorGroup> StoredOf(size_t weight) const override {
    const absl::StatusOr<WeightInfo> info =
        weight_reader_->Describe(names_[weight]);
    if (!info.ok()) return info.status();
    TensorGroup tensors = {SpecOf(info->codes)};
    for (const std::string& part : {info->scales, info->global_scale,
                                    info->zero_point, info->group_index}) {
      if (!part.empty()) tensors.push_back(SpecOf(part));
    }
    if (info->format == WeightFormat::kInt4 ||
        info->format == WeightFormat::kInt8) {
      absl::string_view base = info->codes;
      absl::ConsumeSuffix(&base, "packed");
      tensors.push_back(SpecOf(absl::StrCat(base, "shape")));
    }
    return tensors;
  }

  absl::Status ReadStored(const std::string& tensor, int64_t offset,
                          absl::Span<uint8_t> out) const override {
    const SafetensorsFile* file = nullptr;
    const std::optional<SafetensorsEntry> entry = reader_.Find(tensor, &file);
    if (!entry) return absl::NotFoundError(tensor);
    return file->ReadBytes(*entry, offset, out);
  }

 private:
  TensorSpec SpecOf(const std::string& name) const {
    const std::optional<SafetensorsEntry> entry = reader_.Find(name);
    return {name, entry->dtype,
            std::vector<int64_t>(entry->shape.begin(), entry->shape.end())};
  }

  // Tokenizer, templates, generation settings: whatever is no weight.
  absl::Status ListFiles() {
    const absl::StatusOr<std::vector<std::string>> names =
        folder()->List(/*deep=*/false);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (absl::StartsWith(name, ".") ||
          absl::StrContains(name, ".safetensors") || name == "config.json" ||
          absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".gguf") ||
          !folder()->Open(name).ok()) {
        continue;
      }
      if (name == kManifestName) {  // of the files as they were
        notes_.push_back(absl::StrCat(
            name, " tells of the source and was left out; espalier verify ",
            "--write-manifest writes one of the new folder"));
        continue;
      }
      files_.push_back(name);
    }
    return absl::OkStatus();
  }

  const Folder* folder() const { return reader_.catalog().folder().get(); }

  CheckpointReader reader_;
  std::optional<WeightReader> weight_reader_;
};

class GgufSource final : public WeightSource {
 public:
  explicit GgufSource(GgufCheckpoint checkpoint)
      : checkpoint_(std::move(checkpoint)) {
    for (const GgufWeight& weight : checkpoint_.weights()) {
      names_.push_back(weight.name);
    }
    fingerprint_ = checkpoint_.file().fingerprint();
    config_ = checkpoint_.config();
    for (const auto& [key, text] : checkpoint_.tokenizer()) {
      notes_.push_back(absl::StrCat("tokenizer.", key, ": ", text));
    }
    notes_.push_back(
        "the tokenizer of a GGUF file is not converted: take tokenizer.json "
        "from the model it was made from");
  }

  absl::StatusOr<SourceWeight> Weight(size_t weight) const override {
    const GgufWeight& stored = checkpoint_.weights()[weight];
    SourceWeight result;
    result.name = names_[weight];
    result.shape = stored.shape;
    result.copyable = false;
    const GgmlType type = checkpoint_.file().tensors()[stored.tensor].type;
    if (type == GgmlType::kF32) result.dtype = SafetensorsDType::kF32;
    if (type == GgmlType::kF16) result.dtype = SafetensorsDType::kF16;
    return result;  // bf16 for others
  }

  absl::Status ReadRows(size_t weight, int64_t start, int64_t count,
                        absl::Span<float> out) const override {
    return checkpoint_.DecodeRows(checkpoint_.weights()[weight], start, count,
                                  out);
  }
  absl::StatusOr<TensorGroup> StoredOf(size_t weight) const override {
    return absl::UnimplementedError(names_[weight]);
  }
  absl::Status ReadStored(const std::string& tensor, int64_t /*offset*/,
                          absl::Span<uint8_t> /*out*/) const override {
    return absl::UnimplementedError(tensor);
  }

 private:
  GgufCheckpoint checkpoint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> WeightSource::Open(
    const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) {
    absl::StatusOr<GgufCheckpoint> checkpoint = GgufCheckpoint::Open(path);
    if (!checkpoint.ok()) return checkpoint.status();
    return std::make_unique<GgufSource>(*std::move(checkpoint));
  }
  return Open(Folder::Local(path));
}

absl::StatusOr<std::unique_ptr<WeightSource>> WeightSource::Open(
    std::shared_ptr<const Folder> folder) {
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(std::move(folder), ReadMode::kRead);
  if (!reader.ok()) return reader.status();
  auto source = std::make_unique<FolderSource>(*std::move(reader));
  if (absl::Status s = source->Read(); !s.ok()) return s;
  return source;
}

}  // namespace espalier::internal
