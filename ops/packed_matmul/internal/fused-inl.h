// Products with weights that are decoded in registers. Included inside the
// anonymous namespace of an AVX512-BF16 translation unit, after
// formats_avx512-inl.h. A scale source S of a format F gives, for a panel:
//   S(panel)        what At reads
//   At(k, t)        F::Scales of strip t for the chunk at k; chunks are asked
//                   for in rising order, each once
//   S::Prepare(&panel, k, scratch)  before the first S(panel) of many rows
//   S::Bytes(weight)             of scratch for Prepare
// and the format's file defines
//   kAheadBytes     how far ahead lines are fetched: beyond the page, where the
//     hardware stops
//   PrepareTask(args, scratch)   once for all panels
//   TaskScratchBytes(weight)
//   PreparePanel(weight, strip, task_scratch, scratch, panel)  where the
//     panel's lines are, laid out in the scratch first if the weight is in rows
//   PanelScratchBytes(weight)    0 in lanes

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small
// NOLINTBEGIN(misc-definitions-in-headers): text of one unit, not a header

constexpr int64_t kChunkColumns = 32;
constexpr int64_t kPanelColumns = kPanelStrips * kPackedStrip;
constexpr int kTileRows = 8;
constexpr int kChunkWords = kChunkColumns / 2;

// What to fetch while a panel is run: for line (position, strip) of it the one
// at base + strip * strip_step + position % 16 * line_step + position / 16 *
// group_step. Need not be readable memory.
struct AheadLines {
  const uint8_t* base = nullptr;
  int64_t strip_step = 0;
  int64_t line_step = 0;
  int64_t group_step = 0;
};

// One panel of the lane layout.
struct Panel {
  const uint8_t* codes = nullptr;  // line (position, strip)
  View scales;                     // mxfp4, int4: 16 a group and strip
  int64_t group = 0;
  const ByteTable* tables = nullptr;  // fp8, and int4 where prepared
  int64_t first_row = 0;
  int width = 0;  // strips
};

inline __m512 Dot(__m512 acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

// acc + a * b with the pair at `a` in all lanes; in assembly, since the
// compiler would load it to a register that a full tile does not have.
inline __m512 DotBroadcast(__m512 acc, const uint32_t* a, __m512i b) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*a));
  return acc;
}

inline void StoreRow(const FusedArgs& args, int64_t row, int64_t lane,
                     __mmask16 mask, __m512 value) {
  const int64_t at = row * args.c_stride + lane - args.c_lane;
  if (args.c_dtype == kF32) {
    _mm512_mask_storeu_ps(static_cast<float*>(args.c) + at, mask, value);
    return;
  }
  _mm256_mask_storeu_epi16(
      static_cast<uint16_t*>(args.c) + at, mask,
      _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundToBf16(value), 16)));
}

// Rows of A from memory: up to 4, each followed by itself. `tail` holds the
// last chunk, filled up with zeros.
template <int M>
struct RowsOfA {
  const uint16_t* rows[M];
  uint16_t (*tail)[kChunkColumns];
  int64_t full;  // columns of whole chunks
  const uint16_t* At(int m, int64_t k) const {
    return k < full ? rows[m] + k : tail[m];
  }
};

inline int LinesAt(int64_t left, int lines, int columns) {
  if (left >= kChunkColumns) return lines;
  return static_cast<int>(CeilDiv(left, columns));
}

// Sums [rows][strips][16] to C.
inline void StoreRows(const float* sums, int strips, const FusedArgs& args,
                      int64_t row, int64_t rows, int64_t lane) {
  const int64_t end = args.lane_begin + args.num_lanes;
  for (int64_t m = 0; m < rows; ++m) {
    for (int t = 0; t < strips; ++t) {
      const int64_t left = end - lane - t * kPackedStrip;
      if (left <= 0) break;
      StoreRow(args, row + m, lane + t * kPackedStrip,
               left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1),
               _mm512_load_ps(sums + (m * strips + t) * kPackedStrip));
    }
  }
}

template <int M, int N>
struct Totals {
  alignas(64) float sums[M][N][16];
  // The chain of one block of K joins the sum of those before it.
  void Add(bool first, const __m512 (&acc)[N][M]) {
#pragma GCC unroll 6
    for (int t = 0; t < N; ++t) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        __m512 sum = acc[t][m];
        if (!first) sum = _mm512_add_ps(_mm512_load_ps(sums[m][t]), sum);
        _mm512_store_ps(sums[m][t], sum);
      }
    }
  }
};

inline __m512i PairAt(const uint16_t* x) {
  uint32_t pair;
  __builtin_memcpy(&pair, x, 4);
  return _mm512_set1_epi32(static_cast<int>(pair));
}

// Few rows, on P panels at once so that M rows of P N sums hide the latency.
// One row takes the strips in turn, F::kStripsAtOnce of them through a chunk,
// whose scales stay in registers; more rows take the words of all strips
// first.
template <typename F, typename S, int M, int N, int P>
void RunLow(const Panel* panels, const FusedArgs& args, int64_t lane,
            const RowsOfA<M>& a) {
  constexpr int kWords = F::kLineColumns / 2;
  constexpr int kStrips = N * P;
  constexpr int kAtOnce = M == 1 && P == 2 ? F::kStripsAtOnce : kStrips;
  constexpr int kGroup = M == 1 ? 1 : kStrips;
  S first_panel(panels[0]);
  S last_panel(panels[P - 1]);
  const auto scales_at = [&](int64_t k, int t) {
    return t < N ? first_panel.At(k, t) : last_panel.At(k, t - N);
  };
  Totals<M, kStrips> totals;
  // A panel's last lines fetch the first ones of the panel that follows here.
  const int64_t panel_bytes = 64 * N * CeilDiv(args.k, F::kLineColumns);
  int64_t block_end = 0;
  for (int64_t k = 0; k < args.k; k = block_end) {
    block_end = Least(k + args.k_block, args.k);
    __m512 acc[kStrips][M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 6
      for (int t = 0; t < kStrips; ++t) acc[t][m] = _mm512_setzero_ps();
    }
    [[maybe_unused]] typename F::Scales units[kStrips];
    if constexpr (F::kInUnits) {
#pragma GCC unroll 6
      for (int t = 0; t < kStrips; ++t) units[t] = scales_at(k, t);
    }
    for (int64_t chunk = k; chunk < block_end; chunk += kChunkColumns) {
      const int64_t at = 64 * N * (chunk / F::kLineColumns);
      const int64_t ahead = at + kAheadBytes < panel_bytes
                                ? kAheadBytes
                                : kAheadBytes + (P - 1) * panel_bytes;
      typename F::Scales scales[kStrips];
#pragma GCC unroll 6
      for (int t = 0; t < kStrips; ++t) {
        scales[t] = scales_at(chunk, t);
      }
      if constexpr (F::kInUnits) {
#pragma GCC unroll 6
        for (int t = 0; t < kStrips; ++t) {
          const __m512 ratio = F::Ratio(units[t], scales[t]);
          units[t] = scales[t];
#pragma GCC unroll 4
          for (int m = 0; m < M; ++m) {
            acc[t][m] = _mm512_mul_ps(acc[t][m], ratio);
          }
        }
      }
      const uint16_t* x[M];
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) x[m] = a.At(m, chunk);
      const int lines = LinesAt(block_end - chunk, F::kLines, F::kLineColumns);
#pragma GCC unroll 6
      for (int first = 0; first < kStrips; first += kAtOnce) {
#pragma GCC unroll 8
        for (int l = 0; l < F::kLines; ++l) {
          if (l >= lines) break;
          const auto line_of = [&](int t) {
            return panels[t / N].codes + at + 64 * (N * l + t % N);
          };
#pragma GCC unroll 6
          for (int t = first; t < first + kAtOnce; t += kGroup) {
            __m512i words[kGroup][kWords];
#pragma GCC unroll 3
            for (int g = 0; g < kGroup; ++g) {
              _mm_prefetch(line_of(t + g) + ahead, _MM_HINT_T0);
              F::Words(Load(line_of(t + g)), scales[t + g], words[g]);
            }
#pragma GCC unroll 4
            for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 4
              for (int m = 0; m < M; ++m) {
                const __m512i both = PairAt(x[m] + l * F::kLineColumns + 2 * i);
#pragma GCC unroll 3
                for (int g = 0; g < kGroup; ++g) {
                  acc[t + g][m] = Dot(acc[t + g][m], both, words[g][i]);
                }
              }
            }
          }
        }
      }
    }
    if constexpr (F::kInUnits) {
#pragma GCC unroll 6
      for (int t = 0; t < kStrips; ++t) {
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
          acc[t][m] = _mm512_mul_ps(acc[t][m], F::Unit(units[t]));
        }
      }
    }
    totals.Add(k == 0, acc);
  }
  StoreRows(&totals.sums[0][0][0], kStrips, args, 0, args.m, lane);
}

// A strip's words of one line from I on, one after another, each used by all
// rows before the next is made: a full tile has registers for no more.
template <typename F, int M, int I>
[[gnu::always_inline]] inline void DotLine(const uint8_t* line,
                                           const typename F::Stored* scales,
                                           const uint32_t* x,
                                           __m512 (&acc)[M]) {
  __m512i words[F::kTogether];
  F::template WordsBeside<I>(line, scales, words);
#pragma GCC unroll 2
  for (int i = 0; i < F::kTogether; ++i) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      acc[m] = DotBroadcast(acc[m], x + (I + i) * kTileRows + m, words[i]);
    }
  }
  constexpr int kNext = I + F::kTogether;
  if constexpr (2 * kNext < F::kLineColumns) {
    asm("" : "+r"(line));  // not earlier
    DotLine<F, M, kNext>(line, scales, x, acc);
  }
}

// M of 8 packed rows: a strip at a time, its sums reused after M others.
template <typename F, typename S, int M, int N>
void RunHigh(const Panel& panel, const AheadLines& ahead, const FusedArgs& args,
             int64_t lane, const uint32_t* a, int64_t row, int64_t rows) {
  S source(panel);
  Totals<M, N> totals;
  int64_t block_end = 0;
  for (int64_t k = 0; k < args.k; k = block_end) {
    block_end = Least(k + args.k_block, args.k);
    __m512 acc[N][M];
#pragma GCC unroll 3
    for (int t = 0; t < N; ++t) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) acc[t][m] = _mm512_setzero_ps();
    }
    for (int64_t chunk = k; chunk < block_end; chunk += kChunkColumns) {
      const int64_t position = chunk / F::kLineColumns;
      const uint8_t* line = panel.codes + 64 * N * position;
      const uint8_t* fetch = ahead.base + (position & 15) * ahead.line_step +
                             (position >> 4) * ahead.group_step;
      const uint32_t* x = a + chunk / 2 * kTileRows;
      alignas(64) typename F::Stored scales[N];
#pragma GCC unroll 3
      for (int t = 0; t < N; ++t) F::Store(source.At(chunk, t), &scales[t]);
      const int lines = LinesAt(block_end - chunk, F::kLines, F::kLineColumns);
      for (int l = 0; l < lines; ++l) {
#pragma GCC unroll 3
        for (int t = 0; t < N; ++t) {
          _mm_prefetch(fetch + t * ahead.strip_step, _MM_HINT_T0);
          DotLine<F, M, 0>(line + 64 * t, &scales[t], x, acc[t]);
        }
        fetch += ahead.line_step;
        line += 64 * N;
        x += F::kLineColumns / 2 * kTileRows;
      }
    }
    totals.Add(k == 0, acc);
  }
  StoreRows(&totals.sums[0][0][0], N, args, row, rows, lane);
}

inline int64_t NumTiles(int64_t m) { return CeilDiv(m, kTileRows); }
// Words of a tile of A: [chunks of 16][kTileRows].
inline int64_t TileWords(int64_t k) {
  return CeilDiv(k, kChunkColumns) * kChunkWords * kTileRows;
}
// Tiles are of even heights: row of tile i of n tiles.
inline int64_t TileRow(int64_t m, int64_t i, int64_t n) { return m * i / n; }

// 8 rows of 16 words to 16 words of 8 rows.
inline void Transpose8(const __m512i r[8], uint32_t* out) {
  __m512i t[8], p[4], q[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {  // word 4 L + j of rows 0-3, 4-7 at j, lane L
    p[2 * i] = _mm512_unpacklo_epi64(t[i], t[2 + i]);
    p[2 * i + 1] = _mm512_unpackhi_epi64(t[i], t[2 + i]);
    q[2 * i] = _mm512_unpacklo_epi64(t[4 + i], t[6 + i]);
    q[2 * i + 1] = _mm512_unpackhi_epi64(t[4 + i], t[6 + i]);
  }
  const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_permutex2var_epi64(p[j], low, q[j]);
    const __m512i b = _mm512_permutex2var_epi64(p[j], high, q[j]);
    const auto store = [out](int word, __m256i v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + word * kTileRows),
                          v);
    };
    store(j, _mm512_castsi512_si256(a));
    store(j + 4, _mm512_extracti64x4_epi64(a, 1));
    store(j + 8, _mm512_castsi512_si256(b));
    store(j + 12, _mm512_extracti64x4_epi64(b, 1));
  }
}

inline void PackTile(const FusedArgs& args, int64_t row, int64_t rows,
                     uint32_t* out) {
  const auto* from = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
  for (int64_t k = 0; k < args.k; k += kChunkColumns) {
    const int64_t left = args.k - k;
    const __mmask32 mask =
        left >= kChunkColumns ? 0xffffffffu : (1u << left) - 1u;
    __m512i r[kTileRows];
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      r[i] = i < rows
                 ? _mm512_maskz_loadu_epi16(mask, from + i * args.a_stride + k)
                 : _mm512_setzero_si512();
    }
    Transpose8(r, out);
    out += kChunkWords * kTileRows;
  }
}

// In lanes the lines that follow. A panel laid out from rows is near; its last
// tile fetches the rows that are laid out next.
inline AheadLines AheadOf(const Panel& panel, const FusedArgs& args,
                          int64_t lane, bool last_tile) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  if (weight.layout == PackedLayout::kLanes) {
    const int64_t step = int64_t{64} * panel.width;
    return {panel.codes + kAheadBytes, 64, step, 16 * step};
  }
  if (!last_tile) return {panel.codes, 0, 0, 0};
  const int64_t stride = weight.codes.strides[0] * SizeOf(weight.codes.dtype);
  return {static_cast<const uint8_t*>(weight.codes.pointer) +
              (lane + kPanelColumns) * stride,
          kPackedStrip * stride, stride, 64};
}

template <typename F, typename S>
void RunPanelHigh(const Panel& panel, const FusedArgs& args, int64_t lane,
                  const uint32_t* a) {
  const int64_t tiles = NumTiles(args.m);
  for (int64_t i = 0; i < tiles; ++i, a += TileWords(args.k)) {
    const AheadLines ahead = AheadOf(panel, args, lane, i + 1 == tiles);
    const int64_t row = TileRow(args.m, i, tiles);
    const int64_t rows = TileRow(args.m, i + 1, tiles) - row;
    if (panel.width == 1) {
      RunHigh<F, S, 8, 1>(panel, ahead, args, lane, a, row, rows);
    } else if (panel.width == 2) {
      RunHigh<F, S, 8, 2>(panel, ahead, args, lane, a, row, rows);
    } else if (rows <= 5) {
      RunHigh<F, S, 5, 3>(panel, ahead, args, lane, a, row, rows);
    } else if (rows == 6) {
      RunHigh<F, S, 6, 3>(panel, ahead, args, lane, a, row, rows);
    } else if (rows == 7) {
      RunHigh<F, S, 7, 3>(panel, ahead, args, lane, a, row, rows);
    } else {
      RunHigh<F, S, 8, 3>(panel, ahead, args, lane, a, row, rows);
    }
  }
}

// `panels` of them at once: 1, or 2 of full width for one row.
template <typename F, typename S, int M>
void RunPanelLow(const Panel* panel, int panels, const FusedArgs& args,
                 int64_t lane) {
  RowsOfA<M> a;
  alignas(64) uint16_t tail[M][kChunkColumns];
  a.tail = tail;
  const int64_t left = args.k % kChunkColumns;
  a.full = args.k - left;
  for (int m = 0; m < M; ++m) {
    a.rows[m] = static_cast<const uint16_t*>(args.a) +
                (m < args.m ? m : 0) * args.a_stride;
    _mm512_store_si512(tail[m], _mm512_maskz_loadu_epi16((1u << left) - 1u,
                                                         a.rows[m] + a.full));
  }
  if constexpr (M == 1) {
    if (panels == 2) return RunLow<F, S, 1, 3, 2>(panel, args, lane, a);
  }
  if (panel->width == 1) {
    RunLow<F, S, M, 1, 1>(panel, args, lane, a);
  } else if (panel->width == 2) {
    RunLow<F, S, M, 2, 1>(panel, args, lane, a);
  } else {
    RunLow<F, S, M, 3, 1>(panel, args, lane, a);
  }
}

inline char* AlignUp(char* p) {
  return p + (-reinterpret_cast<uintptr_t>(p) & 63);
}

// Up to 4 rows.
template <typename F, typename S>
void RunFusedLow(const FusedArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  char* task = AlignUp(static_cast<char*>(args.scratch));
  char* scratch = task + TaskScratchBytes(weight);
  PrepareTask(args, task);
  const int64_t end = args.lane_begin + args.num_lanes;
  int panels = 1;
  for (int64_t lane = args.lane_begin; lane < end;
       lane += panels * kPanelColumns) {
    Panel panel[2];
    PreparePanel(weight, lane / kPackedStrip, task, scratch, &panel[0]);
    panels = 1;
    if (args.m == 1 && weight.layout == PackedLayout::kLanes &&
        lane + kPanelColumns < end) {
      PreparePanel(weight, lane / kPackedStrip + kPanelStrips, task, scratch,
                   &panel[1]);
      if (panel[1].width == kPanelStrips) panels = 2;
    }
    if (args.m == 1) {
      RunPanelLow<F, S, 1>(panel, panels, args, lane);
    } else if (args.m == 2) {
      RunPanelLow<F, S, 2>(panel, 1, args, lane);
    } else {
      RunPanelLow<F, S, 4>(panel, 1, args, lane);
    }
  }
}

template <typename F, typename SLow, typename SHigh>
void RunFused(const FusedArgs& args) {
  if (args.m <= 4) return RunFusedLow<F, SLow>(args);
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  char* scratch = AlignUp(static_cast<char*>(args.scratch));
  auto* a = reinterpret_cast<uint32_t*>(scratch);
  const int64_t tiles = NumTiles(args.m);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t row = TileRow(args.m, i, tiles);
    PackTile(args, row, TileRow(args.m, i + 1, tiles) - row,
             a + i * TileWords(args.k));
  }
  char* task = scratch + tiles * TileWords(args.k) * 4;
  PrepareTask(args, task);
  char* scales = task + TaskScratchBytes(weight);
  scratch = scales + SHigh::Bytes(weight);
  const int64_t end = args.lane_begin + args.num_lanes;
  for (int64_t lane = args.lane_begin; lane < end; lane += kPanelColumns) {
    Panel panel;
    PreparePanel(weight, lane / kPackedStrip, task, scratch, &panel);
    SHigh::Prepare(&panel, args.k, scales);
    RunPanelHigh<F, SHigh>(panel, args, lane, a);
  }
}

template <typename SHigh>
int64_t FusedScratch(const PackedView& weight, int64_t m) {
  return 64 + NumTiles(m) * TileWords(weight.in) * 4 +
         TaskScratchBytes(weight) + SHigh::Bytes(weight) +
         PanelScratchBytes(weight);
}

// NOLINTEND(misc-definitions-in-headers)
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
