#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/weight_reader.h"
#include "espalier/runtime/ceil_div.h"

namespace espalier {

namespace {

using Type = SafetensorsDType;

constexpr absl::string_view kWeight = ".weight";
constexpr Type kScaleTypes[] = {Type::kF32, Type::kBF16, Type::kF16};
constexpr Type kByteScaleTypes[] = {Type::kU8, Type::kF8E8M0};
constexpr Type kFp8Types[] = {Type::kF8E4M3};
constexpr Type kI32Types[] = {Type::kI32};
constexpr Type kF32Types[] = {Type::kF32};
// Parts that stand beside `base`.weight_packed.
constexpr absl::string_view kPackedParts[] = {
    ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx",
    ".weight_global_scale"};

absl::Status Bad(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", internal::Quote(name), ": ", what));
}

// The module of a weight; the whole name where it has no such suffix.
std::string BaseOf(absl::string_view name) {
  return std::string(absl::StripSuffix(name, kWeight));
}

}  // namespace

WeightReader::Stored WeightReader::Find(absl::string_view name) const {
  Stored stored;
  stored.entry = reader_->Find(name, &stored.file);
  return stored;
}

absl::Status WeightReader::CheckPart(const std::string& name,
                                     absl::Span<const Type> dtypes,
                                     absl::Span<const int64_t> shape) const {
  const std::string expected =
      absl::StrCat(absl::StrJoin(dtypes, " or ",
                                 [](std::string* text, Type dtype) {
                                   absl::StrAppend(text, ToString(dtype));
                                 }),
                   " [", absl::StrJoin(shape, ", "), "]");
  const Stored stored = Find(name);
  if (!stored) {
    return Bad(name, absl::StrCat("is missing, expected ", expected));
  }
  const bool known = std::find(dtypes.begin(), dtypes.end(),
                               stored.entry->dtype) != dtypes.end();
  if (known && absl::MakeConstSpan(stored.entry->shape) == shape) {
    return absl::OkStatus();
  }
  return Bad(name, absl::StrCat("is ", espalier::Describe(*stored.entry),
                                ", expected ", expected));
}

absl::Status WeightReader::DescribeIntPacked(const QuantizationGroup& group,
                                             const std::string& base,
                                             WeightInfo& info) const {
  const std::string shape_name = base + ".weight_shape";
  const auto shape = ReadIntegers(shape_name, 2);
  if (!shape.ok()) return shape.status();
  info.shape = *shape;
  const int64_t out = (*shape)[0];
  const int64_t in = (*shape)[1];
  constexpr int64_t kMaxExtent = int64_t{1} << 40;
  if (out < 1 || in < 1 || out > kMaxExtent || in > kMaxExtent) {
    return Bad(shape_name, absl::StrCat("holds [", out, ", ", in, "]"));
  }
  info.format = group.num_bits == 4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
  info.group = group.group_size;
  if (info.group < 0) {
    return Bad(info.codes, absl::StrCat("group size ", info.group));
  }
  const int64_t groups = info.group == 0 ? 1 : CeilDiv(in, info.group);
  const int64_t per_word = 32 / group.num_bits;
  absl::Status status =
      CheckPart(info.codes, kI32Types, {out, CeilDiv(in, per_word)});
  if (!status.ok()) return status;
  status = CheckPart(info.scales, kScaleTypes, {out, groups});
  if (!status.ok()) return status;
  const std::string zero = base + ".weight_zero_point";
  if (reader_->Contains(zero)) {
    info.zero_point = zero;
    status = CheckPart(zero, kI32Types, {CeilDiv(out, per_word), groups});
  } else if (!group.symmetric) {
    return Bad(zero, "is missing, and config.json says symmetric false");
  }
  if (!status.ok()) return status;
  const std::string order = base + ".weight_g_idx";
  if (reader_->Contains(order)) {
    info.group_index = order;
    return CheckPart(order, kI32Types, {in});
  }
  if (!group.reordered) return absl::OkStatus();
  return Bad(order,
             "is missing, and config.json says that columns are "
             "reordered (actorder)");
}

absl::Status WeightReader::DescribeFp4Packed(const QuantizationGroup& group,
                                             const std::string& base,
                                             WeightInfo& info) const {
  const SafetensorsEntry codes = *Find(info.codes).entry;
  if (codes.dtype != Type::kU8 || codes.shape.size() != 2) {
    return Bad(info.codes, absl::StrCat("is ", espalier::Describe(codes),
                                        ", expected U8 [out, in / 2]"));
  }
  const bool nvfp4 = group.format == "nvfp4-pack-quantized";
  const int64_t out = codes.shape[0];
  const int64_t in = 2 * codes.shape[1];
  info.shape = {out, in};
  info.format = nvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4;
  info.group = nvfp4 ? 16 : 32;
  if (in % info.group != 0) {
    return Bad(info.codes,
               absl::StrCat("has ", in, " columns, expected a multiple of ",
                            info.group));
  }
  const std::string global = base + ".weight_global_scale";
  if (!nvfp4) {
    if (reader_->Contains(global)) {
      return Bad(global, "stands beside mxfp4 codes, which have none");
    }
    return CheckPart(info.scales, kByteScaleTypes, {out, in / info.group});
  }
  info.global_scale = global;
  absl::Status status =
      CheckPart(info.scales, kFp8Types, {out, in / info.group});
  return status.ok() ? CheckPart(global, kF32Types, {1}) : status;
}

absl::Status WeightReader::DescribePacked(const std::string& base,
                                          WeightInfo& info) const {
  info.codes = base + ".weight_packed";
  info.scales = base + ".weight_scale";
  if (config_.method() != QuantMethod::kCompressedTensors) {
    return Bad(
        info.codes,
        absl::StrCat("is packed, but the quant_method of config.json is ",
                     ToString(config_.method()),
                     ", expected compressed-tensors"));
  }
  const absl::StatusOr<const QuantizationGroup*> group = config_.GroupOf(base);
  if (!group.ok()) return group.status();
  if (*group == nullptr) {
    return Bad(info.codes, "is packed, but no group of config.json has it");
  }
  const std::string& format = (*group)->format;
  if (format == "pack-quantized") {
    return DescribeIntPacked(**group, base, info);
  }
  if (format == "mxfp4-pack-quantized" || format == "nvfp4-pack-quantized") {
    return DescribeFp4Packed(**group, base, info);
  }
  return Bad(info.codes,
             absl::StrCat("is packed, but its group has the format ",
                          internal::Quote(format)));
}

// gpt-oss: [.., out, groups, 16] codes, [.., out, groups] scales.
absl::Status WeightReader::DescribeBlocks(WeightInfo& info) const {
  info.codes = info.name + "_blocks";
  info.scales = info.name + "_scales";
  const SafetensorsEntry codes = *Find(info.codes).entry;
  if (codes.dtype != Type::kU8 || codes.shape.size() < 3 ||
      codes.shape.back() != 16) {
    return Bad(info.codes, absl::StrCat("is ", espalier::Describe(codes),
                                        ", expected U8 [.., in / 32, 16]"));
  }
  info.format = WeightFormat::kMxfp4;
  info.group = 32;
  std::vector<int64_t> scales(codes.shape.begin(), codes.shape.end() - 1);
  info.shape = scales;
  if (__builtin_mul_overflow(scales.back(), int64_t{32}, &info.shape.back())) {
    return Bad(info.codes, "is too large");
  }
  return CheckPart(info.scales, kByteScaleTypes, scales);
}

absl::Status WeightReader::DescribeFp8(WeightInfo& info) const {
  const SafetensorsEntry codes = *Find(info.name).entry;
  info.codes = info.name;
  info.shape.assign(codes.shape.begin(), codes.shape.end());
  info.format = WeightFormat::kFp8Tensor;
  std::vector<std::string> names = {info.name + "_scale_inv",
                                    info.name + "_scale"};
  if (absl::EndsWith(info.name, kWeight)) {
    names.push_back(BaseOf(info.name) + ".scale");
  }
  const std::string looked_for = absl::StrJoin(names, ", ");
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](const std::string& name) {
                               return !reader_->Contains(name);
                             }),
              names.end());
  if (names.size() > 1) {
    return Bad(info.name,
               absl::StrCat("has two scales: ", names[0], " and ", names[1]));
  }
  if (names.empty()) {
    if (allow_unscaled_fp8_) return absl::OkStatus();
    return Bad(info.name,
               absl::StrCat("is ", espalier::Describe(codes),
                            " without a scale (looked for ", looked_for,
                            "); its scale may have another name"));
  }
  info.scales = names[0];
  const SafetensorsEntry scale = *Find(info.scales).entry;
  const std::vector<int64_t> shape(scale.shape.begin(), scale.shape.end());
  const bool e8m0 = scale.dtype == Type::kU8 || scale.dtype == Type::kF8E8M0;
  const bool known =
      e8m0 || std::find(std::begin(kScaleTypes), std::end(kScaleTypes),
                        scale.dtype) != std::end(kScaleTypes);
  std::vector<int64_t> channel = info.shape;
  std::vector<int64_t> block = info.shape;
  std::vector<int64_t> micro = info.shape;
  if (info.shape.size() >= 2) {
    channel.back() = 1;
    micro.back() = CeilDiv(info.columns(), 32);
    block.back() = CeilDiv(info.columns(), kFp8BlockSide);
    block[block.size() - 2] = CeilDiv(info.out_features(), kFp8BlockSide);
  }
  const bool one = shape.empty() || shape == std::vector<int64_t>{1};
  if (known && info.shape.size() >= 2 && shape == block) {
    info.format = WeightFormat::kFp8Block;
    info.group = kFp8BlockSide;
    return absl::OkStatus();
  }
  if (known && one) return absl::OkStatus();
  if (known && info.shape.size() >= 2 && shape == channel) {
    info.format = WeightFormat::kFp8Channel;
    return absl::OkStatus();
  }
  if (e8m0 && info.shape.size() >= 2 && shape == micro &&
      info.columns() % 32 == 0) {
    info.format = WeightFormat::kMxfp8;
    info.group = 32;
    return absl::OkStatus();
  }
  return Bad(
      info.scales,
      absl::StrCat("is ", espalier::Describe(scale), " for ", info.name, " ",
                   espalier::Describe(codes), ", expected a float scale [1], [",
                   absl::StrJoin(channel, ", "), "] or [",
                   absl::StrJoin(block, ", "), "], or E8M0 [",
                   absl::StrJoin(micro, ", "), "]"));
}

// U8 weight [out, in / 2], weight_scale E4M3 [out, in / 16], weight_scale_2.
absl::Status WeightReader::DescribeModelOpt(WeightInfo& info) const {
  const SafetensorsEntry codes = *Find(info.name).entry;
  info.codes = info.name;
  info.scales = info.name + "_scale";
  info.global_scale = info.name + "_scale_2";
  info.multiply_global = true;
  info.format = WeightFormat::kNvfp4;
  info.group = 16;
  if (codes.shape.size() != 2 || codes.shape[1] % 8 != 0) {
    return Bad(info.codes, absl::StrCat("is ", espalier::Describe(codes),
                                        ", expected U8 [out, in / 2] with in a "
                                        "multiple of 16"));
  }
  info.shape = {codes.shape[0], 2 * codes.shape[1]};
  absl::Status status = CheckPart(info.scales, kFp8Types,
                                  {info.shape[0], info.shape[1] / info.group});
  if (!status.ok()) return status;
  const Stored global = Find(info.global_scale);
  const std::vector<int64_t> one(global.entry->shape.empty() ? 0 : 1, 1);
  return CheckPart(info.global_scale, kF32Types, one);
}

absl::Status WeightReader::DescribePlain(WeightInfo& info) const {
  const SafetensorsEntry entry = *Find(info.name).entry;
  if (entry.dtype == Type::kF8E5M2 && !allow_unscaled_fp8_) {
    return absl::UnimplementedError(
        absl::StrCat("tensor ", internal::Quote(info.name), ": is ",
                     espalier::Describe(entry), ", which has no known scale"));
  }
  info.codes = info.name;
  info.shape.assign(entry.shape.begin(), entry.shape.end());
  return absl::OkStatus();
}

absl::StatusOr<WeightInfo> WeightReader::Describe(
    absl::string_view name) const {
  WeightInfo info;
  info.name = std::string(name);
  const std::string base = BaseOf(name);
  const Stored stored = Find(name);
  const bool packed =
      base.size() < name.size() && reader_->Contains(base + ".weight_packed");
  const bool blocks = reader_->Contains(info.name + "_blocks") &&
                      reader_->Contains(info.name + "_scales");
  absl::Status status;
  if ((packed || blocks) && stored) {
    return Bad(info.name, "is stored both dense and packed");
  }
  if (packed) {
    status = DescribePacked(base, info);
  } else if (blocks) {
    status = DescribeBlocks(info);
  } else if (!stored) {
    return absl::NotFoundError(absl::StrCat(reader_->dir(), ": no tensor ",
                                            internal::Quote(info.name)));
  } else if (stored.entry->dtype == Type::kF8E4M3) {
    status = DescribeFp8(info);
  } else if (stored.entry->dtype == Type::kU8 &&
             reader_->Contains(info.name + "_scale_2")) {
    status = DescribeModelOpt(info);
  } else {
    status = DescribePlain(info);
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(reader_->dir(), ": ", status.message()));
  }
  return info;
}

std::vector<absl::string_view> WeightReader::Names() const {
  const auto holds = [&](absl::string_view name, Type dtype) {
    const Stored stored = Find(name);
    return stored && stored.entry->dtype == dtype;
  };
  // Whether the tensor is a scale of another one.
  const auto is_part = [&](absl::string_view name) {
    for (const absl::string_view suffix : kPackedParts) {
      absl::string_view base = name;
      if (absl::ConsumeSuffix(&base, suffix) &&
          reader_->Contains(absl::StrCat(base, ".weight_packed"))) {
        return true;
      }
    }
    absl::string_view base = name;
    if (absl::ConsumeSuffix(&base, "_scales")) {
      return reader_->Contains(absl::StrCat(base, "_blocks"));
    }
    if (absl::ConsumeSuffix(&base, "_scale_inv")) {
      return holds(base, Type::kF8E4M3);
    }
    if (absl::ConsumeSuffix(&base, "_scale_2")) {
      return holds(base, Type::kU8);
    }
    if (absl::ConsumeSuffix(&base, "_scale")) {
      return holds(base, Type::kF8E4M3) ||
             (holds(base, Type::kU8) &&
              reader_->Contains(absl::StrCat(base, "_scale_2")));
    }
    return absl::ConsumeSuffix(&base, ".scale") &&
           holds(absl::StrCat(base, kWeight), Type::kF8E4M3);
  };
  // A weight's name is the beginning of its codes' name.
  std::vector<absl::string_view> names;
  names.reserve(static_cast<size_t>(reader_->num_tensors()));
  for (const absl::string_view name : reader_->names()) {
    absl::string_view base = name;
    if (absl::ConsumeSuffix(&base, ".weight_packed")) {
      names.push_back(name.substr(0, base.size() + kWeight.size()));
    } else if (absl::ConsumeSuffix(&base, "_blocks") &&
               reader_->Contains(absl::StrCat(base, "_scales"))) {
      names.push_back(base);
    } else if (!is_part(name)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace espalier
