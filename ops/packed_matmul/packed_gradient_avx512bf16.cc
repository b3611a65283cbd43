#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_lanes.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"

using gemm::kLanes;
using gemm::PackArgs;

// Here a word is the pair of output features (n, n + 1) of one input feature,
// a strip 16 input features. Codes are fetched 16 output features at a time as
// rows of 64 bytes in the order of kRows, whatever the layout, and taken in
// pairs.

struct RowSource {
  const PackedView& weight;
  const uint8_t* codes;
  explicit RowSource(const PackedView& weight)
      : weight(weight),
        codes(static_cast<const uint8_t*>(weight.codes.pointer)) {}

  // Rows [row, row + 16) from byte `byte`; absent ones are `fill`. Fetches the
  // rows after the next.
  void Fetch(int64_t row, int64_t byte, __m512i fill, __m512i r[16]) const {
    const int64_t size = SizeOf(weight.codes.dtype);
    const int64_t stride = weight.codes.strides[0] * size;
    const uint8_t* from = codes + row * stride + byte;
    const int64_t rows = Least(16, weight.out - row);
    const __mmask64 mask = BytesMask(weight.codes.shape[1] * size - byte);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      _mm_prefetch(from + (i + 32) * stride, _MM_HINT_T0);
      r[i] = i < rows ? _mm512_maskz_loadu_epi8(mask, from + i * stride) : fill;
    }
  }
  // Index in the scales of a row's group.
  int64_t Scale(int64_t row, int64_t column) const {
    return row * weight.scales.strides[0] + column / weight.group;
  }
  static constexpr int64_t kScaleStep = 0;  // rows: not side by side
};

template <typename Format>
struct LaneSource {
  const PackedView& weight;
  const uint8_t* codes;
  explicit LaneSource(const PackedView& weight)
      : weight(weight),
        codes(static_cast<const uint8_t*>(weight.codes.pointer)) {}

  void Fetch(int64_t row, int64_t byte, __m512i fill, __m512i r[16]) const {
    const int64_t units = CeilDiv(weight.in, Format::kLineColumns);
    const StripLines at = LinesOf(weight.out, row / kPackedStrip, units);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int64_t unit = byte / 4 + i;
      const uint8_t* line = codes + 64 * (at.first + unit * at.width);
      // The same lines of the next panel, a third at each of its strips.
      _mm_prefetch(line + 64 * kPanelStrips * units, _MM_HINT_T0);
      r[i] =
          unit < units ? Format::FromLane(Load(line)) : _mm512_setzero_si512();
    }
    Transpose16(r);
    for (int64_t i = Least(16, weight.out - row); i < 16; ++i) r[i] = fill;
  }
  int64_t Scale(int64_t row, int64_t column) const {
    const int64_t groups = CeilDiv(weight.in, weight.group);
    const StripLines at = LinesOf(weight.out, row / kPackedStrip, groups);
    return kPackedStrip * (at.first + column / weight.group * at.width) +
           row % kPackedStrip;
  }
  static constexpr int64_t kScaleStep = 1;
};

constexpr int64_t kColumns = 128;  // of a fetch of 4-bit codes
constexpr int kGroups = 4;         // of 32 columns

// Bytes of 16 words to the first ones of all, the second ones and so on.
struct BytesOfWords {
  uint8_t at[64];
  constexpr BytesOfWords() : at() {
    for (int i = 0; i < 64; ++i) {
      at[i] = static_cast<uint8_t>(i % 16 * 4 + i / 16);
    }
  }
};
alignas(64) constexpr BytesOfWords kBytesOfWords;

// Bytes i of 16 rows at 16 i. Absent rows repeat row `last`. By way of
// registers: a load that joins stores has to wait for them.
inline __m512i FourBytesOfRows(const uint8_t* rows, int64_t stride,
                               int64_t last) {
  const auto word = [=](int64_t i) {
    int32_t bytes;
    __builtin_memcpy(&bytes, rows + Least(i, last) * stride, 4);
    return bytes;
  };
  const auto quarter = [&](int64_t i) {
    return _mm_setr_epi32(word(i), word(i + 1), word(i + 2), word(i + 3));
  };
  const __m256i low = _mm256_setr_m128i(quarter(0), quarter(4));
  const __m256i high = _mm256_setr_m128i(quarter(8), quarter(12));
  return _mm512_permutexvar_epi8(
      Load(kBytesOfWords.at),
      _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

// Scales of 16 rows for each group of 32 columns; absent rows repeat the last.
template <typename T, typename Source>
void FetchScales(const Source& source, int64_t row, int64_t column,
                 int64_t columns, T to[kGroups][16]) {
  const T* scales = static_cast<const T*>(source.weight.scales.pointer);
  const int64_t last = Least(16, source.weight.out - row) - 1;
  if constexpr (sizeof(T) == 1 && Source::kScaleStep == 0) {
    if (columns > int64_t{32} * (kGroups - 1)) {
      _mm512_store_si512(
          to, FourBytesOfRows(scales + source.Scale(row, column),
                              source.weight.scales.strides[0], last));
      return;
    }
  }
  for (int64_t g = 0; g < kGroups && 32 * g < columns; ++g) {
    const int64_t first = source.Scale(row, column + 32 * g);
    if (Source::kScaleStep == 1) {
      __builtin_memcpy(to[g], scales + first, sizeof(T) * 16);
      continue;
    }
    const int64_t stride = source.weight.scales.strides[0];
    for (int64_t i = 0; i < 16; ++i) {
      to[g][i] = scales[first + Least(i, last) * stride];
    }
  }
}

// Byte i / 2 of a row at 16-bit lane i of it, rows alternating, for strip t.
struct Picks {
  uint8_t lane[8][64];
  constexpr Picks() : lane() {
    for (int t = 0; t < 8; ++t) {
      for (int i = 0; i < 64; ++i) {
        lane[t][i] = static_cast<uint8_t>(8 * t + i / 8 + (i / 2 % 2) * 64);
      }
    }
  }
};
alignas(64) constexpr Picks kPicks;

// 16 rows of 4-bit codes, 128 columns from `column`: words of strips
// [0, strips) to out + strip * stride, one row of words a pair, `pairs` of
// them.
struct Block {
  int64_t strips;
  int64_t pairs;
  uint32_t* out;
  int64_t stride;
  uint32_t* At(int64_t pair, int64_t t) const {
    return out + t * stride + pair * kLanes;
  }
};

inline __m512i PickNibbles(__m512i a, __m512i b, int64_t t) {
  return _mm512_srlv_epi16(_mm512_permutex2var_epi8(a, Load(kPicks.lane[t]), b),
                           _mm512_set1_epi64(0x0004000400000000));
}

template <typename Source>
void Pairs(Mxfp4, const Source& source, int64_t row, int64_t column,
           int64_t columns, const __m512i r[16], const Block& block) {
  alignas(64) uint8_t scales[kGroups][16] = {};
  FetchScales<uint8_t>(source, row, column, columns, scales);
  const __mmask64 used = BytesMask(16 * ((Least(columns, kColumns) + 31) / 32));
  const bool plain =
      _mm512_mask_cmpgt_epu8_mask(
          used, _mm512_sub_epi8(Load(scales), _mm512_set1_epi8(2)),
          _mm512_set1_epi8(static_cast<char>(250))) == 0;
  alignas(64) uint32_t offsets[kGroups][8];  // of a pair, in both halves
  for (int g = 0; g < kGroups; ++g) {
    const __m256i s = _mm256_cvtepu8_epi16(
        _mm_load_si128(reinterpret_cast<const __m128i*>(scales[g])));
    _mm256_store_si256(
        reinterpret_cast<__m256i*>(offsets[g]),
        _mm256_slli_epi16(_mm256_sub_epi16(s, _mm256_set1_epi16(252)), 7));
  }
  const __m512i table = Load(kE2m1);
  if (plain) {
    for (int64_t p = 0; p < block.pairs; ++p) {
      const __m512i a = r[2 * p];
      const __m512i b = r[2 * p + 1];
      for (int64_t t = 0; t < block.strips; ++t) {
        _mm512_store_si512(
            block.At(p, t),
            _mm512_adds_epi16(
                _mm512_permutexvar_epi16(PickNibbles(a, b, t), table),
                _mm512_set1_epi32(static_cast<int>(offsets[t / 2][p]))));
      }
    }
    return;
  }
  for (int64_t p = 0; p < block.pairs; ++p) {
    for (int64_t t = 0; t < block.strips; ++t) {
      const __m512i index = PickNibbles(r[2 * p], r[2 * p + 1], t);
      alignas(64) uint16_t code[32];
      _mm512_store_si512(code, index);
      const float s0 = E8m0Value(scales[t / 2][2 * p]);
      const float s1 = E8m0Value(scales[t / 2][2 * p + 1]);
      for (int64_t i = 0; i < 16; ++i) {
        block.At(p, t)[i] = RoundToBf16(kE2m1Value[code[2 * i] & 15] * s0) |
                            RoundToBf16(kE2m1Value[code[2 * i + 1] & 15] * s1)
                                << 16;
      }
    }
  }
}

template <typename Source>
void Pairs(Int4, const Source& source, int64_t row, int64_t column,
           int64_t columns, const __m512i r[16], const Block& block) {
  alignas(64) float scales[kGroups][16];
  const DType dtype = source.weight.scales.dtype;
  if (dtype == kF32) {
    FetchScales<float>(source, row, column, columns, scales);
  } else {
    alignas(64) uint16_t halves[kGroups][16];
    FetchScales<uint16_t>(source, row, column, columns, halves);
    for (int64_t g = 0; g < kGroups && 32 * g < columns; ++g) {
      const __m256i half =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(halves[g]));
      _mm512_store_ps(scales[g], dtype == kF16
                                     ? _mm512_cvtph_ps(half)
                                     : _mm512_castsi512_ps(_mm512_slli_epi32(
                                           _mm512_cvtepu16_epi32(half), 16)));
    }
  }
  // 16-bit lanes to 32-bit lanes: columns 0-7 and 8-15 of a strip.
  for (int64_t p = 0; p < block.pairs; ++p) {
    for (int64_t t = 0; t < block.strips; ++t) {
      const __m512i index = PickNibbles(r[2 * p], r[2 * p + 1], t);
      double pair;
      __builtin_memcpy(&pair, &scales[t / 2][2 * p], 8);
      const __m512 scale = _mm512_castpd_ps(_mm512_set1_pd(pair));
      const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(index));
      const __m512i high =
          _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(index, 1));
      _mm512_store_si512(
          block.At(p, t),
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
              Int4::Value(high, scale), Int4::Value(low, scale))));
    }
  }
}

template <typename Format, typename Source>
void Gradient4Bit(const void* packed, const PackArgs& args, __m512i fill) {
  const PackedView& weight = *static_cast<const PackedView*>(packed);
  const Source source(weight);
  for (int64_t lane = 0; lane < args.num_lanes; lane += kColumns) {
    const int64_t column = args.lane_begin + lane;
    const int64_t columns = Least(kColumns, args.num_lanes - lane);
    uint32_t* out = args.out + lane / kLanes * args.out_stride;
    for (int64_t k = 0; k < args.num_k; k += 16) {
      __m512i r[16];
      const int64_t row = args.k_begin + k;
      source.Fetch(row, column / 2, fill, r);
      Pairs(Format{}, source, row, column, columns, r,
            Block{CeilDiv(columns, kLanes), (Least(16, args.num_k - k) + 1) / 2,
                  out + k / 2 * kLanes, args.out_stride});
    }
  }
}

// 64 columns of a pair of rows of E4M3 codes to 4 strips.
void PairFp8(const ByteTable* table, __m512i a, __m512i b, int64_t strips,
             uint32_t* out, int64_t stride) {
  // Byte 4 t + u of 16-byte lane L is column 16 t + 4 L + u: a 4 x 4 transpose
  // of 32-bit words.
  const __m512i order =
      _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  __m512i a_low, a_high, b_low, b_high;
  Fp8::Bytes(_mm512_permutexvar_epi32(order, a), table, &a_low, &a_high);
  Fp8::Bytes(_mm512_permutexvar_epi32(order, b), table, &b_low, &b_high);
  const __m512i a01 = _mm512_unpacklo_epi8(a_low, a_high);
  const __m512i a23 = _mm512_unpackhi_epi8(a_low, a_high);
  const __m512i b01 = _mm512_unpacklo_epi8(b_low, b_high);
  const __m512i b23 = _mm512_unpackhi_epi8(b_low, b_high);
  const __m512i words[4] = {
      _mm512_unpacklo_epi16(a01, b01), _mm512_unpackhi_epi16(a01, b01),
      _mm512_unpacklo_epi16(a23, b23), _mm512_unpackhi_epi16(a23, b23)};
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    if (t < strips) _mm512_store_si512(out + t * stride, words[t]);
  }
}

template <typename Source>
void GradientFp8(const void* packed, const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(packed);
  const Source source(weight);
  constexpr int64_t kSide = kFp8BlockSide;
  ByteTable table;
  int64_t k_end = 0;
  for (int64_t k = 0; k < args.num_k; k = k_end) {
    const int64_t row = args.k_begin + k;
    k_end = Least(args.num_k, k + kSide - row % kSide);
    int64_t lane_end = 0;
    for (int64_t lane = 0; lane < args.num_lanes; lane = lane_end) {
      const int64_t column = args.lane_begin + lane;
      lane_end = Least(args.num_lanes, lane + kSide - column % kSide);
      MakeTable(ScaleValue(weight.scales,
                           row / kSide * weight.scales.strides[0] +
                               column / kSide * weight.scales.strides[1]),
                &table);
      for (int64_t c = lane; c < lane_end; c += 64) {
        const int64_t strips = CeilDiv(Least(64, lane_end - c), kLanes);
        uint32_t* out = args.out + c / kLanes * args.out_stride;
        for (int64_t i = k; i < k_end; i += 16) {
          __m512i r[16];
          source.Fetch(args.k_begin + i, args.lane_begin + c,
                       _mm512_setzero_si512(), r);
          for (int j = 0; j < 16 && i + j < k_end; j += 2) {
            PairFp8(&table, r[j], r[j + 1], strips, out + (i + j) / 2 * kLanes,
                    args.out_stride);
          }
        }
      }
    }
  }
}

}  // namespace

void GradientMxfp4Lanes(const void* source, const gemm::Tile&,
                        const PackArgs& args) {
  Gradient4Bit<Mxfp4, LaneSource<Mxfp4>>(source, args, _mm512_setzero_si512());
}
void GradientMxfp4Rows(const void* source, const gemm::Tile&,
                       const PackArgs& args) {
  Gradient4Bit<Mxfp4, RowSource>(source, args, _mm512_setzero_si512());
}
void GradientInt4Lanes(const void* source, const gemm::Tile&,
                       const PackArgs& args) {
  Gradient4Bit<Int4, LaneSource<Int4>>(
      source, args, _mm512_set1_epi32(static_cast<int>(0x88888888u)));
}
void GradientInt4Rows(const void* source, const gemm::Tile&,
                      const PackArgs& args) {
  Gradient4Bit<Int4, RowSource>(
      source, args, _mm512_set1_epi32(static_cast<int>(0x88888888u)));
}
void GradientFp8Lanes(const void* source, const gemm::Tile&,
                      const PackArgs& args) {
  GradientFp8<LaneSource<Fp8>>(source, args);
}
void GradientFp8Rows(const void* source, const gemm::Tile&,
                     const PackArgs& args) {
  GradientFp8<RowSource>(source, args);
}

}  // namespace espalier::packed
