#include "espalier/io/internal/ggml_codec.h"

#include <cstddef>
#include <cstring>

#include "espalier/io/internal/weight_codec.h"
#include "espalier/runtime/float16.h"

namespace espalier::internal {

namespace {

float HalfAt(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return Float16::ToFloat(bits);
}

void DecodeQ8(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

void DecodeQ4(const uint8_t* block, bool has_min, float* out) {
  const float d = HalfAt(block);
  const float m = has_min ? HalfAt(block + 2) : 0.0f;
  const uint8_t* codes = block + (has_min ? 4 : 2);
  for (int i = 0; i < 16; ++i) {
    const int low = codes[i] & 15;
    const int high = codes[i] >> 4;
    if (has_min) {
      out[i] = d * static_cast<float>(low) + m;
      out[16 + i] = d * static_cast<float>(high) + m;
    } else {
      out[i] = d * static_cast<float>(low - 8);
      out[16 + i] = d * static_cast<float>(high - 8);
    }
  }
}

// Eight sub-blocks of 32; of two neighbours the first has the low nibbles.
void DecodeQ4K(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  const uint8_t* packed = block + 4;
  const uint8_t* codes = block + 16;
  for (ptrdiff_t j = 0; j < 8; ++j) {
    int scale = 0;
    int min = 0;
    if (j < 4) {
      scale = packed[j] & 63;
      min = packed[j + 4] & 63;
    } else {
      scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
      min = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    }
    const float step = d * static_cast<float>(scale);
    const float base = dmin * static_cast<float>(min);
    const uint8_t* code = codes + j / 2 * 32;
    const int shift = j % 2 == 0 ? 0 : 4;
    for (int i = 0; i < 32; ++i) {
      out[32 * j + i] = step * static_cast<float>(code[i] >> shift & 15) - base;
    }
  }
}

// Two halves of 128; each has four rows of 32 with two upper bits apart.
void DecodeQ6K(const uint8_t* block, float* out) {
  const uint8_t* scales = block + 192;
  const float d = HalfAt(block + 208);
  for (ptrdiff_t j = 0; j < 8; ++j) {
    const uint8_t* low = block + j / 4 * 64 + j % 2 * 32;
    const uint8_t* high = block + 128 + j / 4 * 32;
    const int low_shift = j % 4 < 2 ? 0 : 4;
    const int high_shift = static_cast<int>(j % 4) * 2;
    for (int i = 0; i < 32; ++i) {
      const int code = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3)
                                                        << 4;
      const float step =
          d * static_cast<float>(static_cast<int8_t>(scales[2 * j + i / 16]));
      out[32 * j + i] = step * static_cast<float>(code - 32);
    }
  }
}

}  // namespace

void DecodeGgml(GgmlType type, const uint8_t* blocks, int64_t count,
                float* out) {
  switch (type) {
    case GgmlType::kF32:
      return FloatsFrom(SafetensorsDType::kF32, blocks, count, out);
    case GgmlType::kF16:
      return FloatsFrom(SafetensorsDType::kF16, blocks, count, out);
    case GgmlType::kBF16:
      return FloatsFrom(SafetensorsDType::kBF16, blocks, count, out);
    default:
      break;
  }
  const int64_t elements = BlockElements(type);
  const int64_t bytes = BlockBytes(type);
  for (int64_t i = 0; i < count; i += elements, blocks += bytes) {
    switch (type) {
      case GgmlType::kQ80:
        DecodeQ8(blocks, out + i);
        break;
      case GgmlType::kQ40:
      case GgmlType::kQ41:
        DecodeQ4(blocks, type == GgmlType::kQ41, out + i);
        break;
      case GgmlType::kQ4K:
        DecodeQ4K(blocks, out + i);
        break;
      default:
        DecodeQ6K(blocks, out + i);
    }
  }
}

}  // namespace espalier::internal
