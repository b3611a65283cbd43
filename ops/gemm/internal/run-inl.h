// The register tile, once for every instruction set. Included inside the
// anonymous namespace of a translation unit that has its own flags; Simd is
// defined there:
//   Vec; kWidth (f32 lanes); Zero(); Load(const uint32_t*);
//   Broadcast(const uint32_t*); Set(float); Dot(acc, a, b); Add; Mul;
//   LoadF32, StoreF32; LoadBf16, StoreBf16 (nearest-even); where it has a
//   faster one, StoreBf16Pair of two neighbouring sums, same bits, and
//   StreamBf16Pair, the same to whole cache lines, past the caches.

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small
// NOLINTBEGIN(misc-definitions-in-headers): text of one unit, not a header

constexpr int kPanelVectors = kLanes / Simd::kWidth;

inline typename Simd::Vec LoadAs(DType dtype, const void* base, int64_t at) {
  return dtype == kBF16
             ? Simd::LoadBf16(static_cast<const uint16_t*>(base) + at)
             : Simd::LoadF32(static_cast<const float*>(base) + at);
}

// FinishTile, same bits, for rows of whole vectors.
inline void FinishVectors(const float* tile, int columns,
                          const TileArgs& args) {
  const Finish& finish = *args.finish;
  const typename Simd::Vec alpha = Simd::Set(finish.alpha);
  const typename Simd::Vec beta = Simd::Set(finish.beta);
  for (int r = 0; r < args.rows; ++r) {
    for (int j = 0; j < columns; j += Simd::kWidth) {
      typename Simd::Vec x = Simd::LoadF32(tile + r * columns + j);
      if (finish.partial != nullptr) {
        x = Simd::Add(
            Simd::LoadF32(finish.partial + r * finish.partial_stride + j), x);
      }
      if (finish.alpha != 1) x = Simd::Mul(x, alpha);
      const int64_t at = r * finish.out_stride + j;
      if (finish.beta != 0) {
        x = Simd::Add(
            x, Simd::Mul(beta, LoadAs(finish.out_dtype, finish.out, at)));
      }
      if (finish.bias != nullptr) {
        x = Simd::Add(x, LoadAs(finish.bias_dtype, finish.bias, j));
      }
      if (finish.out_dtype == kBF16) {
        Simd::StoreBf16(static_cast<uint16_t*>(finish.out) + at, x);
      } else {
        Simd::StoreF32(static_cast<float*>(finish.out) + at, x);
      }
    }
  }
}

// What most bf16 results of short products need, no more than rounding: from
// the registers.
template <int R, int V, typename S = Simd>
inline bool RoundTile(const typename Simd::Vec (&acc)[R][V * kPanelVectors],
                      const TileArgs& args) {
  if constexpr (requires { &S::StoreBf16Pair; } && V % 2 == 0) {
    const Finish& finish = *args.finish;
    if (finish.out_dtype != kBF16 || finish.alpha != 1 || finish.beta != 0 ||
        finish.bias != nullptr || finish.partial != nullptr) {
      return false;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      if (r >= args.rows) break;
      uint16_t* out =
          static_cast<uint16_t*>(finish.out) + r * finish.out_stride;
#pragma GCC unroll 16
      for (int v = 0; v < V; v += 2) {
        if (finish.stream) {
          S::StreamBf16Pair(out + v * kLanes, acc[r][v], acc[r][v + 1]);
        } else {
          S::StoreBf16Pair(out + v * kLanes, acc[r][v], acc[r][v + 1]);
        }
      }
    }
    return true;
  }
  return false;
}

// Brings the place of finished results near, to be written.
inline void PrefetchFinish(const TileArgs& args, int64_t columns) {
  if (args.finish->stream) return;
  const int64_t size = SizeOf(args.finish->out_dtype);
  const char* row = static_cast<const char*>(args.finish->out);
  for (int r = 0; r < args.rows; ++r) {
    for (int64_t at = 0; at < columns * size; at += 64) {
      __builtin_prefetch(row + at, 1);
    }
    row += args.finish->out_stride * size;
  }
}

// Writes the sums of R rows by V panels to where args.store says.
template <int R, int V, bool kShort = false>
inline void StoreTile(const typename Simd::Vec (&acc)[R][V * kPanelVectors],
                      const TileArgs& args) {
  constexpr int W = kPanelVectors;
  const bool full = args.cols == V * kLanes;
  if (full && args.store == TileStore::kStore) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      if (r >= args.rows) break;
#pragma GCC unroll 16
      for (int v = 0; v < V * W; ++v) {
        Simd::StoreF32(args.c + r * args.c_stride + v * Simd::kWidth,
                       acc[r][v]);
      }
    }
    return;
  }
  if (full && args.store == TileStore::kAdd) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      if (r >= args.rows) break;
#pragma GCC unroll 16
      for (int v = 0; v < V * W; ++v) {
        float* c = args.c + r * args.c_stride + v * Simd::kWidth;
        Simd::StoreF32(c, Simd::Add(Simd::LoadF32(c), acc[r][v]));
      }
    }
    return;
  }
  if constexpr (kShort) {
    if (full && RoundTile<R, V>(acc, args)) return;
  }
  alignas(64) float tile[R][V * kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < V * W; ++v) {
      Simd::StoreF32(&tile[r][v * Simd::kWidth], acc[r][v]);
    }
  }
  if (full) return FinishVectors(&tile[0][0], V * kLanes, args);
  FinishTile(&tile[0][0], V * kLanes, args);
}

// R rows by V panels of B; W vectors make a panel's 16 lanes. What a short
// product gains at its end would cost a long one registers in its loop.
template <int R, int V, int kPitch, bool kShort>
[[gnu::noinline]] void RunTileOf(const TileArgs& args) {
  constexpr int W = kPanelVectors;
  if constexpr (kShort) PrefetchFinish(args, V * kLanes);
  typename Simd::Vec acc[R][V * W];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < V * W; ++v) acc[r][v] = Simd::Zero();
  }
  const uint32_t* a = args.a;
  const uint32_t* b[V];
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) b[v] = args.b + v * args.b_stride;
  // A line ahead is fetched at every step; without a wish, one that is here.
  const bool wish = args.prefetch != nullptr;
  const char* ahead = wish ? static_cast<const char*>(args.prefetch)
                           : reinterpret_cast<const char*>(args.a);
  const int64_t ahead_step = wish ? args.prefetch_line_step : 0;
  for (int64_t begin = 0; begin < args.num_words; begin += kPrefetchLines) {
    const int64_t left = args.num_words - begin;
    const int64_t words = left < kPrefetchLines ? left : kPrefetchLines;
    if (!kShort && left <= kPrefetchLines && args.store != TileStore::kFinish) {
      for (int r = 0; r < args.rows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
          __builtin_prefetch(args.c + r * args.c_stride + v * kLanes, 1);
        }
      }
    }
    const char* line = ahead;
#pragma GCC unroll 2
    for (int64_t k = 0; k < words; ++k) {
      __builtin_prefetch(line, 0, 2);
      line += ahead_step;
      typename Simd::Vec panel[V * W];
#pragma GCC unroll 16
      for (int v = 0; v < V * W; ++v) {
        panel[v] = Simd::Load(b[v / W] + k * kLanes + v % W * Simd::kWidth);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const typename Simd::Vec x = Simd::Broadcast(a + k * kPitch + r);
#pragma GCC unroll 16
        for (int v = 0; v < V * W; ++v) {
          acc[r][v] = Simd::Dot(acc[r][v], x, panel[v]);
        }
      }
    }
    a += words * kPitch;
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) b[v] += words * kLanes;
    if (wish) ahead += args.prefetch_step;
  }
  StoreTile<R, V, kShort>(acc, args);
}

template <int R, int V, int kPitch, typename S = Simd>
void RunTile(const TileArgs& args) {
  if constexpr (requires { &S::StoreBf16Pair; }) {
    constexpr int64_t kShortWords = 64;
    if (args.num_words <= kShortWords && args.store == TileStore::kFinish) {
      return RunTileOf<R, V, kPitch, true>(args);
    }
  }
  RunTileOf<R, V, kPitch, false>(args);
}

// NOLINTEND(misc-definitions-in-headers)
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
