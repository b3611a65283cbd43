#include "espalier/runtime/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/packed_lanes.h"

namespace espalier {

namespace {

bool IsScaleDType(PackedFormat format, DType dtype) {
  switch (format) {
    case PackedFormat::kMxfp4:
      return dtype == kU8;
    case PackedFormat::kInt4:
      return dtype == kF32 || dtype == kBF16 || dtype == kF16;
    case PackedFormat::kFp8Block:
      return dtype == kF32 || dtype == kBF16;
  }
  return false;
}

DType CodesDType(PackedFormat format) {
  return format == PackedFormat::kInt4 ? kI32 : kU8;
}

Shape RowCodesShape(PackedFormat format, int64_t out, int64_t in) {
  switch (format) {
    case PackedFormat::kMxfp4:
      return {out, in / 2};
    case PackedFormat::kInt4:
      return {out, CeilDiv(in, 8)};
    case PackedFormat::kFp8Block:
      break;
  }
  return {out, in};
}

Shape RowScalesShape(PackedFormat format, int64_t group, int64_t out,
                     int64_t in) {
  if (format == PackedFormat::kFp8Block) {
    return {CeilDiv(out, kFp8BlockSide), CeilDiv(in, kFp8BlockSide)};
  }
  return {out, CeilDiv(in, group)};
}

absl::Status CheckGroup(PackedFormat format, int64_t group, int64_t in) {
  const bool legal = format == PackedFormat::kMxfp4 ? group == 32
                     : format == PackedFormat::kFp8Block
                         ? group == kFp8BlockSide
                         : group == 32 || group == 64 || group == 128;
  if (!legal) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(format), " weight: group ", group, ", expected ",
                     format == PackedFormat::kMxfp4      ? "32"
                     : format == PackedFormat::kFp8Block ? "128"
                                                         : "32, 64 or 128"));
  }
  if (format == PackedFormat::kMxfp4 && in % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mxfp4 weight: ", in, " input features, expected a multiple of 32"));
  }
  return absl::OkStatus();
}

absl::Status CheckPart(PackedFormat format, const char* part,
                       const Tensor& tensor, const Shape& expected) {
  if (!tensor || tensor.shape() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(format), " weight: ", part, " is ", ToString(tensor),
        ", expected shape ", ToString(expected)));
  }
  if (tensor.dim(1) > 1 && tensor.stride(1) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(format), " weight: ", part, " ", ToString(tensor),
                     " is strided along its rows"));
  }
  return absl::OkStatus();
}

float ScaleAt(const View& scales, int64_t offset) {
  switch (scales.dtype) {
    case kU8:
      return static_cast<float>(DecodeE8m0(scales.data<uint8_t>()[offset]));
    case kBF16:
      return scales.data<BFloat16>()[offset];
    case kF16:
      return scales.data<Float16>()[offset];
    default:
      return scales.data<float>()[offset];
  }
}

bool InLanes(const PackedView& w) { return w.layout == PackedLayout::kLanes; }

// Lanes: index of the 16-wide line of the row's strip at position `unit` of
// `units` along in.
int64_t LineIndex(const PackedView& w, int64_t row, int64_t unit,
                  int64_t units) {
  const StripLines lines = LinesOf(w.out, row / kPackedStrip, units);
  return lines.first + unit * lines.width;
}

const uint8_t* RowUnit(const PackedView& w, int64_t row, int64_t unit) {
  return w.codes.data<uint8_t>() +
         (row * w.codes.stride(0) + unit) * SizeOf(w.codes.dtype);
}

uint32_t Word(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) |
         static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

uint8_t Nibble(const PackedView& w, int64_t row, int64_t column) {
  const int64_t i = column % 8;
  const bool int4 = w.format == PackedFormat::kInt4;
  if (!InLanes(w)) {
    return int4 ? Word(RowUnit(w, row, column / 8)) >> (4 * i) & 15
                : *RowUnit(w, row, column / 2) >> (4 * (i % 2)) & 15;
  }
  const uint8_t* line = w.codes.data<uint8_t>() +
                        64 * LineIndex(w, row, column / 8, CeilDiv(w.in, 8));
  const int64_t lane = row % kPackedStrip;
  if (!int4) return Word(line + 4 * lane) >> LaneShift(i) & 15;
  return Int4FromLane(line[LaneByte(lane, i % 4)] >> (i / 4 * 4) & 15u);
}

uint8_t Byte(const PackedView& w, int64_t row, int64_t column) {
  if (!InLanes(w)) return *RowUnit(w, row, column);
  const int64_t line = LineIndex(w, row, column / 4, CeilDiv(w.in, 4));
  return w.codes
      .data<uint8_t>()[64 * line + LaneByte(row % kPackedStrip, column % 4)];
}

int64_t ScaleOffset(const PackedView& w, int64_t row, int64_t column) {
  if (w.format == PackedFormat::kFp8Block) {
    return row / kFp8BlockSide * w.scales.stride(0) +
           column / kFp8BlockSide * w.scales.stride(1);
  }
  const int64_t group = column / w.group;
  if (!InLanes(w)) return row * w.scales.stride(0) + group;
  return kPackedStrip * LineIndex(w, row, group, CeilDiv(w.in, w.group)) +
         row % kPackedStrip;
}

}  // namespace

absl::string_view ToString(PackedFormat format) {
  switch (format) {
    case PackedFormat::kMxfp4:
      return "mxfp4";
    case PackedFormat::kInt4:
      return "int4";
    case PackedFormat::kFp8Block:
      return "fp8";
  }
  return "unknown";
}

absl::string_view ToString(PackedLayout layout) {
  return layout == PackedLayout::kRows ? "rows" : "lanes";
}

PackedWeight::PackedWeight(PackedFormat format, PackedLayout layout,
                           int64_t group, int64_t out, int64_t in, Tensor codes,
                           Tensor scales)
    : format_(format),
      layout_(layout),
      group_(group),
      out_(out),
      in_(in),
      codes_(std::move(codes)),
      scales_(std::move(scales)) {}

absl::StatusOr<PackedWeight> PackedWeight::Create(PackedFormat format,
                                                  int64_t group, int64_t out,
                                                  int64_t in, Tensor codes,
                                                  Tensor scales) {
  if (out < 0 || in < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(format), " weight: [", out, ", ", in, "]"));
  }
  if (absl::Status status = CheckGroup(format, group, in); !status.ok()) {
    return status;
  }
  absl::Status status =
      CheckPart(format, "codes", codes, RowCodesShape(format, out, in));
  if (!status.ok()) return status;
  status = CheckPart(format, "scales", scales,
                     RowScalesShape(format, group, out, in));
  if (!status.ok()) return status;
  if (codes.dtype() != CodesDType(format)) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(format), " weight: codes are ", ToString(codes.dtype()),
        ", expected ", ToString(CodesDType(format))));
  }
  if (!IsScaleDType(format, scales.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(format), " weight: scales are ", ToString(scales.dtype())));
  }
  if (&codes.device() != &scales.device()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(format), " weight: codes are ", ToString(codes),
                     ", scales are ", ToString(scales)));
  }
  return PackedWeight(format, PackedLayout::kRows, group, out, in,
                      std::move(codes), std::move(scales));
}

Shape PackedWeight::LaneCodesShape(const PackedWeight& rows) {
  const int64_t strips = CeilDiv(rows.out_, kPackedStrip);
  switch (rows.format_) {
    case PackedFormat::kMxfp4:
      return {strips * (rows.in_ / 8) * 4 * kPackedStrip};
    case PackedFormat::kInt4:
      return {strips * CeilDiv(rows.in_, 8) * kPackedStrip};
    case PackedFormat::kFp8Block:
      break;
  }
  return {strips * CeilDiv(rows.in_, 4) * 4 * kPackedStrip};
}

Shape PackedWeight::LaneScalesShape(const PackedWeight& rows) {
  if (rows.format_ == PackedFormat::kFp8Block) return rows.scales_.shape();
  return {CeilDiv(rows.out_, kPackedStrip) * CeilDiv(rows.in_, rows.group_) *
          kPackedStrip};
}

PackedWeight PackedWeight::FromLanes(const PackedWeight& rows, Tensor codes,
                                     Tensor scales) {
  ESPALIER_CHECK(rows.layout_ == PackedLayout::kRows, "weight is ",
                 ToString(rows));
  ESPALIER_CHECK(codes.shape() == LaneCodesShape(rows) &&
                     codes.dtype() == rows.codes_.dtype() &&
                     codes.is_contiguous(),
                 "lane codes are ", ToString(codes), " for ", ToString(rows));
  ESPALIER_CHECK(scales.shape() == LaneScalesShape(rows) &&
                     scales.dtype() == rows.scales_.dtype(),
                 "lane scales are ", ToString(scales), " for ", ToString(rows));
  return PackedWeight(rows.format_, PackedLayout::kLanes, rows.group_,
                      rows.out_, rows.in_, std::move(codes), std::move(scales));
}

int64_t PackedWeight::resident_bytes() const {
  int64_t bytes = 0;
  for (const Tensor* part : {&codes_, &scales_}) {
    if (part->storage_kind() != StorageKind::kFileMap) {
      bytes += part->num_bytes();
    }
  }
  return bytes;
}

std::string ToString(const PackedWeight& weight) {
  return absl::StrCat(ToString(weight.format()), " ", ToString(weight.shape()),
                      " group ", weight.group(), ", ",
                      ToString(weight.layout()), ", ", weight.bytes(),
                      " bytes");
}

ScaleReport InspectScales(const PackedWeight& weight) {
  const Tensor host = weight.scales().ToHost();
  const View view = host.view();
  ScaleReport report;
  report.num_scales = host.num_elements();
  for (int64_t i = 0; i < host.num_elements(); ++i) {
    if (view.dtype == kU8) {
      const uint8_t code = view.data<uint8_t>()[i];
      report.num_nan += code == 255;
      report.num_zero += code == 0;
      report.num_overflow += code == 253 || code == 254;
    } else {
      const float scale = ScaleAt(view, i);
      report.num_nan += !std::isfinite(scale);
      report.num_zero += scale == 0;
    }
  }
  return report;
}

double DecodeE2m1(uint8_t nibble) {
  constexpr double kMagnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kMagnitude[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

double DecodeE4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  double magnitude = 0;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, -9);
  } else {
    magnitude = std::ldexp(8 + mantissa, exponent - 10);
  }
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

double DecodeE8m0(uint8_t code) {
  if (code == 255) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, static_cast<int>(code) - 127);
}

double DecodeElement(const PackedView& weight, int64_t row, int64_t column) {
  const double scale = ScaleAt(weight.scales, ScaleOffset(weight, row, column));
  switch (weight.format) {
    case PackedFormat::kMxfp4:
      return DecodeE2m1(Nibble(weight, row, column)) * scale;
    case PackedFormat::kInt4:
      return DecodeInt4(Nibble(weight, row, column)) * scale;
    case PackedFormat::kFp8Block:
      break;
  }
  return DecodeE4m3(Byte(weight, row, column)) * scale;
}

PackedView PackedWeight::view() const {
  return {format_, layout_, group_, out_, in_, codes_.view(), scales_.view()};
}

Tensor DecodeReference(const PackedWeight& weight, DType dtype) {
  ESPALIER_CHECK(dtype == kF64 || dtype == kF32 || dtype == kBF16, "decode to ",
                 ToString(dtype));
  Device& cpu = weight.device().context().cpu();
  const Tensor codes = weight.codes().ToHost();
  const Tensor scales = weight.scales().ToHost();
  PackedView source = weight.view();
  source.codes = codes.view();
  source.scales = scales.view();
  Tensor result = Tensor::Empty(cpu, weight.shape(), dtype);
  const View view = result.view();
  int64_t i = 0;
  for (int64_t row = 0; row < weight.out_features(); ++row) {
    for (int64_t column = 0; column < weight.in_features(); ++column, ++i) {
      const double value = DecodeElement(source, row, column);
      if (dtype == kF64) {
        view.data<double>()[i] = value;
      } else if (dtype == kF32) {
        view.data<float>()[i] = static_cast<float>(value);
      } else {
        view.data<BFloat16>()[i] = BFloat16(value);
      }
    }
  }
  return result;
}

}  // namespace espalier
