#include <algorithm>

#include "espalier/ops/delta_rule/internal/plan.h"
#include "espalier/ops/delta_rule/internal/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "espalier/ops/delta_rule/delta_rule_gradient_rows_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::delta_rule {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

float Dot(const float* a, const float* b, int64_t count) {
  const F32Tag d;
  return SumVectors(count, [&](int64_t i, auto io) {
    return hn::Mul(io.Load(d, a + i), io.Load(d, b + i));
  });
}

void ScoreGradientsAll(const ScoreGradientsArgs& args) {
  const F32Tag d;
  const int64_t chunk = args.chunk;
  for (int64_t i = 0; i < chunk; ++i) {
    const float* x = args.solved + i * args.v_padded;
    float* z = args.dkeys + i * chunk;
    const float beta = args.beta[i];
    args.dbeta[i] = Dot(x, args.residual + i * args.v_padded, args.v_padded) -
                    Dot(args.key_scores + i * chunk, z, i);
    float* moved = args.moved + i * args.v_padded;
    for (int64_t v = 0; v < args.v_padded; v += Lanes()) {
      hn::StoreU(hn::Mul(hn::Set(d, -beta), hn::LoadU(d, x + v)), d, moved + v);
    }
    const int64_t end = (i / kTileRows + 1) * kTileRows;
    for (int64_t j = 0; j < i; ++j) z[j] *= -beta;
    std::fill(z + i, z + end, 0.0f);
    float* dqueries = args.dqueries + i * chunk;
    std::fill(dqueries + i + 1, dqueries + end, 0.0f);
  }
}

void TotalOf(const TotalArgs& args) {
  const F32Tag d;
  for (int64_t i = 0; i < args.padded; ++i) {
    const int64_t at = i * args.v_padded;
    args.total[i] =
        args.decay[i] * Dot(args.state + at, args.dstate + at, args.v_padded);
  }
  for (int64_t i = 0; i < args.padded; i += Lanes()) {
    auto sum = hn::LoadU(d, args.total + i);
    for (int64_t row = 0; row < args.chunk; ++row) {
      const int64_t at = row * args.padded + i;
      sum = hn::MulAdd(hn::LoadU(d, args.columns + at),
                       hn::LoadU(d, args.dcolumns + at), sum);
    }
    hn::StoreU(sum, d, args.total + i);
  }
}

// One tile of rows, one vector of columns at i; tiles from the last to the
// first.
HWY_INLINE void GradientTile(const GradientsArgs& args, int64_t tile,
                             int64_t i) {
  const F32Tag d;
  const int64_t padded = args.padded;
  const int64_t first = tile * kTileRows;
  const int64_t base = first * padded + i;
  Vector as_column[kTileRows];
  auto rest = hn::Set(d, 1.0f);
  for (int64_t r = kTileRows - 1; r >= 0; --r) {
    const int64_t at = base + r * padded;
    as_column[r] = hn::Mul(hn::LoadU(d, args.column_terms + at), rest);
    rest = hn::Mul(rest, hn::LoadU(d, args.decays + at));
  }
  auto from_begin = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t at = base + r * padded;
    const auto step = hn::LoadU(d, args.decays + at);
    const auto query = hn::LoadU(d, args.queries + at);
    const auto key = hn::LoadU(d, args.keys + at);
    from_begin = hn::Mul(from_begin, step);
    auto dquery = hn::Mul(from_begin, hn::LoadU(d, args.query_terms + at));
    auto as_row = hn::Mul(from_begin, hn::LoadU(d, args.row_terms + at));
    const float* dm = args.dkeys + (first + r) * args.chunk + first;
    const float* dn = args.dqueries + (first + r) * args.chunk + first;
    const auto own = hn::Set(d, dn[r]);
    dquery = hn::MulAdd(own, key, dquery);
    as_column[r] = hn::MulAdd(own, query, as_column[r]);
    auto decay = step;
    for (int64_t j = r - 1; j >= 0; --j) {
      const int64_t other = base + j * padded;
      const auto m = hn::Set(d, dm[j]);
      const auto n = hn::Set(d, dn[j]);
      const auto k = hn::Mul(decay, hn::LoadU(d, args.keys + other));
      dquery = hn::MulAdd(n, k, dquery);
      as_row = hn::MulAdd(m, k, as_row);
      const auto back = hn::MulAdd(m, key, hn::Mul(n, query));
      as_column[j] = hn::MulAdd(back, decay, as_column[j]);
      decay = hn::Mul(decay, hn::LoadU(d, args.decays + other));
    }
    hn::StoreU(dquery, d, args.query_terms + at);
    hn::StoreU(as_row, d, args.row_terms + at);
  }
  auto sum = hn::LoadU(d, args.total + i);
  for (int64_t r = kTileRows - 1; r >= 0; --r) {
    const int64_t at = base + r * padded;
    const auto key = hn::LoadU(d, args.keys + at);
    const auto as_row = hn::LoadU(d, args.row_terms + at);
    const auto dquery = hn::LoadU(d, args.query_terms + at);
    sum = hn::MulAdd(hn::LoadU(d, args.queries + at), dquery, sum);
    sum = hn::MulAdd(key, hn::Sub(as_row, as_column[r]), sum);
    hn::StoreU(hn::Add(as_row, as_column[r]), d, args.row_terms + at);
    hn::StoreU(sum, d, args.column_terms + at);
  }
  hn::StoreU(sum, d, args.total + i);
}

void GradientsAll(const GradientsArgs& args) {
  for (int64_t tile = args.chunk / kTileRows - 1; tile >= 0; --tile) {
    for (int64_t i = 0; i < args.padded; i += Lanes()) {
      GradientTile(args, tile, i);
    }
  }
}

void SumAllRows(const float* rows, int64_t num_rows, int64_t padded, float* out,
                int64_t stride) {
  const F32Tag d;
  for (int64_t row = 0; row < num_rows; ++row) {
    out[row * stride] = SumVectors(padded, [&](int64_t i, auto io) {
      return io.Load(d, rows + row * padded + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::delta_rule
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::delta_rule {

void ScoreGradients(const ScoreGradientsArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ScoreGradientsAll)(args);
}
void Total(const TotalArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, TotalOf)(args);
}
void Gradients(const GradientsArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, GradientsAll)(args);
}
void SumRows(const float* rows, int64_t num_rows, int64_t padded, float* out,
             int64_t stride, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, SumAllRows)(rows, num_rows, padded, out, stride);
}

}  // namespace espalier::delta_rule
#endif
