#ifndef ESPALIER_IO_INTERNAL_WEIGHT_CODEC_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_CODEC_H_

#include <cstdint>

#include "absl/types/span.h"

#include "espalier/io/safetensors_format.h"

namespace espalier::internal {

// Values of `count` elements of a float dtype (F64 F32 BF16 F16 F8_E4M3
// F8_E5M2 F8_E8M0; U8 as F8_E8M0) as f32, each rounded once.
void FloatsFrom(SafetensorsDType dtype, const uint8_t* bytes, int64_t count,
                float* out);

// One row of `columns` elements, each times the scale of its group of `group`
// columns.
void DecodeE2m1Row(const uint8_t* codes, const float* scales, int64_t columns,
                   int64_t group, float* out);
void DecodeE4m3Row(const uint8_t* codes, const float* scales, int64_t columns,
                   int64_t group, float* out);
// `bits` 4 or 8: codes with offset 2^(bits-1) in 32-bit words, low bits first.
// `zeros` (may be null) has one value for each group; `index` (may be null) the
// group of each column.
void DecodeIntRow(int bits, const uint8_t* words, const float* scales,
                  const int32_t* zeros, const int32_t* index, int64_t columns,
                  int64_t group, float* out);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_CODEC_H_
