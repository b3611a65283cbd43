#ifndef ESPALIER_RUNTIME_PACKED_WEIGHT_H_
#define ESPALIER_RUNTIME_PACKED_WEIGHT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/runtime/tensor.h"

namespace espalier {

// Quantised weights as checkpoints hold them. W [out, in], w[o, i] = value of
// its code times the scale of its group.
//   kMxfp4     E2M1 codes; an E8M0 scale per 32 along in (OCP MX; gpt-oss,
//              compressed-tensors mxfp4-pack-quantized)
//   kInt4      4-bit codes with offset 8, value code - 8; a float scale per 32,
//              64 or 128 along in (compressed-tensors pack-quantized)
//   kFp8Block  E4M3FN codes; a float scale per block of 128 x 128, multiplied
//              (DeepSeek, GLM, Qwen `weight_scale_inv`)
enum class PackedFormat : uint8_t { kMxfp4, kInt4, kFp8Block };

// Where the bytes stand (docs/formats/packed-layouts.md).
//   kRows   the checkpoint's own rows, usable in place from a mapped file
//   kLanes  panels of 3 strips of 16 output features in the order the kernels
//           read; made once by PrepareLanes (ops/packed_matmul/), as many
//           bytes as kRows when out is a multiple of 16
enum class PackedLayout : uint8_t { kRows, kLanes };

absl::string_view ToString(PackedFormat format);
absl::string_view ToString(PackedLayout layout);

// PackedLayout::kLanes: output features of a strip, strips of a panel (the
// last panel may have fewer).
inline constexpr int64_t kPackedStrip = 16;
inline constexpr int64_t kPanelStrips = 3;
// Side of a scale block of kFp8Block.
inline constexpr int64_t kFp8BlockSide = 128;

// What a kernel sees of a PackedWeight: no ownership, no checks.
struct PackedView {
  PackedFormat format = PackedFormat::kMxfp4;
  PackedLayout layout = PackedLayout::kRows;
  int64_t group = 0;
  int64_t out = 0;
  int64_t in = 0;
  View codes;
  View scales;
};

// A frozen weight in its packed format: what matmul ops take in place of a
// dense one. A handle on two tensors; copying copies the handle.
// Thread-compatible, immutable.
class PackedWeight {
 public:
  // Layout kRows:
  //   kMxfp4     codes u8 [out, in/2], low nibble = even column;
  //              scales u8 [out, in/32]; in is a multiple of 32
  //   kInt4      codes i32 [out, ceil(in/8)], column i in bits 4*(i%8) of word
  //              i/8; scales f32 | bf16 | f16 [out, ceil(in/group)]
  //   kFp8Block  codes u8 [out, in];
  //              scales f32 | bf16 [ceil(out/128), ceil(in/128)]
  // `group` is 32 for kMxfp4, 32 | 64 | 128 for kInt4, 128 for kFp8Block.
  // Both tensors are contiguous along their last dim and on one device; rows
  // may be apart (a slice of a larger tensor).
  // INVALID_ARGUMENT names the shape met and the one expected. Scale values
  // are not read here (that would touch every page of a mapped file): see
  // InspectScales.
  static absl::StatusOr<PackedWeight> Create(PackedFormat format, int64_t group,
                                             int64_t out, int64_t in,
                                             Tensor codes, Tensor scales);

  // Shapes (one dim: the order is not that of any index) of the two tensors
  // in layout kLanes for the same weight; the tensors have the dtypes of the
  // row layout. kFp8Block keeps its scales as they are.
  static Shape LaneCodesShape(const PackedWeight& rows);
  static Shape LaneScalesShape(const PackedWeight& rows);
  // The same weight in layout kLanes; the tensors hold what PrepareLanes
  // wrote. Fails INTERNAL on other shapes or dtypes.
  static PackedWeight FromLanes(const PackedWeight& rows, Tensor codes,
                                Tensor scales);

  PackedFormat format() const { return format_; }
  PackedLayout layout() const { return layout_; }
  int64_t group() const { return group_; }
  int64_t out_features() const { return out_; }
  int64_t in_features() const { return in_; }
  Shape shape() const { return Shape{out_, in_}; }
  const Tensor& codes() const { return codes_; }
  const Tensor& scales() const { return scales_; }
  Device& device() const { return codes_.device(); }

  // What kernels are given.
  PackedView view() const;

  // Bytes of codes and scales, wherever they are.
  int64_t bytes() const { return codes_.num_bytes() + scales_.num_bytes(); }
  // Of these, what is not mapped file pages.
  int64_t resident_bytes() const;

 private:
  PackedWeight(PackedFormat format, PackedLayout layout, int64_t group,
               int64_t out, int64_t in, Tensor codes, Tensor scales);

  PackedFormat format_;
  PackedLayout layout_;
  int64_t group_;
  int64_t out_;
  int64_t in_;
  Tensor codes_;
  Tensor scales_;
};

// "mxfp4 [3072, 4096] group 32, lanes, 6684672 bytes"
std::string ToString(const PackedWeight& weight);

// What a scan of every scale found.
struct ScaleReport {
  int64_t num_scales = 0;
  int64_t num_nan = 0;       // E8M0 255; NaN or infinity elsewhere
  int64_t num_zero = 0;      // E8M0 0, which is 2^-127; 0.0 elsewhere
  int64_t num_overflow = 0;  // E8M0 253 and 254: 6 * scale passes bf16
};
ScaleReport InspectScales(const PackedWeight& weight);

// Values of single codes, exact.
double DecodeE2m1(uint8_t nibble);  // 0..15; 8 is -0
double DecodeE4m3(uint8_t code);    // E4M3FN; 0x7f and 0xff are NaN
double DecodeE8m0(uint8_t code);    // 2^(code - 127); 255 is NaN
inline int DecodeInt4(uint8_t nibble) { return static_cast<int>(nibble) - 8; }

// value(code) * scale of one element in host-addressable memory, exact.
double DecodeElement(const PackedView& weight, int64_t row, int64_t column);

// W [out, in] on the cpu device, from either layout.
//   f64   value(code) * scale, exact
//   f32   that product rounded once to f32
//   bf16  the f32 value rounded once more to bf16 (exact for kMxfp4): what the
//         bf16 kernels multiply with
// Plain loops: the oracle of every packed kernel. Not for the step.
Tensor DecodeReference(const PackedWeight& weight, DType dtype);

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_PACKED_WEIGHT_H_
