#ifndef ESPALIER_IO_WEIGHT_READER_H_
#define ESPALIER_IO_WEIGHT_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/quantization_config.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

// What the elements of a weight are made of. w = value(code) * scale, where
// one scale serves
//   kDense       (no codes: F64 F32 BF16 F16)
//   kInt4 kInt8  `group` columns; (code - 2^(bits-1) - zero point) * scale
//   kMxfp4       32 columns, E2M1 * E8M0
//   kNvfp4       16 columns, E2M1 * (E4M3 / global), or * global (ModelOpt)
//   kMxfp8       32 columns, E4M3 * E8M0
//   kFp8Tensor kFp8Channel kFp8Block   all, a row, 128 x 128: E4M3 * scale
enum class WeightFormat : uint8_t {
  kDense,
  kInt4,
  kInt8,
  kMxfp4,
  kNvfp4,
  kMxfp8,
  kFp8Tensor,
  kFp8Channel,
  kFp8Block,
};
absl::string_view ToString(WeightFormat format);

// A weight under the name that it has in a dense checkpoint ("x.weight" for
// x.weight_packed; "experts.gate_up_proj" for gpt-oss's _blocks and _scales).
struct WeightInfo {
  std::string name;
  WeightFormat format = WeightFormat::kDense;
  std::vector<int64_t> shape;  // in elements: [.., out, in]
  int64_t group = 0;           // columns of one scale; 0: all of a row
  bool multiply_global = false;
  // Tensors of the checkpoint; null where the format has none.
  std::string codes, scales, global_scale, zero_point, group_index;

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;  // of all slices
  // Of one [out, in] slice.
  int64_t out_features() const {
    return shape.size() < 2 ? 1 : shape[shape.size() - 2];
  }
};
// "int4 group 32 [2048, 7168]"
std::string Describe(const WeightInfo& info);

// The weights of a checkpoint in whatever format they are stored.
// Thread-compatible; DecodeRows is safe from several threads at once.
class WeightReader {
 public:
  // `reader` must outlive the result.
  WeightReader(CheckpointReader& reader, QuantizationConfig config)
      : reader_(&reader), config_(std::move(config)) {}

  // F8_E4M3 weights without any scale are refused unless this is set: a scale
  // whose name is not known is likelier than a weight that needs none.
  void set_allow_unscaled_fp8(bool allow) { allow_unscaled_fp8_ = allow; }

  CheckpointReader& checkpoint() const { return *reader_; }
  const QuantizationConfig& config() const { return config_; }

  // Names of all weights and other tensors, ascending, codes and scales under
  // the name of their weight. They point into the reader.
  std::vector<absl::string_view> Names() const;

  // Finds the tensors of a weight and holds their dtypes and shapes against the
  // rules of the format. Fails, naming the tensor: NOT_FOUND; INVALID_ARGUMENT
  // on a shape or dtype, a scale that is missing or there under two names,
  // codes that the config ignores; UNIMPLEMENTED on packing methods that are
  // not known.
  absl::StatusOr<WeightInfo> Describe(absl::string_view name) const;

  // Slice `index` of a stacked weight (0 for others) in its packed format,
  // mapped in place, for kMxfp4, kInt4 of group 32, 64 or 128 and kFp8Block;
  // UNIMPLEMENTED for others: decode those. Its tensors count as consumed.
  absl::StatusOr<PackedWeight> TakePacked(Device& device,
                                          const WeightInfo& info,
                                          int64_t index = 0);

  // Rows [start, start + count) of all slices, as f32, each value rounded once
  // (kNvfp4: the scale, then the value; dense f64: once). `out` has count *
  // columns() elements. INVALID_ARGUMENT for dense integers. Reads the bytes of
  // these rows and their scales only.
  absl::Status DecodeRows(const WeightInfo& info, int64_t start, int64_t count,
                          absl::Span<float> out) const;

 private:
  struct Stored {
    const SafetensorsFile* file = nullptr;
    std::optional<SafetensorsEntry> entry;
    explicit operator bool() const { return entry.has_value(); }
  };
  Stored Find(absl::string_view name) const;
  absl::Status CheckPart(const std::string& name,
                         absl::Span<const SafetensorsDType> dtypes,
                         absl::Span<const int64_t> shape) const;
  absl::Status DescribePacked(const std::string& base, WeightInfo& info) const;
  absl::Status DescribeIntPacked(const QuantizationGroup& group,
                                 const std::string& base,
                                 WeightInfo& info) const;
  absl::Status DescribeFp4Packed(const QuantizationGroup& group,
                                 const std::string& base,
                                 WeightInfo& info) const;
  absl::Status DescribeBlocks(WeightInfo& info) const;
  absl::Status DescribeFp8(WeightInfo& info) const;
  absl::Status DescribeModelOpt(WeightInfo& info) const;
  absl::Status DescribePlain(WeightInfo& info) const;
  absl::StatusOr<std::vector<int64_t>> ReadIntegers(const std::string& name,
                                                    int64_t count) const;
  absl::StatusOr<std::vector<int32_t>> ReadGroupIndex(
      const WeightInfo& info) const;
  absl::StatusOr<std::vector<int32_t>> ReadZeroPoints(const WeightInfo& info,
                                                      int64_t start,
                                                      int64_t count) const;
  absl::Status DecodePacked(const WeightInfo& info, int64_t start,
                            int64_t count, const uint8_t* codes,
                            int64_t row_bytes, float* out) const;
  absl::Status ReadScales(const WeightInfo& info, int64_t first, int64_t count,
                          std::vector<float>& scales) const;

  CheckpointReader* reader_;
  QuantizationConfig config_;
  bool allow_unscaled_fp8_ = false;
};

}  // namespace espalier

#endif  // ESPALIER_IO_WEIGHT_READER_H_
