#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
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

  // Rows [row, row + 16) from byte `byte`; absent ones are `fill`.
  void Fetch(int64_t row, int64_t byte, __m512i fill, __m512i r[16]) const {
    const int64_t size = SizeOf(weight.codes.dtype);
    const int64_t stride = weight.codes.strides[0] * size;
    const uint8_t* from = codes + row * stride + byte;
    const int64_t rows = Least(16, weight.out - row);
    const __mmask64 mask = BytesMask(weight.codes.shape[1] * size - byte);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      r[i] = i < rows ? _mm512_maskz_loadu_epi8(mask, from + i * stride) : fill;
    }
  }
  // Index in the scales of a row's group.
  int64_t Scale(int64_t row, int64_t column) const {
    return row * weight.scales.strides[0] + column / weight.group;
  }
};

template <typename Format>
struct LaneSource {
  const PackedView& weight;
  const uint8_t* codes;
  explicit LaneSource(const PackedView& weight)
      : weight(weight),
        codes(static_cast<const uint8_t*>(weight.codes.pointer)) {}

  static __m512i ToRowOrder(Mxfp4, __m512i line) {
    const __m512i ones = _mm512_set1_epi32(0x0f0f0f0f);
    const __m512i bytes = _mm512_set1_epi32(0x00ff00ff);
    const auto spread = [&](__m512i half) {
      half = _mm512_and_si512(_mm512_or_si512(half, _mm512_slli_epi32(half, 8)),
                              bytes);
      return _mm512_and_si512(_mm512_or_si512(half, _mm512_slli_epi32(half, 4)),
                              ones);
    };
    const __m512i even =
        spread(_mm512_and_si512(line, _mm512_set1_epi32(0xffff)));
    const __m512i odd = spread(_mm512_srli_epi32(line, 16));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 4));
  }
  static __m512i ToRowOrder(Int4, __m512i line) { return Int4::FromLane(line); }
  static __m512i ToRowOrder(Fp8, __m512i line) { return Fp8::FromLane(line); }

  void Fetch(int64_t row, int64_t byte, __m512i fill, __m512i r[16]) const {
    const int64_t units =
        (weight.in + Format::kLineColumns - 1) / Format::kLineColumns;
    const StripLines at = LinesOf(weight, row / kPackedStrip, units);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int64_t unit = byte / 4 + i;
      r[i] = _mm512_setzero_si512();
      if (unit < units) {
        r[i] = ToRowOrder(Format{},
                          Load(codes + 64 * (at.first + unit * at.width)));
      }
    }
    Transpose16(r);
    for (int64_t i = Least(16, weight.out - row); i < 16; ++i) r[i] = fill;
  }
  int64_t Scale(int64_t row, int64_t column) const {
    const int64_t groups = (weight.in + weight.group - 1) / weight.group;
    const StripLines at = LinesOf(weight, row / kPackedStrip, groups);
    return kPackedStrip * (at.first + column / weight.group * at.width) +
           row % kPackedStrip;
  }
};

// A pair of rows of 4-bit codes, 128 columns from `column`: words of strips
// [0, strips) to out + strip * stride.
template <typename Source>
void Pair(Mxfp4, const Source& source, int64_t row, int64_t column, __m512i a,
          __m512i b, int64_t strips, uint32_t* out, int64_t stride) {
  const auto* scales =
      static_cast<const uint8_t*>(source.weight.scales.pointer);
  const bool pair = row + 1 < source.weight.out;
  // Byte i / 2 of a row at 16-bit lane i of it; the rows' lanes alternate.
  const __m512i base = _mm512_set_epi32(
      0x00470007, 0x00470007, 0x00460006, 0x00460006, 0x00450005, 0x00450005,
      0x00440004, 0x00440004, 0x00430003, 0x00430003, 0x00420002, 0x00420002,
      0x00410001, 0x00410001, 0x00400000, 0x00400000);
  const __m512i shift = _mm512_set1_epi64(0x0004000400000000);
  const __m512i table = Load(kE2m1);
  for (int64_t t = 0; t < strips; ++t) {
    const int64_t k = column + t * kLanes;
    const uint8_t s0 = scales[source.Scale(row, k)];
    const uint8_t s1 = pair ? scales[source.Scale(row + 1, k)] : s0;
    const __m512i index = _mm512_srlv_epi16(
        _mm512_permutex2var_epi8(
            a,
            _mm512_add_epi8(base, _mm512_set1_epi8(static_cast<char>(8 * t))),
            b),
        shift);
    if (!IsPlainE8m0(s0) || !IsPlainE8m0(s1)) {
      alignas(64) uint16_t code[32];
      _mm512_store_si512(code, index);
      for (int i = 0; i < 16; ++i) {
        out[t * stride + i] =
            RoundToBf16(kE2m1Value[code[2 * i] & 15] * E8m0Value(s0)) |
            RoundToBf16(kE2m1Value[code[2 * i + 1] & 15] * E8m0Value(s1)) << 16;
      }
      continue;
    }
    const int offsets = (s0 - 252) * 128 & 0xffff;
    const int high = (s1 - 252) * 128;
    _mm512_store_si512(
        out + t * stride,
        _mm512_adds_epi16(_mm512_permutexvar_epi16(index, table),
                          _mm512_set1_epi32(static_cast<int>(
                              static_cast<uint32_t>(offsets) |
                              static_cast<uint32_t>(high) << 16))));
  }
}

template <typename Source>
void Pair(Int4, const Source& source, int64_t row, int64_t column, __m512i a,
          __m512i b, int64_t strips, uint32_t* out, int64_t stride) {
  const View& scales = source.weight.scales;
  const bool pair = row + 1 < source.weight.out;
  const __m512i low = _mm512_set_epi32(0x43, 3, 0x43, 3, 0x42, 2, 0x42, 2, 0x41,
                                       1, 0x41, 1, 0x40, 0, 0x40, 0);
  const __m512i high = _mm512_add_epi8(low, _mm512_set1_epi8(4));
  const __m512i shift =
      _mm512_set_epi32(4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0);
  for (int64_t t = 0; t < strips; ++t) {
    const int64_t k = column + t * kLanes;
    const float s0 = ScaleValue(scales, source.Scale(row, k));
    const float s1 = pair ? ScaleValue(scales, source.Scale(row + 1, k)) : s0;
    const __m512 scale = _mm512_castpd_ps(_mm512_set1_pd(__builtin_bit_cast(
        double, static_cast<uint64_t>(__builtin_bit_cast(uint32_t, s1)) << 32 |
                    __builtin_bit_cast(uint32_t, s0))));
    const __m512i step = _mm512_set1_epi8(static_cast<char>(8 * t));
    const __m512i first = _mm512_srlv_epi32(
        _mm512_permutex2var_epi8(a, _mm512_add_epi8(low, step), b), shift);
    const __m512i second = _mm512_srlv_epi32(
        _mm512_permutex2var_epi8(a, _mm512_add_epi8(high, step), b), shift);
    _mm512_store_si512(
        out + t * stride,
        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
            Int4::Value(second, scale), Int4::Value(first, scale))));
  }
}

template <typename Format, typename Source>
void Gradient4Bit(const void* packed, const PackArgs& args, __m512i fill) {
  const PackedView& weight = *static_cast<const PackedView*>(packed);
  const Source source(weight);
  constexpr int64_t kColumns = 128;
  for (int64_t lane = 0; lane < args.num_lanes; lane += kColumns) {
    const int64_t column = args.lane_begin + lane;
    const int64_t strips =
        (Least(kColumns, args.num_lanes - lane) + kLanes - 1) / kLanes;
    uint32_t* out = args.out + lane / kLanes * args.out_stride;
    for (int64_t k = 0; k < args.num_k; k += 16) {
      __m512i r[16];
      const int64_t row = args.k_begin + k;
      source.Fetch(row, column / 2, fill, r);
      for (int i = 0; i < 16 && k + i < args.num_k; i += 2) {
        Pair(Format{}, source, row + i, column, r[i], r[i + 1], strips,
             out + (k + i) / 2 * kLanes, args.out_stride);
      }
    }
  }
}

// 64 columns of a pair of rows of E4M3 codes to 4 strips.
void PairFp8(const E4m3Table* table, __m512i a, __m512i b, int64_t strips,
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
  E4m3Table table;
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
        const int64_t strips = (Least(64, lane_end - c) + kLanes - 1) / kLanes;
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
