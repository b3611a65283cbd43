#include "espalier/io/gguf_file.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/ggml_codec.h"
#include "espalier/io/internal/gguf_parser.h"
#include "espalier/io/internal/text.h"

namespace espalier {

absl::string_view ToString(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return "F32";
    case GgmlType::kF16:
      return "F16";
    case GgmlType::kQ40:
      return "Q4_0";
    case GgmlType::kQ41:
      return "Q4_1";
    case GgmlType::kQ80:
      return "Q8_0";
    case GgmlType::kQ4K:
      return "Q4_K";
    case GgmlType::kQ6K:
      return "Q6_K";
    case GgmlType::kBF16:
      return "BF16";
  }
  return "unknown";
}

int64_t BlockElements(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      return 1;
    case GgmlType::kQ40:
    case GgmlType::kQ41:
    case GgmlType::kQ80:
      return 32;
    case GgmlType::kQ4K:
    case GgmlType::kQ6K:
      return 256;
  }
  return 1;
}

int64_t BlockBytes(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return 4;
    case GgmlType::kF16:
    case GgmlType::kBF16:
      return 2;
    case GgmlType::kQ40:
      return 18;
    case GgmlType::kQ41:
      return 20;
    case GgmlType::kQ80:
      return 34;
    case GgmlType::kQ4K:
      return 144;
    case GgmlType::kQ6K:
      return 210;
  }
  return 1;
}

int64_t GgufTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  absl::StatusOr<internal::ReadableFile> file =
      internal::ReadableFile::Open(path);
  if (!file.ok()) return file.status();
  GgufFile result;
  result.path_ = path;
  result.identity_ = file->identity();
  result.fingerprint_ =
      absl::StrCat(internal::BaseName(path), " ", result.identity_.size, " ",
                   result.identity_.modified_ns);
  internal::GgufParser parser(*file);
  absl::Status status = parser.Parse(result.metadata_, result.tensors_);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(path, ": ", status.message()));
  }
  return result;
}

const GgufTensor* GgufFile::Find(absl::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(),
                   [&](const GgufTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

const int64_t* GgufFile::FindInt(absl::string_view key) const {
  const auto found = metadata_.find(std::string(key));
  return found == metadata_.end() ? nullptr : found->second.scalar.AsInt();
}

const std::string* GgufFile::FindString(absl::string_view key) const {
  const auto found = metadata_.find(std::string(key));
  return found == metadata_.end() ? nullptr : found->second.scalar.AsString();
}

const double* GgufFile::FindNumber(absl::string_view key,
                                   double* storage) const {
  const auto found = metadata_.find(std::string(key));
  if (found == metadata_.end()) return nullptr;
  if (const int64_t* integer = found->second.scalar.AsInt();
      integer != nullptr) {
    *storage = static_cast<double>(*integer);
    return storage;
  }
  return found->second.scalar.AsDouble();
}

absl::Status GgufFile::DecodeRows(const GgufTensor& tensor, int64_t start,
                                  int64_t count, absl::Span<float> out) const {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat(path_, ": tensor ", internal::Quote(tensor.name), ": ",
                     status.message()));
  };
  if (start < 0 || count < 0 || start > tensor.rows() - count ||
      static_cast<int64_t>(out.size()) != count * tensor.columns()) {
    return named(absl::InvalidArgumentError(
        absl::StrCat(count, " rows from row ", start, " of ", tensor.rows())));
  }
  absl::StatusOr<internal::ReadableFile> file =
      internal::ReadableFile::Open(path_);
  if (!file.ok()) return file.status();
  if (file->identity() != identity_) {
    return named(absl::DataLossError("the file changed since it was opened"));
  }
  const int64_t row_bytes = tensor.num_bytes / tensor.rows();
  std::vector<uint8_t> bytes(static_cast<size_t>(count * row_bytes));
  absl::Status status =
      file->ReadAt(tensor.begin + start * row_bytes, absl::MakeSpan(bytes));
  if (!status.ok()) return status;
  internal::DecodeGgml(tensor.type, bytes.data(),
                       static_cast<int64_t>(out.size()), out.data());
  return absl::OkStatus();
}

}  // namespace espalier
