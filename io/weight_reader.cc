#include "espalier/io/weight_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/internal/weight_codec.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/guard.h"

namespace espalier {

namespace {

int64_t GroupsOf(const WeightInfo& info) {
  return info.group == 0 ? 1 : CeilDiv(info.columns(), info.group);
}

// Row of the scale tensor that serves a row of the weight.
int64_t ScaleRow(const WeightInfo& info, int64_t row) {
  switch (info.format) {
    case WeightFormat::kFp8Tensor:
      return 0;
    case WeightFormat::kFp8Block: {
      const int64_t out = info.out_features();
      return row / out * CeilDiv(out, kFp8BlockSide) +
             row % out / kFp8BlockSide;
    }
    default:
      return row;
  }
}

bool IsFloatDType(SafetensorsDType dtype) {
  return dtype == SafetensorsDType::kF64 || dtype == SafetensorsDType::kF32 ||
         dtype == SafetensorsDType::kBF16 || dtype == SafetensorsDType::kF16 ||
         dtype == SafetensorsDType::kF8E5M2;
}

absl::Status At(const std::string& name, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("tensor ", internal::Quote(name), ": ", status.message()));
}

}  // namespace

absl::string_view ToString(WeightFormat format) {
  switch (format) {
    case WeightFormat::kDense:
      return "dense";
    case WeightFormat::kInt4:
      return "int4";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kNvfp4:
      return "nvfp4";
    case WeightFormat::kMxfp8:
      return "mxfp8";
    case WeightFormat::kFp8Tensor:
      return "fp8 per tensor";
    case WeightFormat::kFp8Channel:
      return "fp8 per row";
    case WeightFormat::kFp8Block:
      return "fp8 block";
  }
  return "unknown";
}

int64_t WeightInfo::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::string Describe(const WeightInfo& info) {
  return absl::StrCat(ToString(info.format),
                      info.group > 0 ? absl::StrCat(" group ", info.group) : "",
                      " [", absl::StrJoin(info.shape, ", "), "]");
}

absl::StatusOr<PackedWeight> WeightReader::TakePacked(Device& device,
                                                      const WeightInfo& info,
                                                      int64_t index) {
  const bool native =
      info.format == WeightFormat::kMxfp4 ||
      (info.format == WeightFormat::kFp8Block && !info.scales.empty()) ||
      (info.format == WeightFormat::kInt4 && info.zero_point.empty() &&
       info.group_index.empty());
  if (!native || info.shape.size() > 3) {
    return At(info.name,
              absl::UnimplementedError(absl::StrCat(
                  espalier::Describe(info), " has no packed form; decode it")));
  }
  const bool stacked = info.shape.size() == 3;
  const int64_t slices = stacked ? info.shape[0] : 1;
  if (index < 0 || index >= slices) {
    return At(info.name, absl::InvalidArgumentError(
                             absl::StrCat("slice ", index, " of ", slices)));
  }
  const auto take = [&](const std::string& name) -> absl::StatusOr<Tensor> {
    absl::StatusOr<Tensor> tensor =
        stacked ? reader_->TakeRows(device, name, index, 1)
                : reader_->Take(device, name);
    if (!tensor.ok()) return tensor;
    // To two dims: [1, out, x] or [out, groups, 16] loses a border.
    const int64_t rows = tensor->dim(stacked ? 1 : 0);
    absl::Status status = internal::Guard([&] {
      tensor = tensor->Reshape({rows, int64_t{-1}});
    });
    if (!status.ok()) return status;
    return tensor;
  };
  absl::StatusOr<Tensor> codes = take(info.codes);
  if (!codes.ok()) return codes.status();
  absl::StatusOr<Tensor> scales = take(info.scales);
  if (!scales.ok()) return scales.status();
  const PackedFormat format =
      info.format == WeightFormat::kMxfp4      ? PackedFormat::kMxfp4
      : info.format == WeightFormat::kFp8Block ? PackedFormat::kFp8Block
                                               : PackedFormat::kInt4;
  absl::StatusOr<PackedWeight> weight = PackedWeight::Create(
      format, info.group == 0 ? info.columns() : info.group,
      info.out_features(), info.columns(), *std::move(codes),
      *std::move(scales));
  if (!weight.ok()) return At(info.name, weight.status());
  for (const std::string& part :
       {absl::StrCat(absl::StripSuffix(info.codes, "_packed"), "_shape")}) {
    reader_->MarkConsumed(part);
  }
  return weight;
}

absl::StatusOr<std::vector<int64_t>> WeightReader::ReadIntegers(
    const std::string& name, int64_t count) const {
  const Stored stored = Find(name);
  if (!stored) {
    return absl::NotFoundError(
        absl::StrCat("no tensor ", internal::Quote(name)));
  }
  const SafetensorsDType dtype = stored.entry->dtype;
  const bool wide = dtype == SafetensorsDType::kI64;
  if ((!wide && dtype != SafetensorsDType::kI32) ||
      stored.entry->shape.size() != 1 || stored.entry->shape[0] != count) {
    return At(name, absl::InvalidArgumentError(
                        absl::StrCat("is ", espalier::Describe(*stored.entry),
                                     ", expected I32 or I64 [", count, "]")));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(stored.entry->num_bytes()));
  absl::Status status =
      stored.file->ReadBytes(*stored.entry, 0, absl::MakeSpan(bytes));
  if (!status.ok()) return status;
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t narrow = 0;
    if (wide) {
      std::memcpy(&values[i], bytes.data() + 8 * i, 8);
    } else {
      std::memcpy(&narrow, bytes.data() + 4 * i, 4);
      values[i] = narrow;
    }
  }
  return values;
}

// Scale rows [first, first + count) as f32, the global scale applied.
absl::Status WeightReader::ReadScales(const WeightInfo& info, int64_t first,
                                      int64_t count,
                                      std::vector<float>& scales) const {
  const int64_t groups = GroupsOf(info);
  scales.assign(static_cast<size_t>(count * groups), 1.0f);
  if (info.scales.empty()) return absl::OkStatus();
  const Stored stored = Find(info.scales);
  const int64_t row_bytes = groups * BitsOf(stored.entry->dtype) / 8;
  std::vector<uint8_t> bytes(static_cast<size_t>(count * row_bytes));
  absl::Status status = stored.file->ReadBytes(*stored.entry, first * row_bytes,
                                               absl::MakeSpan(bytes));
  if (!status.ok()) return status;
  internal::FloatsFrom(stored.entry->dtype, bytes.data(), count * groups,
                       scales.data());
  if (info.global_scale.empty()) return absl::OkStatus();
  const Stored global = Find(info.global_scale);
  float value = 0;
  status = global.file->ReadBytes(
      *global.entry, 0,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(&value), sizeof(value)));
  if (!status.ok()) return status;
  for (float& scale : scales) {
    scale = info.multiply_global ? scale * value : scale / value;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> WeightReader::ReadGroupIndex(
    const WeightInfo& info) const {
  std::vector<int32_t> index;
  if (info.group_index.empty()) return index;
  const auto values = ReadIntegers(info.group_index, info.columns());
  if (!values.ok()) return values.status();
  for (const int64_t value : *values) {
    if (value < 0 || value >= GroupsOf(info)) {
      return At(info.group_index,
                absl::InvalidArgumentError(absl::StrCat(
                    "holds group ", value, " of ", GroupsOf(info))));
    }
    index.push_back(static_cast<int32_t>(value));
  }
  return index;
}

// [count, groups]; empty where the format has none. They are codes of their
// own, packed along the rows.
absl::StatusOr<std::vector<int32_t>> WeightReader::ReadZeroPoints(
    const WeightInfo& info, int64_t start, int64_t count) const {
  std::vector<int32_t> zeros;
  if (info.zero_point.empty()) return zeros;
  const int bits = info.format == WeightFormat::kInt8 ? 8 : 4;
  const int64_t per_word = 32 / bits;
  const int64_t groups = GroupsOf(info);
  const int64_t first = start / per_word;
  std::vector<uint32_t> words(static_cast<size_t>(
      ((start + count - 1) / per_word - first + 1) * groups));
  const Stored stored = Find(info.zero_point);
  absl::Status status = stored.file->ReadBytes(
      *stored.entry, first * groups * 4,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(words.data()),
                     words.size() * 4));
  if (!status.ok()) return status;
  for (int64_t row = start; row < start + count; ++row) {
    const uint32_t* word = words.data() + (row / per_word - first) * groups;
    for (int64_t g = 0; g < groups; ++g) {
      const uint32_t code =
          word[g] >> (bits * static_cast<int>(row % per_word)) &
          ((1u << bits) - 1);
      zeros.push_back(static_cast<int32_t>(code) - (1 << (bits - 1)));
    }
  }
  return zeros;
}

absl::Status WeightReader::DecodePacked(const WeightInfo& info, int64_t start,
                                        int64_t count, const uint8_t* codes,
                                        int64_t row_bytes, float* out) const {
  const int64_t columns = info.columns();
  const int64_t groups = GroupsOf(info);
  const int64_t group = info.group == 0 ? columns : info.group;
  const int64_t first = ScaleRow(info, start);
  std::vector<float> scales;
  absl::Status status = ReadScales(
      info, first, ScaleRow(info, start + count - 1) - first + 1, scales);
  if (!status.ok()) return status;
  const absl::StatusOr<std::vector<int32_t>> index = ReadGroupIndex(info);
  if (!index.ok()) return index.status();
  const absl::StatusOr<std::vector<int32_t>> zeros =
      ReadZeroPoints(info, start, count);
  if (!zeros.ok()) return zeros.status();
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* code = codes + i * row_bytes;
    const float* scale =
        scales.data() + (ScaleRow(info, start + i) - first) * groups;
    float* result = out + i * columns;
    switch (info.format) {
      case WeightFormat::kMxfp4:
      case WeightFormat::kNvfp4:
        internal::DecodeE2m1Row(code, scale, columns, group, result);
        break;
      case WeightFormat::kInt4:
      case WeightFormat::kInt8:
        internal::DecodeIntRow(
            info.format == WeightFormat::kInt8 ? 8 : 4, code, scale,
            zeros->empty() ? nullptr : zeros->data() + i * groups,
            index->empty() ? nullptr : index->data(), columns, group, result);
        break;
      default:
        internal::DecodeE4m3Row(code, scale, columns, group, result);
    }
  }
  return absl::OkStatus();
}

absl::Status WeightReader::DecodeRows(const WeightInfo& info, int64_t start,
                                      int64_t count,
                                      absl::Span<float> out) const {
  const int64_t columns = info.columns();
  if (start < 0 || count < 0 || start > info.rows() - count ||
      static_cast<int64_t>(out.size()) != count * columns) {
    return At(info.name,
              absl::InvalidArgumentError(absl::StrCat(
                  count, " rows from row ", start, " into ", out.size(),
                  " values of ", espalier::Describe(info))));
  }
  if (out.empty()) return absl::OkStatus();
  const Stored stored = Find(info.codes);
  const int64_t row_bytes = stored.entry->num_bytes() / info.rows();
  std::vector<uint8_t> codes(static_cast<size_t>(count * row_bytes));
  absl::Status status = stored.file->ReadBytes(*stored.entry, start * row_bytes,
                                               absl::MakeSpan(codes));
  if (!status.ok()) return status;
  if (info.format == WeightFormat::kDense) {
    if (!IsFloatDType(stored.entry->dtype)) {
      return At(info.name,
                absl::InvalidArgumentError(absl::StrCat(
                    "is ", espalier::Describe(*stored.entry), ", no float")));
    }
    internal::FloatsFrom(stored.entry->dtype, codes.data(), count * columns,
                         out.data());
    return absl::OkStatus();
  }
  return DecodePacked(info, start, count, codes.data(), row_bytes, out.data());
}

}  // namespace espalier
