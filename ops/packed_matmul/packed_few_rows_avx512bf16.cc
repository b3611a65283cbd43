#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"

constexpr int64_t kChunkColumns = 32;

// Scales of the strips of one panel, chunk by chunk.
struct Mxfp4Scales {
  const uint8_t* scales;
  int64_t width;
  Mxfp4Scales(const PackedView& weight, int64_t strip) {
    const StripLines lines = LinesOf(weight, strip, weight.in / 32);
    scales = static_cast<const uint8_t*>(weight.scales.pointer) +
             kPackedStrip * lines.first;
    width = lines.width;
  }
  void Enter(int64_t) {}
  Mxfp4::Scales At(int64_t k, int t) const {
    return Mxfp4::MakeScales(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
        scales + kPackedStrip * (k / 32 * width + t))));
  }
};

struct Int4Scales {
  const PackedView& weight;
  StripLines lines;
  Int4Scales(const PackedView& weight, int64_t strip)
      : weight(weight),
        lines(LinesOf(weight, strip,
                      (weight.in + weight.group - 1) / weight.group)) {}
  void Enter(int64_t) {}
  Int4::Scales At(int64_t k, int t) const {
    const int64_t line = lines.first + k / weight.group * lines.width + t;
    return Int4::MakeScales(ScaleValues(weight.scales, kPackedStrip * line));
  }
};

struct Fp8Scales {
  const PackedView& weight;
  int64_t row;
  E4m3Table tables[2];  // a panel of 48 features meets at most two blocks
  Fp8Scales(const PackedView& weight, int64_t strip)
      : weight(weight), row(strip * kPackedStrip) {}
  void Enter(int64_t k) {
    if (k % kFp8BlockSide != 0) return;
    const int64_t first = row / kFp8BlockSide;
    const int64_t last =
        (Least(row + kPanelStrips * kPackedStrip, weight.out) - 1) /
        kFp8BlockSide;
    for (int64_t block = first; block <= last; ++block) {
      MakeTable(ScaleValue(weight.scales,
                           block * weight.scales.strides[0] +
                               k / kFp8BlockSide * weight.scales.strides[1]),
                &tables[block - first]);
    }
  }
  Fp8::Scales At(int64_t, int t) const {
    return &tables[(row + t * kPackedStrip) / kFp8BlockSide -
                   row / kFp8BlockSide];
  }
};

inline __m512 Dot(__m512 acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

inline void StoreRow(const FewRowsArgs& args, int64_t row, int64_t lane,
                     __mmask16 mask, __m512 value) {
  const int64_t at = row * args.c_stride + lane;
  if (args.c_dtype == kF32) {
    _mm512_mask_storeu_ps(static_cast<float*>(args.c) + at, mask, value);
    return;
  }
  const __m512i word = _mm512_castps_si512(value);
  const __m512i high = _mm512_srli_epi32(word, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))),
      16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i bits =
      _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(args.c) + at, mask,
                           _mm512_cvtepi32_epi16(bits));
}

// M rows against a panel of N strips. Rows from args.m on repeat row 0.
template <typename Format, typename ScaleSource, int M, int N>
void RunPanel(const PackedView& weight, const FewRowsArgs& args, int64_t lane) {
  constexpr int kWords = Format::kLineColumns / 2;
  const int64_t units =
      (weight.in + Format::kLineColumns - 1) / Format::kLineColumns;
  const uint8_t* codes = static_cast<const uint8_t*>(weight.codes.pointer) +
                         64 * LinesOf(weight, lane / kPackedStrip, units).first;
  ScaleSource source(weight, lane / kPackedStrip);
  const uint16_t* rows[M];
  for (int m = 0; m < M; ++m) {
    rows[m] = static_cast<const uint16_t*>(args.a) +
              (m < args.m ? m : 0) * args.a_stride;
  }
  alignas(64) uint16_t tail[M][kChunkColumns];
  __m512 total[M][N];
  int64_t block_end = 0;
  for (int64_t k = 0; k < args.k; k = block_end) {
    block_end = Least(k + args.k_block, args.k);
    __m512 acc[M][N];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 3
      for (int t = 0; t < N; ++t) acc[m][t] = _mm512_setzero_ps();
    }
    for (int64_t chunk = k; chunk < block_end; chunk += kChunkColumns) {
      source.Enter(chunk);
      typename Format::Scales scales[N];
#pragma GCC unroll 3
      for (int t = 0; t < N; ++t) scales[t] = source.At(chunk, t);
      const uint16_t* x[M];
      for (int m = 0; m < M; ++m) x[m] = rows[m] + chunk;
      int64_t num_lines = Format::kLines;
      if (block_end - chunk < kChunkColumns) {
        const int64_t left = block_end - chunk;
        const __mmask32 mask = (1u << left) - 1u;
        for (int m = 0; m < M; ++m) {
          _mm512_store_si512(tail[m], _mm512_maskz_loadu_epi16(mask, x[m]));
          x[m] = tail[m];
        }
        num_lines = (left + Format::kLineColumns - 1) / Format::kLineColumns;
      }
      const uint8_t* line = codes + 64 * N * (chunk / Format::kLineColumns);
#pragma GCC unroll 8
      for (int64_t l = 0; l < Format::kLines; ++l) {
        if (l >= num_lines) break;
        __m512i words[N][kWords];
#pragma GCC unroll 3
        for (int t = 0; t < N; ++t) {
          Format::Words(Load(line + 64 * (N * l + t)), scales[t], words[t]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 4
          for (int m = 0; m < M; ++m) {
            uint32_t pair;
            __builtin_memcpy(&pair, x[m] + l * Format::kLineColumns + 2 * i, 4);
            const __m512i a = _mm512_set1_epi32(static_cast<int>(pair));
#pragma GCC unroll 3
            for (int t = 0; t < N; ++t) {
              acc[m][t] = Dot(acc[m][t], a, words[t][i]);
            }
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 3
      for (int t = 0; t < N; ++t) {
        total[m][t] =
            k == 0 ? acc[m][t] : _mm512_add_ps(total[m][t], acc[m][t]);
      }
    }
  }
  const int64_t end = Least(args.lane_begin + args.num_lanes, weight.out);
  for (int m = 0; m < args.m; ++m) {
    for (int t = 0; t < N; ++t) {
      const int64_t first = lane + t * kPackedStrip;
      const int64_t left = end - first;
      if (left <= 0) break;
      StoreRow(args, m, first,
               left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1u),
               total[m][t]);
    }
  }
}

template <typename Format, typename ScaleSource, int M>
void RunRows(const FewRowsArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  constexpr int64_t kPanel = kPanelStrips * kPackedStrip;
  const int64_t end = args.lane_begin + args.num_lanes;
  for (int64_t lane = args.lane_begin; lane < end; lane += kPanel) {
    switch (LinesOf(weight, lane / kPackedStrip, 1).width) {
      case 1:
        RunPanel<Format, ScaleSource, M, 1>(weight, args, lane);
        break;
      case 2:
        RunPanel<Format, ScaleSource, M, 2>(weight, args, lane);
        break;
      default:
        RunPanel<Format, ScaleSource, M, 3>(weight, args, lane);
    }
  }
}

template <typename Format, typename ScaleSource>
bool Run(const FewRowsArgs& args) {
  if (args.k == 0) return false;
  switch (args.m) {
    case 1:
      RunRows<Format, ScaleSource, 1>(args);
      break;
    case 2:
      RunRows<Format, ScaleSource, 2>(args);
      break;
    default:
      RunRows<Format, ScaleSource, 4>(args);
  }
  return true;
}

// Whether the scales of the strips of a chunk are all plain. They stand
// together.
bool ScalesArePlain(const FewRowsArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  const int64_t groups = weight.in / 32;
  const int64_t strips = (args.num_lanes + kPackedStrip - 1) / kPackedStrip;
  const auto* scales = static_cast<const uint8_t*>(weight.scales.pointer) +
                       args.lane_begin * groups;
  for (int64_t i = 0; i < strips * groups; ++i) {
    if (!ArePlainE8m0(_mm_loadu_si128(
            reinterpret_cast<const __m128i*>(scales + kPackedStrip * i)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FewRowsMxfp4(const FewRowsArgs& args) {
  return ScalesArePlain(args) && Run<Mxfp4, Mxfp4Scales>(args);
}
bool FewRowsInt4(const FewRowsArgs& args) {
  return Run<Int4, Int4Scales>(args);
}
bool FewRowsFp8(const FewRowsArgs& args) { return Run<Fp8, Fp8Scales>(args); }

}  // namespace espalier::packed
