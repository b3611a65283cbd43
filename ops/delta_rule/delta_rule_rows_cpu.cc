#include <algorithm>

#include "espalier/ops/delta_rule/internal/plan.h"
#include "espalier/ops/delta_rule/internal/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/delta_rule/delta_rule_rows_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/math-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::delta_rule {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// `count` elements at p, which may be 0 or fewer, and zeros.
template <typename T>
HWY_INLINE Vector LoadPart(const T* p, int64_t count) {
  const F32Tag d;
  if (HWY_LIKELY(count >= Lanes())) return LoadF32(d, p);
  if (count <= 0) return hn::Zero(d);
  return LoadF32N(d, p, count);
}

template <typename T>
HWY_INLINE void StorePart(Vector v, T* p, int64_t count, bool native) {
  if (count > 0) StoreF32N(F32Tag(), v, p, count, native);
}

// One tile of rows, one vector of columns at i.
template <typename T, typename Operand, bool kHeadGate>
HWY_INLINE void LoadTile(const LoadArgs& args, int64_t tile, int64_t i,
                         bool native) {
  const F32Tag d;
  const int64_t padded = args.padded;
  const int64_t count = args.width - i;
  const auto* q = static_cast<const T*>(args.q.data) + i;
  const auto* k = static_cast<const T*>(args.k.data) + i;
  const auto* g = static_cast<const float*>(args.g.data);
  const auto before = hn::LoadU(d, args.prefix + tile * padded + i);
  auto decay = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = tile * kTileRows + r;
    auto qv = hn::Zero(d);
    auto kv = qv;
    auto step = hn::Set(d, 1.0f);
    if (row < args.num_rows) {
      qv = LoadPart(q + row * args.q.stride, count);
      kv = LoadPart(k + row * args.k.stride, count);
      const auto gate = kHeadGate
                            ? hn::Set(d, g[row * args.g.stride])
                            : LoadPart(g + row * args.g.stride + i, count);
      step = Exp(d, gate);
    }
    decay = hn::Mul(decay, step);
    hn::StoreU(qv, d, args.queries + row * padded + i);
    hn::StoreU(kv, d, args.keys + row * padded + i);
    hn::StoreU(step, d, args.decays + row * padded + i);
    const auto kd = hn::Mul(kv, decay);
    const auto qd = hn::Mul(qv, decay);
    Operand* rows = static_cast<Operand*>(args.rows) +
                    (2 * tile * kTileRows + r) * padded + i;
    StoreF32(d, kd, rows, native);
    StoreF32(d, qd, rows + kTileRows * padded, native);
    Operand* start = static_cast<Operand*>(args.from_start) + row * padded + i;
    StoreF32(d, hn::Mul(kd, before), start, native);
    StoreF32(d, hn::Mul(qd, before), start + args.chunk * padded, native);
  }
  hn::StoreU(decay, d, args.tile_decay + tile * padded + i);
  hn::StoreU(hn::Mul(before, decay), d, args.prefix + (tile + 1) * padded + i);
  auto rest = hn::Set(d, 1.0f);
  for (int64_t row = (tile + 1) * kTileRows - 1; row >= tile * kTileRows;
       --row) {
    const int64_t at = row * padded + i;
    hn::StoreU(hn::Mul(hn::LoadU(d, args.keys + at), rest), d,
               args.columns + at);
    rest = hn::Mul(rest, hn::LoadU(d, args.decays + at));
  }
}

template <typename T, typename Operand, bool kHeadGate>
void LoadTiles(const LoadArgs& args, bool native) {
  std::fill_n(args.prefix, args.padded, 1.0f);
  for (int64_t tile = 0; tile < args.chunk / kTileRows; ++tile) {
    for (int64_t i = 0; i < args.padded; i += Lanes()) {
      LoadTile<T, Operand, kHeadGate>(args, tile, i, native);
    }
  }
}

template <typename T, typename Operand>
void LoadGated(const LoadArgs& args, bool native) {
  if (args.head_gate) {
    LoadTiles<T, Operand, true>(args, native);
  } else {
    LoadTiles<T, Operand, false>(args, native);
  }
}

void LoadAny(const LoadArgs& args, bool native) {
  if (args.q.dtype == kF32) {
    LoadGated<float, float>(args, native);
  } else if (args.operand == kF32) {
    LoadGated<BFloat16, float>(args, native);
  } else {
    LoadGated<BFloat16, BFloat16>(args, native);
  }
}

template <typename T>
void CopyInRows(const CopyInArgs& args) {
  const F32Tag d;
  const auto* from = static_cast<const T*>(args.from.data);
  const auto scale = hn::Set(d, args.scale);
  for (int64_t row = 0; row < args.chunk; ++row) {
    float* out = args.out + row * args.padded;
    if (row >= args.num_rows) {
      std::fill_n(out, args.padded, 0.0f);
      continue;
    }
    const T* x = from + row * args.from.stride;
    for (int64_t i = 0; i < args.padded; i += Lanes()) {
      hn::StoreU(hn::Mul(LoadPart(x + i, args.width - i), scale), d, out + i);
    }
  }
}

void CopyInAny(const CopyInArgs& args) {
  if (args.from.dtype == kBF16) {
    CopyInRows<BFloat16>(args);
  } else {
    CopyInRows<float>(args);
  }
}

template <typename T>
void CopyOutRows(const CopyOutArgs& args, bool native) {
  const F32Tag d;
  const auto* add = static_cast<const float*>(args.add.data);
  const auto scale = hn::Set(d, args.scale);
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const float* from = args.from + row * args.padded;
    T* out = static_cast<T*>(args.out.data) + row * args.out.stride;
    for (int64_t i = 0; i < args.width; i += Lanes()) {
      auto v = hn::Mul(hn::LoadU(d, from + i), scale);
      if (add != nullptr) {
        v = hn::Add(v,
                    LoadPart(add + row * args.add.stride + i, args.width - i));
      }
      StorePart(v, out + i, args.width - i, native);
    }
  }
}

void CopyOutAny(const CopyOutArgs& args, bool native) {
  if (args.out.dtype == kBF16) {
    CopyOutRows<BFloat16>(args, native);
  } else {
    CopyOutRows<float>(args, native);
  }
}

void ScaleAllColumns(float* rows, int64_t num_rows, int64_t padded,
                     const float* factors) {
  const F32Tag d;
  for (int64_t i = 0; i < padded; i += Lanes()) {
    const auto factor = hn::LoadU(d, factors + i);
    for (int64_t row = 0; row < num_rows; ++row) {
      float* p = rows + row * padded + i;
      hn::StoreU(hn::Mul(hn::LoadU(d, p), factor), d, p);
    }
  }
}

void ScaleAllRows(const float* from, int64_t num_rows, int64_t padded,
                  const float* factors, float* to) {
  const F32Tag d;
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto factor = hn::Set(d, factors[row]);
    for (int64_t i = row * padded; i < (row + 1) * padded; i += Lanes()) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
    }
  }
}

// The sums of kBlock vectors of products of row i with the rows below it, added
// to M and N; the first block stores.
template <int kBlock>
void PairsOfRow(const PairsArgs& args, int64_t i, int64_t column, bool first) {
  const F32Tag d;
  const int64_t padded = args.padded;
  const int64_t at = (args.row + i) * padded + column;
  Vector key[kBlock], query[kBlock], decay[kBlock];
  for (int b = 0; b < kBlock; ++b) {
    key[b] = hn::LoadU(d, args.keys + at + b * Lanes());
    query[b] = hn::LoadU(d, args.queries + at + b * Lanes());
    decay[b] = hn::Set(d, 1.0f);
  }
  float* to_keys = args.key_scores + (args.row + i) * args.chunk + args.row;
  float* to_queries =
      args.query_scores + (args.row + i) * args.chunk + args.row;
  for (int64_t j = i; j >= 0; --j) {
    const int64_t other = (args.row + j) * padded + column;
    auto of_keys = hn::Zero(d);
    auto of_queries = hn::Zero(d);
    for (int b = 0; b < kBlock; ++b) {
      const auto k =
          hn::Mul(decay[b], hn::LoadU(d, args.keys + other + b * Lanes()));
      of_keys = hn::MulAdd(key[b], k, of_keys);
      of_queries = hn::MulAdd(query[b], k, of_queries);
      decay[b] =
          hn::Mul(decay[b], hn::LoadU(d, args.decays + other + b * Lanes()));
    }
    const float m = j == i ? 0.0f : hn::GetLane(hn::SumOfLanes(d, of_keys));
    const float n = hn::GetLane(hn::SumOfLanes(d, of_queries));
    to_keys[j] = first ? m : to_keys[j] + m;
    to_queries[j] = first ? n : to_queries[j] + n;
  }
}

void PairsOfTile(const PairsArgs& args) {
  constexpr int kBlock = HWY_TARGET == HWY_AVX3 ? 8 : 2;
  for (int64_t i = 0; i < kTileRows; ++i) {
    int64_t column = 0;
    for (; column + kBlock * Lanes() <= args.padded;
         column += kBlock * Lanes()) {
      PairsOfRow<kBlock>(args, i, column, column == 0);
    }
    for (; column < args.padded; column += Lanes()) {
      PairsOfRow<1>(args, i, column, column == 0);
    }
    const int64_t at = (args.row + i) * args.chunk + args.row;
    std::fill(args.key_scores + at + i + 1, args.key_scores + at + kTileRows,
              0.0f);
    std::fill(args.query_scores + at + i + 1,
              args.query_scores + at + kTileRows, 0.0f);
  }
}

// Row i of the inverse, of up to 4 tiles: the unit row less beta_i times M_ij
// times row j.
void InvertAll(const float* key_scores, const float* beta, int64_t chunk,
               float* inverse) {
  const F32Tag d;
  for (int64_t i = 0; i < chunk; ++i) {
    const int64_t end = (i / kTileRows + 1) * kTileRows;
    float* row = inverse + i * chunk;
    const auto factor = hn::Set(d, -beta[i]);
    for (int64_t column = 0; column < end; column += Lanes()) {
      auto even = hn::Zero(d);
      auto odd = hn::Zero(d);
      // Rows before the column's tile have nothing there.
      int64_t j = column / kTileRows * kTileRows;
      for (; j + 1 < i; j += 2) {
        even = hn::MulAdd(hn::Set(d, key_scores[i * chunk + j]),
                          hn::LoadU(d, inverse + j * chunk + column), even);
        odd = hn::MulAdd(hn::Set(d, key_scores[i * chunk + j + 1]),
                         hn::LoadU(d, inverse + (j + 1) * chunk + column), odd);
      }
      if (j < i) {
        even = hn::MulAdd(hn::Set(d, key_scores[i * chunk + j]),
                          hn::LoadU(d, inverse + j * chunk + column), even);
      }
      hn::StoreU(hn::Mul(factor, hn::Add(even, odd)), d, row + column);
    }
    row[i] = 1;
  }
}

template <typename T>
void ResidualRows(const ResidualArgs& args) {
  const F32Tag d;
  for (int64_t row = 0; row < args.chunk; ++row) {
    const T* values =
        static_cast<const T*>(args.values.data) + row * args.values.stride;
    const auto beta = hn::Set(d, args.beta[row]);
    for (int64_t i = 0; i < args.padded; i += Lanes()) {
      const int64_t at = row * args.padded + i;
      const auto value = row < args.num_rows
                             ? LoadPart(values + i, args.width - i)
                             : hn::Zero(d);
      const auto r = hn::Sub(value, hn::LoadU(d, args.reads + at));
      hn::StoreU(r, d, args.residual + at);
      hn::StoreU(hn::Mul(beta, r), d, args.reads + at);
    }
  }
}

void ResidualOf(const ResidualArgs& args) {
  if (args.values.dtype == kBF16) {
    ResidualRows<BFloat16>(args);
  } else {
    ResidualRows<float>(args);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::delta_rule
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::delta_rule {

void Load(const LoadArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, LoadAny)(args, isa == Isa::kAvx512Bf16);
}
void CopyIn(const CopyInArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, CopyInAny)(args);
}
void CopyOut(const CopyOutArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, CopyOutAny)(args, isa == Isa::kAvx512Bf16);
}
void ScaleColumns(float* rows, int64_t num_rows, int64_t padded,
                  const float* factors, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ScaleAllColumns)(rows, num_rows, padded, factors);
}
void ScaleRows(const float* from, int64_t num_rows, int64_t padded,
               const float* factors, float* to, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ScaleAllRows)(from, num_rows, padded, factors, to);
}
void Pairs(const PairsArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, PairsOfTile)(args);
}
void Invert(const float* key_scores, const float* beta, int64_t chunk,
            float* inverse, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, InvertAll)(key_scores, beta, chunk, inverse);
}
void Residual(const ResidualArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ResidualOf)(args);
}

}  // namespace espalier::delta_rule
#endif
