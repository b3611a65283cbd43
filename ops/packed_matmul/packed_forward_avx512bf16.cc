#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_lanes.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"
#include "espalier/ops/packed_matmul/internal/panel_avx512-inl.h"

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small

using gemm::kLanes;
using gemm::PackArgs;

// Destination of one strip: words [0, count) of 16 lanes.
struct Out {
  uint32_t* words;
  int64_t count;
  template <int kCount>
  void Store(int64_t at, const __m512i* w) const {
    if (at + kCount <= count) {
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        _mm512_store_si512(words + (at + i) * kLanes, w[i]);
      }
      return;
    }
    for (int i = 0; i < kCount && at + i < count; ++i) {
      _mm512_store_si512(words + (at + i) * kLanes, w[i]);
    }
  }
};

int64_t NumWords(const PackArgs& args) { return (args.num_k + 1) / 2; }

// Scales of a strip in the lane layout.
struct LaneScales {
  const PackedView& weight;
  int64_t strip;
  StripLines lines;
  LaneScales(const PackedView& weight, int64_t strip)
      : weight(weight),
        strip(strip),
        lines(LinesOf(weight.out, strip, CeilDiv(weight.in, weight.group))) {}
  int64_t At(int64_t k) const {
    return kPackedStrip * (lines.first + k / weight.group * lines.width);
  }
  __m128i Bytes(int64_t k) const {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(
        static_cast<const uint8_t*>(weight.scales.pointer) + At(k)));
  }
  __m512 Floats(int64_t k) const { return ScaleValues(weight.scales, At(k)); }
};

// The same of a strip in the row layout; absent features get 1.
struct RowScales {
  const PackedView& weight;
  int64_t row;
  int64_t rows;
  RowScales(const PackedView& weight, int64_t strip)
      : weight(weight),
        row(strip * kPackedStrip),
        rows(Least(kPackedStrip, weight.out - row)) {}
  __m128i Bytes(int64_t k) const {
    alignas(16) uint8_t s[16];
    const int64_t stride = weight.scales.strides[0];
    const uint8_t* from = static_cast<const uint8_t*>(weight.scales.pointer) +
                          row * stride + k / weight.group;
    for (int i = 0; i < 16; ++i) s[i] = i < rows ? from[i * stride] : 127;
    return _mm_load_si128(reinterpret_cast<const __m128i*>(s));
  }
  __m512 Floats(int64_t k) const {
    alignas(64) float s[16];
    const int64_t stride = weight.scales.strides[0];
    for (int i = 0; i < 16; ++i) {
      s[i] = i < rows ? ScaleValue(weight.scales,
                                   (row + i) * stride + k / weight.group)
                      : 1.0f;
    }
    return _mm512_load_ps(s);
  }
};

// A strip's chunk of 32 columns from `lines` of its codes to words at `at`.
template <bool kRows, typename ScaleSource>
void Chunk(Mxfp4, const __m512i* lines, int count, const ScaleSource& source,
           int64_t k, const Out& out, int64_t at) {
  const __m128i s = source.Bytes(k);
  __m512i w[4];
  if (!ArePlainE8m0(s)) {
    for (int i = 0; i < count; ++i) {
      Mxfp4::SlowWords(lines[i], kRows, s, w);
      out.Store<4>(at + 4 * i, w);
    }
    return;
  }
  const __m512i scales = Mxfp4::MakeScales(s);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if (i >= count) break;
    if (kRows) {
      Mxfp4::RowWords(lines[i], scales, w);
    } else {
      Mxfp4::Words(lines[i], scales, w);
    }
    out.Store<4>(at + 4 * i, w);
  }
}

template <bool kRows, typename ScaleSource>
void Chunk(Int4, const __m512i* lines, int count, const ScaleSource& source,
           int64_t k, const Out& out, int64_t at) {
  const __m512 scales = source.Floats(k);
  __m512i w[4];
  if (!AreFinite(scales)) {
    for (int i = 0; i < count; ++i) {
      Int4::SlowWords(kRows ? Int4::ToLane(lines[i]) : lines[i], scales, w);
      out.Store<4>(at + 4 * i, w);
    }
    return;
  }
  ByteTable table;
  Int4::MakeTable(scales, &table);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if (i >= count) break;
    if (kRows) {
      Int4::RowWords(lines[i], &table, w);
    } else {
      Int4::Words(lines[i], &table, w);
    }
    out.Store<4>(at + 4 * i, w);
  }
}

int64_t LinesLeft(int64_t columns, int per_line) {
  return CeilDiv(columns, per_line);
}

template <typename Format>
void Lanes4Bit(const void* source, const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  const auto* codes = static_cast<const uint8_t*>(weight.codes.pointer);
  for (int64_t lane = 0; lane < args.num_lanes; lane += kLanes) {
    const int64_t strip = (args.lane_begin + lane) / kLanes;
    const StripLines at = LinesOf(weight.out, strip, CeilDiv(weight.in, 8));
    const LaneScales scales(weight, strip);
    const Out out = {args.out + lane / kLanes * args.out_stride,
                     NumWords(args)};
    for (int64_t k = 0; k < args.num_k; k += 32) {
      const int64_t first = (args.k_begin + k) / 8;
      const int count = static_cast<int>(
          Least(4, LinesLeft(args.num_k - k, Format::kLineColumns)));
      __m512i lines[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (i < count) {
          lines[i] = Load(codes + 64 * (at.first + (first + i) * at.width));
        }
      }
      Chunk<false>(Format{}, lines, count, scales, args.k_begin + k, out,
                   k / 2);
    }
  }
}

template <typename Format>
void Rows4Bit(const void* source, const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  const int64_t row_bytes = weight.codes.shape[1] * SizeOf(weight.codes.dtype);
  for (int64_t lane = 0; lane < args.num_lanes; lane += kLanes) {
    const int64_t strip = (args.lane_begin + lane) / kLanes;
    const RowScales scales(weight, strip);
    const Out out = {args.out + lane / kLanes * args.out_stride,
                     NumWords(args)};
    for (int64_t k = 0; k < args.num_k; k += 128) {
      __m512i lines[16];
      LoadRows(weight, strip, (args.k_begin + k) / 2, row_bytes, lines);
      for (int i = 0; i < 4 && k + 32 * i < args.num_k; ++i) {
        Chunk<true>(
            Format{}, lines + 4 * i,
            static_cast<int>(Least(4, LinesLeft(args.num_k - k - 32 * i, 8))),
            scales, args.k_begin + k + 32 * i, out, k / 2 + 16 * i);
      }
    }
  }
}

float BlockScale(const PackedView& weight, int64_t row, int64_t column) {
  return ScaleValue(weight.scales,
                    row / kFp8BlockSide * weight.scales.strides[0] +
                        column / kFp8BlockSide * weight.scales.strides[1]);
}

// Calls fn(table, lane, k, num_k) for the strips of the range, a block of
// scales at a time; lane and k count from the beginning of the range.
template <typename Fn>
void ForEachBlock(const PackedView& weight, const PackArgs& args, Fn fn) {
  ByteTable table;
  int64_t next_k = 0;
  for (int64_t k = 0; k < args.num_k; k = next_k) {
    const int64_t column = args.k_begin + k;
    next_k = Least(args.num_k, k + kFp8BlockSide - column % kFp8BlockSide);
    for (int64_t lane = 0; lane < args.num_lanes; lane += kLanes) {
      const int64_t row = args.lane_begin + lane;
      if (lane == 0 || row % kFp8BlockSide == 0) {
        MakeTable(BlockScale(weight, row, column), &table);
      }
      fn(&table, lane, k, next_k - k);
    }
  }
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

}  // namespace

void ForwardMxfp4Lanes(const void* source, const gemm::Tile&,
                       const PackArgs& args) {
  Lanes4Bit<Mxfp4>(source, args);
}
void ForwardMxfp4Rows(const void* source, const gemm::Tile&,
                      const PackArgs& args) {
  Rows4Bit<Mxfp4>(source, args);
}
void ForwardInt4Lanes(const void* source, const gemm::Tile&,
                      const PackArgs& args) {
  Lanes4Bit<Int4>(source, args);
}
void ForwardInt4Rows(const void* source, const gemm::Tile&,
                     const PackArgs& args) {
  Rows4Bit<Int4>(source, args);
}

void ForwardFp8Lanes(const void* source, const gemm::Tile&,
                     const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  const auto* codes = static_cast<const uint8_t*>(weight.codes.pointer);
  const int64_t units = CeilDiv(weight.in, 4);
  ForEachBlock(
      weight, args,
      [&](const ByteTable* table, int64_t lane, int64_t k, int64_t num_k) {
        const StripLines at =
            LinesOf(weight.out, (args.lane_begin + lane) / kLanes, units);
        const Out out = {args.out + lane / kLanes * args.out_stride,
                         NumWords(args)};
        for (int64_t i = 0; i < num_k; i += 4) {
          const int64_t line = at.first + (args.k_begin + k + i) / 4 * at.width;
          __m512i w[2];
          Fp8::Words(Load(codes + 64 * line), table, w);
          out.Store<2>((k + i) / 2, w);
        }
      });
}

void ForwardFp8Rows(const void* source, const gemm::Tile&,
                    const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  ForEachBlock(
      weight, args,
      [&](const ByteTable* table, int64_t lane, int64_t k, int64_t num_k) {
        const Out out = {args.out + lane / kLanes * args.out_stride,
                         NumWords(args)};
        for (int64_t i = 0; i < num_k; i += 64) {
          __m512i lines[16];
          LoadRows(weight, (args.lane_begin + lane) / kLanes,
                   args.k_begin + k + i, weight.in, lines);
          for (int64_t j = 0; j < 16 && i + 4 * j < num_k; ++j) {
            __m512i w[2];
            Fp8::RowWords(lines[j], table, w);
            out.Store<2>((k + i) / 2 + 2 * j, w);
          }
        }
      });
}

}  // namespace espalier::packed
