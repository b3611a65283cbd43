#ifndef ESPALIER_IO_WEIGHT_ENCODER_H_
#define ESPALIER_IO_WEIGHT_ENCODER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "espalier/io/safetensors_format.h"

namespace espalier {

// Encoders of rows of a weight, [rows, columns] f32, in the layouts that
// WeightReader decodes. Codes are the nearest representable value, ties to the
// even code. NaN and infinity are INVALID_ARGUMENT with row and column (the
// caller names the tensor); so are spans of another size. The stated error is
// |decoded - value| for every element, with amax the largest magnitude of its
// group. All-zero groups get scale 1.

// E2M1 codes [rows, columns / 2], E8M0 scales [rows, columns / 32], columns a
// multiple of 32. Scale 2^k with the least k for which amax <= 6 * 2^k.
// Error <= 2^k, which is below amax / 3 (and <= 2^-128 where k stops at -126).
// A magnitude above 6 * 2^125 is refused.
absl::Status EncodeMxfp4Rows(absl::Span<const float> values, int64_t rows,
                             int64_t columns, absl::Span<uint8_t> codes,
                             absl::Span<uint8_t> scales);

// Codes with offset 8, i32 words [rows, ceil(columns / 8)] as bytes (padding is
// code 0), bf16 scales [rows, ceil(columns / group)] as bits. Scale
// bf16(amax / 7.5), at least 2^-126. Error <= 0.53 * scale <= 0.071 * amax (or
// 0.5 * 2^-126 where the scale stops).
absl::Status EncodeInt4Rows(absl::Span<const float> values, int64_t rows,
                            int64_t columns, int64_t group,
                            absl::Span<uint8_t> codes,
                            absl::Span<uint16_t> scales);

// E4M3 codes [rows, columns], f32 scales [ceil(rows / 128), ceil(columns /
// 128)]; `rows` begins at a multiple of 128 of the weight. Scale
// f32(amax / 448), at least 2^-126. Error <= max(|value| / 16, scale / 1024)
// * (1 + 2^-20).
absl::Status EncodeFp8Rows(absl::Span<const float> values, int64_t rows,
                           int64_t columns, absl::Span<uint8_t> codes,
                           absl::Span<float> scales);

// f32 to F32, BF16, F16 or F64 bytes, rounded to nearest even. A finite value
// that would become infinite is INVALID_ARGUMENT with its index; NaN and
// infinity stay what they are.
absl::Status EncodeFloats(SafetensorsDType dtype,
                          absl::Span<const float> values, uint8_t* out);

}  // namespace espalier

#endif  // ESPALIER_IO_WEIGHT_ENCODER_H_
