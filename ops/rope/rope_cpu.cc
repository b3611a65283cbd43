#include <algorithm>

#include "espalier/ops/rope/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/rope/rope_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::rope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// What the pair (a, b) becomes.
HWY_INLINE Vector TurnedA(Vector a, Vector b, Vector c, Vector s) {
  return hn::MulSub(a, c, hn::Mul(b, s));
}
HWY_INLINE Vector TurnedB(Vector a, Vector b, Vector c, Vector s) {
  return hn::MulAdd(b, c, hn::Mul(a, s));
}

// `sign` is 1, or -1 to turn the other way.
template <typename T, class Access>
void TurnHalves(const T* x, const float* cosine, const float* sine, float sign,
                int64_t pairs, T* y, const Access& access) {
  const F32Tag d;
  ForEachVector(pairs, access, [&](int64_t i, auto io) {
    const auto a = io.Load(d, x + i);
    const auto b = io.Load(d, x + pairs + i);
    const auto c = io.Load(d, cosine + i);
    const auto s = hn::Mul(io.Load(d, sine + i), hn::Set(d, sign));
    io.Store(d, TurnedA(a, b, c, s), y + i);
    io.Store(d, TurnedB(a, b, c, s), y + pairs + i);
  });
}

HWY_INLINE void LoadPairs(const float* x, Vector& a, Vector& b) {
  hn::LoadInterleaved2(F32Tag(), x, a, b);
}
HWY_INLINE void StorePairs(Vector a, Vector b, float* y, bool /*native*/) {
  hn::StoreInterleaved2(a, b, F32Tag(), y);
}

// A pair of bf16 is one 32-bit word.
HWY_INLINE void LoadPairs(const BFloat16* x, Vector& a, Vector& b) {
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const auto word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x));
  a = hn::BitCast(d, hn::ShiftLeft<16>(word));
  b = hn::BitCast(d, hn::And(word, hn::Set(du, 0xffff0000u)));
}
HWY_INLINE void StorePairs(Vector a, Vector b, BFloat16* y, bool native) {
#if HWY_TARGET == HWY_AVX3
  const hn::Repartition<uint16_t, F32Tag> d16;
  hn::StoreU(RoundPairToBF16(a, b, native), d16,
             reinterpret_cast<uint16_t*>(y));
#else
  (void)native;
  const F32Tag d;
  const hn::RebindToUnsigned<F32Tag> du;
  const auto low = hn::PromoteTo(du, RoundToBF16(d, a));
  const auto high = hn::PromoteTo(du, RoundToBF16(d, b));
  hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), du,
             reinterpret_cast<uint32_t*>(y));
#endif
}

template <typename T>
void TurnNeighbours(const T* x, const float* cosine, const float* sine,
                    float sign, int64_t pairs, T* y, bool native) {
  const F32Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto turn = [&](const T* from, int64_t i, int64_t count, T* to) {
    auto a = hn::Zero(d);
    auto b = a;
    LoadPairs(from, a, b);
    const auto c = LoadF32N(d, cosine + i, count);
    const auto s = hn::Mul(LoadF32N(d, sine + i, count), hn::Set(d, sign));
    StorePairs(TurnedA(a, b, c, s), TurnedB(a, b, c, s), to, native);
  };
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    turn(x + 2 * i, i, lanes, y + 2 * i);
  }
  if (i == pairs) return;
  HWY_ALIGN T buffer[2 * hn::MaxLanes(d)] = {};
  std::copy(x + 2 * i, x + 2 * pairs, buffer);
  turn(buffer, i, pairs - i, buffer);
  std::copy(buffer, buffer + 2 * (pairs - i), y + 2 * i);
}

template <typename T>
void Turn(const TurnArgs& args, const Exec& exec) {
  const int64_t heads = args.x.dim(1);
  const int64_t width = args.x.dim(2);
  const int64_t pairs = args.turns.dim(2);
  const float sign = args.backward ? -1.0f : 1.0f;
  const bool native = RoundsNatively(exec);
  // Both halves of every head begin at a cache line.
  const bool streams =
      !args.interleaved && width == 2 * pairs &&
      StreamsRows(args.y.pointer, args.x.dim(0) * heads * 2, pairs, sizeof(T));
  exec.pool.ParallelFor(
      args.x.dim(0), RowGrain(heads * width), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const float* cosine = args.turns.data<const float>() + t * 2 * pairs;
          const float* sine = cosine + pairs;
          for (int64_t n = 0; n < heads; ++n) {
            const T* x = args.x.data<const T>() + (t * heads + n) * width;
            T* y = args.y.data<T>() + (t * heads + n) * width;
            if (args.interleaved) {
              TurnNeighbours(x, cosine, sine, sign, pairs, y, native);
            } else if (streams) {
              TurnHalves(x, cosine, sine, sign, pairs, y,
                         StreamAccess{{native}});
            } else {
              TurnHalves(x, cosine, sine, sign, pairs, y, WholeAccess{native});
            }
            std::copy(x + 2 * pairs, x + width, y + 2 * pairs);
          }
        }
        if (streams) hwy::FlushStream();
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::rope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::rope {

ESPALIER_HWY_ROWS(TurnCpu, TurnArgs, Turn);

}  // namespace espalier::rope
#endif
