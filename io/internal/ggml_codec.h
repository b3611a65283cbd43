#ifndef ESPALIER_IO_INTERNAL_GGML_CODEC_H_
#define ESPALIER_IO_INTERNAL_GGML_CODEC_H_

#include <cstdint>

#include "espalier/io/gguf_file.h"

namespace espalier::internal {

// Elements of `type`, `count` a multiple of its block, as f32. Blocks as
// ggml-org/llama.cpp ggml-common.h lays them out:
//   Q8_0  32: f16 d, 32 i8                         d * q
//   Q4_0  32: f16 d, 16 bytes                      d * (q - 8)
//   Q4_1  32: f16 d, f16 m, 16 bytes               d * q + m
//   Q4_K  256: f16 d, f16 dmin, 12 bytes of 6-bit scales, 128 bytes
//                                                  d * sc * q - dmin * mn
//   Q6_K  256: 128 + 64 bytes of codes, 16 i8 scales, f16 d
//                                                  d * sc * (q - 32)
// Q4_0 and Q4_1: low nibbles are elements 0-15, high ones 16-31. Each product
// and sum is rounded to f32, in the order written.
void DecodeGgml(GgmlType type, const uint8_t* blocks, int64_t count,
                float* out);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_GGML_CODEC_H_
