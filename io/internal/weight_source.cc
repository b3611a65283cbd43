#include "espalier/io/internal/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/gguf_checkpoint.h"
#include "espalier/io/internal/file.h"

namespace espalier::internal {

namespace {

bool IsFloatType(SafetensorsDType dtype) {
  return dtype == SafetensorsDType::kF64 || dtype == SafetensorsDType::kF32 ||
         dtype == SafetensorsDType::kBF16 || dtype == SafetensorsDType::kF16;
}

class FolderSource final : public WeightSource {
 public:
  explicit FolderSource(CheckpointReader reader) : reader_(std::move(reader)) {}

  absl::Status Read(const std::string& dir) {
    absl::StatusOr<QuantizationConfig> config =
        QuantizationConfig::ReadFolder(dir);
    if (!config.ok()) return config.status();
    std::error_code error;
    if (const std::string path = JoinPath(dir, "config.json");
        std::filesystem::exists(path, error)) {
      absl::StatusOr<JsonValue> json = ReadJsonFile(path);
      if (!json.ok()) return json.status();
      config_ = *std::move(json);
    }
    weight_reader_.emplace(reader_, *std::move(config));
    names_ = weight_reader_->Names();
    for (const TensorCatalog::File& file : reader_.catalog().files()) {
      const absl::StatusOr<FileIdentity> identity =
          IdentityOf(reader_.catalog().PathOf(file));
      if (!identity.ok()) return identity.status();
      absl::StrAppend(&fingerprint_, file.name, " ", identity->size, " ",
                      identity->modified_ns, ";");
    }
    notes_ = reader_.warnings();
    return ListFiles(dir);
  }

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
  absl::Status ListFiles(const std::string& dir) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(dir, error), end;
         !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!it->is_regular_file(error) || absl::StartsWith(name, ".") ||
          absl::StrContains(name, ".safetensors") || name == "config.json" ||
          absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".gguf")) {
        continue;
      }
      files_.push_back(it->path().string());
    }
    std::sort(files_.begin(), files_.end());
    if (!error) return absl::OkStatus();
    return absl::UnknownError(
        absl::StrCat("cannot look at ", dir, ": ", error.message()));
  }

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
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(path, ReadMode::kRead);
  if (!reader.ok()) return reader.status();
  auto source = std::make_unique<FolderSource>(*std::move(reader));
  if (absl::Status s = source->Read(path); !s.ok()) return s;
  return source;
}

}  // namespace espalier::internal
