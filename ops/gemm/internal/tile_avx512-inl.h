// Packing and dispatch of the AVX-512 tiles. Included inside an anonymous
// namespace after run-inl.h. A Source makes 16 words:
//   Row(row, k, left): of one lane from element k, `left` elements remain.
//   Column(at, k_stride, left, mask): 16 lanes at one word's k.
//   kStep: elements a word; Offset(word): its first k; kInPlace: the words of
//   a row are its memory.

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small
// NOLINTBEGIN(misc-definitions-in-headers): text of one unit, not a header

constexpr int kPitch = kLanes;

inline __mmask16 MaskOf16(int64_t n) {
  return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1u);
}

inline __m512i WidenBf16(__m256i x) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

inline __m512i SwapPairs(__m512i x) {
  return _mm512_shuffle_epi32(x, _MM_PERM_CDAB);
}

struct F32Source {
  using Element = uint32_t;
  static constexpr bool kInPlace = true;
  static constexpr int64_t kStep = 1;
  static int64_t Offset(int64_t word) { return word; }
  static int64_t Words(int64_t num_k) { return num_k; }
  static __m512i Row(const Element* row, int64_t left) {
    return _mm512_maskz_loadu_epi32(MaskOf16(left), row);
  }
  static __m512i Column(const Element* at, int64_t, int64_t, __mmask16 mask) {
    return _mm512_maskz_loadu_epi32(mask, at);
  }
};

struct Bf16Source {
  using Element = uint16_t;
  static constexpr bool kInPlace = false;
  static constexpr int64_t kStep = 1;
  static int64_t Offset(int64_t word) { return word; }
  static int64_t Words(int64_t num_k) { return num_k; }
  static __m512i Row(const Element* row, int64_t left) {
    return WidenBf16(_mm256_maskz_loadu_epi16(MaskOf16(left), row));
  }
  static __m512i Column(const Element* at, int64_t, int64_t, __mmask16 mask) {
    return WidenBf16(_mm256_maskz_loadu_epi16(mask, at));
  }
};

// Walks one operand's panels. Column sources take four panels at a time, so
// that a visit to a row of memory uses whole cache lines.
template <typename Source>
void PackColumns(const PackArgs& args) {
  using Element = typename Source::Element;
  const Operand& operand = args.operand;
  const Element* data = static_cast<const Element*>(operand.data) +
                        args.lane_begin + args.k_begin * operand.k_stride;
  const int64_t words = Source::Words(args.num_k);
  constexpr int kGroup = 4;
  const int64_t group_lanes = int64_t{kGroup} * args.panel_lanes;
  for (int64_t lane = 0; lane < args.num_lanes; lane += group_lanes) {
    const int64_t left = args.num_lanes - lane;
    __mmask16 mask[kGroup];
    int num_panels = 0;
    for (int p = 0; p < kGroup; ++p) {
      const int64_t panel_left = left - int64_t{p} * args.panel_lanes;
      if (panel_left <= 0) break;
      mask[p] = MaskOf16(panel_left < args.panel_lanes ? panel_left
                                                       : args.panel_lanes);
      num_panels = p + 1;
    }
    uint32_t* out = args.out + lane / args.panel_lanes * args.out_stride;
    for (int64_t word = 0; word < words; ++word) {
      const int64_t k = Source::Offset(word);
      const Element* at = data + lane + k * operand.k_stride;
      for (int p = 0; p < num_panels; ++p) {
        _mm512_storeu_si512(
            out + p * args.out_stride + word * kPitch,
            Source::Column(at + p * args.panel_lanes, operand.k_stride,
                           args.num_k - k, mask[p]));
      }
    }
  }
}

// The same from memory for sources whose words lie there as they are: loads do
// what half of the shuffles would. Rows from kRows on are taken as zero.
template <int kRows>
inline __m512i LoadQuarters(const char* row, int64_t stride, int first) {
  const auto quarter = [row, stride](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i * stride));
  };
  __m512i r = _mm512_castsi128_si512(quarter(first));
  r = _mm512_mask_broadcast_i32x4(r, 0x00f0, quarter(first + 4));
  r = _mm512_mask_broadcast_i32x4(r, 0x0f00, quarter(first + 8));
  return first + 12 < kRows
             ? _mm512_mask_broadcast_i32x4(r, 0xf000, quarter(first + 12))
             : _mm512_maskz_mov_epi32(0x0fff, r);
}

template <int kRows>
inline void LoadTransposed16(const void* rows, int64_t stride, __m512i r[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const char* at = static_cast<const char*>(rows) + 16 * q;
    const __m512i v0 = LoadQuarters<kRows>(at, stride, 0);
    const __m512i v1 = LoadQuarters<kRows>(at, stride, 1);
    const __m512i v2 = LoadQuarters<kRows>(at, stride, 2);
    const __m512i v3 = LoadQuarters<kRows>(at, stride, 3);
    const __m512i t0 = _mm512_unpacklo_epi32(v0, v1);
    const __m512i t1 = _mm512_unpackhi_epi32(v0, v1);
    const __m512i t2 = _mm512_unpacklo_epi32(v2, v3);
    const __m512i t3 = _mm512_unpackhi_epi32(v2, v3);
    r[4 * q] = _mm512_unpacklo_epi64(t0, t2);
    r[4 * q + 1] = _mm512_unpackhi_epi64(t0, t2);
    r[4 * q + 2] = _mm512_unpacklo_epi64(t1, t3);
    r[4 * q + 3] = _mm512_unpackhi_epi64(t1, t3);
  }
}

// Words [0, 16) of `lanes` rows, turned over; `left` elements remain in a row.
template <typename Source>
inline void LoadBlock(const typename Source::Element* rows, int64_t stride,
                      int lanes, int64_t left, __m512i r[16]) {
  if constexpr (Source::kInPlace) {
    const int64_t bytes = stride * int64_t{sizeof(*rows)};
    // Lines a page apart compete for one set of L1, and this way visits each
    // four times.
    const bool whole = left >= 16 * Source::kStep && bytes % 4096 != 0;
    if (whole && lanes == 16) {
      return LoadTransposed16<16>(rows, bytes, r);
    }
    if (whole && lanes == 14) {
      return LoadTransposed16<14>(rows, bytes, r);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    r[i] = i < lanes ? Source::Row(rows + i * stride, left)
                     : _mm512_setzero_si512();
  }
  Transpose16(r);
}

template <typename Source>
void PackRows(const PackArgs& args) {
  using Element = typename Source::Element;
  const Operand& operand = args.operand;
  const Element* data = static_cast<const Element*>(operand.data) +
                        args.lane_begin * operand.lane_stride + args.k_begin;
  const int64_t words = Source::Words(args.num_k);
  uint32_t* out = args.out;
  for (int64_t lane = 0; lane < args.num_lanes; lane += args.panel_lanes) {
    const int64_t left = args.num_lanes - lane;
    const int lanes =
        static_cast<int>(left < args.panel_lanes ? left : args.panel_lanes);
    const Element* rows = data + lane * operand.lane_stride;
    for (int64_t word = 0; word < words; word += 16) {
      const int64_t k = word * Source::kStep;
      __m512i r[16];
      LoadBlock<Source>(rows + k, operand.lane_stride, lanes, args.num_k - k,
                        r);
      uint32_t* to = out + word * kPitch;
      const int64_t count = words - word;
      if (count >= 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kPitch, r[i]);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          if (i < count) _mm512_storeu_si512(to + i * kPitch, r[i]);
        }
      }
    }
    out += args.out_stride;
  }
}

// Neither stride is 1: 16 words gathered one by one. Rare.
template <typename Source>
void PackStrided(const PackArgs& args) {
  using Element = typename Source::Element;
  const Operand& operand = args.operand;
  const Element* data = static_cast<const Element*>(operand.data) +
                        args.lane_begin * operand.lane_stride +
                        args.k_begin * operand.k_stride;
  const int64_t words = Source::Words(args.num_k);
  uint32_t* out = args.out;
  for (int64_t lane = 0; lane < args.num_lanes; lane += args.panel_lanes) {
    const int64_t left = args.num_lanes - lane;
    const int64_t lanes = left < args.panel_lanes ? left : args.panel_lanes;
    for (int64_t word = 0; word < words; ++word) {
      const int64_t k = Source::Offset(word);
      Element line[2][16];
      for (int64_t i = 0; i < lanes; ++i) {
        for (int64_t step = 0; step < 2; ++step) {
          line[step][i] = k + step < args.num_k
                              ? data[(lane + i) * operand.lane_stride +
                                     (k + step) * operand.k_stride]
                              : Element{0};
        }
      }
      _mm512_storeu_si512(
          out + word * kPitch,
          Source::Column(line[0], 16, args.num_k - k, MaskOf16(lanes)));
    }
    out += args.out_stride;
  }
}

template <typename Source>
void PackWith(const PackArgs& args) {
  if (args.operand.k_stride == 1) return PackRows<Source>(args);
  if (args.operand.lane_stride == 1) return PackColumns<Source>(args);
  PackStrided<Source>(args);
}

// The lowest tile that holds the rows; rows above them are zero or ignored.
template <int V, int R>
void RunRows(const TileArgs& args) {
  if constexpr (R > 1) {
    // Wide tiles keep every height; narrow ones are edges.
    constexpr int kNext = V == 1 ? R / 2 : R - 1;
    if (args.rows <= kNext) return RunRows<V, kNext>(args);
  }
  RunTile<R, V, kPitch>(args);
}

void Run(const TileArgs& args) {
  if (args.cols <= kLanes) return RunRows<1, 14>(args);
  if (args.cols <= 2 * kLanes) return RunRows<2, 14>(args);
  if (args.cols <= 3 * kLanes) return RunRows<3, 8>(args);
  RunRows<4, 6>(args);
}

// Walks rows of `lines` cache lines, row after row: sixteen rows at once are
// more streams than the hardware follows, one long one it does.
struct LineWalk {
  const char* row;
  int64_t row_step;
  int64_t lines;
  int64_t line = 0;
  template <int kCount>
  void Prefetch() {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      __builtin_prefetch(row + 64 * line, 0, 2);
      if (++line == lines) {
        line = 0;
        row += row_step;
      }
    }
  }
};

// One panel of B straight from its rows: 16 by 16 words are turned over in
// registers, then used as the packed ones would be.
template <typename Source, int R>
void RunPanel(const TileArgs& args, const typename Source::Element* rows,
              int64_t stride, int64_t num_k) {
  constexpr int kStepBytes =
      16 * static_cast<int>(Source::kStep * sizeof(*rows));
  typename Simd::Vec acc[R][1];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r][0] = Simd::Zero();
  const uint32_t* a = args.a;
  const int64_t pitch = R == 1 ? 1 : args.a_pitch;
  LineWalk ahead = {static_cast<const char*>(args.prefetch), args.prefetch_step,
                    (num_k * int64_t{sizeof(*rows)} + 63) / 64};
  const bool wish = args.prefetch != nullptr;
  const auto run = [&](int64_t word, int count) __attribute__((always_inline)) {
    const int64_t k = word * Source::kStep;
    __m512i r[16];
    if (wish) ahead.Prefetch<16 * kStepBytes / 64>();
    LoadBlock<Source>(rows + k, stride, args.cols, num_k - k, r);
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      if (t >= count) break;
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        acc[i][0] = Simd::Dot(acc[i][0], Simd::Broadcast(a + t * pitch + i),
                              _mm512_castsi512_ps(r[t]));
      }
    }
    a += 16 * pitch;
  };
  const int64_t whole = args.num_words / 16 * 16;
  for (int64_t word = 0; word < whole; word += 16) run(word, 16);
  if (whole < args.num_words) {
    run(whole, static_cast<int>(args.num_words - whole));
  }
  StoreTile<R, 1>(acc, args);
}

template <typename Source, int R>
void RunPanelRows(const TileArgs& args, const typename Source::Element* rows,
                  int64_t stride, int64_t num_k) {
  if constexpr (R > 1) {
    constexpr int kNext = R > 8 ? R - 3 : R - 1;
    if (args.rows <= kNext) {
      return RunPanelRows<Source, kNext>(args, rows, stride, num_k);
    }
  }
  RunPanel<Source, R>(args, rows, stride, num_k);
}

template <typename Source>
void RunUnpackedWith(const TileArgs& args, const Operand& b, int64_t lane,
                     int64_t k, int64_t num_k) {
  const auto* data = static_cast<const typename Source::Element*>(b.data);
  RunPanelRows<Source, 14>(args, data + lane * b.lane_stride + k, b.lane_stride,
                           num_k);
}

// NOLINTEND(misc-definitions-in-headers)
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
